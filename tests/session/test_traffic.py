"""``gl.traffic``: expressions as passes with bytes, fused kernels with equal results, fusion boundaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.lab.fusion import traffic
from gpulab.lab.fusion.compiler.plan import (
    ALIAS_REASON,
    CONSUMERS_REASON,
    HOST_REASON,
    KERNEL_REASON,
    MATMUL_REASON,
    REDUCTION_BETWEEN_REASON,
    REDUCTION_REASON,
    STREAM_REASON,
    Plan,
)
from gpulab.lab.fusion.compiler.program import Program
from gpulab.lab.fusion.compiler.trace import trace_function
from gpulab.lab.fusion.traffic import AS_WRITTEN, BY_HAND
from gpulab.lab.fusion.traffic import REDUCTION as FUSED
from virtualgpu.errors import GpulabError

cp: Any = None  # CuPy of the current device, as in a notebook
F = 4  # bytes of a float32
ROWS = 48
COLUMNS = 160
N = ROWS * COLUMNS


@pytest.fixture(autouse=True)
def on_a_virtual_gpu() -> Iterator[None]:
    global cp
    gl.use_device("virtual:T4")
    cp = gl.cp
    yield
    cp = None


def gelu(v: Any) -> Any:
    return v / (1 + cp.exp(v * (v * v * -0.0713548 - 1.5957691)))


def affine(x: Any, w: Any, b: Any) -> Any:
    return gelu(x * w + b)


def norm(x: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / cp.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


def softmax(x: Any) -> Any:
    e = cp.exp(x - x.max(axis=1)[:, None])
    return e / e.sum(axis=1)[:, None]


def root_mean_square(x: Any) -> Any:
    return cp.sqrt((x * x).mean(axis=1)), x.min(axis=0)


def product(x: Any) -> Any:
    return gelu(x @ x.T)


def running(x: Any) -> Any:
    x[1:] += x[:-1]
    return x * 2


def in_place(x: Any) -> Any:
    x += 1
    x *= 2
    return x


def chosen(x: Any) -> Any:
    y = x * 2
    if float(y.sum()) > 0:
        y = y + 1
    return y


def mixed(x: Any, k: Any) -> Any:
    return cp.where(x > 0, x * k, 0.25) + cp.maximum(k, 2) - cp.abs(x), cp.sign(x) * np.float32(3)


def aside(x: Any) -> Any:
    y = x + 1
    with cp.cuda.Stream():  # ordered with the default stream, unlike a non-blocking one
        z = y * 2 - 1
    return z * 3 if cp.cuda.is_available() else z


CASES: dict[Callable[..., Any], tuple[int, int, int]] = {  # passes as written, fused, in rows
    affine: (9, 1, 1),
    norm: (7, 4, 1),
    softmax: (5, 4, 1),
    root_mean_square: (4, 2, 2),
    product: (8, 2, 2),
    running: (3, 3, 3),
    in_place: (2, 1, 1),
    chosen: (3, 3, 3),
    mixed: (9, 3, 3),
    aside: (4, 3, 3),
}


def arguments(function: Callable[..., Any], kind: str = "float32") -> list[Any]:
    rng = np.random.default_rng(5)
    x = cp.asarray(rng.standard_normal((ROWS, COLUMNS)).astype(kind))
    further = {affine: (x[0].copy(), x[1].copy()), mixed: (cp.arange(COLUMNS, dtype=cp.int32) - 60,)}
    return [x, *further.get(function, ())]


def copies(args: list[Any]) -> list[Any]:
    return [array.copy() for array in args]


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_fused_kernels_return_the_results_of_the_function(function: Callable[..., Any]) -> None:
    kind = ("float32", "float16", "float64")[len(function.__name__) % 3]
    args = arguments(function, kind)
    trace = trace_function(function, *copies(args))
    expected = as_tuple(function(*copies(args)))
    for way in ("single", "maps", "reductions"):
        results = as_tuple(Program(Plan(trace, way))(copies(args)))
        for result, array in zip(results, expected, strict=True):
            assert (result.dtype, result.shape) == (array.dtype, array.shape)
            near = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-12}[kind]
            np.testing.assert_allclose(result.get(), array.get(), rtol=near, atol=near)
    rng = np.random.default_rng(9)
    others = copies(args)
    others[0][...] = cp.asarray(np.abs(rng.standard_normal((ROWS, COLUMNS)).astype(kind)))
    again = as_tuple(Program(Plan(trace))(copies(others)))
    for result, array in zip(again, as_tuple(function(*copies(others))), strict=True):
        np.testing.assert_allclose(result.get(), array.get(), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_passes_match_the_launches_and_bytes_of_the_timeline(function: Callable[..., Any]) -> None:
    args = arguments(function)
    with gl.timeline() as line:
        function(*copies(args))
    record = gl.traffic(function, *args).record
    assert tuple(record.way(way).kernels for way in (AS_WRITTEN, FUSED, BY_HAND)) == CASES[function]
    # Sizes from the timeline of the virtual GPU, which do not depend on the trace.
    launched = [a for a in line.record.activities if a.name.startswith("cupy_") and "copy" not in a.name]
    passes = [e for e in record.expressions if e.kernel >= 0 and e.name != "copyto"]
    # The timeline counts two reads for v * v, but memory traffic is one read.
    squares = [
        len(e.after) == 1 and e.launches[0].endswith("multiply__float32_float32_float32") for e in passes
    ]
    sizes = [
        (e.launches[0], e.read_bytes * (1 + square) + e.written_bytes)
        for e, square in zip(passes, squares, strict=True)
    ]
    assert sizes == [(a.name, a.size_bytes) for a in launched]


def test_nine_elementwise_passes_fuse_into_one() -> None:
    report = gl.traffic(affine, *arguments(affine))
    record = report.record
    assert record.way(FUSED).moved_bytes == (2 * N + 2 * COLUMNS) * F
    assert record.way(AS_WRITTEN).moved_bytes == (20 * N + 2 * COLUMNS) * F
    assert not record.edges
    assert "expf" in report.source or "exp(" in report.source
    assert repr(report).startswith("affine: 9 passes moving")


def reasons(function: Callable[..., Any]) -> set[str]:
    return {edge.why for edge in gl.traffic(function, *arguments(function)).record.edges}


def test_a_fusion_boundary_has_its_reason() -> None:
    assert reasons(norm) == {REDUCTION_REASON, REDUCTION_BETWEEN_REASON, CONSUMERS_REASON}
    assert reasons(product) == {MATMUL_REASON}
    assert ALIAS_REASON in reasons(running)
    assert reasons(aside) == {STREAM_REASON}
    assert HOST_REASON in reasons(chosen)


@pytest.mark.parametrize("function", [norm, softmax, chosen], ids=lambda f: f.__name__)
def test_parameter_names_of_a_reduction_do_not_collide_with_cupys(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For CUB, CuPy replaces the letters of a parameter by in0 and out0, which have no types."""
    kernels: list[tuple[str, ...]] = []

    class Noted(cp.ReductionKernel):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **options: Any) -> None:
            kernels.append(args)
            super().__init__(*args, **options)

    monkeypatch.setattr(cp, "ReductionKernel", Noted)
    gl.traffic(function, *arguments(function))
    assert kernels
    for inputs, outputs, mapping, _, post, *_ in kernels:
        for declaration, text in ((inputs, mapping), (outputs, post)):
            for name in (parameter.split()[1] for parameter in declaration.split(", ")):
                assert name not in ("in0", "out0")
                assert text.count(name) == 1


