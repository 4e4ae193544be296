"""Shuffles whose lanes are known before the kernel runs, and those whose lanes are not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.engine.ptx_runner import launch
from virtualgpu.engine.machine import jit
from virtualgpu.engine.run import program

MODES = ("up", "down", "bfly", "idx")
# The number of lanes to go, and the segments and the bound of a lane's number, as PTX packs them.
ASKED = [(1, 0x001F), (16, 0x001F), (0, 0x0000), (3, 0x1807), (5, 0x181F), (31, 0x1000), (34, 0x0A1F)]
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
{"""
FIRST = """
.reg .b32 %r<60>; .reg .b64 %d<4>; .reg .pred %p<20>; .reg .f32 %f<4>;
ld.param.u64 %d1, [k_param_0];
ld.param.u64 %d2, [k_param_1];
mov.u32 %r1, %tid.x;
"""


@pytest.fixture(params=["whole", "in passing"])
def _translated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    program._compile_kernel_for_processor.cache_clear()
    if request.param == "in passing":
        monkeypatch.setattr(jit, "_QUICK_FIRST_LIMIT_S", -1.0)
        monkeypatch.setattr(jit, "_is_stored", lambda *_: False)
    yield
    program._compile_kernel_for_processor.cache_clear()


def asked_of(mode: str, delta: int, control: int) -> tuple[list[int], list[int]]:
    """Whose value each lane gets, and whether it is the one that it asked for (PTX ISA, shfl.sync)."""
    sources = []
    fits_of_lanes = []
    step = delta & 31
    bound = control & 31
    segments = control >> 8 & 31
    for lane in range(32):
        first = lane & segments
        last = first | (bound & ~segments)
        indexed = first | (step & ~segments)
        j = {"up": lane - step, "down": lane + step, "bfly": lane ^ step, "idx": indexed}[mode]
        fits = j >= last if mode == "up" else j <= last
        fits_of_lanes.append(int(fits))
        sources.append(j if fits else lane)
    return sources, fits_of_lanes


@pytest.mark.usefixtures("_translated")
@pytest.mark.parametrize(("delta", "control"), ASKED)
def test_constant_and_loaded_shuffle_lanes_have_equal_results(delta: int, control: int) -> None:
    lines = [
        "mad.lo.u32 %r2, %r1, 7, 100;",
        "ld.global.u32 %r3, [%d1];",
        "ld.global.u32 %r4, [%d1+4];",
        f"mov.u32 %r5, {delta};",
        f"mov.u32 %r6, {control};",
        "mul.wide.u32 %d3, %r1, 96;",
        "add.u64 %d3, %d3, %d2;",
    ]
    for n, mode in enumerate(MODES):
        shuffle = f"shfl.sync.{mode}.b32"
        r = 10 + 10 * n
        p = 4 * n
        lines += [
            f"{shuffle} %r{r}|%p{p}, %r2, {delta}, {control}, -1;",
            f"{shuffle} %r{r + 1}|%p{p + 1}, %r2, %r3, %r4, -1;",
            f"{shuffle} %r{r + 2}, %r2, %r5, %r6, -1;",
            f"{shuffle} %r{r + 3}|%p{p + 2}, %r2, %r3, %r4, -1;",  # nobody reads that predicate
            f"selp.u32 %r{r + 4}, 1, 0, %p{p};",
            f"selp.u32 %r{r + 5}, 1, 0, %p{p + 1};",
            *(f"st.global.u32 [%d3+{24 * n + 4 * k}], %r{r + k};" for k in range(6)),
        ]
    ptx = "\n".join([HEAD, FIRST, *lines, "ret;", "}"])
    _, out = launch(ptx, "k", [np.array([delta, control], np.uint32), np.zeros((32, 4, 6), np.uint32)])
    for n, mode in enumerate(MODES):
        sources, result = asked_of(mode, delta, control)
        values = [7 * lane + 100 for lane in sources]
        for k in range(4):
            assert out[:, n, k].tolist() == values, (mode, k)
        assert out[:, n, 4].tolist() == out[:, n, 5].tolist() == result, mode


@pytest.mark.usefixtures("_translated")
@pytest.mark.parametrize("threads", [64, 40])
def test_shuffles_wait_for_late_lanes(threads: int) -> None:
    """Each lane first runs a different number of iterations. The last warp can be incomplete."""
    ptx = f"""{HEAD}{FIRST}
    mul.wide.u32 %d3, %r1, 4;
    add.u64 %d3, %d3, %d2;
    and.b32 %r2, %r1, 7;
    mov.u32 %r3, 0;
    mov.u32 %r5, -1;
AGAIN:
    add.u32 %r3, %r3, %r2;
    sub.u32 %r2, %r2, 1;
    setp.gt.s32 %p1, %r2, 0;
    @%p1 bra AGAIN;
    shfl.sync.bfly.b32 %r4, %r3, 1, 31, %r5;
    st.global.u32 [%d3], %r4;
    ret;
}}"""
    zero = np.zeros(1, np.uint32)
    _, out = launch(ptx, "k", [zero, np.zeros(64, np.uint32)], block=threads)
    steps = np.arange(threads) % 8
    sums = np.maximum(steps * (steps + 1) // 2, 0)
    assert out[:threads].tolist() == sums[np.arange(threads) ^ 1].tolist()
    assert not out[threads:].any()


def test_a_register_is_constant_only_if_written_once() -> None:
    ptx = f"""{HEAD}{FIRST}
    setp.gt.u32 %p1, %r1, 15;
    mov.u32 %r2, 7;
    @%p1 mov.u32 %r2, 9;
    mov.u32 %r3, 5;
    mov.f32 %f1, 0f40000000;
    mov.b32 %f2, 0x40400000;
    mov.u32 %r4, 1;
    mov.u32 %r5, 3;
    bar.sync 0;
    add.u32 %r4, %r4, %r2;
    mul.f32 %f3, %f1, %f2;
    cvt.rzi.u32.f32 %r6, %f3;
    mul.lo.u32 %r7, %r2, %r3;
    add.u32 %r7, %r7, %r6;
    add.u32 %r7, %r7, %r4;
    mul.lo.u32 %r7, %r7, %r5;
    mul.wide.u32 %d3, %r1, 4;
    add.u64 %d3, %d3, %d2;
    st.global.u32 [%d3], %r7;
    ret;
}}"""
    _, out = launch(ptx, "k", [np.zeros(1, np.uint32), np.zeros(32, np.uint32)])
    assert out.tolist() == [3 * (5 * n + 6 + 1 + n) for n in [7] * 16 + [9] * 16]
