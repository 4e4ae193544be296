"""RawKernel and RawModule: results against NumPy, limits and mistakes as CUDA names them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.virtual.conftest import fresh
from virtualgpu import cp
from virtualgpu.compile import nvrtc
from virtualgpu.cp._core.raw_kernel import RawKernel, RawModule
from virtualgpu.cuda_errors import CompileException, CUDADriverError
from virtualgpu.errors import ArgumentWarning, NotSupportedError, SourceWarning
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

CODE = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void __launch_bounds__(128) bounded(float* x) { x[threadIdx.x] = 1.0f; }
extern "C" __global__ void dynamic(float* x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void hungry(float* x, int n) {
    float r[200];
    for (int i = 0; i < 200; i++) r[i] = x[i * n];
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 200; i++) r[i] = r[i] * r[(i + 7) % 200] + r[(i + 3) % 200];
    float s = 0;
    for (int i = 0; i < 200; i++) s += r[i];
    x[threadIdx.x] = s;
}
extern "C" __global__ void is_static(float* x) {
    __shared__ float s[300];
    s[threadIdx.x] = x[0];
    __syncthreads();
    x[threadIdx.x] = s[0];
}
template <typename T> __global__ void scale(T* x, T factor) { x[threadIdx.x] *= factor; }
__global__ void mangled(float* x) { x[0] = 1; }
__constant__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};
extern "C" __global__ void look_up(float* x) { x[threadIdx.x] = table[threadIdx.x]; }
"""


@pytest.fixture(autouse=True)
def h200() -> Iterator[Machine]:
    yield from fresh("H200", "T4")


def kernel(name: str, code: str = CODE, **options: Any) -> RawKernel:
    return RawKernel(code, name, **options)


def refused(status: int, name: str, *parts: str) -> Any:
    """Expect a CUDADriverError whose message has all parts."""

    class Expectation:
        def __enter__(self) -> None:
            self.context = pytest.raises(CUDADriverError)
            self.caught = self.context.__enter__()

        def __exit__(self, *exc: Any) -> bool:
            swallowed = bool(self.context.__exit__(*exc))
            assert self.caught.value.status == status
            for part in (name, *parts):
                assert part in str(self.caught.value), str(self.caught.value)
            return swallowed

    return Expectation()


# Results