def test_rows_longer_than_shared_memory_are_not_fused() -> None:
    x = cp.ones((2, 20_000), dtype=cp.float32)
    assert gl.traffic(softmax, x).record.way(BY_HAND).kernels == 4


def test_a_raw_kernel_is_counted_and_not_fused() -> None:
    code = (
        'extern "C" __global__ void twice(const float* x, float* y, int n) '
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }"
    )
    twice = cp.RawKernel(code, "twice")

    def own(x: Any) -> Any:
        y = cp.empty_like(x)
        twice((-(-N // 256),), (256,), (x, y, np.int32(N)))
        return y + 1

    (x,) = arguments(own)
    record = gl.traffic(own, x).record
    assert {edge.why for edge in record.edges} == {KERNEL_REASON}
    assert [(e.read_bytes, e.written_bytes) for e in record.expressions if e.name == "twice"] == [
        (N * F, N * F)
    ]
    program = Program(Plan(trace_function(own, x.copy())))
    np.testing.assert_allclose(program([x * 3]).get(), 6 * x.get() + 1, rtol=1e-6)


def test_elementwise_and_reduction_kernels_are_traced() -> None:
    def function(x: Any) -> Any:
        half = cp.ElementwiseKernel("float32 x", "float32 y", "y = x / 2", "half")
        total = cp.ReductionKernel("float32 x", "float32 y", "x", "a + b", "y = a", "0", "total")
        return total(half(x) + 1), cp.fuse(gelu)(x)

    (x,) = arguments(function)
    record = gl.traffic(function, x).record
    assert [e.name for e in record.expressions if e.kernel >= 0] == ["half", "add", "total", "gelu"]
    results = Program(Plan(trace_function(function, x.copy())))([x])
    for result, array in zip(results, function(x), strict=True):
        np.testing.assert_allclose(result.get(), array.get(), rtol=1e-5)


def test_constants_are_folded_and_host_reads_are_reported() -> None:
    assert gl.traffic(aside, *arguments(aside)).record.folded == ("cuda.is_available() = True",)
    record = gl.traffic(chosen, *arguments(chosen)).record
    assert record.breaks == ("float of the result of 'sum'",)


def test_traffic_does_not_modify_the_arguments() -> None:
    (x,) = arguments(in_place)
    before = x.get()
    gl.traffic(in_place, x)
    np.testing.assert_array_equal(x.get(), before)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (3, TypeError, "Pass the function itself"),
        (lambda x: 3, GpulabError, "neither returns nor changes a device array"),
        (lambda x: [x := x + 1 for _ in range(1000)][-1], GpulabError, "more than 400 expressions"),
        (lambda x: gl.cp.exp(x), GpulabError, "Import cp in the notebook"),
    ],
    ids=["number", "nothing", "endless", "cp by another name"],
)
def test_untraceable_functions_are_refused_with_a_suggestion(
    function: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gl.traffic(function, cp.ones(4))


def test_a_traced_array_has_no_cuda_array_interface() -> None:
    def asks(x: Any) -> Any:
        assert hasattr(gl.cp.ones(1), "__cuda_array_interface__")
        assert not hasattr(x, "__cuda_array_interface__")
        return x + 1

    assert gl.traffic(asks, cp.ones(4)).record.expressions


def test_fusion_raises_the_arithmetic_intensity_on_the_roofline() -> None:
    x = cp.ones((4096, COLUMNS), dtype=cp.float32)
    *alone, fused = gl.traffic(affine, x, *arguments(affine)[1:]).roofline().record.points
    assert len(alone) == 9
    assert sum(point.operations for point in alone) == fused.operations
    intensity = [point.operations / point.size_bytes["DRAM"] for point in (*alone, fused)]
    assert intensity[-1] > 8 * max(intensity[:-1])


def test_a_traffic_report_is_described_and_saved(tmp_path: Any) -> None:
    report = gl.traffic(norm, *arguments(norm))
    text = report.describe()
    assert "7 passes as written" in text
    assert text.count(REDUCTION_REASON) == 1, "a reason is shown once for all its boundaries"
    assert report.save(tmp_path / "norm.png").stat().st_size > 10_000
    assert "true_divide" in report.save(tmp_path / "norm.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * OUTSIDE[0],
        lambda x: (x * OUTSIDE[0]).sum(),
        lambda x: x.reshape(4, 4) @ OUTSIDE[0].reshape(4, 4),
        lambda x: cp.where(x > 0, OUTSIDE[0], 2.0)[::-1] + x,
    ],
)
def test_a_function_that_uses_a_global_array_is_displayed(function: Callable[..., Any]) -> None:
    OUTSIDE[:] = [cp.ones(16, dtype=cp.float32)]
    shown = gl.traffic(function, cp.ones(16, dtype=cp.float32))._repr_mimebundle_()
    data = shown[0] if isinstance(shown, tuple) else shown
    assert "as written" in data["text/plain"]


OUTSIDE: list[Any] = []


def small(x: Any, w: Any, b: Any) -> Any:
    z = x @ w + b
    return cp.sqrt(z).sum(axis=1), x.astype("f8")


def test_a_record_lists_expressions_and_ways_to_build_kernels() -> None:
    args = [cp.ones(shape, dtype=cp.float32) for shape in ((4, 6), (6, 5), (5,))]
    report = gl.traffic(small, *args)
    record = report.record
    assert (record.provenance.source, record.function) == ("modelled", "small")
    facts = [
        (e.name, e.kind, e.after, len(e.launches), e.read_bytes, e.written_bytes, e.flop, e.kernel)
        for e in record.expressions
    ]
    product, added, converted = (facts[number][-1] for number in (3, 4, 7))
    assert {product, added, converted} == {0, 1, 2}
    assert facts == [
        *((name, "input", (), 0, 0, 0, 0, -1) for name in "xwb"),
        ("matmul", "matmul", (0, 1), 1, 54 * F, 20 * F, 2 * 4 * 6 * 5, product),
        ("add", "map", (3, 2), 1, 25 * F, 20 * F, 20, added),
        ("sqrt", "map", (4,), 1, 20 * F, 20 * F, 20, added),
        ("sum", "reduce", (5,), 1, 20 * F, 4 * F, 20, added),
        ("astype", "map", (0,), 1, 24 * F, 24 * 8, 0, converted),
    ]
    passes = record.expressions[3:]
    assert all(e.time_ns > 0 for e in (*passes, *record.kernels))
    assert [e.time_ns for e in record.expressions[:3]] == [0, 0, 0]
    assert [(e.first, e.then, e.why) for e in record.edges] == [(3, 4, MATMUL_REASON)]
    written, maps, fused, rows = record.ways
    assert [(w.way, w.kernels, w.moved_bytes, w.flop) for w in record.ways] == [
        ("as written", 5, 183 * F + 288, 300),
        ("ElementwiseKernel", 4, 143 * F + 288, 300),
        ("fuse, ReductionKernel", 3, 103 * F + 288, 300),
        ("RawKernel, one block per row", 3, 103 * F + 288, 300),
    ]
    assert written.time_ns == sum(e.time_ns for e in passes)
    assert fused.time_ns == sum(k.time_ns for k in record.kernels)
    assert maps.time_ns
    assert rows.time_ns is None
    assert "not generated" in rows.note
    assert report.source == "\n\n".join(record.sources[number][1] for number in sorted((added, converted)))
    assert (record.folded, record.breaks) == ((), ())


@pytest.mark.parametrize(
    ("function", "shapes", "flop"),
    [
        (lambda a, b: a @ b, [(4, 6), (6, 5)], 2 * 120),
        (lambda a, b: a @ b, [(3, 4, 6), (3, 6, 5)], 2 * 360),
        (lambda a: a @ a, [(5,)], 10),
        (lambda a, b: cp.outer(a, b), [(5,), (7,)], 35),
        (lambda a, b: cp.kron(a, b), [(4, 6), (6, 5)], 720),
        (lambda a: cp.tensordot(a, a, axes=2), [(4, 6)], 48),
        (lambda a, b: cp.tensordot(a, b, axes=1), [(4, 6), (6, 5)], 2 * 120),
        (lambda a: cp.vdot(a, a), [(4, 6)], 48),
        (lambda a: cp.inner(a, a), [(4, 2)], 2 * 32),
        (lambda a, b: cp.dot(a, b), [(4, 6), (6,)], 2 * 24),
        (lambda a: a.sum(axis=0), [(4, 6)], 24),
        (lambda a: a.copy(), [(4, 6)], 0),
        (lambda a: a + 1, [(4, 6)], 24),
        (lambda a: cp.concatenate((a, a)), [(4, 6)], 0),
        (lambda a, b: cp.tensordot(a, b, axes=1), [(0, 3), (3, 4)], 0),
    ],
)
def test_floating_point_operations_are_counted_per_function(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], flop: int
) -> None:
    trace = trace_function(function, *(cp.ones(shape, dtype=cp.float32) for shape in shapes))
    assert traffic._count_flop(Plan(trace, "single"), trace.nodes[-1]) == flop


