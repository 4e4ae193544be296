"""Instrumented PTX, executed by the virtual GPU: the same results, and probes that report correctly."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpulab import session
from tests.recordings.masks import visits
from tools.corpus import Case, find_case
from tools.recordings import Recording, compute_digest
from tools.recordings.record import copy_arguments
from virtualgpu.compile import instrument, nvrtc
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.engine import TraceRequest
from virtualgpu.errors import PtxError
from virtualgpu.launch.prepare import PreparedLaunch

# The two dialects of NVRTC's PTX: up to 9.0, and from 10.0 on.
TARGETS = (75, 90, 100)
# With branches, loops, several exits, barriers, shared memory, votes, structures and calls.
KERNELS = (
    *("bitonic_sort", "block_sum", "collatz", "four_ways", "gcd", "histogram", "library_functions", "life"),
    *("matmul_tiled", "maze", "params", "saxpy", "softmax", "tile_sum", "vote", "warp_sum"),
)
Prepare = Callable[[Case, str, Sequence[Any]], PreparedLaunch]


@functools.cache
def ptx_of(name: str, target: int) -> str:
    return nvrtc.compile_ptx(find_case(name).code, target=target, options=nvrtc.CUPY_OPTIONS).ptx


@pytest.mark.parametrize(
    ("name", "target"),
    [(name, 90) for name in KERNELS]
    + [(name, target) for name in ("collatz", "maze", "params", "warp_sum") for target in (75, 100)],
)
def test_block_probes_keep_results_and_record_every_block(
    h200: Recording, name: str, target: int, prepare_ptx: Prepare
) -> None:
    c = find_case(name)
    cp = session.cp()
    arguments = c.make_args(h200.seed)
    values = copy_arguments(arguments, cp)
    buffer = cp.asarray(instrument.make_block_buffer(c.blocks))
    probed = instrument.instrument_blocks(ptx_of(name, target), c.kernel)
    prepare_ptx(c, probed.ptx, (*values, buffer)).run()
    if c.exact:
        digests = [compute_digest(cp.asnumpy(values[position])) for position in arguments.outputs]
        assert digests == [output.sha256 for output in h200.cases[name].outputs]
    block, start, end, sm_id = instrument.read_blocks(buffer.get())
    assert block.tolist() == list(range(c.blocks))
    assert np.all(start <= end)
    assert np.all(end != 0)
    assert np.all((sm_id >= 0) & (sm_id < 132))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["four_ways", "maze", "bitonic_sort", "life"])
def test_warp_probes_agree_with_the_engines_trace(name: str, target: int, prepare_ptx: Prepare) -> None:
    c = find_case(name)
    cp = session.cp()
    ptx = ptx_of(name, target)
    probed = instrument.instrument_warp(ptx, c.kernel)
    buffer = cp.asarray(instrument.make_warp_buffer((1, 0, 0), 1, 5_000))
    values = copy_arguments(c.make_args(1), cp)
    prepare_ptx(c, probed.ptx, (*values, buffer)).run()
    _, mask, number, truncated = instrument.read_warp(buffer.get())
    assert not truncated
    request = TraceRequest((1, 0, 0), 1, 100_000)
    values = copy_arguments(c.make_args(1), cp)
    launch = prepare_ptx(c, ptx, values)
    plain = launch.run(replace(launch.options, trace=request)).result.trace
    assert plain is not None
    starts = np.array(probed.first_pc)
    assert visits(starts[number], mask) == visits(plain.pc, plain.active_mask, set(starts.tolist()))


def test_one_block_of_each_group_is_recorded(prepare_ptx: Prepare) -> None:
    c = find_case("vector_add")
    cp = session.cp()
    probed = instrument.instrument_blocks(ptx_of("vector_add", 90), c.kernel)

    def recorded(sampled: int) -> tuple[list[int], list[int]]:
        buffer = cp.asarray(instrument.make_block_buffer(c.blocks, sampled=sampled))
        prepare_ptx(c, probed.ptx, (*copy_arguments(c.make_args(1), cp), buffer)).run()
        block, start, end, sm_id = instrument.read_blocks(buffer.get())
        assert np.all(start <= end)
        return block.tolist(), sm_id.tolist()

    every, sm_of = recorded(1)
    assert every == list(range(40))
    for sampled in (4, 8):
        blocks, sms = recorded(sampled)
        assert [block // sampled for block in blocks] == list(range(40 // sampled))
        assert len({block % sampled for block in blocks}) > 2
        assert sms == [sm_of[block] for block in blocks]
    assert len(recorded(64)[0]) <= 1  # the chosen block may not exist
    with pytest.raises(ValueError, match="power of two"):
        instrument.make_block_buffer(10, sampled=3)


@pytest.mark.parametrize("sampled", [2, 4, 8, 64])
@pytest.mark.parametrize("sms", [108, 128, 132, 132 * 16, 148 * 8])
def test_sampled_blocks_are_spread_evenly_over_the_sms(sampled: int, sms: int) -> None:
    """Blocks are assigned to the SMs in turn; each SM must have its share at every sampling rate."""
    blocks = instrument.find_recorded_blocks((1 << 20) // sampled, sampled)
    shares = np.bincount(blocks % sms, minlength=sms) * sampled / (1 << 20) * sms
    assert shares.min() > 0.5
    assert shares.max() < 1.5
    on_sms = np.bincount(blocks % sms % 132 if sms > 148 else blocks % sms)
    assert on_sms.std() / on_sms.mean() < 0.1


def test_full_buffer_counts_but_does_not_write_past_its_end(prepare_ptx: Prepare) -> None:
    c = find_case("maze")
    cp = session.cp()
    probed = instrument.instrument_warp(ptx_of("maze", 90), c.kernel)
    words = instrument.make_warp_buffer((0, 0, 0), 0, 4)
    buffer = cp.asarray(np.concatenate([words, np.full(8, 77, np.uint64)]))
    values = copy_arguments(c.make_args(1), cp)
    prepare_ptx(c, probed.ptx, (*values, buffer)).run()
    after = buffer.get()
    assert after[0] > 4
    assert after[words.size :].tolist() == [77] * 8
    _, mask, _, truncated = instrument.read_warp(after[: words.size])
    assert truncated
    assert mask.size == 4


def test_added_parameter_name_does_not_clash() -> None:
    code = """extern "C" __global__ void gpulab_k(int* gpulab_buffer) { gpulab_buffer[threadIdx.x] = 1; }"""
    ptx = nvrtc.compile_ptx(code, target=90).ptx
    probed = instrument.instrument_blocks(ptx, "gpulab_k").ptx
    function = parse(probed).functions["gpulab_k"]
    assert len(function.params) == 2
    assert function.params[1].name not in ptx


@pytest.mark.parametrize("header", ["hello()", "__launch_bounds__(128, 2) hello()"])
@pytest.mark.parametrize("target", TARGETS)
def test_kernel_without_parameters_gets_a_buffer_parameter(header: str, target: int) -> None:
    ptx = nvrtc.compile_ptx(find_case("hello").code.replace("hello()", header), target=target).ptx
    for trace in (instrument.instrument_blocks, instrument.instrument_warp):
        function = parse(trace(ptx, "hello").ptx).functions["hello"]
        assert [(p.type, p.offset) for p in function.params] == [("u64", 0)]
        assert function.max_threads == (128 if "bounds" in header else 0)


def test_every_exit_has_a_probe() -> None:
    code = r"""
    extern "C" __global__ void leave(int* x) {
        asm volatile("{ .reg .pred q; setp.eq.u32 q, %0, 3; @q ret; }" :: "r"(threadIdx.x));
        asm volatile("{ .reg .pred q; setp.eq.u32 q, %0, 5; @!q exit; }" :: "r"(threadIdx.x));
        x[threadIdx.x] = 3;
    }"""
    ptx = nvrtc.compile_ptx(code, target=90).ptx
    exits = len(re.findall(r"\b(?:ret|exit)\s*;", ptx))
    probed = instrument.instrument_blocks(ptx, "leave").ptx
    assert exits == 3
    assert probed.count("red.global.max.u64") == exits
    code = parse(probed).functions["leave"].instructions
    for i, instruction in enumerate(code):
        if instruction.root in ("ret", "exit"):
            assert any(before.opcode == "red.global.max.u64" for before in code[max(0, i - 2) : i])


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(PtxError, match=r"nothing.*vector_add"):
        instrument.instrument_blocks(ptx_of("vector_add", 90), "nothing")


def test_ptx_version_is_lowered_only_if_needed() -> None:
    ptx = ".version 9.5\n.target sm_90\n"
    assert instrument.lower_version(ptx, (9, 0)) == ".version 9.0\n.target sm_90\n"
    assert instrument.lower_version(ptx, (9, 5)) == ptx
    assert instrument.lower_version(ptx, (10, 1)) == ptx
