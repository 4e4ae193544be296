"""``gl.library_calls``: operations told from what they read and write, and what is recorded of them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab as gl
from gpulab.lab.libraries import calls as module
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance
from virtualgpu.records.libraries import Calls, Ending, Operation
from virtualgpu.records.libraries.known import FORMAT, KnownCalls, known_calls, with_libraries
from virtualgpu.records.libraries.operations import library_of

cp: Any = None
RECORDINGS = resources.files("gpulab") / "data" / "recordings"
PLANTED = Provenance("recorded", "NVIDIA Test", "planted")


def planted(package: str, name: str, dtype: str, size: str, layout: str, routine: str, kernel: str) -> Ending:
    operation = Operation(package, name, dtype, size, layout)
    made = Ending(operation=operation, routines=((routine, 1),), kernels=((kernel, 2),), recorded=True)
    return with_libraries(made)


RECORDS = (
    planted("cupy", "matmul", "float32", "small", "row-major", "cublasSgemm_v2", "nvjet_s"),
    planted("cupy", "matmul", "float16", "medium", "row-major", "cublasGemmEx", "nvjet_h"),
    planted("cupy", "sum", "float32", "medium", "contiguous", "none", "cupy_sum"),
    planted("torch", "addmm", "float16", "medium", "row-major", "cublasLtMatmul", "nvjet_h_bias"),
    planted("torch", "matmul", "float16", "medium", "row-major", "cublasGemmEx", "nvjet_h2"),
)


@pytest.fixture(autouse=True)
def on_a_virtual_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    global cp
    gl.use_device("virtual:T4")
    cp = gl.cp
    monkeypatch.setattr(module, "recorded", lambda: KnownCalls(PLANTED, RECORDS))
    yield
    cp = None


def told(function: Callable[[], object]) -> list[Operation | None]:
    return [each.operation for each in gl.library_calls(function).record.endings]


def one(function: Callable[[], object]) -> tuple[str, str, str, str]:
    (operation,) = told(function)
    assert operation is not None
    return operation.name, operation.dtype, operation.size, operation.layout


def test_products_by_size_dtype_and_layout() -> None:
    a = cp.ones((96, 80), cp.float32)
    b = cp.ones((80, 64), cp.float32)
    assert one(lambda: a @ b) == ("matmul", "float32", "small", "row-major")
    assert one(lambda: b.T @ a.T) == ("matmul", "float32", "small", "column-major")
    assert one(lambda: a @ a.T) == ("matmul", "float32", "small", "b transposed")
    assert one(lambda: a.T @ a) == ("matmul", "float32", "small", "a transposed")
    assert one(lambda: a[::2, ::2] @ b[:40]) == ("matmul", "float32", "small", "strided")
    assert one(lambda: cp.dot(a, b)) == ("matmul", "float32", "small", "row-major")
    big = cp.ones((512, 512), cp.float64)
    assert one(lambda: big @ big) == ("matmul", "float64", "medium", "row-major")
    assert one(lambda: a @ b[:, 0].copy())[:2] == ("matrix-vector", "float32")
    assert one(lambda: b[0] @ b[1]) == ("dot", "float32", "small", "row-major")
    batch = cp.ones((4, 16, 16), cp.float16)
    assert one(lambda: batch @ batch)[:2] == ("batched matmul", "float16")


def test_the_size_class_of_a_product_is_its_edges_mean() -> None:
    a = cp.ones((8, 512), cp.float32)
    b = cp.ones((512, 8), cp.float32)
    assert one(lambda: a @ b)[2] == "small"
    tall = cp.ones((2048, 512), cp.float32)
    assert one(lambda: tall.T @ tall)[2] == "medium"


def test_other_operations() -> None:
    v = cp.ones(1000, cp.float32)
    a = cp.ones((40, 50), cp.float64)
    assert one(lambda: v.sum()) == ("sum", "float32", "small", "contiguous")
    assert one(lambda: a.sum(axis=1))[0] == "sum of rows"
    assert one(lambda: a.sum(axis=0))[0] == "sum of columns"
    assert one(lambda: v.astype(cp.int32))[0] == "astype"
    assert one(lambda: cp.sort(v))[0] == "sort"
    chosen = v > 2
    assert one(lambda: cp.where(chosen, v, v))[:2] == ("where", "float32")
    assert one(lambda: v[::2].sum())[3] == "strided"
    square = cp.eye(20)
    assert one(lambda: cp.linalg.solve(square, square[0])) == ("solve", "float64", "small", "row-major")
    assert [each and each.name for each in told(lambda: v[v > 2])] == ["greater", "boolean index"]


def test_what_is_recorded_is_given() -> None:
    a = cp.ones((64, 64), cp.float32)
    report = gl.library_calls(lambda: a @ a)
    (found,) = report.record.endings
    assert found == RECORDS[0]
    assert report.libraries == ("cuBLAS",)
    assert report.record.provenance is PLANTED
    assert "cublasSgemm_v2" in report.describe()
    assert "2 × nvjet_s" in report.describe()
    assert "virtual T4" in report.describe()
    assert "not recorded" not in report.describe()


def test_the_nearest_is_named_where_nothing_is_recorded() -> None:
    a = cp.ones((300, 300), cp.float32)
    report = gl.library_calls(lambda: a @ a)
    (found,) = report.record.endings
    assert found.recorded is False
    assert not found.kernels
    assert found.nearest == RECORDS[0].operation
    assert "cupy matmul, float32, medium, row-major was not recorded; the nearest" in report.describe()
    assert "1 not recorded" in repr(report)


def test_of_a_name_that_was_never_recorded_nothing_is_near() -> None:
    v = cp.ones(100)
    (found,) = gl.library_calls(lambda: cp.cumsum(v)).record.endings
    assert found.recorded is False
    assert found.nearest is None


def test_kernels_of_the_program_are_its_own() -> None:
    kernel = cp.RawKernel('extern "C" __global__ void f(float* x) { x[threadIdx.x] += 1; }', "f")
    x = cp.ones(32, cp.float32)

    def both() -> None:
        x.sum()
        kernel((1,), (32,), (x,))
        x.sum()

    found = gl.library_calls(both).record.endings
    assert [each.operation and each.operation.name for each in found] == ["sum", None, "sum"]
    assert found[1].kernels == (("f", 1),)
    assert found[1].libraries == ("the program's own",)


def test_what_the_function_raises_comes_through_and_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError):
        gl.library_calls(lambda: 1 // 0)
    from gpulab import session

    assert session.virtual_side().machine.library_calls is None


def test_calls_within_calls() -> None:
    x = cp.ones(10)
    with pytest.raises(GpulabError, match="nest"):
        gl.library_calls(lambda: gl.library_calls(x.sum))


def test_arguments_are_passed_on() -> None:
    report = gl.library_calls(lambda x, y: x + y, cp.ones(4), cp.ones(4))
    assert [each.operation.name for each in report.record.endings if each.operation] == ["add"]


def test_records_are_looked_up_by_name() -> None:
    assert gl.library_calls("torch.addmm").record.endings == (RECORDS[3],)
    assert gl.library_calls("matmul").record.endings == (RECORDS[0], RECORDS[1], RECORDS[4])
    assert gl.library_calls("cp.matmul", dtype="float16").record.endings == (RECORDS[1],)
    assert gl.library_calls().record.endings == RECORDS
    with pytest.raises(GpulabError, match=r"torch\.admm was not recorded\. Did you mean 'torch\.addmm'"):
        gl.library_calls("torch.admm")
    with pytest.raises(GpulabError, match="not recorded"):
        gl.library_calls("torch.addmm", dtype="float8")
    with pytest.raises(TypeError, match="takes a function"):
        gl.library_calls(3)  # type: ignore[arg-type]


def test_on_a_gpu_kernels_bring_their_routines() -> None:
    first, second = KnownCalls(PLANTED, RECORDS).of_real_kernels({"nvjet_h": 2, "mine": 1})
    assert first.kernels == (("nvjet_h", 2),)
    assert first.routines == (("cublasGemmEx", 0),)
    assert first.libraries == ("cuBLAS",)
    assert first.recorded is None
    assert second == replace(second, routines=(), libraries=())


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("cublasLtMatmul", "cuBLASLt"),
        ("cublasSgemm_v2", "cuBLAS"),
        ("cudnnBackendExecute", "cuDNN"),
        ("sm90_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw__5x_cudnn", "cuDNN"),
        ("cusolverDnSgetrf", "cuSOLVER"),
        ("void cub::DeviceReduceKernel<float>", "CUB"),
        ("void at::native::vectorized_elementwise_kernel<4>", "PyTorch's own"),
        ("void regular_fft<1024u>", "cuFFT"),
        ("cupy_add__float_float_float", "CuPy's own"),
        ("my_kernel", ""),
    ],
)
def test_libraries_by_name(name: str, library: str) -> None:
    assert library_of(name) == library


def test_records_are_read_from_a_file() -> None:
    key = ["cupy", "sum", "float32", "medium", "contiguous"]
    data = {
        "format": FORMAT,
        "version": 1,
        "device": "NVIDIA Test",
        "date": "2026-01-02",
        "versions": {"CuPy": "14"},
        "calls": [[*key, [["cublasSasum", 2]], [["asum", 1]]]],
    }
    known = known_calls(data, "planted")
    assert known.provenance.label == "recorded on NVIDIA Test (2026-01-02, CuPy 14)"
    (found,) = known.endings
    assert found.operation == Operation("cupy", "sum", "float32", "medium", "contiguous")
    assert (found.routines, found.kernels) == ((("cublasSasum", 2),), (("asum", 1),))
    assert found.libraries == ("cuBLAS",)
    with pytest.raises(GpulabError, match="is no gpulab-recorded-calls file"):
        known_calls({}, "planted")


def test_the_shipped_record() -> None:
    known = json.loads(lzma.decompress((RECORDINGS / module.RECORD).read_bytes()))
    shipped = known_calls(known, module.RECORD)
    assert "NVIDIA H200" in shipped.provenance.label
    keys = [each.operation for each in shipped.endings]
    assert len(set(keys)) == len(keys) > 600
    for each in shipped.endings:
        assert each.operation is not None
        assert each.kernels, each.operation
        assert "cuBLAS" in each.libraries or "matmul" not in each.operation.name
    (gelu,) = shipped.named("torch.addmm, gelu", dtype="float16")
    assert gelu.routines == (("cublasLtMatmul", 1),)
    assert gelu.libraries == ("cuBLASLt",)
    assert all("CUB" in each.libraries for each in shipped.named("cupy.sort", dtype="float32"))
    for name, library, routine in (
        ("cupy.matmul", "cuBLAS", "cublasGemmEx"),
        ("cupy.fft.rfft", "cuFFT", "cufft"),
        ("cupy.linalg.solve", "cuSOLVER", "cusolverDn"),
        ("cupy.sparse by vector", "cuSPARSE", "cusparse"),
        ("torch.nn.functional.conv2d", "cuDNN", "cudnnBackendExecute"),
    ):
        for each in shipped.named(name, dtype="float32"):
            assert library in each.libraries, each
            assert any(called.startswith(routine) for called, _ in each.routines), each


def test_one_sentence_names_the_libraries_once_and_what_was_not_recorded() -> None:
    gemm = RECORDS[0]
    lost = replace(RECORDS[2], recorded=False, libraries=())
    own = replace(RECORDS[2], recorded=None, libraries=("CuPy's own", "cuBLAS"))

    def said(*endings: Ending) -> str:
        report = module.CallsReport(Calls(provenance=PLANTED, function="f", endings=endings))
        return repr(report).removesuffix(f"; {PLANTED.label}.")

    assert said(gemm, gemm, own) == "f: 3 operations into cuBLAS and CuPy's own"
    assert said(lost, gemm, lost) == "f: 3 operations into cuBLAS; 2 not recorded"
    assert said(lost) == "f: 1 operation; 1 not recorded"
    assert said() == "f: 0 operations"


def test_on_a_gpu_what_ran_is_looked_up_by_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab import session

    measured = Provenance("measured", "NVIDIA Test")
    kinds = [("CONCURRENT_KERNEL", "nvjet_h"), ("MEMCPY", "nvjet_s"), ("CONCURRENT_KERNEL", "nvjet_h")]
    record = SimpleNamespace(
        activities=[SimpleNamespace(kind=kind, name=name) for kind, name in kinds], note="CUPTI was lost"
    )
    order: list[str] = []

    @contextmanager
    def timeline() -> Iterator[Any]:
        order.append("timeline")
        yield SimpleNamespace(record=record)

    device = SimpleNamespace(synchronize=lambda: order.append("waits"))
    monkeypatch.setattr(module, "timeline", timeline)
    monkeypatch.setattr(session, "cp", lambda: SimpleNamespace(cuda=SimpleNamespace(Device=lambda: device)))
    monkeypatch.setattr(session, "backend", lambda: SimpleNamespace(provenance=measured))

    class Model:
        def __call__(self, what: str) -> None:
            order.append(what)

    found = gl.library_calls(Model(), "runs").record
    assert order == ["waits", "timeline", "runs"]  # what went before is none of its own
    assert (found.provenance, found.function, found.note) == (measured, "Model", "CUPTI was lost")
    assert [(e.kernels, e.routines) for e in found.endings] == [((("nvjet_h", 2),), (("cublasGemmEx", 0),))]


def test_on_a_virtual_gpu_the_note_says_whose_the_operations_are() -> None:
    def added(x: Any) -> None:
        x + 1

    record = gl.library_calls(added, cp.ones(4)).record
    assert record.function == "added"
    assert record.note == "Operations are those that the virtual T4 ran, without any of these libraries."
    assert gl.library_calls("torch.addmm").record.function == "torch.addmm"
    assert gl.library_calls().record.function == "all that was recorded"
    assert (gl.library_calls().record.provenance, gl.library_calls().record.note) == (PLANTED, "")
    with pytest.raises(TypeError, match="function or a recorded operation's name, not int"):
        gl.library_calls(3)  # type: ignore[arg-type]


def test_what_ships_is_read_from_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert len(module.recorded().endings) > 600
