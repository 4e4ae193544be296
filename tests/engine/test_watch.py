"""Watch expressions and stops: against what the kernel itself computes, and against looking at every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from tests.trace_state import shared_at
from virtualgpu.errors import WatchError
from virtualgpu.launch import debugging
from virtualgpu.protocol import Block, Launch, Warp
from virtualgpu.records import BlockTrace, WarpTrace
from virtualgpu.records.warp.columns import expand_lane_masks
from virtualgpu.records.warp.watched import Watched

# What the kernel computes of its variables, and a watch of the same words is to tell.
EXPRESSIONS = """
a + b, a - u, u - 5, a * b, a / b, a % b, (0 - a) / 3, (0 - a) % 3, a / 2.5f, f * 3, f / d, a << 3
u >> 2, a >> 1, ~a, -u, !a, s * s, c + 1, c == 300, a < u, b < 0, a > 2 && f < 9, a == 0 || b / a > 1
(a & 6) | (b ^ 3), l + a, l * u, 1.5f * a, 1.5 * a, d - f, f < a, a != b, 0x10u + a, 3LL * a, 2ul + u
p[a & 7] + 1, p[a & 7] * f, a * 100000 * b
"""
ARITHMETIC = tuple(EXPRESSIONS.strip().replace("\n", ", ").split(", "))
COMPUTES = (
    r"""
