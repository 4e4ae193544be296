"""Parts of a launch: a device's limits, copies of arguments, and PTX without a source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.compile import nvrtc
from virtualgpu.compile.cubin import KernelResources
from virtualgpu.compile.ptx import ir
from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.launch import compiled, limits
from virtualgpu.launch.compiled import check_registers_fit
from virtualgpu.launch.copies import ArgumentCopies, count_array_bytes, make_placeholders
from virtualgpu.launch.launch import Launch, kernel_source
from virtualgpu.launch.params import pack_arguments
from virtualgpu.launch.ptx_module import load_ptx_module
from virtualgpu.launch.signature import SourceParam
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.records import Dim3, KernelSource, KernelStats, Provenance

pytestmark = pytest.mark.usefixtures("machine")

# Limits -------------------------------------------------------------------------------------------------

STATS = KernelStats(
    provenance=Provenance("modelled", "H200"),
    name="k",
    target="sm_90",
    registers_per_thread=80,
    static_shared_bytes=1000,
    local_bytes=0,
    constant_bytes=0,
    max_threads_per_block=768,
)


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((2**31 - 1, 65535, 65535), (1024, 1, 1), ""),
        ((1, 1, 1), (1, 1024, 1), ""),
        ((1, 1, 1), (16, 1, 64), ""),
        ((2**31, 1, 1), (1, 1, 1), "grid.x is 2,147,483,648 blocks, but the .* at most 2,147,483,647"),
        ((1, 65536, 1), (1, 1, 1), "grid.y is 65,536 blocks"),
        ((1, 1, 65536), (1, 1, 1), "grid.z is 65,536 blocks"),
        ((1, 1, 1), (1, 1, 65), "block.z is 65 threads, but the .* at most 64"),
        ((1, 1, 1), (8, 1, 128), "block.z is 128 threads"),  # 1,024 threads in all, which by itself is well
        ((1, 1, 1), (1025, 1, 1), "1,025 threads, but the .* at most 1,024"),
        ((1, 1, 1), (32, 33, 1), "1,056 threads"),
        ((65536, 65536, 1), (2048, 1, 1), "grid.y"),
    ],
)
def test_launch_shapes_at_and_above_the_device_limits(grid: Dim3, block: Dim3, message: str) -> None:
    info = device_info("H200")
    if not message:
        limits.check_shape(info, grid, block)
        return
    with pytest.raises(CUDADriverError, match=message) as error:
        limits.check_shape(info, grid, block)
    assert error.value.status == 1


@pytest.mark.parametrize(
    ("bound", "block", "status"),
    [
        (None, (768, 1, 1), 0),
        (768, (768, 1, 1), 0),
        (256, (16, 16, 1), 0),
        (256, (257, 1, 1), 1),
        (None, (769, 1, 1), 701),
        (1024, (32, 5, 5), 701),
        (0, (1, 1, 1), 1),
    ],
)
def test_block_sizes_at_and_above_the_kernel_limits(bound: int | None, block: Dim3, status: int) -> None:
    if not status:
        limits.check_kernel(device_info("H200"), STATS, bound, block)
        return
    with pytest.raises(CUDADriverError) as error:
        limits.check_kernel(device_info("H200"), STATS, bound, block)
    assert error.value.status == status


def test_static_shared_memory_counts_towards_the_devices_limit() -> None:
    info = device_info("H200")  # 232,448 bytes, of which the kernel has 1,000
    limits.check_shared(info, STATS, 231_448, None)
    for opted in (None, 300_000):
        with pytest.raises(CUDADriverError, match="may use 231,448 in addition to its 1,000 static bytes"):
            limits.check_shared(info, STATS, 231_449, opted)


def test_a_cooperative_grid_must_fit_on_the_device() -> None:
    limits.check_cooperative(device_info("H200"), 264, 264)
    with pytest.raises(CUDADriverError, match=r"265 blocks, but the .* can hold 264") as error:
        limits.check_cooperative(device_info("H200"), 265, 264)
    assert error.value.status == 720


@pytest.mark.parametrize(
    ("registers", "bound", "threads"),
    [
        (32, None, 1024),
        (64, None, 1024),
        (65, None, 896),
        (128, None, 512),
        (255, None, 256),
        (32, 100, 100),
        (255, 1024, 256),
        (32, 2048, 1024),
    ],
)
def test_max_block_threads_depend_on_registers_and_bounds(
    registers: int, bound: int | None, threads: int
) -> None:
    """65,536 registers, allocated per warp in units of 256, with equal warps in four partitions."""
    resources = KernelResources(registers, 0, 0, 0, bound)
    assert compiled.compute_max_block_threads(device_info("H200"), resources) == threads


# Copies -------------------------------------------------------------------------------------------------


def _values(array: Any, like: Any) -> np.ndarray:
    """Return the bytes at a contiguous argument's address with the dtype and shape of `like`."""
    raw = array.get().tobytes()[: like.nbytes]
    return np.frombuffer(raw, like.dtype).reshape(like.shape)


