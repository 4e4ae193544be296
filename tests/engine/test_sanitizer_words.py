"""What ``gl.sanitize`` says: elements as the source names them, one finding a mistake, remedies that fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import KernelFault
from virtualgpu.records import Hazard, SanitizerReport
from virtualgpu.sanitizer import checker

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        yield


def hazards_of(body: str, *args: Any, grid: int = 1, block: Any = 256, head: str = "") -> tuple[Hazard, ...]:
    """Hazards of a kernel whose body begins in line 2."""
    parameters = "float* x, float* y, int* n"
    code = f'{head}extern "C" __global__ void k({parameters}) {{\n{body}\n}}'
    arguments = args or (
        cp.ones(4096, np.float32),
        cp.zeros(4096, np.float32),
        cp.arange(4096, dtype=np.int32),
    )
    return gl.sanitize(cp.RawKernel(code, "k"), grid, block, arguments).hazards


# -- names ------------------------------------------------------------------------------------------------


def test_elements_have_the_names_of_the_source() -> None:
    tile = "__shared__ float s[8][32];\nif (threadIdx.x == 40) s[n[2]][n[1]] = x[0];\n"
    assert [h.array for h in hazards_of(tile + "if (threadIdx.x == 70) y[0] = s[n[2]][n[1]];")] == ["s[2][1]"]
    x = cp.ones((4, 8), np.float32)
    y = cp.zeros(512, np.float32)
    n = cp.zeros(1, np.int32)
    (hazard,) = hazards_of("if (threadIdx.x % 32 == 0) x[13] = threadIdx.x;", x, y, n)
    assert hazard.array == "x[13] ([1, 5] of shape (4, 8))"
    (hazard,) = hazards_of("if (threadIdx.x % 32 == 0) y[3] = threadIdx.x;", x, y[100:], n)
    assert hazard.array == "y[3]", "as the kernel counts, from where its pointer points"
    (hazard,) = hazards_of(
        "if (threadIdx.x % 32 == 0) box[1] = threadIdx.x;", head="__device__ int box[2];\n"
    )
    assert hazard.array == "box[1]"


# -- one finding a mistake --------------------------------------------------------------------------------

UPDATES = {
    "x[0] += 1;": "atomicAdd(&x[0], ...)",
    "y[n[threadIdx.x] % 8] -= 2;": "atomicAdd(&y[0], ...)",
    "__shared__ int h[2][4]; if (threadIdx.x < 8) h[0][threadIdx.x] = 0; __syncthreads();\n"
    "h[1][threadIdx.x % 2]++; __syncthreads(); "
    "n[blockIdx.x * 256 + threadIdx.x] = h[0][threadIdx.x % 8];": "atomicAdd(&h[1][0], ...)",
    "n[0] = max(n[0], (int)threadIdx.x);": "atomicMax(&n[0], ...)",
    "n[0] |= 1 << threadIdx.x % 32;": "atomicOr(&n[0], ...)",
    "x[0] *= 1.5f;": "a loop around atomicCAS()",
    "int v = n[threadIdx.x] % 97;\nif (v > x[0])\nx[0] = v;": "Compare and write with one atomic",
}


@pytest.mark.parametrize("body", UPDATES, ids=lambda body: body.split(";")[0][:30])
@pytest.mark.parametrize("grid", [1, 3])
def test_an_update_without_an_atomic_is_one_finding(body: str, grid: int) -> None:
    hazards = hazards_of(body, grid=grid)
    lost = [hazard for hazard in hazards if hazard.kind == "lost update"]
    assert len(lost) == 1
    assert lost[0].severity == "error"
    assert UPDATES[body] in lost[0].message
    assert "__sync" not in lost[0].message
    places = {(hazard.first.line, hazard.second.line) for hazard in hazards if hazard is not lost[0]}
    assert not places & {(lost[0].first.line, lost[0].second.line)}


TREE = """__shared__ float s[256]; int t = threadIdx.x; s[t] = x[t]; __syncthreads();
for (int d = 128; d > 0; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
y[t] = s[0];"""


@pytest.mark.parametrize(
    "body", ["x[threadIdx.x] += 1;", "atomicAdd(&x[0], 1);", TREE], ids=["own element", "atomic", "tree"]
)
def test_correct_updates_have_no_findings(body: str) -> None:
    assert hazards_of(body) == ()


def test_a_reduction_without_barriers_is_no_lost_update() -> None:
    kinds = {h.kind for h in hazards_of(TREE.replace("__syncthreads();", ""))}
    assert kinds & {"RAW", "WAR"}
    assert "lost update" not in kinds


def test_races_of_all_scopes_at_the_same_lines_are_one_finding() -> None:
    body = "int i = blockIdx.x * 64 + threadIdx.x;\nif (i) y[i] = y[i - 1];"
    hazards = hazards_of(body, grid=4, block=64)
    assert [(h.kind, h.first.block != h.second.block) for h in hazards if h.severity == "error"] == [
        ("RAW", True)
    ]
    assert "Blocks run in any order" in hazards[0].message


# -- races that may be meant ------------------------------------------------------------------------------

UNION_FIND = """
__device__ int find(int* parent, int v) {
  int p = parent[v];
  if (p != v) {
    int before = v, next;
    while (p > (next = parent[p])) {
      parent[before] = next;
      before = p;
      p = next;
    }
  }
  return p;
}
extern "C" __global__ void k(int* parent, const int* from, const int* to) {
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  int a = find(parent, from[e]), b = find(parent, to[e]);
  while (a != b) {
    int high = max(a, b), low = min(a, b);
    int old = atomicCAS(&parent[high], high, low);
    if (old == high) break;
    if (high == a) a = old; else b = old;
  }
}"""


def of_a_graph(code: str) -> tuple[Hazard, ...]:
    random = np.random.default_rng(1)
    start = cp.arange(512, dtype=np.int32)
    edges = [cp.asarray(random.integers(0, 512, 1024).astype(np.int32)) for _ in range(2)]
    return gl.sanitize(cp.RawKernel(code, "k"), 8, 128, (start, *edges)).hazards


def test_a_lock_free_structure_has_one_finding_per_kind() -> None:
    plain, swaps = of_a_graph(UNION_FIND)
    assert (plain.severity, swaps.severity) == ("warning", "info")
    assert "when a path is shortened" in plain.message
    assert "The compare-and-swap fails if the value that was read is outdated" in swaps.message
    assert "pairs of lines have such a race on this array" in swaps.message


def test_unprotected_data_next_to_a_lock_still_race() -> None:
    body = "if (atomicCAS(&n[0], 0, 1) == 0) x[0] = threadIdx.x + 1;\nelse y[threadIdx.x] = x[0];"
    severities = {(hazard.array, hazard.severity) for hazard in hazards_of(body, grid=2, block=64)}
    assert ("x[0]", "error") in severities


# -- grades -----------------------------------------------------------------------------------------------


def test_races_between_warps_are_preferred_to_those_within_a_warp() -> None:
    body = "__shared__ float s[2]; int t = threadIdx.x; if (t == 0) s[n[0]] = 1;\n__syncthreads();\n"
    (hazard,) = hazards_of(body + "y[t] = s[n[0]];\nif (t == 63) s[n[0]] = 2;", block=64)
    assert (hazard.kind, hazard.severity, hazard.first.thread) == ("WAR", "error", (31, 0, 0))
    (hazard,) = hazards_of(body + "if (t >= 32) y[t] = s[n[0]];\nif (t == 63) s[n[0]] = 2;", block=64)
    assert (hazard.kind, hazard.severity, hazard.first.thread) == ("WAR", "warning", (62, 0, 0))


def test_reading_memory_that_the_kernel_wrote_is_no_hazard() -> None:
    x = cp.empty(256, np.float32)
    n = cp.arange(256, dtype=np.int32)
    y = cp.zeros(256, np.float32)
    assert (
        hazards_of("x[threadIdx.x] = 1; __syncthreads();\ny[threadIdx.x] = x[255 - threadIdx.x];", x, y, n)
        == ()
    )
    fresh = cp.empty(256, np.float32)
    body = "if (threadIdx.x) x[threadIdx.x] = 1; __syncthreads();\ny[threadIdx.x] = x[0];"
    (hazard,) = hazards_of(body, fresh, y, n)
    assert (hazard.kind, hazard.array) == ("uninitialised read", "x[0]")


# -- what a report says of itself -------------------------------------------------------------------------


def report(body: str, *args: Any, grid: int = 1, block: int = 32, **options: Any) -> SanitizerReport:
    code = f'extern "C" __global__ void k(float* x, float* y, int* n) {{\n{body}\n}}'
    arguments = args or (cp.ones(256, np.float32), cp.zeros(256, np.float32), cp.arange(256, dtype=np.int32))
    record: SanitizerReport = gl.sanitize(cp.RawKernel(code, "k"), grid, block, arguments, **options).record
    return record


def test_only_the_first_pairs_of_lines_are_listed() -> None:
    def lines(count: int) -> str:
        return "\n".join(f"x[n[{n}]] = threadIdx.x;" for n in range(count))

    record = report(lines(66), tools="race")
    assert (len(record.hazards), record.left_out) == (
        64,
        "Only the first 64 pairs of source lines are listed.",
    )
    assert {hazard.second.line for hazard in record.hazards} <= set(range(2, 68))
    fewer = report(lines(64), tools="race")
    assert (len(fewer.hazards), fewer.left_out, fewer.clean) == (64, "", False)


def test_arrays_that_are_too_large_are_not_checked_for_races(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "x[n[0]] = threadIdx.x;\ny[n[0]] = threadIdx.x;"
    assert [hazard.array for hazard in report(body).hazards] == ["x[0]", "y[0]"]
    monkeypatch.setattr(checker, "_MAX_REGION_GRANULES", 256)
    assert report(body).left_out == ""
    large = cp.zeros(1000, np.float32)
    record = report(body, cp.ones(256, np.float32), large, cp.arange(256, dtype=np.int32))
    assert [hazard.array for hazard in record.hazards] == ["x[0]"]
    assert record.left_out == "Arrays of more than 1 GiB were not checked for races."


def test_a_report_names_the_tools_the_order_and_the_launch() -> None:
    plain = report("x[threadIdx.x] = 1;", grid=2, shared_mem=64)
    assert (plain.kernel_name, plain.grid, plain.block) == ("k", (2, 1, 1), (32, 1, 1))
    assert (plain.tools, plain.block_order) == (("memory", "race", "init", "sync"), "in order")
    assert (plain.shared_bytes, plain.fault, plain.blocks_checked) == (64, "", None)
    assert plain.provenance.label == "modelled on virtual A100-SXM4-80GB"
    assert report("x[threadIdx.x] = 1;", block_order="reversed", seed=7).block_order == "reversed"
    random_order = report("x[threadIdx.x] = 1;", tools=("race",), nan=True, block_order="random", seed=7)
    assert (random_order.tools, random_order.block_order) == (("race", "nan"), "random, seed 7")


def test_a_fault_is_listed_before_other_hazards() -> None:
    body = "y[n[0]] = threadIdx.x;\n__syncthreads();\nx[threadIdx.x + 4096] = 1;"
    record = report(body)
    first, second = record.hazards
    assert (first.kind, first.severity, first.second.line, first.count) == ("out of bounds", "error", 4, 1)
    assert (second.kind, second.array) == ("WAW", "y[0]")
    assert record.fault == "IllegalAddressError"
    assert not first.message.startswith("cudaError")
    assert record.left_out == "The launch stopped at the fault; the rest of the launch was not checked."
    with pytest.raises(KernelFault):
        report(body, tools=("race", "sync"))
    only = report("x[n[0]] = sqrtf(-y[n[0]] - 1 - threadIdx.x);", tools=(), nan=True)
    assert [(hazard.kind, hazard.tool) for hazard in only.hazards] == [("NaN", "nan")]