def test_kernel_time_is_the_time_of_launches_within_its_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges = [SimpleNamespace(name=f"step {n}", start_ns=100 * n, end_ns=100 * n + 50) for n in (0, 1)]
    calls = [(0, 1), (49, 2), (50, 3), (99, 4), (100, 5), (120, 0), (149, 6), (150, 7)]
    work = [(1, "a", 3), (2, "b", 4), (6, "d", 6), (5, "c", 5), *((n, "other", 9) for n in (3, 4, 0, 7))]
    record = SimpleNamespace(
        ranges=ranges,
        calls=[SimpleNamespace(start_ns=start, correlation_id=number) for start, number in calls],
        activities=[
            SimpleNamespace(correlation_id=number, name=name, start_ns=1000, end_ns=1000 + time_ns)
            for number, name, time_ns in work
        ],
    )
    monkeypatch.setattr(traffic, "timeline", lambda: nullcontext(SimpleNamespace(record=record)))
    runs: list[Any] = []

    class Fused:
        plan = SimpleNamespace(groups=[[0], [1, 2]])

        def __call__(self, args: Any, around: Any = None) -> None:
            runs.append((args, around))

    x = cp.zeros(3)
    assert traffic._run_with_traffic(Fused(), [x]) == [(("a", "b"), 7), (("d", "c"), 11)]  # type: ignore[arg-type]
    (first, untimed), (second, around) = runs
    assert (untimed, around is None) == (None, False), "it is compiled before it is timed"
    assert len({x.data.ptr, first[0].data.ptr, second[0].data.ptr}) == 3