@pytest.mark.parametrize("keep_contents", [False, True])
def test_argument_copies_keep_contents_and_overlaps(keep_contents: bool) -> None:
    base = cp.arange(20, dtype=cp.float32)
    other = cp.arange(6, dtype=cp.int64).reshape(2, 3)
    args = (base[4:12], np.int32(7), other, base[8:], base[:2])
    host = [a.get() if isinstance(a, cp.ndarray) else a for a in args]
    assert count_array_bytes(args, cp) == 16 * 4 + 2 * 4 + 6 * 8
    copies = ArgumentCopies(args, cp, keep_contents=keep_contents)
    if keep_contents:
        base[:] = -1
        other[:] = -1
    duplicates = copies.copy_to(cp)
    assert duplicates[1] is args[1]
    for position in (0, 2, 3, 4):
        assert duplicates[position].data.ptr != args[position].data.ptr
        np.testing.assert_array_equal(_values(duplicates[position], host[position]), host[position])
    assert duplicates[3].data.ptr - duplicates[0].data.ptr == args[3].data.ptr - args[0].data.ptr == 16
    assert (duplicates[2].dtype, duplicates[2].shape) == (other.dtype, (2, 3))
    inside = range(duplicates[0].data.ptr, duplicates[0].data.ptr + 64)
    assert duplicates[4].data.ptr not in inside  # it touches no other argument


def test_copies_of_strided_arguments_include_the_gaps() -> None:
    base = cp.arange(12, dtype=cp.int32)
    steps = base[1:10:3]
    assert count_array_bytes((steps,), cp) == 7 * 4
    (copy,) = ArgumentCopies((steps,), cp).copy_to(cp)
    assert np.frombuffer(copy.get().tobytes(), np.int32).tolist() == [1, 2, 3, 4, 5, 6, 7]
    backwards = base[8:2:-2]
    assert count_array_bytes((backwards,), cp) == 5 * 4
    (copy,) = ArgumentCopies((backwards,), cp).copy_to(
        cp
    )  # its address is that of its first element, which lies last
    assert np.frombuffer(copy.get().tobytes(), np.int32).tolist() == [8]
    table = base.reshape(3, 4)
    assert count_array_bytes((table[:, 1:3], table.T), cp) == 12 * 4
    assert count_array_bytes((table[:, 1:3],), cp) == (2 * 4 + 2) * 4
    assert count_array_bytes((cp.zeros(0), 5, None), cp) == 0
    assert count_array_bytes((base[:4], base[4:]), cp) == count_array_bytes((base, base), cp) == 48
    first, second = ArgumentCopies((base[:4], base[4:]), cp).copy_to(cp)  # neighbours that share no byte
    assert (first.shape, second.shape) == ((4,), (8,))


def test_placeholders_have_dtypes_and_shapes() -> None:
    stand_ins = make_placeholders((cp.zeros((2, 3), cp.int16), 5, np.float32(1)), cp, cp)
    assert (stand_ins[0].shape, stand_ins[0].dtype, stand_ins[1:]) == ((2, 3), np.int16, (5, np.float32(1)))


# Arguments ----------------------------------------------------------------------------------------------


def test_arrays_have_the_names_of_their_parameters() -> None:
    x = cp.zeros(4, cp.float32)
    y = cp.zeros(2, cp.float32)
    params = [ir.Param(name, "u64", 8 * n, 8, 8) for n, name in enumerate("abcd")]
    source = [SourceParam(name, "float*", "float32") for name in ("x", "same", "y", "none")]
    packed = pack_arguments(
        "k", params, 32, source, (x, x[:2], y, cp.zeros(0, cp.float32)), slot.current().current_device
    )
    assert packed.names == {x.data.ptr: "x", y.data.ptr: "y"}
    assert packed.arrays == {x.data.ptr: 16, y.data.ptr: 8}
    assert np.frombuffer(packed.buffer, np.uint64).tolist() == [x.data.ptr, x.data.ptr, y.data.ptr, 0]


def test_name_expressions_are_read_from_the_pickled_function() -> None:
    """Functions of CuPy's RawModule store their name expressions only in the pickled state."""

    class Kernel:
        name = "twice<int>"
        code = "template ..."
        options = ("-DA",)

        def __init__(self, state: object) -> None:
            self.state = state

        def __getstate__(self) -> object:
            return self.state

    for state, expressions in (({"name_expressions": ["a", "b"]}, ("a", "b")), ({}, ()), ((1, 2), ())):
        source = kernel_source(Kernel(state))
        assert source == KernelSource("twice<int>", "template ...", ("-DA",), expressions)
    named = KernelSource("twice<int>", "template ...")
    assert kernel_source(named).name_expressions == ("twice<int>",)
    assert kernel_source(replace(named, name_expressions=("twice<int>",))).name_expressions == ("twice<int>",)