extern "C" __global__ void computes(const int* x, const float* p, double* out, long long* whole)
{
    int t = threadIdx.x, a = x[t], b = x[t + 32];
    unsigned int u = x[t + 64];
    short s = x[t];
    unsigned char c = x[t + 64];
    long long l = x[t] * 3000000000LL;
    float f = p[t];
    double d = p[t + 32];
    """
    + "\n".join(f"out[{n} * 32 + t] = ({text});" for n, text in enumerate(ARITHMETIC))
    + "\n"
    + "\n".join(
        f"whole[{n} * 32 + t] = sizeof({text}) * 2 + (({text}) * 0 - 1 < 0);"
        for n, text in enumerate(ARITHMETIC)
    )
    + "\n}"
)
SCENE = r"""
#define WIDE (4 + 4)
struct Point { float x; short tag[2]; struct Point* next; };
struct Setup { int n; float scale; };
__device__ int total[4];
__constant__ float weights[3] = {0.5f, 2.0f, 8.0f};
__device__ __noinline__ int twice(int i) { return 2 * i; }
extern "C" __global__ void scene(Point* p, float** rows, Setup s, float* y, int n)
{
    __shared__ float tile[4][WIDE];
    __shared__ unsigned char flags[40], more[2];
    extern __shared__ double wide[];
    int i = threadIdx.x;
    tile[i / 8][i % 8] = p[i].x * s.scale;
    flags[i] = twice(i);
    wide[i] = i * 0.5;
    more[i & 1] = 7;
    __syncthreads();
    if (i < n) {
        y[i] = tile[0][i % 8] + rows[1][i] + flags[31 - i] + wide[i] + weights[i % 3] + s.n;
        y[i] += more[(i + 1) & 1];
    }
    p[i].tag[1] = i + 1;
    atomicAdd(&total[2], i);
}
"""
FILLED = r"""
extern "C" __global__ void filled(const int* w, int* x, int* hits, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = 0;
    atomicAdd(hits, 1);
    #pragma unroll 1
    for (int k = 0; k < (i & 7); ++k) {
        sum += w[k];
    }
    if (i <= n) x[i] = sum;
    atomicAdd(hits, 1);
    x[i] += 2 * sum + 1;
}
"""


@pytest.fixture(autouse=True)
def on_a_virtual_gpu() -> Iterator[None]:
    gl.use_device("virtual:A100")
    yield
    session.use_device("auto")


def observed(
    kernel: Any, grid: int, threads: int, args: tuple[Any, ...], observation: Any, shared: int = 0
) -> Any:
    return session.backend().observe(Launch.of(kernel, grid, threads, args, shared_mem=shared), observation)


def numbers(watched: Watched, step: int) -> np.ndarray:
    """What each lane is said to have after a step; NaN where nothing is known."""
    row = int(np.searchsorted(watched.step, step, side="right")) - 1
    kind = np.dtype({"s": "i", "u": "u", "f": "f", "p": "u"}[watched.kind[0]] + "8")
    if watched.kind != "pred":
        kind = np.dtype(f"{kind.kind}{int(watched.kind[1:]) // 8}")
    values = watched.value[row].astype(f"u{kind.itemsize}").view(kind).astype(np.float64)
    return np.where(expand_lane_masks(watched.known[row : row + 1])[0], values, np.nan)


def read_of(trace: WarpTrace, name: str, step: int) -> np.ndarray:
    """A scalar variable after a step, by going through the trace."""
    (variable,) = [item for item in trace.variables if item.name == name]
    assert trace.value is not None
    values = np.full(32, np.nan)
    for index in range(step + 1):
        if trace.text_index[index] in variable.written_by:
            lanes = expand_lane_masks(trace.executed_mask[index : index + 1])[0]
            kind = {"s": np.int32, "u": np.uint32, "f": np.float32}[variable.kind[0]]
            values[lanes] = trace.value[index].astype(np.uint32).view(kind)[lanes]
    return values


def test_expressions_compute_as_the_kernel_does() -> None:
    random = np.random.default_rng(4)
    x = random.integers(-9, 9, 96).astype(np.int32)
    x[64:] = np.abs(x[64:]) + random.integers(0, 1 << 20, 32)
    x[32:64][x[32:64] == 0] = 5
    p = random.uniform(-9, 9, 64).astype(np.float32)
    out = cp.zeros((len(ARITHMETIC), 32))
    whole = cp.zeros((len(ARITHMETIC), 32), dtype=np.int64)
    kernel = cp.RawKernel(COMPUTES, "computes", options=("-G", "--fmad=false"))
    args = (cp.asarray(x), cp.asarray(p), out, whole)
    trace = observed(kernel, 1, 32, args, Warp(watch=ARITHMETIC))
    for text, watched, computed, kinds in zip(ARITHMETIC, trace.watched, out.get(), whole.get(), strict=True):
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal(numbers(watched, len(trace) - 1), computed, err_msg=text)
        bits = 1 if watched.kind == "pred" else int(watched.kind[1:]) // 8
        assert kinds[0] // 2 == bits, text
        assert kinds[0] % 2 == (watched.kind[0] != "u"), text


@pytest.mark.parametrize("options", [(), ("-G",)], ids=["optimised", "for debugging"])
def test_watches_of_arrays_structs_and_pointers_are_evaluated(options: tuple[str, ...]) -> None:
    point = np.dtype([("x", "f4"), ("tag", "i2", 2), ("next", "u8")])
    points = np.zeros(33, point)
    points["x"], points["tag"] = np.arange(33) * 0.25, np.arange(66).reshape(33, 2) - 8
    p = cp.zeros(points.nbytes, dtype=np.uint8)
    points["next"] = p.data.ptr + (np.arange(33) + 1) % 33 * points.itemsize
    p.set(points.view(np.uint8))
    row = cp.asarray(np.arange(32, dtype=np.float32) * 3)
    rows = cp.asarray(np.array([0, row.data.ptr], np.uint64))
    setup = np.zeros(1, np.dtype([("n", "i4"), ("scale", "f4")]))[0]
    setup["n"], setup["scale"] = 100, 2.5
    y = cp.full(32, -1, dtype=np.float32)
    expected = {
        "s.scale * s.n": np.full(32, 250.0),
        "p[i].next->x": points["x"][points["x"].size - 33 + 1 :][:32],
        "p[i + 1].tag[0]": points["tag"][1:, 0],
        "(p + 2)->x": np.full(32, points["x"][2]),
        "rows[1][i]": row.get(),
        "weights[i % 3]": np.array([0.5, 2, 8])[np.arange(32) % 3],
        "tile[i / 8][i % 8]": points["x"][:32] * 2.5,
        "flags[31 - i]": np.arange(62, -1, -2),
        "wide[i]": np.arange(32) * 0.5,
        "more[1]": np.full(32, 7),
        "p->tag[1]": np.ones(32),
        "total[2]": np.full(32, 31 * 16),
        "threadIdx.x + blockDim.x * gridDim.x": np.arange(32) + 32,
        "y[i]": np.where(np.arange(32) < 20, np.nan, -1),
    }
    kernel = cp.RawKernel(SCENE, "scene", options=options)
    args = (p, rows, setup, y, np.int32(20))
    trace = observed(kernel, 1, 32, args, Warp(watch=tuple(expected)), shared=256)
    expected["y[i]"] = y.get()
    for (text, values), watched in zip(expected.items(), trace.watched, strict=True):
        np.testing.assert_array_equal(numbers(watched, len(trace) - 1), values, err_msg=text)
    # Before anything was written to shared memory nothing is known of it.
    tile = trace.watched[list(expected).index("tile[i / 8][i % 8]")]
    assert np.isnan(numbers(tile, 3)).all()


def test_watched_shared_memory_includes_stores_of_all_warps() -> None:
    code = r"""
    extern "C" __global__ void folds(int* x)
    {
        __shared__ int part[64];
        int t = threadIdx.x;
        part[t] = x[t];
        for (int half = 32; half > 0; half /= 2) {
            __syncthreads();
            if (t < half) part[t] += part[t + half];
        }
        if (t == 0) x[0] = part[0];
    }"""
    x = cp.asarray(np.random.default_rng(1).integers(-99, 99, 64).astype(np.int32))
    observation = Block(
        watch=("part[threadIdx.x]", "part[63]"), stop=("write part[40]", "write part[threadIdx.x ^ 1]")
    )
    block = observed(cp.RawKernel(code, "folds"), 1, 64, (x,), observation)
    assert isinstance(block, BlockTrace)
    for warp in block.warps:
        assert warp.detail is not None
        for step in range(len(warp)):
            memory, written = shared_at(block.shared, int(warp.detail.sequence[step]))
            words = memory.view(np.int32)
            known = written.reshape(-1, 4).all(axis=1)
            own_words = slice(32 * warp.warp_index, 32 * warp.warp_index + 32)
            expected = np.where(known[own_words], words[own_words], np.nan)
            np.testing.assert_array_equal(numbers(warp.watched[0], step), expected)
            np.testing.assert_array_equal(
                numbers(warp.watched[1], step), np.full(32, words[63] if known[63] else np.nan)
            )
    first, second = block.warps
    assert first.stops[0].step.size == 0
    assert second.stops[0].step.size == 1
    assert second.stops[0].lanes.tolist() == [1 << 8]
    assert first.stops[1].step.size == second.stops[1].step.size == 0


def filled(observation: Any, grid: int = 3) -> tuple[WarpTrace, np.ndarray]:
    w = cp.arange(8, dtype=np.int32)
    x = cp.arange(96, dtype=np.int32)
    hits = cp.zeros(1, dtype=np.int32)
    return observed(
        cp.RawKernel(FILLED, "filled"), grid, 32, (w, x, hits, np.int32(40)), observation
    ), x.get()


def test_stops_equal_a_check_of_every_step() -> None:
    conditions = ("any(sum > 3)", "all(k < 7)", "any(i > n)", "all(sum < 100)", "any(sum == 2 * k)")
    stops = (*conditions, "all(i > n)", "line 9", "write x[37]", "write sum", "write hits[0]", "write x[i]")
    trace, _ = filled(Warp((1, 0, 0), stop=stops))
    stops_by_text = {stop.text: stop for stop in trace.stops}
    n = np.full(32, 40)
    truths: dict[str, list[bool]] = {text: [] for text in conditions}
    for step in range(len(trace)):
        sums, k, i = (read_of(trace, name, step) for name in ("sum", "k", "i"))
        with np.errstate(invalid="ignore"):
            truths["any(sum > 3)"].append(bool((sums > 3).any()))
            truths["all(k < 7)"].append(bool((~np.isnan(k)).any() and not (k >= 7).any()))
            truths["any(i > n)"].append(bool((i > n).any()))
            truths["all(sum < 100)"].append(bool((~np.isnan(sums)).any() and not (sums >= 100).any()))
            truths["any(sum == 2 * k)"].append(bool((sums == 2 * k).any()))
    for text, truth in truths.items():
        edges = [step for step in range(len(truth)) if truth[step] and not (step and truth[step - 1])]
        assert stops_by_text[text].step.tolist() == edges, text
        assert edges, text
    assert stops_by_text["all(i > n)"].step.size == 0
    assert trace.address is not None
    assert trace.access_is_store is not None
    written: dict[str, list[int]] = {"write x[37]": [], "write hits[0]": [], "write x[i]": []}
    lanes = {text: [] for text in written}
    stores = trace.address[
        [text.strip().startswith("st.") for text in np.array(trace.instruction)[trace.text_index]]
    ]
    base = int(stores[stores >= 0].min()) - 4 * 32  # the block's first element is x[32]
    for step in range(len(trace)):
        stored = trace.address[step] if trace.access_is_store[step] else np.full(32, -1)
        atomic = (
            "atom" in trace.instruction[trace.text_index[step]]
            or "red" in trace.instruction[trace.text_index[step]]
        )
        for text, expected in (
            ("write x[37]", stored == base + 4 * 37),
            ("write x[i]", stored == base + 4 * (32 + np.arange(32))),
        ):
            if expected.any():
                written[text].append(step)
                lanes[text].append(int((expected << np.arange(32)).sum()))
        if atomic:
            written["write hits[0]"].append(step)
    for text, steps in written.items():
        assert stops_by_text[text].step.tolist() == steps, text
        assert steps, text
    assert stops_by_text["write x[37]"].lanes.tolist() == lanes["write x[37]"] == [32, 32]
    assert stops_by_text["write x[i]"].lanes.tolist() == lanes["write x[i]"]
    assert {trace.line[step] for step in stops_by_text["line 9"].step} <= {0, 9}
    assert stops_by_text["line 9"].step.size == 7  # the loop's turns
    (variable,) = [item for item in trace.variables if item.name == "sum"]
    writes = np.flatnonzero(np.isin(trace.text_index, variable.written_by))
    assert stops_by_text["write sum"].step.tolist() == writes.tolist()


def test_values_of_other_blocks_are_known_only_at_own_accesses() -> None:
    trace, contents = filled(Warp((1, 0, 0), watch=("hits[0]", "x[i]", "x[0]")))
    hits, own_element, first = trace.watched
    atomics = np.flatnonzero([("atom" in text or "red" in text) for text in trace.instruction])
    steps = np.flatnonzero(np.isin(trace.text_index, atomics))
    assert steps[-1] > steps[0] + 1
    assert np.isnan(numbers(hits, int(steps[0]) + 1)).all()
    assert np.isnan(numbers(hits, int(steps[0]) - 1)).all()
    assert not np.isnan(numbers(hits, int(steps[0]))).any()
    assert np.isnan(numbers(hits, int(steps[-1]) + 1)).all()
    np.testing.assert_array_equal(numbers(own_element, len(trace) - 1), contents[32:64])
    assert not np.isnan(numbers(own_element, len(trace) // 2)).any()
    assert not first.known.any()  # x[0] has changed in another block, and this one never looked


def test_an_index_outside_an_array_is_reported() -> None:
    store = cp.zeros(96 + 32, dtype=np.int32)
    w = cp.arange(8, dtype=np.int32)
    x = store[:96]
    hits = cp.zeros(1, dtype=np.int32)
    kernel = cp.RawKernel(FILLED, "filled")
    observation = Warp(
        (2, 0, 0), watch=("x[i + 8]", "x[0 - 1]", "hits[1]"), stop=("any(x[i + 8] == 0)", "write x[96]")
    )
    trace = observed(kernel, 3, 32, (w, x, hits, np.int32(40)), observation)
    over, below, single = trace.watched
    assert over.note == "outside: the indices of x are 0 to 95"
    assert single.note == "outside: the indices of hits are 0 to 0"
    assert over.outside[-1] == 0xFF << 24
    assert over.known[-1] == 0x00FFFFFF
    assert below.outside.tolist() == [0xFFFFFFFF]
    assert trace.stops[0].lanes[0] & 0xFF << 24 == 0


def test_optimised_out_variables_are_reported() -> None:
    code = r"""
    struct Pair { float a, b; };
    extern "C" __global__ void gone(float* y)
    {
        Pair pair = {y[0], y[1]};
        float box[4] = {1, 2, 3, 4};
        int unused = 3;
        y[threadIdx.x] = pair.a + pair.b + box[threadIdx.x & 3] + unused;
    }"""
    y = cp.ones(32, dtype=np.float32)
    observation = Warp(watch=("pair.b", "box[1]", "unused"), stop=("any(pair.a > 0)", "write box[2]"))
    trace = observed(cp.RawKernel(code, "gone"), 1, 32, (y,), observation)
    assert all(item.note.startswith("optimized out") for item in trace.watched)
    assert all(not item.step.size and "-G" in item.note for item in (*trace.watched, *trace.stops))
    # As the message says, a kernel compiled for debugging keeps them.
    debug_trace = observed(
        cp.RawKernel(code, "gone", options=("-G",)), 1, 32, (cp.ones(32, dtype=np.float32),), observation
    )
    assert [numbers(item, len(debug_trace) - 1)[9] for item in debug_trace.watched] == [1, 2, 3]
    assert all(item.step.size == 1 and item.lanes[0] == 0xFFFFFFFF for item in debug_trace.stops)


MISTAKES = {
    "im": "has no variable `im`. Did you mean 'i'? Its variables: hits, i, k, n, sum, w, x.",
    "x[i": "cannot be read ('[' was never closed)",
    "": "cannot be read",
    "*x": "a pointer's element is p[0], not *p",
    "abs(i)": "calls `abs`, and watch expressions cannot call functions",
    "__import__('os').system('ls')": "watch expressions cannot call functions",
    "i.real": "`i` is an int, which has no members",
    "threadIdx.w": "has no .w. It has .x, .y and .z",
    "threadIdx": "Write threadIdx.x, .y or .z",
    "i[0]": "`i` is neither an array nor a pointer: it is an int.",
    "x[1.5]": "is not an integer",
    "sum % 1.5": "needs integers",
    "x[i, 2]": "a comma (write x[i][j])",
    "i ** 2": "uses **",
    "'a'": "is not a number",
    "[i for i in x]": "cannot be read",
    "lambda: 0": "cannot be read",
}
STOPS = {
    "i >= n": 'Write a line (stop="line 12"), a condition over lanes',
    "any(i)": "`i` is an int, which is not a truth value. Compare it, as in any(i > 0).",
    "any()": "Write any(i >= n)",
    "line twelve": "Write one, as in line 12",
    "line 99": "the kernel's source has only the lines 1 to 14",
    "write i + 1": "not a location that the kernel writes",
    "write n": "not a location that the kernel writes",
    "all(nn > 3)": "Did you mean 'n'?",
}


@pytest.mark.parametrize(("text", "words"), [*MISTAKES.items()], ids=[*MISTAKES])
def test_an_invalid_watch_expression_is_reported(text: str, words: str) -> None:
    with pytest.raises(WatchError) as raised:
        filled(Warp(watch=(text,)))
    assert words in str(raised.value)


@pytest.mark.parametrize(("text", "words"), [*STOPS.items()], ids=[*STOPS])
def test_an_invalid_stop_is_reported(text: str, words: str) -> None:
    with pytest.raises(WatchError) as raised:
        filled(Warp(stop=(text,)))
    assert words in str(raised.value)


@pytest.mark.parametrize("mistake", [{"watch": ("im",)}, {"stop": ("any(i)",)}, {"watch": (3,)}])
def test_an_invalid_watch_or_stop_leaves_memory_unchanged(mistake: dict[str, Any]) -> None:
    w = cp.arange(8, dtype=np.int32)
    x = cp.arange(96, dtype=np.int32)
    hits = cp.zeros(1, dtype=np.int32)
    with pytest.raises(WatchError):
        observed(cp.RawKernel(FILLED, "filled"), 3, 32, (w, x, hits, np.int32(40)), Warp(**mistake))
    assert x.get().tolist() == [*range(96)]
    assert int(hits[0]) == 0


def test_parameters_and_lines_work_without_debug_information(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        debugging,
        "run_debug_build",
        lambda *_: debugging.DebugBuild(missing_reason="NVRTC is not installed here."),
    )
    with pytest.raises(WatchError, match=r"`i` is not a parameter of `filled`.*NVRTC is not"):
        filled(Warp(watch=("i",)))
    trace, _ = filled(
        Warp((1, 0, 0), watch=("n - threadIdx.x", "x[threadIdx.x]"), stop=("line 9", "write x[37]"))
    )
    assert numbers(trace.watched[0], 0).tolist() == [*range(40, 8, -1)]
    assert [stop.step.size for stop in trace.stops] == [7, 2]


def test_a_truncated_trace_has_its_watches() -> None:
    whole, _ = filled(Warp((1, 0, 0), watch=("i", "x[i]"), stop=("line 9",)))
    cut, _ = filled(Warp((1, 0, 0), max_steps=40, watch=("i", "x[i]"), stop=("line 9",)))
    assert cut.truncated
    for step in range(len(cut)):
        np.testing.assert_array_equal(numbers(cut.watched[0], step), numbers(whole.watched[0], step))
    np.testing.assert_array_equal(numbers(cut.watched[1], 39), np.arange(32, 64))
    assert cut.stops[0].step.tolist() == [step for step in whole.stops[0].step.tolist() if step < 40]


def test_watches_are_saved_with_the_record(tmp_path: Any) -> None:
    from virtualgpu.records import io

    trace, _ = filled(Warp(watch=("sum", "x[i]"), stop=("line 9",)))
    loaded = io.load(io.save(trace, tmp_path / "trace"))
    for original, copy in zip((*trace.watched, *trace.stops), (*loaded.watched, *loaded.stops), strict=True):
        assert type(original) is type(copy)
        assert replace(original, step=0, **_plain(original)) == replace(copy, step=0, **_plain(copy))
        assert original.step.tolist() == copy.step.tolist()


def _plain(record: Any) -> dict[str, Any]:
    return {"value": 0, "known": 0, "outside": 0} if isinstance(record, Watched) else {"lanes": 0}


def test_namespace_variables_are_known_from_the_first_launch() -> None:
    code = r"""
    namespace apart { __device__ float bias = 2; __constant__ int size[2] = {3, 4}; }
    extern "C" __global__ void biased(float* x)
    {
        x[threadIdx.x] += apart::bias * apart::size[threadIdx.x & 1];
    }"""
    x = cp.ones(32, dtype=np.float32)
    trace = observed(
        cp.RawKernel(code, "biased"), 1, 32, (x,), Warp(watch=("bias * 2", "size[threadIdx.x & 1]"))
    )
    assert numbers(trace.watched[0], 0).tolist() == [4] * 32
    assert numbers(trace.watched[1], 0).tolist() == [3, 4] * 16


def test_a_kernel_that_does_nothing_can_be_watched() -> None:
    kernel = cp.RawKernel('extern "C" __global__ void idle(int n) {}', "idle")
    trace = observed(kernel, 1, 32, (np.int32(3),), Warp(watch=("n + 1",), stop=("any(n == 3)", "line 1")))
    assert numbers(trace.watched[0], 0).tolist() == [4] * 32
    assert [stop.step.tolist() for stop in trace.stops] == [[0], [0]]


@pytest.mark.parametrize(
    "text", ["-" * 3000 + "i", "+".join(["i"] * 300), "(" * 500 + "i" + ")" * 500, "i + 1e"]
)
def test_unparsable_watches_are_refused(text: str) -> None:
    with pytest.raises(WatchError):
        filled(Warp(watch=(text,)))
