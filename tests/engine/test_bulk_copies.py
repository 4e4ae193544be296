"""Bulk copies inside a block and mbarriers that count bytes, as devices from sm_90 on have them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import KernelFault
from virtualgpu.errors import NotSupportedError
from virtualgpu.sanitizer.findings import PENDING_COPY

pytestmark = pytest.mark.skipif(
    not nvrtc.is_available() or not nvrtc.find_include_options(),
    reason="NVRTC or the CUDA headers are not installed",
)
NEWEST = ("virtual:H100", "virtual:B200")
HEADERS = "#include <cuda/barrier>\n#include <cooperative_groups.h>\n"
GROUPS = """
extern "C" __global__ void NAME(const float4* a, float4* b) {
    __shared__ alignas(16) float4 s[256];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    auto block = cooperative_groups::this_thread_block();
    if (block.thread_rank() == 0) init(&bar, block.size());
    block.sync();
    COPY
    WAIT
    b[blockIdx.x * 256 + threadIdx.x] = s[255 - threadIdx.x];
}"""
COPIES = {
    "group": "cuda::memcpy_async(block, s, a + blockIdx.x * 256, sizeof(float4) * 256, bar);",
    "group, aligned": "cuda::memcpy_async(block, s, a + blockIdx.x * 256, "
    "cuda::aligned_size_t<16>(sizeof(float4) * 256), bar);",
    "thread": "cuda::memcpy_async(&s[threadIdx.x], &a[blockIdx.x * 256 + threadIdx.x], sizeof(float4), bar);",
    "thread, aligned": "cuda::memcpy_async(&s[threadIdx.x], &a[blockIdx.x * 256 + threadIdx.x], "
    "cuda::aligned_size_t<16>(sizeof(float4)), bar);",
}
WAITS = ("bar.arrive_and_wait();", "block.sync();")


@functools.cache
def groups() -> cp.RawModule:
    """All forms, waited for and not: their headers take NVRTC a second each time."""
    kernels = [
        GROUPS.replace("NAME", f"k{n}_{waits}").replace("COPY", copy).replace("WAIT", wait)
        for n, copy in enumerate(COPIES.values())
        for waits, wait in zip((1, 0), WAITS, strict=True)
    ]
    return cp.RawModule(code=HEADERS + "".join(kernels), options=("--std=c++17",))


def group(form: str, *, waits: bool) -> Any:
    return groups().get_function(f"k{[*COPIES].index(form)}_{int(waits)}")


# Thread 0 copies `bytes` for all, who wait for a phase's parity; then a row goes back to global memory.
BY_HAND = r"""
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void wait(unsigned bar, unsigned parity) {
    unsigned over;
    do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                    "selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(bar), "r"(parity) : "memory"); while (!over);
}
extern "C" __global__ void k(const float* a, float* b, float* c, unsigned bytes, int turns) {
    __shared__ alignas(128) float s[1024];
    __shared__ unsigned long long bar;
    int t = threadIdx.x;
    for (int i = t; i < 1024; i += blockDim.x) s[i] = -1;
    if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&bar)));
    __syncthreads();
    for (int i = 0; i < turns; i++) {
        if (t == 0) {
            asm volatile("cp.async.bulk.shared::SPACE.global.mbarrier::complete_tx::bytes "
                         "[%0], [%1], %2, [%3];"
                         :: "r"(at(s)), "l"(a + i * 1024), "r"(bytes), "r"(at(&bar)) : "memory");
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                         :: "r"(at(&bar)), "r"(bytes) : "memory");
        }
        EARLY
        wait(at(&bar), i & 1);
        LATE
        __syncthreads();
    }
    if (t == 5) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     :: "l"(c), "r"(at(s)), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}"""
READ = "for (int n = t; n < 1024; n += blockDim.x) b[i * 1024 + n] = s[n];"


def by_hand(early: str = "", late: str = READ, space: str = "cluster") -> cp.RawKernel:
    return cp.RawKernel(
        BY_HAND.replace("EARLY", early).replace("LATE", late).replace("SPACE", space), "k", ("--std=c++17",)
    )


def arrays(turns: int = 3) -> tuple[Any, Any, Any]:
    a = np.random.default_rng(1).normal(size=(turns, 1024)).astype("f4")
    return cp.asarray(a), cp.zeros((turns, 1024), "f4"), cp.zeros(1024, "f4")


@pytest.mark.parametrize("device", NEWEST)
@pytest.mark.parametrize("form", COPIES)
def test_awaited_bulk_copies_complete_without_hazards(form: str, device: str) -> None:
    with session.on_device(device):
        a = cp.arange(4096, dtype="f4")
        b = cp.zeros_like(a)
        kernel = group(form, waits=True)
        kernel((4,), (256,), (a, b))
        np.testing.assert_array_equal(b.get().reshape(4, 256, 4), a.get().reshape(4, 256, 4)[:, ::-1])
        report = gl.sanitize(kernel, 4, 256, (a, b))
        assert report.hazards == ()


@pytest.mark.parametrize("form", COPIES)
def test_reading_before_the_copy_arrives_is_reported(form: str) -> None:
    with session.on_device("virtual:H100"):
        a = cp.ones(4096, "f4")
        b = cp.zeros(4096, "f4")
        kernel = group(form, waits=False)
        kernel((4,), (256,), (a, b))
        assert (b.get() != 1).all()
        hazards = gl.sanitize(kernel, 4, 256, (a, b)).hazards
        assert {hazard.kind for hazard in hazards if hazard.severity == "error"} == {PENDING_COPY}


@pytest.mark.parametrize("space", ["cta", "cluster"])
@pytest.mark.parametrize("bytes_", [4096, 528, 16, 0])
def test_bulk_copies_with_explicit_mbarrier_phases(space: str, bytes_: int) -> None:
    with session.on_device("virtual:H100"):
        a, b, c = arrays()
        by_hand(space=space)((1,), (64,), (a, b, c, np.uint32(bytes_), np.int32(3)))
        words = bytes_ // 4
        np.testing.assert_array_equal(b.get()[:, :words], a.get()[:, :words])
        assert (b.get()[:, words:] == -1).all()
        np.testing.assert_array_equal(c.get()[:words], a.get()[2, :words])
        assert not c.get()[words:].any()


def test_reading_before_the_phase_ends_is_a_race_with_the_copying_thread() -> None:
    with session.on_device("virtual:H100"):
        a, b, c = arrays(1)
        args = (a, b, c, np.uint32(1024), np.int32(1))
        kernel = by_hand(early=READ, late="")
        hazards = [h for h in gl.sanitize(kernel, 1, 64, args).hazards if h.severity == "error"]
        assert hazards
        assert {h.kind for h in hazards} <= {"RAW", PENDING_COPY}
        assert {h.first.thread for h in hazards if h.first is not None} == {(0, 0, 0)}
        assert gl.sanitize(by_hand(), 1, 64, args).hazards == ()


def test_bulk_copies_count_the_sectors_of_their_bytes() -> None:
    with session.on_device("virtual:H100"):
        a, b, c = arrays()
        counters = {}
        for bytes_ in (1024, 4096):
            counters[bytes_] = gl.count(by_hand(late=""), 1, 64, (a, b, c, np.uint32(bytes_), np.int32(3)))
            bulk_accesses = [x for x in counters[bytes_].accesses if "cp.async.bulk" in x.text]
            sectors = {(x.kind, x.space): x.sectors for x in bulk_accesses if x.space == "global"}
            assert sectors == {("load", "global"): 3 * bytes_ // 32, ("store", "global"): bytes_ // 32}


@pytest.mark.parametrize(
    ("bytes_", "distance", "words"), [(4096, 1 << 40, r"thread \(0, 0, 0\)"), (24, 0, "16")]
)
def test_a_copy_out_of_bounds_or_of_an_odd_size_is_a_fault(bytes_: int, distance: int, words: str) -> None:
    def launch() -> None:
        a, b, c = arrays(1)
        by_hand()((1,), (64,), (np.uint64(a.data.ptr + distance), b, c, np.uint32(bytes_), np.int32(1)))
        cp.cuda.runtime.deviceSynchronize()

    with session.on_device("virtual:H100"), pytest.raises(KernelFault, match=words):
        launch()


@pytest.mark.parametrize(
    "opcode",
    [
        "cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1, {{%2}}], [%0];",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%0], %2, [%0];",
    ],
)
def test_tensor_maps_and_clusters_are_refused_with_an_alternative(opcode: str) -> None:
    with session.on_device("virtual:H100"):
        code = f"""extern "C" __global__ void k(float* a) {{ __shared__ alignas(128) float s[64];
            asm volatile("{opcode}" :: "r"((unsigned)__cvta_generic_to_shared(s)), "l"(a), "r"(16)); }}"""
        with pytest.raises(NotSupportedError, match=r"cuda::memcpy_async"):
            cp.RawKernel(code.replace("{{", "{").replace("}}", "}"), "k")((1,), (1,), (cp.zeros(64, "f4"),))