SHARED = r"""extern "C" __global__ void own(const float* x, float* y) {
  __shared__ float all[12288];
  extern __shared__ float more[];
  float* s = TAKES;
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[threadIdx.x];
}"""


@pytest.mark.parametrize(("memory", "options"), [("all", {}), ("more", {"shared_mem": 128})])
def test_a_raw_kernel_gets_only_the_shared_memory_it_requests(memory: str, options: dict[str, int]) -> None:
    size = "1" if memory == "more" else "12288"  # the maximum without an opt-in
    kernel = cp.RawKernel(SHARED.replace("12288", size).replace("TAKES", memory), "own")

    def launched(x: Any) -> Any:
        y = cp.empty_like(x)
        kernel((1,), (32,), (x, y), **options)
        return y + 1

    record = gl.traffic(launched, cp.ones(32, dtype=cp.float32)).record
    own, add = (e for e in record.expressions if e.kernel >= 0)
    assert (own.read_bytes, own.written_bytes, add.read_bytes) == (32 * F, 32 * F, 32 * F)
    assert [(k.read_bytes, k.written_bytes) for k in record.kernels] == [(64 * F, 0), (32 * F, 32 * F)]
    assert record.way(AS_WRITTEN).moved_bytes == record.way(FUSED).moved_bytes == 128 * F
