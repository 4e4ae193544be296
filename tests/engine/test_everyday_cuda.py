"""What learners write beyond the course's kernels, against NumPy or Python: classes, bits, lists, text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine.ptx_runner import apply, launch
from virtualgpu.compile import nvrtc
from virtualgpu.errors import NotSupportedError

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
headers = pytest.mark.skipif(
    nvrtc.is_available() and not nvrtc.find_include_options(), reason="the CUDA headers are not installed"
)

HEAD = 'extern "C" __global__ void k'
RNG = np.random.default_rng(12)
INTS = RNG.integers(-1000, 1000, 256).astype(np.int32)
WORDS = RNG.integers(0, 1 << 32, 256, np.uint64).astype(np.uint32)
FLOATS = RNG.standard_normal(256).astype(np.float32)
LANE = np.arange(256)


def run(
    code: str, *arrays: npt.NDArray[Any], grid: int = 1, block: int = 256, target: int = 90, **options: Any
) -> list[npt.NDArray[Any]]:
    return launch(nvrtc.compile_ptx(code, target=target).ptx, "k", arrays, grid, block, **options)


def zeros(count: int, dtype: Any = np.int32) -> npt.NDArray[Any]:
    return np.zeros(count, dtype)


def test_classes_with_bases_operators_and_destructors() -> None:
    code = """
    class Base {
    protected:
        int v;
    public:
        __device__ Base(int v) : v(v) {}
        __device__ ~Base() { v = -1; }
        __device__ Base& operator+=(int more) { v += more; return *this; }
        __device__ operator int() const { return v; }
    };
    class Derived : public Base {
        int w;
    public:
        __device__ Derived(int v) : Base(v), w(2 * v) {}
        __device__ int sum() const { return v + w; }
        static __device__ int square(int v) { return v * v; }
    };
    template <class... T> __device__ auto total(T... values) { return (values + ...); }
    extern "C" __global__ void k(int* a) {
        Derived d(a[threadIdx.x]);
        d += 3;
        int three[3] = {1, 2, 3};
        auto [x, y, z] = three;
        a[threadIdx.x] = total(d.sum(), Derived::square(int(d) & 7), x, y, z);
    }"""
    (out,) = run(code, INTS)
    np.testing.assert_array_equal(out, INTS + 3 + 2 * INTS + ((INTS + 3) & 7) ** 2 + 6)


def test_switches_that_fall_through_and_jump_into_loops() -> None:
    code = """extern "C" __global__ void k(int* a, int* b) {
        int v = a[threadIdx.x], r = 0, n = threadIdx.x % 23 + 1, i = 0, s = 0;
        switch (v & 7) {
            case 0: r = 5;
            case 1: r += 2; break;
            case 2: case 3: r = 7; break;
            case 6: r = -1;
            default: r = 3 * r + 1;
        }
        switch (n % 4) {
            case 0: do { s += 3 * i; ++i;
            case 3:      s ^= 5; ++i;
            case 2:      s += i; ++i;
            case 1:      s -= 1; ++i;
                    } while (i < n);
        }
        a[threadIdx.x] = r;
        b[threadIdx.x] = s;
    }"""
    a, b = run(code, INTS, zeros(256))
    np.testing.assert_array_equal(a, np.array([7, 2, 7, 7, 1, 1, -2, 1])[INTS & 7])

    def duff(n: int) -> int:
        i = s = 0
        entry = {0: 0, 3: 1, 2: 2, 1: 3}[n % 4]
        while True:
            if entry == 0:
                s = s + 3 * i
                i = i + 1
            if entry <= 1:
                s = s ^ 5
                i = i + 1
            if entry <= 2:
                s = s + i
                i = i + 1
            s = s - 1
            i = i + 1
            entry = 0
            if i >= n:
                return s

    np.testing.assert_array_equal(b, [duff(t % 23 + 1) for t in range(256)])


def test_unions_bit_fields_and_shared_memory_by_casts() -> None:
    code = """
    struct Fields { unsigned a : 5; int b : 7; unsigned c : 20; };
    union Word { float f; unsigned u; unsigned char bytes[4]; };
    extern "C" __global__ void k(const float* x, unsigned* out, double* sums) {
        extern __shared__ __align__(16) unsigned char raw[];
        double* d = (double*)raw;
        float* f = (float*)(raw + 8 * 256);
        Fields* fields = reinterpret_cast<Fields*>(f + 256);
        int t = threadIdx.x;
        Word w;
        w.f = x[t];
        w.bytes[0] ^= 0x55;
        d[t] = 2.0 * x[t];
        f[255 - t] = w.f;
        fields[t].a = t; fields[t].b = -(t & 63); fields[t].c = 1000 * t;
        __syncthreads();
        Fields other = fields[255 - t];
        out[t] = w.u + other.a + other.b + other.c;
        sums[t] = d[255 - t] + f[t];
    }"""
    _, out, sums = run(code, FLOATS, zeros(256, np.uint32), zeros(256, np.float64), shared_bytes=16 * 256)
    flipped = FLOATS.view(np.uint32) ^ 0x55
    other = LANE[::-1]
    fields = (other & 31) - (other & 63) + 1000 * other
    np.testing.assert_array_equal(out, (flipped + fields).astype(np.uint32))
    mixed = FLOATS.astype(np.float64)[::-1] * 2 + flipped.view(np.float32)[::-1]
    np.testing.assert_array_equal(sums, mixed)


def test_bit_intrinsics_equal_python() -> None:
    code = """extern "C" __global__ void k(const unsigned* a, unsigned* o) {
        unsigned v = a[threadIdx.x], *p = o + 8 * threadIdx.x;
        p[0] = __brev(v); p[1] = __clz(v) + 100 * __ffs(v) + 10000 * __popc(v);
        p[2] = __byte_perm(v, ~v, 0x3175);
        p[3] = __funnelshift_l(v, ~v, threadIdx.x); p[4] = __funnelshift_r(v, ~v, threadIdx.x);
        p[5] = __funnelshift_lc(v, ~v, 40); p[6] = __funnelshift_rc(v, ~v, threadIdx.x & 63);
        p[7] = __vcmpgtu4(v, v >> 7) ^ __vaddus2(v, v >> 3);
    }"""
    _, out = run(code, WORDS, zeros(2048, np.uint32))
    for t, v in enumerate(WORDS.tolist()):
        pair = (v ^ 0xFFFFFFFF) << 32 | v
        pieces = pair.to_bytes(8, "little")
        bytes_of = [(n, n + 1) for n in range(4)]
        words_of = [(0, 2), (2, 4)]

        def part(value: int, span: tuple[int, int]) -> int:
            return int.from_bytes(value.to_bytes(4, "little")[slice(*span)], "little")

        greater = sum(0xFF << 8 * s[0] for s in bytes_of if part(v, s) > part(v >> 7, s))
        added = sum(min(part(v, s) + part(v >> 3, s), 0xFFFF) << 8 * s[0] for s in words_of)
        assert out[8 * t : 8 * t + 8].tolist() == [
            int(f"{v:032b}"[::-1], 2),
            32 - v.bit_length() + 100 * (v & -v).bit_length() + 10000 * v.bit_count(),
            int.from_bytes(bytes(pieces[n] for n in (5, 7, 1, 3)), "little"),
            (pair << (t & 31) >> 32) & 0xFFFFFFFF,
            (pair >> (t & 31)) & 0xFFFFFFFF,
            v,
            (pair >> min(t & 63, 32)) & 0xFFFFFFFF,
            greater ^ added,
        ]


@headers
def test_compare_and_swap_on_doubles_and_half_words() -> None:
    code = """
    __device__ double add(double* at, double v) {
        unsigned long long *p = (unsigned long long*)at, old = *p, seen;
        do {
            seen = old;
            old = atomicCAS(p, seen, __double_as_longlong(v + __longlong_as_double(seen)));
        } while (seen != old);
        return __longlong_as_double(old);
    }
    extern "C" __global__ void k(double* sum, unsigned short* quarters) {
        add(sum, 0.25 * threadIdx.x);
        unsigned short *p = quarters + (threadIdx.x & 3), old = *p, seen;
        do {
            seen = old;
            old = atomicCAS(p, seen, (unsigned short)(seen + threadIdx.x));
        } while (seen != old);
    }"""
    total, quarters = run(code, zeros(1, np.float64), zeros(4, np.uint16))
    assert total[0] == 0.25 * LANE.sum()
    np.testing.assert_array_equal(quarters, LANE.reshape(64, 4).sum(0))


def test_lists_in_shared_memory_and_objects_on_the_heap() -> None:
    code = """
    struct Node { int v; Node* next; __device__ Node(int v, Node* next) : v(v), next(next) {} };
    struct Shape { __device__ virtual int area() const = 0; __device__ virtual ~Shape() {} };
    struct Square : Shape {
        int a;
        __device__ Square(int a) : a(a) {}
        __device__ int area() const override { return a * a; }
    };
    struct Box : Shape {
        int a, b;
        __device__ Box(int a, int b) : a(a), b(b) {}
        __device__ int area() const override { return a * b; }
    };
    extern "C" __global__ void k(int* out) {
        __shared__ unsigned long long head;
        int t = threadIdx.x;
        if (t == 0) head = 0;
        __syncthreads();
        Node* mine = new Node(t, nullptr);
        mine->next = (Node*)atomicExch(&head, (unsigned long long)mine);
        Shape* s;
        if (t & 1) s = new Square(t); else s = new Box(t, 3);
        out[t] = s->area();
        delete s;
        __syncthreads();
        if (t == 0)
            for (Node* n = (Node*)head; n; ) { out[256] += n->v; Node* next = n->next; delete n; n = next; }
    }"""
    (out,) = run(code, zeros(257))
    np.testing.assert_array_equal(out[:256], np.where(LANE & 1, LANE**2, 3 * LANE))
    assert out[256] == LANE.sum()


COMPARISONS: dict[str, Any] = {
    "eq": np.equal,
    "ne": lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b),
    "lt": np.less,
    "ge": np.greater_equal,
    "gtu": lambda a, b: ~(a <= b),
    "equ": lambda a, b: ~((a < b) | (a > b)),
}


@pytest.mark.parametrize("order", COMPARISONS)
@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_packed_halves_are_compared_separately(kind: str, order: str) -> None:
    """This checks `__hgt2_mask` and similar intrinsics."""
    numbers = np.array([0, -0.0, 1, -1, 1.5, 300, np.inf, -np.inf, np.nan], np.float32)
    low, high = (n.ravel() for n in np.meshgrid(numbers, numbers))

    def packed(values: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.uint32]:
        halves = [
            v.astype(np.float16).view(np.uint16) if kind == "f16x2" else v.view(np.uint32) >> 16
            for v in values
        ]
        return halves[0].astype(np.uint32) | halves[1].astype(np.uint32) << 16

    a = packed((low, high))
    b = packed((high, np.roll(low, 1)))
    with np.errstate(invalid="ignore"):
        yes = [COMPARISONS[order](low, high), COMPARISONS[order](high, np.roll(low, 1))]
    masks = apply(f"set.{order}.u32.{kind} %out, %in0, %in1;", "u32", ("u32", "u32"), (a, b), target=90)
    np.testing.assert_array_equal(masks, yes[0] * np.uint32(0xFFFF) | yes[1] * np.uint32(0xFFFF0000))
    unit = 0x3C00 if kind == "f16x2" else 0x3F80
    ones = apply(f"set.{order}.{kind}.{kind} %out, %in0, %in1;", "u32", ("u32", "u32"), (a, b), target=90)
    np.testing.assert_array_equal(ones, yes[0] * np.uint32(unit) | yes[1] * np.uint32(unit << 16))


def test_doubles_are_rounded_once_to_half_precision() -> None:
    rng = np.random.default_rng(8)
    values = rng.standard_normal(3000) * 10.0 ** rng.integers(-9, 6, 3000)
    # Just beside half way between two numbers: a float cannot tell the side.
    halves = np.arange(0x3C00, 0x4400, 7, np.uint16).view(np.float16).astype(np.float64)
    halves = halves + np.spacing(halves.astype(np.float16)).astype(np.float64) / 2
    values = np.concatenate(
        [values, halves, halves * (1 + 2.0**-50), halves * (1 - 2.0**-50), [0.0, -0.0, np.inf]]
    )
    result = apply("cvt.rn.f16.f64 %out, %in0;", "f16", ("f64",), (values,))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result.view(np.uint16), values.astype(np.float16).view(np.uint16))
        assert (values.astype(np.float32).astype(np.float16) != values.astype(np.float16)).any()


def test_printf_formats_as_python_does_and_counts_its_arguments() -> None:
    code = (
        '__device__ const char* names[2] = {"even", "odd"};'
        + HEAD
        + r"""(int* counts) {
        int t = threadIdx.x;
        counts[2 * t] = printf("%d|%5d|%-5d|%05d|%+d|%x|%#X|%#o|%u|%c|%%|%a\n",
                               t, t, t, t, t, t, t, t, -t, 'a' + t, t * 0.75);
        counts[2 * t + 1] = printf("%s %6.2f %.*e %-8s| %lld %hd %zu\n", names[t & 1], t / 3.0, 2, 1e5 * t,
                                   "ab", -1234567890123LL * t, (short)(70000 + t), sizeof(double));
        if (t == 2) printf("hello\n");
    }"""
    )
    printed: list[str] = []
    (counts,) = run(code, zeros(6), block=3, stdout=printed.append)
    hexadecimal = ("0", "0X1", "0X2")  # as the C standard has it, of 0 too
    octal = ("0", "01", "02")
    binary = ("0x0p+0", "0x1.8p-1", "0x1.8p+0")
    first = [
        f"{t}|{t:5d}|{t:<5d}|{t:05d}|{t:+d}|{t:x}|{hexadecimal[t]}|{octal[t]}|{-t % 2**32}|{chr(97 + t)}|%|"
        f"{binary[t]}\n"
        for t in range(3)
    ]
    second = [
        f"{('even', 'odd')[t & 1]} {t / 3:6.2f} {1e5 * t:.2e} {'ab':8s}| {-1234567890123 * t} {4464 + t} 8\n"
        for t in range(3)
    ]
    assert "".join(printed) == "".join([*first, *second, "hello\n"])
    assert counts.tolist() == 3 * [11, 8]


@headers
def test_block_algorithms_of_cub() -> None:
    code = """#include <cub/block/block_radix_sort.cuh>
    #include <cub/block/block_reduce.cuh>
    #include <cub/block/block_scan.cuh>
    extern "C" __global__ void k(const int* a, int* sorted, int* sums) {
        using Reduce = cub::BlockReduce<int, 128>;
        using Scan = cub::BlockScan<int, 128>;
        using Sort = cub::BlockRadixSort<int, 128, 2>;
        __shared__ union { Reduce::TempStorage reduce; Scan::TempStorage scan; Sort::TempStorage sort; } room;
        int t = threadIdx.x, v = a[t];
        int sum = Reduce(room.reduce).Sum(v);
        __syncthreads();
        Scan(room.scan).InclusiveSum(v, v);
        sums[t] = v;
        if (t == 0) sums[128] = sum;
        __syncthreads();
        int keys[2] = {a[2 * t], a[2 * t + 1]};
        Sort(room.sort).Sort(keys);
        sorted[2 * t] = keys[0]; sorted[2 * t + 1] = keys[1];
    }"""
    _, out, sums = run(code, INTS, zeros(256), zeros(129), block=128)
    np.testing.assert_array_equal(out, np.sort(INTS))
    np.testing.assert_array_equal(sums, [*INTS[:128].cumsum(), INTS[:128].sum()])


@headers
def test_dynamic_programming_instructions() -> None:
    code = """extern "C" __global__ void k(const int* a, int* o) {
        int v = a[threadIdx.x], w = a[255 - threadIdx.x];
        bool first;
        int larger = __vibmax_s32(v, w, &first);
        o[threadIdx.x] = __viaddmax_s32(v, w, 5) + 3 * __vimax3_s32(v, w, 100) + 7 * __vimin3_s32(v, w, -3)
                       + 11 * __viaddmin_s32_relu(v, w, 50) + 13 * larger + first;
    }"""
    _, out = run(code, INTS, zeros(256))
    v = INTS
    w = INTS[::-1]
    expected = (
        np.maximum(v + w, 5) + 3 * np.maximum(np.maximum(v, w), 100) + 7 * np.minimum(np.minimum(v, w), -3)
    )
    expected += 11 * np.maximum(np.minimum(v + w, 50), 0) + 13 * np.maximum(v, w) + (v >= w)
    np.testing.assert_array_equal(out, expected)


@headers
def test_clusters_of_several_blocks_are_refused() -> None:
    code = """#include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) k(int* out) {
        auto cluster = cooperative_groups::this_cluster();
        cluster.sync();
        out[blockIdx.x] = 10 * cluster.num_blocks() + cluster.block_rank();
    }"""
    with pytest.raises(NotSupportedError, match="clusters, but k requests clusters of 2 blocks"):
        run(code.replace("BLOCKS", "2"), zeros(2), grid=2, block=32)
    (out,) = run(code.replace("BLOCKS", "1"), zeros(2), grid=2, block=32)
    assert out.tolist() == [10, 10]


def test_warps_of_a_cluster_of_one_block_wait_for_each_other() -> None:
    code = """#include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(1, 1, 1) k(int* out) {
        __shared__ int value[128];
        int t = threadIdx.x;
        value[t] = t;
        for (int round = 0; round < 4; ++round) {
            cooperative_groups::this_cluster().sync();
            int next = value[(t + 33) % 128];
            cooperative_groups::this_cluster().sync();
            value[t] = next;
        }
        out[t] = value[t];
    }"""
    (out,) = run(code, zeros(128), grid=1, block=128)
    assert out.tolist() == [(t + 4 * 33) % 128 for t in range(128)]
