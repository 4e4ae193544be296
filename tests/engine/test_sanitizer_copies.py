"""Kernels with asynchronous copies, right ones and wrong ones, through ``gl.sanitize``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc

TILE = """
extern "C" __global__ void k(const float* a, float* out, int n) {
__shared__ __align__(16) float tile[2][256]; int t = threadIdx.x;
"""
BLOCK = "auto block = cooperative_groups::this_thread_block();\n"
BARRIER = (
    BLOCK
    + "__shared__ cuda::barrier<cuda::thread_scope_block> b; if (t == 0) init(&b, 256); __syncthreads();\n"
)
FIRST = "__pipeline_memcpy_async(&tile[0][t], &a[t], 4); __pipeline_commit();\n"
NEXT = "__pipeline_memcpy_async(&tile[(i + 1) & 1][t], &a[(i + 1) * 256 + t], 4);"
WAITS = "__pipeline_wait_prior(1); __syncthreads(); s += tile[i & 1][255 - t];"
WHOLE = "cuda::aligned_size_t<16>(sizeof(float) * 256)"
EACH = "cuda::aligned_size_t<4>(4)"

# Right kernels, and whether `out` is the first tile reversed or the sum of all.
RIGHT = {
    "waits": (FIRST + "__pipeline_wait_prior(0); __syncthreads(); out[t] = tile[0][255 - t]; }", False),
    "wait_all takes what is not committed": (
        """__pipeline_memcpy_async(&tile[0][t], &a[t], 4); asm volatile("cp.async.wait_all;");
        __syncthreads(); out[t] = tile[0][255 - t]; }""",
        False,
    ),
    "double buffer": (
        FIRST + f"float s = 0; for (int i = 0; i < n; i++) {{ if (i + 1 < n) {NEXT} __pipeline_commit();"
        f"{WAITS} __syncthreads(); }} out[t] = s; }}",
        True,
    ),
    "group": (
        BLOCK
        + """cooperative_groups::memcpy_async(block, tile[0], a, sizeof(float) * 256);
        cooperative_groups::wait(block); out[t] = tile[0][255 - t]; }""",
        False,
    ),
    "barrier": (
        BARRIER + f"cuda::memcpy_async(block, tile[0], a, {WHOLE}, b); b.arrive_and_wait();"
        "out[t] = tile[0][255 - t]; }",
        False,
    ),
    "mbarrier with noinc": (
        """__shared__ unsigned long long bar; unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
        if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 256;" :: "r"(at));
        __syncthreads(); __pipeline_memcpy_async(&tile[0][t], &a[t], 4);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at) : "memory");
        unsigned over; do asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0;"
            "selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(at) : "memory"); while (!over);
        out[t] = tile[0][255 - t]; }""",
        False,
    ),
    "pipeline of a thread": (
        f"""auto pipe = cuda::make_pipeline(); float s = 0; pipe.producer_acquire();
        cuda::memcpy_async(&tile[0][t], &a[t], {EACH}, pipe); pipe.producer_commit();
        for (int i = 0; i < n; i++) {{
            if (i + 1 < n) {{ pipe.producer_acquire();
                cuda::memcpy_async(&tile[(i + 1) & 1][t], &a[(i + 1) * 256 + t], {EACH}, pipe);
                pipe.producer_commit(); }}
            pipe.consumer_wait(); __syncthreads(); s += tile[i & 1][255 - t]; __syncthreads();
            pipe.consumer_release(); }}
        out[t] = s; }}""",
        True,
    ),
}

PENDING_COPY = "copy not awaited"
TILES = 8
STAGES = """
extern "C" __global__ void k(const float* a, float* out, int n) {
__shared__ __align__(16) float tile[STAGES][256]; int t = threadIdx.x; float s = 0;
for (int i = 0; i < AHEAD; i++) { __pipeline_memcpy_async(&tile[i % STAGES][t], &a[i * 256 + t], 4);
__pipeline_commit(); }
for (int i = 0; i < n; i++) {
__pipeline_wait_prior(WAIT);
__syncthreads(); // arrived
int j = i + AHEAD;
if (j < n) __pipeline_memcpy_async(&tile[j % STAGES][t], &a[j * 256 + t], 4); // copy
__pipeline_commit();
s += tile[i % STAGES][255 - t]; // use
__syncthreads(); // used
} out[t] = s; }"""
BLOCK_PIPELINE = """
extern "C" __global__ void k(const float* a, float* out, int n) {
__shared__ __align__(16) float tile[2][256]; int t = threadIdx.x; float s = 0;
auto block = cooperative_groups::this_thread_block();
__shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
auto pipe = cuda::make_pipeline(block, &state); pipe.producer_acquire();
cuda::memcpy_async(block, tile[0], a, sizeof(float) * 256, pipe); pipe.producer_commit();
for (int i = 0; i < n; i++) {
if (i + 1 < n) {
pipe.producer_acquire();
cuda::memcpy_async(block, tile[(i + 1) & 1], a + (i + 1) * 256, sizeof(float) * 256, pipe); // copy
pipe.producer_commit(); }
pipe.consumer_wait();
s += tile[i & 1][255 - t]; // use
pipe.consumer_release();
} out[t] = s; }"""
# The lanes of a warp read one 8x8 matrix of a stage.
MATRICES = """
extern "C" __global__ void k(const float* a, float* out, int n) {
__shared__ __align__(16) float tile[2][256]; int t = threadIdx.x; float s = 0; unsigned r;
if (t < 64) __pipeline_memcpy_async(&tile[0][4 * t], &a[4 * t], 16);
__pipeline_commit();
for (int i = 0; i < n; i++) {
int j = i + 1;
if (j < n && t < 64) __pipeline_memcpy_async(&tile[j & 1][4 * t], &a[j * 256 + 4 * t], 16); // copy
__pipeline_commit();
__pipeline_wait_prior(1);
__syncthreads(); // arrived
unsigned row = (unsigned)__cvta_generic_to_shared(&tile[i & 1][(t / 32 * 8 + t % 8) * 4]);
asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(row) : "memory"); // use
s += __uint_as_float(r);
__syncthreads(); // used
} out[t] = s; }"""
BULK = """
extern "C" __global__ void k(const float* a, float* out, int n) {
__shared__ __align__(16) float tile[2][256]; int t = threadIdx.x; float s = 0; unsigned over;
__shared__ alignas(8) unsigned long long full[2];
unsigned bars = (unsigned)__cvta_generic_to_shared(full), tiles = (unsigned)__cvta_generic_to_shared(tile);
if (t < 2) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(bars + 8 * t));
__syncthreads();
for (int i = -1; i < n; i++) {
int j = i + 1; unsigned bar = bars + j % 2 * 8, to = tiles + j % 2 * 1024; const float* from = a + 256 * j;
if (t == 0 && j < n) {
asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" :: "r"(bar) : "memory");
asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];"
:: "r"(to), "l"(from), "r"(bar) : "memory"); }
if (i >= 0) {
do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
: "=r"(over) : "r"(bars + 8 * (i & 1)), "r"(i / 2 & 1) : "memory"); while (!over);
s += tile[i & 1][255 - t]; // use
}
__syncthreads(); // used
} out[t] = s; }"""
BULK_WAIT = BULK[BULK.index("do asm") : BULK.index("s += tile")]


def stages(count: int, ahead: int, wait: int) -> str:
    values = {"STAGES": count, "AHEAD": ahead, "WAIT": wait}
    return "".join(f"#define {name} {value}\n" for name, value in values.items()) + STAGES


def without(code: str, *parts: str) -> str:
    for part in parts:
        assert part in code
        code = code.replace(part, "")
    return code


ARRIVED = "__syncthreads(); // arrived\n"
USED = "__syncthreads(); // used\n"
# Kernels with several stages, right ones and wrong ones, and the kinds of hazards that are reported.
PIPELINES: dict[str, tuple[str, set[str]]] = {
    "three stages": (without(stages(3, 2, 1), USED), set()),
    "three stages, one group too few awaited": (without(stages(3, 2, 2), USED), {PENDING_COPY, "RAW"}),
    "three stages, refilled while they are read": (without(stages(3, 3, 2), USED), {PENDING_COPY, "WAR"}),
    "three stages, no barrier": (
        without(stages(3, 2, 1), ARRIVED, USED),
        {"RAW", "WAR", "uninitialised read"},
    ),
    "pipeline of a block": (BLOCK_PIPELINE, set()),
    "pipeline of a block, no wait": (without(BLOCK_PIPELINE, "pipe.consumer_wait();"), {"RAW"}),
    "pipeline of a block, no acquire": (
        BLOCK_PIPELINE.replace("{\npipe.producer_acquire();\n", "{\n"),
        {"WAR"},
    ),
    "pipeline of a block, released too early": (
        without(BLOCK_PIPELINE, "pipe.consumer_release();\n").replace(
            "consumer_wait();", "consumer_wait(); pipe.consumer_release();"
        ),
        {"WAR"},
    ),
    "ldmatrix": (MATRICES, set()),
    "ldmatrix, no wait": (without(MATRICES, "__pipeline_wait_prior(1);\n"), {PENDING_COPY}),
    "bulk copies": (BULK, set()),
    "bulk copies, no wait": (without(BULK, BULK_WAIT), {PENDING_COPY}),
    "bulk copies, no barrier after the use": (without(BULK, USED), {"WAR"}),
}

# Wrong kernels: what is to be found, and whether their result shows it here, where copies come late.
WRONG = {
    "no wait": (FIRST + "out[t] = tile[0][t]; }", {PENDING_COPY}, True),
    "a barrier is no wait": (FIRST + "__syncthreads(); out[t] = tile[0][255 - t]; }", {PENDING_COPY}, True),
    "a wait is no barrier": (
        FIRST + "__pipeline_wait_prior(0); out[t] = tile[0][255 - t]; }",
        {"RAW", "WAR"},
        True,
    ),
    "buffer filled while others read": (
        FIRST + f"float s = 0; for (int i = 0; i < n; i++) {{ if (i + 1 < n) {NEXT} __pipeline_commit();"
        f"{WAITS} }} out[t] = s; }}",
        {PENDING_COPY, "WAR"},
        False,
    ),
    "group without wait": (
        BLOCK
        + """cooperative_groups::memcpy_async(block, tile[0], a, sizeof(float) * 256); block.sync();
        out[t] = tile[0][255 - t]; }""",
        {PENDING_COPY},
        True,
    ),
    "barrier without wait": (
        BARRIER + f"cuda::memcpy_async(block, tile[0], a, {WHOLE}, b); __syncthreads();"
        "out[t] = tile[0][255 - t]; }",
        {PENDING_COPY},
        True,
    ),
}


HEADERS = {
    "__pipeline_": "cuda_pipeline.h",
    "cuda::make_pipeline": "cuda/pipeline",
    "cuda::barrier": "cuda/barrier",
    "this_thread_block": "cooperative_groups.h",
    "cooperative_groups::memcpy_async": "cooperative_groups/memcpy_async.h",
    "cuda::memcpy_async": "cuda/barrier",
}


def sanitized(code: str, device: str) -> gl.records.SanitizerReport:
    headers = dict.fromkeys(header for word, header in HEADERS.items() if word in code)
    code = "".join(f"#include <{header}>\n" for header in headers) + code
    with session.on_device(f"virtual:{device}"):
        arrays = cp.ones(TILES * 256, cp.float32), cp.zeros(256, cp.float32)
        return gl.sanitize(cp.RawKernel(code, "k"), 1, 256, (*arrays, np.int32(TILES)))


def checked(body: str) -> tuple[Any, Any, gl.records.SanitizerReport]:
    """The input, by tiles, the result, and the report."""
    headers = dict.fromkeys(header for word, header in HEADERS.items() if word in body)
    code = "".join(f"#include <{header}>\n" for header in headers) + TILE + body
    with session.on_device("virtual:A100"):
        a = np.random.default_rng(0).integers(1, 100, (4, 256)).astype(np.float32)
        out = cp.zeros(256, cp.float32)
        kernel = cp.RawKernel(code, "k")
        args = (cp.asarray(a), out, np.int32(4))
        kernel((1,), (256,), args)
        return a, cp.asnumpy(out), gl.sanitize(kernel, 1, 256, args)


pytestmark = pytest.mark.skipif(
    not nvrtc.is_available() or not nvrtc.find_include_options(),
    reason="NVRTC or the CUDA headers are not installed",
)


@pytest.mark.parametrize("name", RIGHT)
def test_correct_kernels_have_no_hazards(name: str) -> None:
    body, all_tiles = RIGHT[name]
    a, out, report = checked(body)
    np.testing.assert_array_equal(out, (a.sum(axis=0) if all_tiles else a[0])[::-1])
    assert report.hazards == ()
    assert report.left_out == ""


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_reported(name: str) -> None:
    body, kinds, shows = WRONG[name]
    a, out, report = checked(body)
    kinds_found = {hazard.kind for hazard in report.hazards if hazard.severity == "error"}
    assert kinds_found == kinds
    is_right = any(np.array_equal(out, tile[::-1]) for tile in (a[0], a[1], a.sum(axis=0)))
    assert is_right != shows


def test_a_finding_names_the_copy_and_the_early_thread() -> None:
    report = checked(FIRST + "__syncthreads();\nout[t] = tile[0][255 - t]; }")[2]
    (hazard,) = report.hazards
    assert hazard.first is not None
    assert (hazard.first.source, hazard.second.source) == (FIRST.strip(), "out[t] = tile[0][255 - t]; }")
    assert hazard.first.thread == (255 - hazard.second.thread[0], 0, 0)
    assert hazard.address == 4 * hazard.first.thread[0]
    assert hazard.count == 256
    for text in ("asynchronous copy", "__pipeline_wait_prior", "__syncthreads()", "tile[0][255]"):
        assert text in hazard.message


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *((name, "H100" if "bulk" in name else "A100") for name in PIPELINES),
        ("pipeline of a block, no acquire", "H100"),  # whose PTX differs from that of an A100
        ("three stages, one group too few awaited", "B200"),
        ("ldmatrix, no wait", "B200"),
        ("bulk copies, no wait", "B200"),
    ],
)
def test_stages_are_checked_on_each_architecture(name: str, device: str) -> None:
    code, kinds = PIPELINES[name]
    report = sanitized(code, device)
    assert {hazard.kind for hazard in report.hazards} == kinds
    assert report.left_out == ""


@pytest.mark.parametrize(
    ("name", "is_wrong"),
    [
        ("three stages", False),
        ("three stages, one group too few awaited", False),
        ("three stages, refilled while they are read", True),
        ("three stages, no barrier", True),
        ("pipeline of a block, no acquire", True),
        ("ldmatrix, no wait", False),
    ],
)
def test_before_ampere_only_races_with_other_threads_are_reported(name: str, is_wrong: bool) -> None:
    """There, asynchronous copies are executed synchronously."""
    code, kinds = PIPELINES[name]
    report = sanitized(code, "T4")
    reported = {hazard.kind for hazard in report.hazards}
    assert reported <= kinds | {"RAW", "WAR"}
    assert bool(reported) == is_wrong
    assert "7.5" in report.left_out


def test_overwriting_a_stage_in_use_is_reported_with_both_lines() -> None:
    report = sanitized(without(stages(3, 3, 2), USED), "A100")
    (hazard,) = (hazard for hazard in report.hazards if hazard.kind == "WAR")
    assert hazard.first is not None
    assert hazard.first.source.endswith("// use")
    assert hazard.second.source.endswith("// copy")
    for text in ("asynchronous copy", "stage", "barrier"):
        assert text in hazard.message


def test_the_fix_of_an_unawaited_bulk_copy_is_its_mbarrier() -> None:
    report = sanitized(without(BULK, BULK_WAIT), "H100")
    hazard = next(hazard for hazard in report.hazards if hazard.second.source.endswith("// use"))
    assert hazard.first is not None
    assert "cp.async.bulk" in hazard.first.source
    assert "mbarrier.try_wait" in hazard.message
    assert "__pipeline_wait_prior" not in hazard.message


def test_late_reads_of_a_refilled_stage_have_their_own_message() -> None:
    """Warps that copy nothing read late, when the new copy is already pending."""
    early, late = (
        next(h for h in sanitized(code, "A100").hazards if h.second.source.endswith("// use")).message
        for code in (without(MATRICES, USED), without(MATRICES, "__pipeline_wait_prior(1);\n"))
    )
    assert "earlier contents" in early
    assert "earlier contents" not in late
