"""Count what one ``gl.launch`` cell passes through: files, functions and changes of room of ours.

Every call of a function of ``gpulab`` or ``virtualgpu`` is seen by ``sys.setprofile``. A change of room is a
call from another folder, library code in between left out of account.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import gpulab as gl

ROOT = Path(__file__).resolve().parent.parent
CODE = """extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}"""


def hops(work: Callable[[], object]) -> tuple[int, int, int]:
    """Distinct files, distinct functions, and changes of room while `work` runs."""
    functions: set[tuple[str, str, int]] = set()
    changes = 0

    def ours(frame: FrameType | None) -> str:
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith((f"{ROOT}/gpulab/", f"{ROOT}/virtualgpu/")):
                return name
            frame = frame.f_back
        return ""

    def see(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal changes
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith((f"{ROOT}/gpulab/", f"{ROOT}/virtualgpu/")):
            return
        functions.add((name, frame.f_code.co_qualname, frame.f_code.co_firstlineno))
        caller = ours(frame.f_back)
        changes += bool(caller) and Path(caller).parent != Path(name).parent

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len({name for name, *_ in functions}), len(functions), changes


def main() -> None:
    """Print the hops of a first launch, of a second one, and of one with its picture."""
    cp = gl.use_device("virtual:A100").cp
    a, b, c = (cp.zeros(1024, cp.float32) for _ in range(3))
    kernel = cp.RawKernel(CODE, "add")
    for what, work in (
        ("cold launch", lambda: gl.launch(kernel, 4, 256, (a, b, c, np.int32(1024)))),
        ("launch", lambda: gl.launch(kernel, 4, 256, (a, b, c, np.int32(1024)))),
        ("launch and picture", lambda: gl.launch(kernel, 4, 256, (a, b, c, np.int32(1024))).png()),
    ):
        print("{}: {} files, {} functions, {} changes of room".format(what, *hops(work)))


if __name__ == "__main__":
    main()
