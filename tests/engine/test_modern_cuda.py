"""CUDA C++ beyond the basics: headers, cooperative groups, asynchronous copies, tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.ptx_runner import launch
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import LaunchFailure

pytestmark = [
    pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed"),
    pytest.mark.skipif(
        nvrtc.is_available() and not nvrtc.find_include_options(), reason="the CUDA headers are not installed"
    ),
]

HEAD = 'extern "C" __global__ void k'


def run(code: str, *arrays: np.ndarray, grid: int = 1, block: int = 32, target: int = 80) -> list[np.ndarray]:
    return launch(nvrtc.compile_ptx(code, target=target).ptx, "k", arrays, grid, block)


@pytest.mark.parametrize("target", [75, 80, 90, 100])
def test_half_precision_header(target: int) -> None:
    code = (
        "#include <cuda_fp16.h>\n"
        + HEAD
        + """(const __half* a, __half* out) {
        int i = threadIdx.x;
        __half2 pair = __halves2half2(a[i], __hadd(a[i], a[i]));
        pair = __hfma2(pair, pair, pair);
        out[i] = __hadd(__low2half(pair), __high2half(pair));
    }"""
    )
    a = np.linspace(-2, 2, 32, dtype=np.float16)
    _, out = run(code, a, np.zeros_like(a), target=target)
    twice = a + a

    def fused(x: np.ndarray) -> np.ndarray:
        wide = x.astype(np.float64)
        return (wide * wide + wide).astype(np.float16)

    np.testing.assert_array_equal(out, fused(a) + fused(twice))


def test_bfloat16_header() -> None:
    code = (
        "#include <cuda_bf16.h>\n"
        + HEAD
        + """(const float* a, float* out) {
        __nv_bfloat16 h = __float2bfloat16(a[threadIdx.x]);
        out[threadIdx.x] = __bfloat162float(__hfma(h, h, h));
    }"""
    )
    a = np.arange(32, dtype=np.float32)
    _, out = run(code, a, np.zeros_like(a))
    exact = a * a + a
    np.testing.assert_allclose(out, exact, rtol=2**-8)


def test_standard_library() -> None:
    code = (
        "#include <cuda/std/array>\n#include <cuda/atomic>\n"
        + HEAD
        + """(int* total, int* out) {
        cuda::std::array<int, 4> items{1, 2, 3, 4};
        int sum = 0;
        for (int item : items) sum += item * threadIdx.x;
        cuda::atomic_ref<int, cuda::thread_scope_device>(*total).fetch_add(sum, cuda::memory_order_relaxed);
        out[threadIdx.x] = sum;
    }"""
    )
    total, out = run(code, np.zeros(1, np.int32), np.zeros(32, np.int32))
    np.testing.assert_array_equal(out, 10 * np.arange(32))
    assert total[0] == out.sum()


def test_cooperative_groups() -> None:
    code = """#include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    #include <cooperative_groups/scan.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void k(int* sums, int* ranks, int* sizes) {
        int t = threadIdx.x;
        auto warp = cg::tiled_partition<32>(cg::this_thread_block());
        sums[t] = cg::reduce(cg::tiled_partition<8>(warp), t, cg::plus<int>());
        ranks[t] = cg::inclusive_scan(warp, 1);
        sizes[t] = cg::labeled_partition(warp, t % 3).size();
        if (t % 4 == 1) {
            auto group = cg::coalesced_threads();
            sizes[t] = 100 * group.size() + group.shfl(group.thread_rank(), 2);
        }
    }"""
    zeros = np.zeros(64, np.int32)
    sums, ranks, sizes = run(code, zeros, zeros, zeros, block=64)
    t = np.arange(64)
    np.testing.assert_array_equal(sums, (t // 8 * 8)[:, None].repeat(8, 1).sum(1) + 28)
    np.testing.assert_array_equal(ranks, t % 32 + 1)
    thirds = [sum(1 for u in range(32) if (u + 32 * (v // 32)) % 3 == v % 3) for v in t]
    np.testing.assert_array_equal(sizes, np.where(t % 4 == 1, 802, thirds))


def test_calls_through_pointers_and_virtual_functions() -> None:
    code = """
    struct Base { int n; __device__ virtual int get() const { return n; } };
    struct Twice : Base { __device__ int get() const override { return 2 * n; } };
    __device__ __noinline__ int add(int a, int b) { return a + b; }
    __device__ __noinline__ int sub(int a, int b) { return a - b; }
    extern "C" __global__ void k(int* flags, int* out) {
        int t = threadIdx.x;
        int (*f)(int, int) = flags[t] ? add : sub;
        Base base; Twice twice;
        base.n = t; twice.n = t;
        const Base* object = flags[t] ? &base : static_cast<const Base*>(&twice);
        out[t] = 1000 * f(t, 1) + object->get();
    }"""
    flags = (np.arange(32) % 3 == 0).astype(np.int32)
    _, out = run(code, flags, np.zeros(32, np.int32))
    t = np.arange(32)
    expected = np.where(flags, 1000 * (t + 1) + t, 1000 * (t - 1) + 2 * t)
    np.testing.assert_array_equal(out, expected)


def test_freeing_twice_is_reported() -> None:
    code = HEAD + "(int* out) { void* p = malloc(8); free(p); free(p); out[0] = 1; }"
    with pytest.raises(LaunchFailure, match="already been freed"):
        run(code, np.zeros(1, np.int32), block=1)


def test_groups_of_several_warps_sync_in_reserved_shared_memory() -> None:
    code = """#include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void k(int* x, int* sums) {
        __shared__ cg::block_tile_memory<256> memory;
        __shared__ int s[256];
        auto block = cg::this_thread_block(memory);
        auto tile = cg::tiled_partition<64>(block);
        int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
        sums[i] = cg::reduce(tile, v, cg::plus<int>());
        for (int turn = 0; turn < 4; ++turn) {
            s[threadIdx.x] = v;
            tile.sync();
            v = s[(threadIdx.x & ~63) | ((threadIdx.x + 33) & 63)] + turn;
            tile.sync();
        }
        x[i] = v;
    }"""
    x = np.random.default_rng(0).integers(0, 1000, 1024).astype(np.int32)
    out, sums = run(code, x, np.zeros_like(x), grid=4, block=256)
    tiles = x.reshape(-1, 64)
    np.testing.assert_array_equal(sums, tiles.sum(1).repeat(64))
    np.testing.assert_array_equal(out, (np.roll(tiles, -4 * 33, axis=1) + 6).ravel())


WIDE = {
    "v / 1000003u": lambda v, w: v // 1000003,
    "v / w": lambda v, w: v // w,
    "v % w": lambda v, w: v % w,
    "v / (((wide)7 << 70) + 5)": lambda v, w: v // ((7 << 70) + 5),
    "(v << 3) - v * w + ~v": lambda v, w: (v << 3) - v * w + ~v,
}


@pytest.mark.parametrize("expression", WIDE)
def test_integers_of_128_bits(expression: str) -> None:
    """Their division adds the carry flag of a subtraction, which is set if there was no borrow."""
    code = (
        "typedef unsigned __int128 wide;"
        + HEAD
        + f"""(const unsigned long long* a, unsigned long long* out) {{
        int t = threadIdx.x;
        wide v = (wide)a[t] * a[(t + 1) % 64], w = a[63 - t] >> (t % 48);
        v = {expression};
        out[2 * t] = (unsigned long long)v;
        out[2 * t + 1] = (unsigned long long)(v >> 64);
    }}"""
    )
    a = np.random.default_rng(3).integers(1 << 60, 1 << 63, 64).astype(np.uint64)
    ptx = nvrtc.compile_ptx(code, target=80, options=("--device-int128",)).ptx
    _, out = launch(ptx, "k", [a, np.zeros(128, np.uint64)], 1, 64)
    numbers = a.tolist()
    for t in range(64):
        v = numbers[t] * numbers[(t + 1) % 64]
        w = numbers[63 - t] >> (t % 48)
        expected = WIDE[expression](v, w) % (1 << 128)
        assert (int(out[2 * t + 1]) << 64 | int(out[2 * t])) == expected
