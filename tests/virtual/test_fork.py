"""A forked process that uses the GPU raises the same error as with CUDA."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

FORK = """
import os, sys
from virtualgpu import cp
{before}
pid = os.fork()
if pid == 0:
    try:
        x = cp.arange(4)
        print("child", int(x.sum()), flush=True)
    except Exception as error:
        print("child", getattr(error, "status", None), error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print("parent", int(cp.arange(5).sum()))
"""


def run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def test_a_fork_after_device_use_raises_cudas_error_in_the_child() -> None:
    child, parent = run(FORK.format(before="y = cp.ones(3)"))
    assert child.startswith("child 3 cudaErrorInitializationError")
    assert "spawn" in child
    assert parent == "parent 10"


def test_a_fork_before_device_use_works_in_the_child() -> None:
    assert run(FORK.format(before="cp.cuda.Device()")) == ["child 6", "parent 10"]