# PTX without a source -----------------------------------------------------------------------------------

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.const .align 4 .b8 table[12];
.const .align 8 .b8 more[8];
.shared .align 2 .b8 small[10];
.shared .align 8 .b8 box[16];
.shared .align 4 .b8 unused[400];
.extern .shared .align 16 .b8 dynamic[];
.func leaf(.param .b64 p)
{
    .reg .b64 %rd<9>;
    .reg .b32 %r<2>;
    .local .align 8 .b8 depot[24];
    ld.param.u64 %rd1, [p];
    add.s64 %rd2, %rd1, 1;
    add.s64 %rd3, %rd1, 2;
    add.s64 %rd4, %rd1, 3;
    mov.u32 %r1, box;
    st.shared.u64 [%r1], %rd2;
    st.shared.u64 [%r1], %rd3;
    st.shared.u64 [%r1], %rd4;
    ret;
}
.func middle(.param .b64 p)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    { .param .b64 q; st.param.b64 [q], %rd1; call.uni leaf, (q); }
    ret;
}
.visible .entry far(.param .u64 x)
.maxntid 96, 2, 1
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<4>;
    .reg .pred %p<3>;
    .shared .align 4 .b8 own[6];
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, small;
    mov.u32 %r2, dynamic;
    st.shared.u32 [%r1], %r2;
    { .param .b64 q; st.param.b64 [q], %rd1; call.uni middle, (q); }
    ret;
}
.visible .entry near(.param .u64 x)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<4>;
    .reg .b16 %h<2>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, 1;
    mov.u16 %h1, 3;
    setp.eq.s32 %p1, %r1, 2;
    setp.eq.s32 %p2, %r1, 3;
    @%p1 st.global.u32 [%rd1], %r1;
    @%p2 st.global.u16 [%rd1], %h1;
    ret;
}
"""


def test_resources_of_ptx_include_called_functions() -> None:
    module = load_ptx_module(PTX)
    assert module.target == 90
    assert set(module.resources) == {"far", "near"}
    far = module.resources["far"]
    near = module.resources["near"]
    # box lies on a multiple of 8 behind small; of unused and of dynamic nothing counts.
    assert far.static_shared_bytes == 10 + 6 + 16 + 6
    assert near.static_shared_bytes == 0
    assert (far.local_bytes, near.local_bytes) == (24, 0)
    assert far.constant_bytes == near.constant_bytes == 12 + 4 + 8
    # leaf holds three numbers of 64 bits and an address of 32; near one of 64, one of 32 and one of 16.
    assert far.registers_per_thread == 7 + 4
    assert near.registers_per_thread == 4 + 4
    assert (far.launch_bound_threads, near.launch_bound_threads) == (192, None)


def many_values(count: int) -> str:
    """Return PTX of a kernel with so many live values."""
    loads = "".join(f"    ld.global.u32 %r{n}, [%rd1+{4 * n}];\n" for n in range(count))
    sums = "".join(f"    add.u32 %r0, %r0, %r{n};\n" for n in range(1, count))
    return f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x)
{{
    .reg .b64 %rd<2>;
    .reg .b32 %r<{count}>;
    ld.param.u64 %rd1, [x];
{loads}{sums}    st.global.u32 [%rd1+{4 * count}], %r0;
    ret;
}}
.visible .entry other(.param .u64 x) {{ ret; }}
"""


def test_an_estimated_register_count_never_refuses_a_launch() -> None:
    module = cp.cuda.function.Module()
    module.load(many_values(100).encode())
    kernel = module.get_function("k")
    assert kernel.stats.registers_per_thread > 100
    assert kernel.stats.max_threads_per_block == 1024
    x = cp.arange(101, dtype="uint32")
    kernel((1,), (1024,), (x,))
    assert int(x[100]) == 99 * 100 // 2
    info = device_info("A100")
    resources = module.compiled.resources["k"]
    fits = check_registers_fit(info, resources, 1024, 0)
    assert (fits.blocks_per_sm, fits.registers_per_thread) == (1, 64)
    assert "estimated" in fits.provenance.label
    assert check_registers_fit(info, resources, 128, 0).registers_per_thread == resources.registers_per_thread
    assert check_registers_fit(info, replace(resources, estimated=False), 1024, 0).blocks_per_sm == 0


# Cooperative launches -----------------------------------------------------------------------------------


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
def test_a_cooperative_grid_shrinks_to_the_resident_blocks() -> None:
    code = """#include <cooperative_groups.h>
    extern "C" __global__ void count(int* out) {
        atomicAdd(out, 1);
        cooperative_groups::this_grid().sync();
        if (threadIdx.x == 0) out[1 + blockIdx.x] = out[0];
    }"""
    kernel = cp.RawKernel(code, "count", enable_cooperative_groups=True)
    out = cp.zeros(300, cp.int32)
    kernel((3,), (32,), (out,))
    assert out.get()[:5].tolist() == [96, 96, 96, 96, 0]
    out[:] = 0
    with pytest.warns(UserWarning, match="reduced from 250 to 216"):
        kernel((250,), (1024,), (out,))  # 108 SMs of two blocks each
    assert out.get()[:218].tolist() == [216 * 1024] * 217 + [0]
    with pytest.raises(ValueError, match=r"\(125 \* 2 \* 1\) exceeds the limit \(216\)"):
        kernel((125, 2), (1024,), (out,))
    assert Launch.of(kernel, 1, 32, (out,)).grid == (1, 1, 1)
