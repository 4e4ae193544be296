"""The access microscope: patterns compared with a written tile, and the view with its record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import traitlets

import gpulab as gl
from gpulab import cp, session
from gpulab.views import AccessMicroscope
from gpulab.views.access import picture
from gpulab.views.parts.boxes import Box
from virtualgpu.records.access import AccessPattern, AccessTrace

TRANSPOSE = r"""
extern "C" __global__ void transpose(const float* in, float* out, int n)
{
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = threadIdx.y;
    for (int j = 0; j < 32; j += 8) tile[y + j][threadIdx.x] = in[(y + j) * n + x];
    __syncthreads();
    for (int j = 0; j < 32; j += 8) out[(blockIdx.x * 32 + y + j) * 32 + threadIdx.x] =
        tile[threadIdx.x][y + j];
    if (threadIdx.y == 7 && threadIdx.x < 5)
        atomicAdd(&out[threadIdx.x / 2], 1.0f);
}
"""


@pytest.fixture(autouse=True, scope="module")
def virtual() -> Any:
    gl.use_device("virtual:T4")
    yield
    session.use_device("auto")


def transposed(**options: Any) -> AccessMicroscope:
    args = (cp.ones(64 * 64, np.float32), cp.zeros(64 * 64, np.float32), np.int32(64))
    return gl.access(cp.RawKernel(TRANSPOSE, "transpose"), 2, (32, 8), args, **options)


@pytest.mark.parametrize("seed", range(12))
def test_patterns_address_the_right_elements_of_a_tile(seed: int) -> None:
    """Memory contains the rows of the tile one after the other, with padding and swizzled columns."""
    rng = np.random.default_rng(seed)
    stride = int(rng.integers(0, 70))
    offset = int(rng.integers(0, 70))
    padding = int(rng.integers(0, 5))
    swizzle = bool(rng.integers(2))
    size = int(rng.choice([1, 2, 4, 8, 16]))
    memory = np.full(100 * (32 + padding), -1)
    for row in range(100):
        for column in range(32):
            place = column ^ (row & 31) if swizzle else column
            memory[row * (32 + padding) + place] = 32 * row + column
    places = AccessPattern(stride, offset, size, padding, swizzle).find_lane_offsets()
    assert [memory[place // size] for place in places] == [offset + stride * lane for lane in range(32)]


@pytest.mark.parametrize(
    ("pattern", "sectors", "useful", "passes"),
    [
        (AccessPattern(), 4, 1, 1),
        (AccessPattern(offset=1), 5, 0.8, 1),
        (AccessPattern(stride=2), 8, 0.5, 2),
        (AccessPattern(stride=32), 32, 0.125, 32),
        (AccessPattern(stride=32, padding=1), 32, 0.125, 1),
        (AccessPattern(stride=32, swizzle=True), 32, 0.125, 1),
        (AccessPattern(stride=0), 1, 0.125, 1),
        (AccessPattern(element_bytes=16), 16, 1, 4),
        (AccessPattern(stride=33, element_bytes=1), 32, 1 / 32, 9),
    ],
)
def test_sectors_and_wavefronts_of_textbook_patterns(
    pattern: AccessPattern, sectors: int, useful: float, passes: int
) -> None:
    cost = pattern.access().memory()
    assert (cost.sectors, cost.useful) == (sectors, pytest.approx(useful))
    if pattern.element_bytes != 1:
        assert pattern.access("shared").banks().wavefronts == passes


def test_the_sliders_change_the_description() -> None:
    view = gl.access(stride=2)
    assert "8 sectors per request (at best 4), 50 % of the fetched bytes useful" in repr(view)
    assert "2-way bank conflict" in repr(view)
    view.stride = 32
    view.padding = 1
    assert "32 sectors" in repr(view)
    assert "no bank conflict" in repr(view)
    assert view.record == AccessPattern(32, padding=1)
    view.space = "global"
    assert "bank" not in repr(view).replace("banks", "")
    assert view.access is not None
    assert view.access.memory().sectors == 32
    assert len(view.describe().splitlines()) == 1 + 1 + 32
    assert view.png()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("pattern_fields", "message"),
    [
        ({"element_bytes": 3}, "1, 2, 4, 8 or 16"),
        ({"stride": -1}, "0 to 4,096"),
        ({"stride": 1.5}, "integer number"),
        ({"padding": 33}, "0 to 32"),
        ({"space": "banks"}, "'both', 'global', 'shared'"),
    ],
)
def test_impossible_patterns_are_refused(pattern_fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gl.access(**pattern_fields)


def test_out_of_range_slider_values_are_refused() -> None:
    view = AccessMicroscope(AccessPattern())
    for trait, values in {"stride": (-1, 4097), "padding": (-1, 33), "lane": (-1, 32), "row": (-1,)}.items():
        for value in values:
            with pytest.raises(traitlets.TraitError, match=trait):
                setattr(view, trait, value)
    view.close()


def test_a_kernels_accesses_are_listed_worst_first() -> None:
    view = transposed()
    assert isinstance(view.record, AccessTrace)
    assert view.rows[0].line == 9
    assert "the worst is a shared load, 4 B on line 9: 32 passes per request, at best 1" in repr(view)
    assert repr(view).endswith("executed on virtual T4.")
    assert view.access is not None
    assert view.access.banks().ways == 32
    counted = {(a.line, a.space, a.kind): a for a in view.record.counters.accesses}
    assert len(view.rows) == len(counted) == 5


def test_a_line_and_a_warp_can_be_selected() -> None:
    view = transposed(line=11, warp=7, block_index=1)
    assert view.rows[view.row].line == 11
    assert view.access is not None
    assert view.access.lanes == (0, 1, 2, 3, 4)
    assert view.access.memory().sectors == 2, "the most wanted word is wanted by two lanes"
    assert "warp 7 of block 1" in view.caption
    nothing = transposed(line=11)
    assert nothing.access is None
    assert "did not make this access" in str(nothing.draw())
    assert nothing.png()
    with pytest.raises(ValueError, match="accesses: 6, 8, 9, 11"):
        transposed(line=3)
    with pytest.raises(ValueError, match="warps are 0 to 7"):
        transposed(warp=8)


def test_the_access_of_a_kernel_can_be_edited() -> None:
    view = transposed()
    view.edited = True
    view.stride = 32
    view.padding = 1
    assert view.access is not None
    assert (view.access.space, view.access.banks().ways) == ("shared", 1)
    view.edited = False
    assert view.access.banks().ways == 32
    view = transposed(line=11, warp=7)
    view.edited = True
    view.stride = 8
    view.element_bytes = 8
    assert view.access is not None
    assert view.access.lanes == (0, 1, 2, 3, 4), "lanes that took no part still do not"


def test_a_long_trace_is_truncated_with_a_note() -> None:
    code = """extern "C" __global__ void k(volatile float* x) {
    #pragma unroll 1
    for (int i = 0; i < 5000; ++i) x[threadIdx.x * 2] = x[threadIdx.x * 2] + i; }"""
    view = gl.access(cp.RawKernel(code, "k"), 1, 32, (cp.zeros(64, np.float32),))
    assert view.caption.endswith("The warp continued after the steps that are shown.")
    assert view.record.truncated
    assert view.rows[0].requests.size > 1000
    assert len(view.html()) < 3_000_000


def test_constant_memory_needs_one_pass_per_word() -> None:
    code = """__constant__ float c[256];
    extern "C" __global__ void k(float* o, int s) { o[threadIdx.x] = c[threadIdx.x / s]; }"""
    for step, passes in ((1, 32), (4, 8), (32, 1)):
        view = gl.access(cp.RawKernel(code, "k"), 1, 32, (cp.zeros(32, np.float32), np.int32(step)))
        (row,) = (index for index, row in enumerate(view.rows) if row.cells[2].startswith("const"))
        view.row = row
        assert view.access is not None
        assert view.access.constant_passes == passes
        assert f"{passes} pass" in view.describe()
        assert view.rows[row].cells[4] == view.rows[row].cells[7] == "–"
        assert view.png()


def test_a_kernel_without_accesses_is_displayed() -> None:
    view = gl.access(cp.RawKernel('extern "C" __global__ void idle() {}', "idle"), 1, 32)
    assert "none" in repr(view)
    assert view.png()


def _rects(box: Box) -> list[dict[str, Any]]:
    return [item.wire() for item in box.items if item.kind == "rects"]


@pytest.mark.parametrize("seed", range(6))
def test_the_drawn_areas_equal_the_counts(seed: int) -> None:
    """The areas are useful bytes and fetched sectors on the left, and words and passes on the right."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 40, 3).tolist()
    size = (1, 2, 4, 8, 16, 4)[seed]
    access = AccessPattern(numbers[0], numbers[1], size, numbers[2] % 3, bool(seed % 2)).access()
    say = [""] * 32
    fetched, _, lanes = _rects(picture.draw_memory(access, say))
    cost = access.memory()
    assert len(fetched["x0"]) == cost.touched_sectors
    x0, x1, y0, y1 = (np.array(lanes[name]) for name in ("x0", "x1", "y0", "y1"))
    area = ((x1 - x0) * (y1 - y0)).sum()
    high = fetched["y1"][0] - fetched["y0"][0]
    assert area / high == pytest.approx(cost.bytes_useful)
    first, extra, _ = _rects(picture.draw_banks(access, say))
    banks = access.banks()
    assert len(first["x0"]) + len(extra["x0"]) == 32 * banks.passes
    assert len(extra["x0"]) == 32 * (banks.wavefronts - banks.ideal_wavefronts)
