"""Several GPUs: schedules and NCCL against NumPy, and ranks that die or do not come."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, get_args

import psutil
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.links import nccl
from gpulab.lab.links.schedules import ALGORITHMS
from gpulab.processes.group import ProcessGroup
from gpulab.processes.tree import find_descendants
from virtualgpu.errors import GpulabError
from virtualgpu.records.traffic.collective import Operation

pytestmark = pytest.mark.gpu

OPERATIONS = get_args(Operation)
ODD_BYTES = 4 * 100_003
LIMIT_S = 25.0


@pytest.fixture
def gpus(cp: Any) -> Iterator[int]:
    """How many there are, four at most. The stand-in for a real GPU becomes two."""
    fake = sys.modules.get("hardware")
    if fake is None:
        there = cp.cuda.runtime.getDeviceCount()
        if there < 2:
            pytest.skip("needs two GPUs of one host, and there is one")
        yield min(there, 4)
        return
    machine: Any = importlib.import_module("hardware.model.machine")
    before = machine.current()
    machine.use_device("H200", 2)
    session.use_device("auto")
    yield 2
    machine.use(before)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_results_of_schedules_equal_numpy(gpus: int, operation: str, algorithm: str) -> None:
    record = gl.collective(operation, algorithm, gpus=gpus, size_bytes=ODD_BYTES).record
    assert record.right == (True,) * gpus
    assert record.provenance.source == "measured"
    assert record.bytes_are == "computed from the moves"
    assert record.time_ns == record.in_one_go_ns > 0
    assert all(step.time_ns > step.copies_ns == 0 for step in record.steps)


def test_all_gpus_take_part_by_default(gpus: int, cp: Any) -> None:
    shown = gl.collective(size_bytes=ODD_BYTES)
    assert shown.record.gpus == cp.cuda.runtime.getDeviceCount()
    assert "in one go" in repr(shown)
    assert "measured on" in repr(shown)


def test_a_lack_of_gpus_is_reported(cp: Any) -> None:
    there = cp.cuda.runtime.getDeviceCount()
    with pytest.raises(GpulabError, match=rf"there (is|are) {there} real GPUs? here.*virtual:H200"):
        gl.collective(algorithm="nccl", gpus=there + 1)
    shown = gl.collective(gpus=there + 1, size_bytes=400)
    assert f"modelled on virtual {session.which_device().device}" in repr(shown)
    assert f"this computer has {there} of {there + 1} GPUs" in repr(shown)


@pytest.mark.hardware("no other process can reach what a virtual GPU has")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_results_of_nccl_equal_numpy(gpus: int, operation: str) -> None:
    record = gl.collective(operation, "nccl", gpus=gpus, size_bytes=ODD_BYTES).record
    assert record.right == (True,) * gpus
    assert record.provenance.source == "measured"
    assert record.bytes_are == "computed as for a ring"
    assert record.time_ns > 0


@pytest.mark.hardware("a virtual GPU's links are modelled")
def test_the_ring_has_at_least_60_percent_of_nccls_speed(gpus: int) -> None:
    """Measured with 256 MiB on two GPUs of one host that are connected by NVLink."""
    if not gl.peers().record[0, 1]:
        pytest.skip("needs two GPUs that reach each other")
    ring, library = (
        gl.collective("all-reduce", way, gpus=2, size_bytes=256 << 20).record for way in ("ring", "nccl")
    )
    assert ring.right == library.right == (True, True)
    assert library.time_ns / ring.time_ns >= 0.6


def meeting(at: Callable[[str], object], rank: int, key: tuple[list[int], bool], how: str) -> float:
    """A rank that comes to one call and not to the next one."""
    cp = session.cp()
    at("NcclCommunicator")
    comm = cp.cuda.nccl.NcclCommunicator(2, bytes(key[0]) if key[1] else tuple(key[0]), rank)
    x = cp.ones(1000, cp.float32)
    for call in ("the first allReduce", "the second allReduce"):
        if rank == 1 and call == "the second allReduce":
            at("its own affairs")
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1000)
        at(call)
        comm.allReduce(x.data.ptr, x.data.ptr, 1000, 7, 0, 0)
        cp.cuda.Device().synchronize()
    return float(x[0])


@pytest.mark.hardware("no other process can reach what a virtual GPU has")
@pytest.mark.parametrize("how", ["dies", "does not come"])
def test_a_missing_rank_is_reported_and_all_ranks_end(gpus: int, how: str) -> None:
    gl.collective("all-reduce", "nccl", gpus=2, size_bytes=400)  # what starts processes stays
    before = set(find_descendants(os.getpid()))
    begun = time.monotonic()
    with pytest.raises(GpulabError) as error, ProcessGroup(["cuda:0", "cuda:1"], LIMIT_S) as ranks:
        ranks.ask(meeting, ranks.ask(nccl._make_nccl_id)[0], how)
    said = str(error.value)
    assert "ank 0 is in the second allReduce" in said
    if how == "dies":
        assert "Rank 1 failed in its own affairs: it crashed Python (SIGKILL)" in said
        assert time.monotonic() - begun < LIMIT_S
    else:
        assert "rank 1 is in its own affairs" in said
        assert f"Not finished after {LIMIT_S:g} s" in said
    until = time.monotonic() + 10
    while (left := set(find_descendants(os.getpid())) - before) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in left if psutil.pid_exists(pid)]
    # And the GPUs serve the next ones.
    assert gl.collective("all-reduce", "nccl", gpus=2, size_bytes=400).record.right == (True, True)
