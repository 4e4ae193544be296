"""``gl.library_calls``: operations identified by what they read and write, and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.libraries import calls as module
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance
from virtualgpu.records.libraries import Operation, OperationCalls
from virtualgpu.records.libraries.known import FORMAT, KnownCalls, add_libraries, read_known_calls
from virtualgpu.records.libraries.operations import library_of

cp: Any = None
PLANTED = Provenance("recorded", "NVIDIA Test", "planted")


def planted(
    package: str, name: str, dtype: str, size: str, layout: str, routine: str, kernel: str
) -> OperationCalls:
    operation = Operation(package, name, dtype, size, layout)
    return add_libraries(
        OperationCalls(operation=operation, routines=((routine, 1),), kernels=((kernel, 2),), recorded=True)
    )


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
    monkeypatch.setattr(module, "read_recorded_calls", lambda: KnownCalls(PLANTED, RECORDS))
    yield
    cp = None


def operations(function: Callable[[], object]) -> list[Operation | None]:
    return [ending.operation for ending in gl.library_calls(function).record.endings]


def single(function: Callable[[], object]) -> tuple[str, str, str, str]:
    (operation,) = operations(function)
    assert operation is not None
    return operation.name, operation.dtype, operation.size, operation.layout


def test_matmuls_are_classified_by_size_dtype_and_layout() -> None:
    a = cp.ones((96, 80), cp.float32)
    b = cp.ones((80, 64), cp.float32)
    assert single(lambda: a @ b) == ("matmul", "float32", "small", "row-major")
    assert single(lambda: b.T @ a.T) == ("matmul", "float32", "small", "column-major")
    assert single(lambda: a @ a.T) == ("matmul", "float32", "small", "b transposed")
    assert single(lambda: a.T @ a) == ("matmul", "float32", "small", "a transposed")
    assert single(lambda: a[::2, ::2] @ b[:40]) == ("matmul", "float32", "small", "strided")
    assert single(lambda: cp.dot(a, b)) == ("matmul", "float32", "small", "row-major")
    big = cp.ones((512, 512), cp.float64)
    assert single(lambda: big @ big) == ("matmul", "float64", "medium", "row-major")
    assert single(lambda: a @ b[:, 0].copy())[:2] == ("matrix-vector", "float32")
    assert single(lambda: b[0] @ b[1]) == ("dot", "float32", "small", "row-major")
    batch = cp.ones((4, 16, 16), cp.float16)
    assert single(lambda: batch @ batch)[:2] == ("batched matmul", "float16")


def test_matmul_size_class_uses_the_mean_edge_length() -> None:
    a = cp.ones((8, 512), cp.float32)
    b = cp.ones((512, 8), cp.float32)
    assert single(lambda: a @ b)[2] == "small"
    tall = cp.ones((2048, 512), cp.float32)
    assert single(lambda: tall.T @ tall)[2] == "medium"


def test_other_operations_are_classified() -> None:
    v = cp.ones(1000, cp.float32)
    a = cp.ones((40, 50), cp.float64)
    assert single(lambda: v.sum()) == ("sum", "float32", "small", "contiguous")
    assert single(lambda: a.sum(axis=1))[0] == "sum of rows"
    assert single(lambda: a.sum(axis=0))[0] == "sum of columns"
    assert single(lambda: v.astype(cp.int32))[0] == "astype"
    assert single(lambda: cp.sort(v))[0] == "sort"
    chosen = v > 2
    assert single(lambda: cp.where(chosen, v, v))[:2] == ("where", "float32")
    assert single(lambda: v[::2].sum())[3] == "strided"
    square = cp.eye(20)
    assert single(lambda: cp.linalg.solve(square, square[0])) == ("solve", "float64", "small", "row-major")
    assert [operation and operation.name for operation in operations(lambda: v[v > 2])] == [
        "greater",
        "boolean index",
    ]


def test_a_recorded_operation_is_returned() -> None:
    a = cp.ones((64, 64), cp.float32)
    report = gl.library_calls(lambda: a @ a)
    assert report.record.endings == (RECORDS[0],)
    assert report.libraries == ("cuBLAS",)
    assert report.record.provenance is PLANTED
    for part in ("cublasSgemm_v2", "2 × nvjet_s", "virtual T4"):
        assert part in report.describe()
    assert "not recorded" not in report.describe()


def test_unrecorded_operation_names_the_nearest_recording() -> None:
    a = cp.ones((300, 300), cp.float32)
    report = gl.library_calls(lambda: a @ a)
    (ending,) = report.record.endings
    assert ending.recorded is False
    assert not ending.kernels
    assert ending.nearest == RECORDS[0].operation
    assert "cupy matmul, float32, medium, row-major was not recorded; the nearest" in report.describe()
    assert "1 not recorded" in repr(report)
    v = cp.ones(100)
    (other,) = gl.library_calls(lambda: cp.cumsum(v)).record.endings
    assert (other.recorded, other.nearest) == (False, None)


def test_user_kernels_are_listed_without_a_library_operation() -> None:
    kernel = cp.RawKernel('extern "C" __global__ void f(float* x) { x[threadIdx.x] += 1; }', "f")
    x = cp.ones(32, cp.float32)

    def both() -> None:
        x.sum()
        kernel((1,), (32,), (x,))
        x.sum()

    endings = gl.library_calls(both).record.endings
    assert [e.operation and e.operation.name for e in endings] == ["sum", None, "sum"]
    assert endings[1].kernels == (("f", 1),)
    assert endings[1].libraries == ("the program's own",)


def test_an_error_of_the_function_is_raised_and_ends_the_recording() -> None:
    with pytest.raises(ZeroDivisionError):
        gl.library_calls(lambda: 1 // 0)
    assert session.virtual_side().machine.library_calls is None
    x = cp.ones(10)
    with pytest.raises(GpulabError, match="nest"):
        gl.library_calls(lambda: gl.library_calls(x.sum))


def test_records_are_looked_up_by_name() -> None:
    assert gl.library_calls("torch.addmm").record.endings == (RECORDS[3],)
    assert gl.library_calls("matmul").record.endings == (RECORDS[0], RECORDS[1], RECORDS[4])
    assert gl.library_calls("cp.matmul", dtype="float16").record.endings == (RECORDS[1],)
    assert gl.library_calls().record.endings == RECORDS
    with pytest.raises(GpulabError, match=r"torch\.admm .*\. Did you mean 'torch\.addmm'"):
        gl.library_calls("torch.admm")
    with pytest.raises(GpulabError, match="not among the recorded"):
        gl.library_calls("torch.addmm", dtype="float8")
    with pytest.raises(TypeError, match="needs a function"):
        gl.library_calls(3)  # type: ignore[arg-type]


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
def test_library_is_found_from_a_kernel_or_routine_name(name: str, library: str) -> None:
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
    known = read_known_calls(data, "planted")
    assert known.provenance.label == "recorded on NVIDIA Test (2026-01-02, CuPy 14)"
    (ending,) = known.endings
    assert ending.operation == Operation("cupy", "sum", "float32", "medium", "contiguous")
    assert (ending.routines, ending.kernels) == ((("cublasSasum", 2),), (("asum", 1),))
    assert ending.libraries == ("cuBLAS",)
    with pytest.raises(GpulabError, match="does not have the format gpulab-recorded-calls"):
        read_known_calls({}, "planted")


def test_the_shipped_record_names_the_expected_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    shipped = module.read_recorded_calls()
    assert "NVIDIA H200" in shipped.provenance.label
    keys = [ending.operation for ending in shipped.endings]
    assert len(set(keys)) == len(keys) > 600
    for ending in shipped.endings:
        assert ending.operation is not None
        assert ending.kernels, ending.operation
        assert "cuBLAS" in ending.libraries or "matmul" not in ending.operation.name
    (gelu,) = shipped.named("torch.addmm, gelu", dtype="float16")
    assert gelu.routines == (("cublasLtMatmul", 1),)
    assert gelu.libraries == ("cuBLASLt",)
    assert all("CUB" in ending.libraries for ending in shipped.named("cupy.sort", dtype="float32"))
    for name, library, routine in (
        ("cupy.matmul", "cuBLAS", "cublasGemmEx"),
        ("cupy.fft.rfft", "cuFFT", "cufft"),
        ("cupy.linalg.solve", "cuSOLVER", "cusolverDn"),
        ("cupy.sparse by vector", "cuSPARSE", "cusparse"),
        ("torch.nn.functional.conv2d", "cuDNN", "cudnnBackendExecute"),
    ):
        for ending in shipped.named(name, dtype="float32"):
            assert library in ending.libraries, ending
            assert any(routine_called.startswith(routine) for routine_called, _ in ending.routines), ending


def test_operations_of_a_real_gpu_are_looked_up_by_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Provenance("measured", "NVIDIA Test")
    kinds = [("CONCURRENT_KERNEL", "nvjet_h"), ("MEMCPY", "nvjet_s"), ("CONCURRENT_KERNEL", "nvjet_h")]
    activities = [SimpleNamespace(kind=kind, name=name) for kind, name in kinds]
    record = SimpleNamespace(activities=activities, note="CUPTI was lost")
    order: list[str] = []

    @contextmanager
    def timeline() -> Iterator[Any]:
        order.append("timeline")
        yield SimpleNamespace(record=record)

    device = SimpleNamespace(synchronize=lambda: order.append("synchronize"))
    monkeypatch.setattr(module, "timeline", timeline)
    monkeypatch.setattr(session, "cp", lambda: SimpleNamespace(cuda=SimpleNamespace(Device=lambda: device)))
    monkeypatch.setattr(session, "backend", lambda: SimpleNamespace(provenance=measured))

    class Model:
        def __call__(self, text: str) -> None:
            order.append(text)

    calls = gl.library_calls(Model(), "call").record
    assert order == ["synchronize", "timeline", "call"], "earlier work is not counted"
    assert (calls.provenance, calls.function, calls.note) == (measured, "Model", "CUPTI was lost")
    assert [(e.kernels, e.routines) for e in calls.endings] == [((("nvjet_h", 2),), (("cublasGemmEx", 0),))]


def test_on_a_virtual_gpu_the_note_names_the_device() -> None:
    def added(x: Any, y: Any) -> None:
        x + y

    record = gl.library_calls(added, cp.ones(4), cp.ones(4)).record
    assert record.function == "added"
    assert [ending.operation.name for ending in record.endings if ending.operation] == ["add"]
    assert "virtual T4" in record.note
    assert gl.library_calls("torch.addmm").record.function == "torch.addmm"
    assert (gl.library_calls().record.provenance, gl.library_calls().record.note) == (PLANTED, "")
