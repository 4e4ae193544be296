"""Passes of L1 and missed requests of loads against NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from virtualgpu import cp
from virtualgpu.backend import VirtualBackend
from virtualgpu.compile import nvrtc
from virtualgpu.model import machine
from virtualgpu.protocol import Launch
from virtualgpu.records import AccessCounters

LOADS = """extern "C" __global__ void loads(const float* in, const int* offset, float* out) {
    out[threadIdx.x] = in[offset[threadIdx.x]] + in[offset[threadIdx.x] + 1];
}"""
LANES = np.arange(32)
PATTERNS = {
    "words": LANES,
    "every fourth word": 4 * LANES,
    "lines": 32 * LANES,
    "lines in different columns": 36 * LANES,
    "rows of a fragment": LANES // 4 * 16 + LANES % 4,
    "rows of a fragment, padded": LANES // 4 * 36 + LANES % 4,
    "two rows": LANES // 16 * 512 + LANES % 16,
    "scattered": np.random.default_rng(1).permutation(2048)[:32] * 4,
    "backwards": 31 - LANES,
}


def passes(words: npt.NDArray[np.int64]) -> int:
    """Return the passes of L1 beyond those that the pieces of 16 bytes would need in any case."""
    pieces = np.unique(words // 4)
    columns = np.bincount(pieces % 8, minlength=8)
    return int(columns.max() - -(-len(pieces) // 8))


def loads_of(words: npt.NDArray[np.int64]) -> list[AccessCounters]:
    kernel = cp.RawKernel(LOADS, "loads")
    arguments = (cp.zeros(1 << 13, "float32"), cp.asarray(words.astype(np.int32)), cp.zeros(32, "float32"))
    finished = VirtualBackend(machine.current()).prepared(Launch.of(kernel, (1,), (32,), arguments)).run()
    assert finished.result.counters is not None
    return [access for access in finished.result.counters.accesses if access.kind == "load"][1:]


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", PATTERNS)
def test_line_passes_and_missed_requests_of_access_patterns(name: str) -> None:
    words = PATTERNS[name]
    first, second = loads_of(words)
    assert first.requests == second.requests == 1
    has_new_sectors = bool(np.setdiff1d((words + 1) // 8, words // 8).size)
    assert (first.missed_requests, second.missed_requests) == (1, has_new_sectors)
    is_ordered = bool((np.diff(words) >= 0).all())
    assert first.line_passes == pytest.approx(passes(words), abs=0 if is_ordered else 2)
    if is_ordered:  # otherwise, sectors count as if they were in different halves of lines
        assert first.half_lines == len(np.unique(words // 16))
