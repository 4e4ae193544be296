"""The fragment view: its table, sentences and plots against the record and against a tile of known layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import traitlets

import gpulab as gl
from gpulab import cp, session
from gpulab.views import FragmentView
from gpulab.views.fragments import picture
from gpulab.views.fragments.fragment_text import make_cell_texts
from gpulab.views.parts.items import Labels, Rects
from tests.engine.test_fragments import TILE, WMMA
from virtualgpu.compile import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
RNG = np.random.default_rng(3)
A = RNG.integers(-7, 8, (16, 64)).astype(np.float16)
B = RNG.integers(-7, 8, (16, 8)).astype(np.float16)


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        yield


def tile_view(*options: str, **chosen: Any) -> FragmentView:
    args = (cp.asarray(A), cp.asarray(B), cp.zeros(128, cp.float32))
    return gl.fragments(cp.RawKernel(TILE, "k", options=options), 1, 32, args, **chosen)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(TILE.splitlines(), 1) if text in line)


def test_the_table_lists_multiplications_first_and_counts_passes() -> None:
    view = tile_view()
    cells = {row.cells[2]: row.cells[3:] for row in view.rows}
    assert view.rows[0].instruction.role == "multiply"
    assert cells["ldmatrix x4"] == ("4", "32", "4")
    assert cells["ldmatrix x2 transposed"] == ("4", "2", "2")
    assert [row.is_wasteful for row in view.rows].count(True) == 1
    assert f"bank conflicts on line {line_of('        LOAD_X4')}" in repr(view)
    swizzled = tile_view("-DSWIZZLE")
    assert not any(row.is_wasteful for row in swizzled.rows)
    assert "conflict" not in repr(swizzled)
    assert repr(view).endswith("executed on virtual A100-SXM4-80GB.")


def test_a_selected_element_has_its_value_register_and_address() -> None:
    view = tile_view("-DSWIZZLE")
    view.execution, view.matrix, view.lane, view.element = 2, 0, 13, 5
    # PTX: element 5 of A is a(g, 2t + 1 + 8), in the upper half of register 2. The tile stores vector v of
    # row r at v ^ r % 8, in rows of 128 bytes.
    row, column = 13 // 4, 2 * (13 % 4) + 1 + 8
    text = view.describe()
    assert f"a ({row}, {column}) = {A[row, 32 + column]:g}: lane 13, register 2 (" in text
    assert "bits 16 to 31" in text
    start = min(int(load.address[0].min()) for load in view.rows[1].executions)
    address = start + 128 * row + 16 * ((4 + column // 8) ^ row) + column % 8 * 2
    assert f"loaded from byte {address} of shared memory, bank {address // 4 % 32}." in text
    assert "Lane 13 (group 3, position 1) holds a (3, 2), (3, 3), (11, 2), (11, 3), (3, 10)" in text


def test_the_accumulator_input_is_the_previous_result() -> None:
    view = tile_view()
    view.execution, view.matrix = 1, 2
    first = A[0, :16].astype(float) @ B[:, 0].astype(float)
    second = first + A[0, 16:32].astype(float) @ B[:, 0].astype(float)
    assert f"d (0, 0) = {second:g}, before {first:g}: lane 0" in view.describe()


def test_cells_show_the_chosen_values_registers_or_addresses() -> None:
    view = tile_view()
    execution = view.chosen
    matrix = view.trace.of(execution).matrices[1]
    where = [*zip(matrix.row.ravel().tolist(), matrix.column.ravel().tolist(), strict=True)]
    texts = make_cell_texts(execution, 1, matrix, "value")
    assert [text.splitlines()[0] for text in texts] == [f"{B[position]:g}" for position in where]
    execution.bits[1][0, :2] = (0x3D00, 0xBD00)  # halves
    rounded = make_cell_texts(execution, 1, matrix, "value")[:2]
    assert [text.split("\n") for text in rounded] == [["1.25", "≈1", "…"], ["-1.25", "≈-1", "…"]]
    held = make_cell_texts(execution, 1, matrix, "held")
    # PTX: b(k, n) is in lane 4n + (k % 8) / 2, in register k / 8.
    assert held == [f"{4 * n + k % 8 // 2}·{k // 8}\n{4 * n + k % 8 // 2}" for k, n in where]
    addresses = [int(text.splitlines()[0]) for text in make_cell_texts(execution, 1, matrix, "address")]
    assert [address - min(addresses) for address in addresses] == [16 * k + 2 * n for k, n in where]


@pytest.mark.parametrize(("options", "conflicts"), [((), 28), (("-DSWIZZLE",), 0)])
def test_memory_labels_and_frames_show_rows_and_bank_conflicts(
    options: tuple[str, ...], conflicts: int
) -> None:
    view = tile_view(*options, line=line_of("        LOAD_X4"))
    execution = view.chosen
    runs = picture.find_byte_runs(view.trace, execution)
    assert sum(run.is_conflict for run in runs) == conflicts
    base = min(run.address for run in runs)
    for run in runs:
        matrix, row = map(int, re.match(r"m(\d) (\d): 0–7", run.text).groups())  # type: ignore[union-attr]
        tile_row, vector = row + 8 * (matrix % 2), matrix // 2
        vector ^= tile_row % 8 if options else 0
        assert (run.address - base, run.size_bytes) == (128 * tile_row + 16 * vector, 16)
        if run.is_conflict:
            assert f"pass {8 * matrix + row + 1}" in run.text
    box = picture.draw_memory(view.trace, execution)
    assert box is not None
    cells = next(item for item in box.items if isinstance(item, Rects) and item.say)
    assert len(cells.x0) == 256
    labels = [text for item in box.items if isinstance(item, Labels) for text in item.text]
    assert {run.text for run in runs} <= set(labels)


def test_each_matrix_of_a_load_is_in_its_own_register() -> None:
    view = tile_view(line=line_of("        LOAD_X4"))
    matrices = view.trace.of(view.chosen).matrices
    for number, matrix in enumerate(matrices):
        view.matrix = number
        assert f"register {number} ({matrix.registers[0]})" in view.describe()
        assert make_cell_texts(view.chosen, number, matrix, "held")[5].startswith(f"5·{number}\n")


def test_ordinary_accesses_show_their_lanes() -> None:
    view = tile_view(line=line_of("tile[PLACE(i / 8"))
    view.lane = 9
    assert view.chosen_row.cells[2] == "shared store, 16 B"
    (start,) = (int(text) for text in re.findall(r"Lane 9 accesses bytes (\d+) to", view.describe()))
    first = min(int(address) for address in view.chosen.lane_address.ravel())
    assert start - first == 16 * 9
    assert "in pass 2" in view.describe()


def test_wmma_has_a_note_about_real_gpus() -> None:
    def view_of_wmma() -> FragmentView:
        halves = cp.ones((16, 16), cp.float16)
        return gl.fragments(
            cp.RawKernel(WMMA, "k"), 1, 64, (halves, halves, cp.zeros((2, 16, 16), "f4")), warp=1
        )

    view = view_of_wmma()
    assert "wmma" in view.caption
    assert "assum" in view.caption
    assert "wmma" not in tile_view().caption
    assert "warp 1 of block 0: 1 multiplication" in repr(view)
    (load,) = (row for row in view.rows if "load b" in row.cells[2])
    assert load.cells[4:] == ("–", "–")
    with session.on_device("virtual:H200"):
        caption = view_of_wmma().caption
    assert "recorded on an H200" in caption
    assert "assum" not in caption


def test_fragments_show_the_instructions_of_the_selected_device() -> None:
    code = r"""
    extern "C" __global__ void k(float* d) {
        float s[4] = {};
    #if __CUDA_ARCH__ >= 800
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3},{%4,%4,%4,%4},{%4,%4},{%0,%1,%2,%3};"
            : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "r"(0x3C003C00));
    #else
        for (int i = 0; i < 2; ++i)
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                "{%0,%1,%2,%3},{%4,%4},{%4},{%0,%1,%2,%3};"
                : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "r"(0x3C003C00));
    #endif
        for (int i = 0; i < 4; ++i) d[32 * i + threadIdx.x] = s[i];
    }"""
    for device, name, executed in (("virtual:T4", "m16n8k8", "2"), ("virtual:A100", "m16n8k16", "1")):
        with session.on_device(device):
            view = gl.fragments(cp.RawKernel(code, "k"), 1, 32, (cp.zeros(128, cp.float32),))
            (row,) = view.rows
            assert row.cells[2].startswith(f"mma {name},")
            assert row.cells[3] == executed
            assert view.trace.values(row.executions[-1], "d").tolist() == [[16.0] * 8] * 16


def test_a_warp_without_matrix_instructions_is_an_error_with_a_remedy() -> None:
    code = 'extern "C" __global__ void k(int* x) { x[threadIdx.x] = 1; }'
    with pytest.raises(ValueError, match=r"no matrix instruction.*`warp`"):
        gl.fragments(cp.RawKernel(code, "k"), 1, 32, (cp.zeros(32, cp.int32),))
    with pytest.raises(ValueError, match="max_steps"):
        tile_view(max_steps=20)
    with pytest.raises(ValueError, match=rf"line 2 .*\b{line_of('        LOAD_X4')}\b"):
        tile_view(line=2)


def test_invalid_selections_are_refused_or_clamped() -> None:
    view = tile_view()
    for trait, values in {"lane": (-1, 32), "row": (-1,), "shown": ("colour",), "element": (-1,)}.items():
        for value in values:
            with pytest.raises(traitlets.TraitError, match=trait):
                setattr(view, trait, value)
    view.row = view.execution = view.matrix = view.element = 1000
    assert view.png()[:4] == b"\x89PNG"
    assert view.describe()


def test_launch_fragments_use_the_arguments_from_before_the_launch() -> None:
    args = (cp.asarray(A), cp.asarray(B), cp.zeros(128, cp.float32))
    run = gl.launch(cp.RawKernel(TILE, "k"), 1, 32, args)
    args[0].fill(0)
    view = run.fragments(line=line_of("        LOAD_X2"))
    assert view.chosen_row.line == line_of("        LOAD_X2")
    view.row = 0
    np.testing.assert_array_equal(view.record.values(view.chosen, "a"), A[:, :16])
    assert not args[0].get().any()
