"""``ldmatrix`` and ``stmatrix``: the data that they move, and their passes through the banks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from gpulab import session
from virtualgpu import cp
from virtualgpu.cuda_errors import MisalignedAddressError
from virtualgpu.protocol import Accesses, Counters, Launch
from virtualgpu.records import KernelSource
from virtualgpu.records.access import Access

_FORMS = [
    (root, count, transposed)
    for root in ("ldmatrix", "stmatrix")
    for count in (1, 2, 4)
    for transposed in (False, True)
]
RECORD = json.loads((Path(__file__).parent / "data" / "h200_matrix_rows.json").read_text(encoding="utf-8"))
OFFSETS: dict[str, list[int]] = RECORD["offsets"]
# Offset in bytes of the row of each lane.
PATTERNS: dict[str, list[int]] = OFFSETS | {
    "half a swizzle": [128 * lane + 16 * (lane % 4) for lane in range(32)],
    "later matrices": [16 * lane if lane < 16 else 128 * lane for lane in range(32)],
}


def kernel(root: str, count: int, transposed: bool) -> str:
    names = [f"r[{n}]" for n in range(count)]
    opcode = f"{root}.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
    registers = ",".join(f"%{n}" for n in range(count))
    if root == "ldmatrix":
        outputs = ", ".join(f'"=r"({name})' for name in names)
        move = f'asm volatile("{opcode} {{{registers}}}, [%{count}];" : {outputs} : "r"(row) : "memory");'
    else:
        inputs = ", ".join(f'"r"({name})' for name in names)
        move = f'asm volatile("{opcode} [%{count}], {{{registers}}};" :: {inputs}, "r"(row) : "memory");'
    return f"""extern "C" __global__ void k(const int* offsets, unsigned* words, unsigned* registers) {{
        __shared__ __align__(128) unsigned tile[2048];
        int lane = threadIdx.x;
        for (int i = lane; i < 2048; i += 32) tile[i] = words[i];
        __syncwarp();
        unsigned row = (unsigned)__cvta_generic_to_shared(tile) + offsets[lane];
        unsigned r[4];
        for (int n = 0; n < 4; ++n) r[n] = registers[n * 32 + lane];
        {move}
        __syncwarp();
        for (int n = 0; n < 4; ++n) registers[n * 32 + lane] = r[n];
        for (int i = lane; i < 2048; i += 32) words[i] = tile[i];
    }}"""


def elements_of(register: int, transposed: bool) -> list[tuple[int, int, int]]:
    """Lane, row in the tile and column of each element in a register (PTX ISA, figures of ldmatrix)."""
    result = []
    for lane in range(32):
        for half in range(2):
            first, second = lane // 4, 2 * (lane % 4) + half
            row, column = (second, first) if transposed else (first, second)
            result.append((2 * lane + half, 8 * register + row, column))
    return result


@pytest.mark.parametrize(("root", "count", "transposed"), _FORMS)
def test_elements_move_between_rows_and_lanes(root: str, count: int, transposed: bool) -> None:
    rng = np.random.default_rng(0)
    offsets = PATTERNS["swizzle 128"]
    words = rng.integers(0, 1 << 16, 4096).astype(np.uint16)
    registers = rng.integers(0, 1 << 16, (4, 64)).astype(np.uint16)
    expected_words, expected_registers = words.copy(), registers.copy()
    for register in range(count):
        for position, row, column in elements_of(register, transposed):
            index = offsets[row] // 2 + column
            if root == "ldmatrix":
                expected_registers[register, position] = words[index]
            else:
                expected_words[index] = registers[register, position]
    on_device = cp.asarray(words.view(np.uint32)), cp.asarray(registers.view(np.uint32).ravel())
    cp.RawKernel(kernel(root, count, transposed), "k")(
        (1,), (32,), (cp.asarray(offsets, cp.int32), *on_device)
    )
    np.testing.assert_array_equal(cp.asnumpy(on_device[0]).view(np.uint16), expected_words)
    np.testing.assert_array_equal(cp.asnumpy(on_device[1]).view(np.uint16).reshape(4, 64), expected_registers)


def passes_of(offsets: list[int], count: int) -> int:
    """Passes of the banks, matrix after matrix: the most different words in one bank."""
    total = 0
    for matrix in np.array(offsets[: 8 * count]).reshape(count, 8):
        words = np.unique(matrix[:, None] // 4 + np.arange(4))
        total += int(np.bincount(words % 32).max())
    return total


def launch(root: str, count: int, transposed: bool, offsets: list[int]) -> Launch:
    arrays: list[npt.NDArray[np.generic]] = [np.array(offsets, np.int32)]
    arrays += [np.zeros(2048, np.uint32), np.zeros(128, np.uint32)]
    on_device = tuple(session.cp().asarray(array) for array in arrays)
    return Launch.of(KernelSource("k", kernel(root, count, transposed)), 1, 32, on_device, 0)


@pytest.mark.parametrize("pattern", OFFSETS)
@pytest.mark.parametrize("form", [form for form in RECORD["passes"] if "matrix" in form])
def test_matrix_access_passes_equal_nsight_compute_on_an_h200(form: str, pattern: str) -> None:
    root, count, *modifiers = form.split(".")
    transposed = modifiers == ["trans"]
    record = session.observe(launch(root, int(count[1:]), transposed, OFFSETS[pattern]), Counters()).record
    (access,) = (a for a in record.accesses if a.text.startswith(root))
    assert access.wavefronts == RECORD["passes"][form][pattern]


def test_wide_load_passes_equal_nsight_compute_on_an_h200() -> None:
    """In contrast to ``ldmatrix``, wide loads combine lanes that read the same word."""
    for pattern, offsets in OFFSETS.items():
        cost = Access(tuple(offsets), 16, "shared").banks()
        assert cost.wavefronts == RECORD["passes"]["ld.v4"][pattern], pattern


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("root", "count", "transposed"), _FORMS)
def test_passes_are_counted_per_eight_rows(root: str, count: int, transposed: bool, pattern: str) -> None:
    offsets = PATTERNS[pattern]
    record = session.observe(launch(root, count, transposed, offsets), Counters()).record
    (access,) = (a for a in record.accesses if a.text.startswith(root))
    assert access.wavefronts == passes_of(offsets, count)
    assert access.ideal_wavefronts == count
    assert (access.requests, access.bytes_requested) == (1, 128 * count)
    assert access.kind == ("load" if root == "ldmatrix" else "store")


@pytest.mark.parametrize("root", ["ldmatrix", "stmatrix"])
def test_the_access_microscope_counts_the_same_passes(root: str) -> None:
    for offsets in PATTERNS.values():
        trace = session.observe(launch(root, 4, False, offsets), Accesses(warp=0)).record
        (index,) = (
            n for n in range(len(trace)) if trace.counters.accesses[trace.site[n]].text.startswith(root)
        )
        cost = trace.access(index).banks()
        assert (cost.wavefronts, cost.ideal_wavefronts) == (passes_of(offsets, 4), 4)


def test_a_row_that_is_not_aligned_to_16_bytes_is_an_error() -> None:
    offsets = [16 * lane for lane in range(32)]
    offsets[9] += 8
    arrays = cp.asarray(offsets, cp.int32), cp.zeros(2048, cp.uint32), cp.zeros(128, cp.uint32)
    for root in ("ldmatrix", "stmatrix"):
        cp.RawKernel(kernel(root, 1, False), "k")((1,), (32,), arrays)  # lanes 8 to 31 have no row
        with pytest.raises(MisalignedAddressError, match="16 bytes"):
            cp.RawKernel(kernel(root, 2, False), "k")((1,), (32,), arrays)