@pytest.mark.parametrize("device", [0, 1])
def test_saxpy_equals_numpy(device: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(1000, np.float32)
    y = rng.standard_normal(1000, np.float32)
    with cp.cuda.Device(device):
        dx = cp.asarray(x)
        dy = cp.asarray(y)
        kernel("saxpy")((8,), (128,), (np.float32(2), dx, dy, np.int32(1000)))
        # One rounding for a fused multiply-add: computed in double, rounded once.
        expected = (2.0 * x.astype(np.float64) + y).astype(np.float32)
        np.testing.assert_array_equal(dy.get(), expected)


def test_arguments_can_be_a_list_with_python_numbers() -> None:
    x = cp.ones(10, cp.float32)
    y = cp.ones(10, cp.float32)
    kernel("saxpy")((1,), (32,), [np.float32(3), x, y, 10])
    assert y.get().tolist() == [4.0] * 10


def test_globals_can_be_read_and_written() -> None:
    module = RawModule(code=CODE)
    x = cp.zeros(4, cp.float32)
    module.get_function("look_up")((1,), (4,), (x,))
    assert x.get().tolist() == [1.0, 2.0, 3.0, 4.0]
    table = cp.ndarray(4, cp.float32, module.get_global("table"))
    table[:] = cp.asarray([5, 6, 7, 8], dtype=cp.float32)
    module.get_function("look_up")((1,), (4,), (x,))
    assert x.get().tolist() == [5.0, 6.0, 7.0, 8.0]


# Limits, by CUDA's error names


@pytest.mark.parametrize(
    ("grid", "block", "part"),
    [
        ((1,), (2048,), "1,024, H200"),
        ((1, 70000), (32,), "grid.y is 70,000"),
        ((1,), (256,), "__launch_bounds__(128)"),
    ],
)
def test_a_launch_beyond_a_limit_names_the_limit(
    grid: tuple[int, ...], block: tuple[int, ...], part: str
) -> None:
    with refused(1, "CUDA_ERROR_INVALID_VALUE: invalid argument", *part.split(", ")):
        kernel("bounded")(grid, block, (cp.zeros(1, cp.float32),))


def test_a_launch_with_too_many_registers_is_refused() -> None:
    hungry = kernel("hungry")
    assert hungry.num_regs > 64
    with refused(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested", "1,024 threads of"):
        hungry((1,), (1024,), (cp.zeros(1024, cp.float32), 1))
    most = hungry.max_threads_per_block
    # Registers are handed to warps in units of 256, and a block has 65,536.
    assert -(-hungry.num_regs * 32 // 256) * 256 * (most // 32) <= 65536
    hungry((1,), (most,), (cp.zeros(1024, cp.float32), 1))


def test_dynamic_shared_memory_needs_opting_in() -> None:
    dynamic = kernel("dynamic")
    x = cp.zeros(32, cp.float32)
    dynamic((1,), (32,), (x,), shared_mem=49_152)
    kernel("is_static")((1,), (32,), (x,), shared_mem=49_152 - 1200)
    with refused(1, "CUDA_ERROR_INVALID_VALUE", "in addition to its 1,200 static bytes"):
        kernel("is_static")((1,), (32,), (x,), shared_mem=49_153 - 1200)
    with refused(1, "CUDA_ERROR_INVALID_VALUE", "may use 49,152", "max_dynamic_shared_size_bytes = 50000"):
        dynamic((1,), (32,), (x,), shared_mem=50_000)
    dynamic.max_dynamic_shared_size_bytes = 227 * 1024
    dynamic((1,), (32,), (x,), shared_mem=227 * 1024)
    with refused(1, "CUDA_ERROR_INVALID_VALUE", "at most 232,448 bytes per block"):
        dynamic((1,), (32,), (x,), shared_mem=227 * 1024 + 1)
    with refused(1, "CUDA_ERROR_INVALID_VALUE", "at most 232,448"):
        dynamic.max_dynamic_shared_size_bytes = 227 * 1024 + 1
    with cp.cuda.Device(1), refused(1, "CUDA_ERROR_INVALID_VALUE", "65,536", "T4"):
        dynamic.max_dynamic_shared_size_bytes = 65 * 1024


@pytest.mark.parametrize(("grid", "block"), [((0,), (32,)), ((-1,), (32,)), ((1, 0), (32, 0))])
def test_sizes_below_one_count_as_one(grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    """As in CuPy, so that a guarded kernel over no elements does nothing."""
    x = cp.arange(32, dtype=cp.float32)
    with pytest.warns(ArgumentWarning, match="As with CuPy, a size below 1 counts as 1"):
        kernel("saxpy")(grid, block, (np.float32(2), x, x, 32))
    np.testing.assert_array_equal(x.get(), 3 * np.arange(32))


def test_nvrtcs_warnings_are_reported_once_with_their_lines() -> None:
    code = 'extern "C" __global__ void careless(int* x) {\n  int unused;\n  x[0] = 1;\n}'
    careless = cp.RawKernel(code, "careless")
    x = cp.zeros(1, cp.int32)
    with pytest.warns(SourceWarning, match=r"kernel\.cu\(2\): warning .*\"unused\" was declared") as warned:
        careless((1,), (1,), (x,))
    assert len(warned) == 1
    careless((1,), (1,), (x,))
    assert int(x[0]) == 1


def test_a_stream_of_another_device_is_refused() -> None:
    stream = cp.cuda.Stream()
    x = cp.ones(32, cp.float32)
    with cp.cuda.Device(1):
        y = cp.ones(32, cp.float32)
        with refused(400, "CUDA_ERROR_INVALID_HANDLE", "stream belongs to device 0"):
            kernel("saxpy")((1,), (32,), (np.float32(1), y, y, 32), stream=stream)
    kernel("saxpy")((1,), (32,), (np.float32(1), x, x, 32), stream=stream)


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        (1, (32,), r"'grid' has incorrect type \(expected tuple, got int\).*\(1,\)"),
        ((1,), 32, r"'block' has incorrect type \(expected tuple, got int\).*\(32,\)"),
        ((1.5,), (32,), r"`grid` must contain integers, not 1\.5.*//"),
        ((1, 1, 1, 1), (32,), "'grid' has 4 dimensions"),
        ((), (32,), "'grid' has 0 dimensions"),
    ],
)
def test_launch_shapes_must_be_tuples_of_integers(grid: Any, block: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        kernel("bounded")(grid, block, (cp.zeros(1, cp.float32),))


# Mistakes in the source


@pytest.mark.parametrize(
    ("load", "parts"),
    [
        (lambda: kernel("saxpi").compile(), ("named symbol not found", "'saxpi'", "mean 'saxpy'", "bounded")),
        (lambda: kernel("mangled").compile(), ('extern "C"', "_Z7mangledPf")),
        (lambda: kernel("scale<float>").compile(), ("name_expressions=['scale<float>']",)),
        (
            lambda: kernel("f", "__device__ int f() { return 1; }").compile(),
            ("nor any other __global__ function",),
        ),
        (lambda: RawModule(code=CODE).get_global("nope"), ("'nope'",)),
    ],
)
def test_unknown_names_have_a_suggestion(load: Any, parts: tuple[str, ...]) -> None:
    with refused(500, "CUDA_ERROR_NOT_FOUND", *parts):
        load()


@pytest.mark.parametrize(
    ("make", "error", "part"),
    [
        (lambda: RawModule(), TypeError, "Exactly one of"),
        (lambda: RawModule(code=CODE, path="x.cubin"), TypeError, "Exactly one of"),
        (lambda: RawKernel(CODE, "saxpy", options="-DN=4"), TypeError, "a tuple of str"),  # type: ignore[arg-type]
        (lambda: RawKernel(CODE, "saxpy", options=["-DN=4"]), TypeError, r"\(expected tuple, got list\)"),  # type: ignore[arg-type]
        (lambda: RawModule(code=CODE, options=["-DN=4"]), TypeError, r"\(expected tuple, got list\)"),  # type: ignore[arg-type]
        (
            lambda: cp.ElementwiseKernel("T x", "T y", "y = x", "k", options=["-DN=4"])(cp.ones(2)),  # type: ignore[arg-type]
            TypeError,
            r"'options' has incorrect type \(expected tuple, got list\)",
        ),
        (lambda: RawModule(path=Path("a.ptx")), TypeError, r"'path' has incorrect type .*Pass str\(path\)"),  # type: ignore[arg-type]
        (lambda: RawModule(path="no such.cubin").get_function("k"), CUDADriverError, "FILE_NOT_FOUND"),
        (lambda: RawModule(code=CODE, name_expressions="saxpy"), TypeError, r"Write \['saxpy'\]"),
        (lambda: RawKernel(CODE.encode(), "saxpy"), TypeError, "as a str"),  # type: ignore[arg-type]
        (lambda: RawKernel(CODE, "saxpy", backend="nvcc"), NotSupportedError, "virtual GPU"),
        (lambda: RawKernel(CODE, "saxpy", jitify=True), NotSupportedError, "virtual GPU"),
        (lambda: RawModule(code=CODE, backend="nvcc"), NotSupportedError, "virtual GPU"),
        (
            lambda: RawModule(code=CODE, translate_cucomplex=True),
            NotSupportedError,
            "not support|offers|virtual",
        ),
    ],
)
def test_wrong_arguments_of_kernels_and_modules_are_refused(
    make: Any, error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        make()


# What the compiler decided


def test_kernel_attributes_equal_those_of_cupy_on_an_h200() -> None:
    """Attributes that do not depend on the number of registers."""
    bounded = kernel("bounded").attributes
    static = kernel("is_static").attributes
    assert bounded["max_threads_per_block"] == 128
    assert bounded["binary_version"] == bounded["ptx_version"] == 90
    assert bounded["const_size_bytes"] == 16
    assert static["shared_size_bytes"] == 1200
    assert static["max_dynamic_shared_size_bytes"] == 49152 - 1200
    assert static["preferred_shared_memory_carveout"] == -1
    assert kernel("hungry").local_size_bytes > 0


def test_provenance_names_the_target_for_an_old_device() -> None:
    slot.use(Machine([device_info("V100")]))
    stats = kernel("bounded").stats
    oldest = min(nvrtc.supported_targets())
    assert stats.target == f"sm_{max(oldest, 70)}"
    if oldest > 70:
        assert f"sm_{oldest}, its oldest target; the device itself is 7.0" in stats.provenance.label


# After a fault


COMPLEX = r"""
#include <cupy/complex.cuh>
#include <cupy/complex.cuh>  // twice does no harm

extern "C" __global__ void my_func(const complex<float>* x1, const complex<float>* x2,
                                   complex<float>* y, float a) {
  int tid = blockDim.x * blockIdx.x + threadIdx.x;
  y[tid] = x1[tid] + a * x2[tid];
}

extern "C" __global__ void functions(const complex<double>* z, complex<double>* out) {
  complex<double> w = z[threadIdx.x];
  out[threadIdx.x] = pow(sin(w), 2.0) + cos(w) * cos(w) + tanh(w) / conj(w) - sqrt(exp(log(w))) + abs(w);
}
"""


def test_the_complex_header_computes_as_numpy() -> None:
    """The example of CuPy's documentation, and functions against NumPy's."""
    x1 = (np.arange(10) + 2j).astype("c8")
    x2 = (1 - 3j * np.arange(10)).astype("c8")
    y = cp.zeros(10, "c8")
    cp.RawKernel(COMPLEX, "my_func")((1,), (10,), (cp.asarray(x1), cp.asarray(x2), y, np.float32(2)))
    np.testing.assert_allclose(y.get(), x1 + np.float32(2) * x2, rtol=1e-6)
    z = np.array([0.5 + 2j, -1.5 - 0.25j, 3 - 4j, 1 + 1j])
    out = cp.zeros(4, "c16")
    cp.RawKernel(COMPLEX, "functions")((1,), (4,), (cp.asarray(z), out))
    expected = np.sin(z) ** 2 + np.cos(z) ** 2 + np.tanh(z) / np.conj(z) - np.sqrt(np.exp(np.log(z))) + abs(z)
    np.testing.assert_allclose(out.get(), expected, rtol=1e-12)


OF_NUMPY = {f"arc{name}": f"a{name}" for name in ("cos", "sin", "tan", "cosh", "sinh", "tanh")}
OF_NUMPY |= {name: name for name in ("tan", "tanh", "sqrt", "log10")}


@pytest.mark.parametrize("name", OF_NUMPY)
def test_complex_functions_at_branch_cuts_and_extremes(name: str) -> None:
    code = f"""
    #include <cupy/complex.cuh>
    extern "C" __global__ void k(const complex<double>* z, complex<double>* out) {{
        out[threadIdx.x] = {OF_NUMPY[name]}(z[threadIdx.x]);
    }}"""
    rng = np.random.default_rng(3)
    near = rng.normal(size=20) + 1j * rng.normal(size=20)
    ends = [2, -2, -4, 3j, -3j, 0, 0.5, 400 + 3j, -50 - 1j, 2 - 600j, complex(-4, -0.0), 1e-300]
    z = np.concatenate([near, near * 1e-6, near * 1e3, ends])
    out = cp.zeros(z.size, "c16")
    cp.RawKernel(code, "k")((1,), (z.size,), (cp.asarray(z), out))
    with np.errstate(divide="ignore"):
        expected = getattr(np, name)(z)
    np.testing.assert_allclose(out.get(), expected, rtol=1e-12)


def test_an_infinite_complex_number_times_a_scalar_is_not_nan() -> None:
    code = """
    #include <cupy/complex.cuh>
    extern "C" __global__ void k(complex<float> z, complex<float>* out) {
        out[0] = z * 2, out[1] = 2.0f * z, out[2] = z / 2;
    }"""
    out = cp.zeros(3, "c8")
    cp.RawKernel(code, "k")((1,), (1,), (np.complex64(np.inf), out))
    assert out.tolist() == [complex(np.inf, 0)] * 3


def test_the_complex_header_keeps_line_numbers() -> None:
    code = COMPLEX.replace("y[tid] =", "wrong =")
    with pytest.raises(cp.cuda.compiler.CompileException, match=r"kernel\.cu\(8\)"):
        cp.RawKernel(code, "my_func").compile()


def test_carray_and_math_constants_headers() -> None:
    code = """
    #include <cupy/carray.cuh>
    #include <cupy/math_constants.h>
    #include <cupy/complex.cuh>
    extern "C" __global__ void k(CArray<float, 2> a, CArray<float, 1, true, true> flat, float* out) {
        for (ptrdiff_t i = 0; i < a.size(); ++i) flat[i] = a[i];
        const int at[2] = {1, 2};
        out[0] = a[at], out[1] = a.shape()[0], out[2] = a.strides()[1], out[3] = -CUDART_INF_F;
    }
    """
    a = cp.arange(12, dtype=np.float32).reshape(3, 4).T
    flat = cp.zeros(12, np.float32)
    out = cp.zeros(4, np.float32)
    cp.RawKernel(code, "k")((1,), (1,), (a, flat, out))
    assert flat.tolist() == a.get().ravel().tolist()
    assert out.tolist() == [a.get()[1, 2], 4, a.strides[1], -np.inf]


def test_a_compile_error_has_the_line_and_can_be_dumped() -> None:
    source = 'extern "C" __global__ void k() {\n  foo;\n}'
    with pytest.raises(CompileException, match=r'\(2\): error: identifier "foo" is undefined') as error:
        RawKernel(source, "k", ("-DN=3",)).compile()
    assert error.value.source == source
    written = io.StringIO()
    error.value.dump(written)
    assert "\nOptions: -DN=3\nCUDA source:\n" in written.getvalue()
    assert "\n2   foo;\n3 }\n-----\n" in written.getvalue()
