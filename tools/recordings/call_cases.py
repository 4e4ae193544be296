"""Operations of CuPy and PyTorch for `tools.recordings.calls`, the most important first.

Each case is a few lines that make arrays and an expression that is recorded. Its key (name, dtype, size,
layout) is what `gl.library_calls` finds it by: of CuPy's the one that the virtual GPU reports for the same
expression.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SMALL = "small"
MEDIUM = "medium"
LARGE = "large"
_ELEMENTS = {SMALL: 1 << 12, MEDIUM: 1 << 20, LARGE: 1 << 24}
_MATRIX_EDGES = {SMALL: 64, MEDIUM: 1024, LARGE: 4096}
_LINALG_EDGES = {SMALL: 64, MEDIUM: 512, LARGE: 2048}
_REAL_DTYPES = ("float32", "float64")
_COMPLEX_DTYPES = ("complex64", "complex128")
_CUPY_SPARSE_CODE = """
i, n = np.arange(1 << 18), 1 << 14
where = xp.asarray(i * 7919 % n), xp.asarray(i * 104729 % n)
s = sparse.coo_matrix((xp.ones(i.size, dt), where), shape=(n, n)).tocsr()
s.sum_duplicates()
v, d = xp.ones(n, dt), xp.ones((n, 32), dt)
t = sparse.eye(n, dtype=dt, format="csr") * 3 + s * dt(1e-3)
"""
_TORCH_SPARSE_CODE = """
i, n = np.arange(1 << 18), 1 << 14
where = xp.from_numpy(np.stack([i * 7919 % n, i * 104729 % n])).to("cuda")
s = xp.sparse_coo_tensor(where, xp.ones(i.size, dtype=dt, device="cuda"), (n, n)).coalesce()
r = s.to_sparse_csr()
v, d = xp.ones(n, dtype=dt, device="cuda"), xp.ones((n, 32), dtype=dt, device="cuda")
"""
_HALF_DTYPES = {"cupy": ("float16",), "torch": ("float16", "bfloat16")}


@dataclass(frozen=True, slots=True)
class CallCase:
    """An operation to record. `made` sets up its arrays, and `call` is the expression that is recorded."""

    package: str
    name: str
    dtype: str
    size: str
    layout: str
    made: str
    call: str

    @property
    def key(self) -> list[str]:
        """The key of the record."""
        return [self.package, self.name, self.dtype, self.size, self.layout]

    def function(self, space: dict[str, Any]) -> Any:
        """Create the arrays of the case, and return its expression as a function."""
        names = {**space, "dt": getattr(space["xp"], self.dtype.replace("tf32", "float32"))}
        exec(self.made, names)
        return eval(f"lambda: {self.call}", names)


def list_cases(package: str) -> list[CallCase]:
    """Return all cases of a package, the most important first."""
    groups = (_make_cupy_cases if package == "cupy" else _make_torch_cases)()
    all_cases = [case for group in groups for case in group]
    assert len({tuple(case.key) for case in all_cases}) == len(all_cases)
    return all_cases


def _make_cupy_cases() -> Iterator[Iterator[CallCase]]:
    yield _make_fft_cases("cupy")
    yield _make_linalg_cases("cupy")
    yield _make_cupy_sparse_cases()
    yield _make_product_cases("cupy")
    yield _make_sort_cases("cupy")
    yield _make_cupy_random_cases()
    yield _make_elementwise_cases("cupy")


def _make_torch_cases() -> Iterator[Iterator[CallCase]]:
    yield _make_cudnn_cases()
    yield _make_product_cases("torch")
    yield _make_epilogue_cases()
    yield _make_fft_cases("torch")
    yield _make_linalg_cases("torch")
    yield _make_torch_sparse_cases()
    yield _make_sort_cases("torch")
    yield _make_layer_cases()
    yield _make_torch_random_cases()
    yield _make_elementwise_cases("torch")


def _make_array_code(package: str, name: str, shape: str, dtype: str) -> str:
    """Return code for an array of sufficiently different numbers of any dtype, also complex or half."""
    count_code = f"int(np.prod({shape}))"
    values_code = f"(np.arange({count_code}) * 0.7548776662466927 % 1 + 0.01).reshape({shape})"
    if package == "torch":
        return f"{name} = xp.from_numpy({values_code}).to('cuda').to(dt)"
    return f"{name} = xp.asarray({values_code}).astype(dt)"


def _make_fft_cases(package: str) -> Iterator[CallCase]:
    for size in (MEDIUM, SMALL, LARGE):
        n = _ELEMENTS[size]
        side = int(n**0.5)
        flat_shape = f"({n},)"
        square_shape = f"({side}, {side})"
        for name, dtypes, shape in (
            ("fft", (*_COMPLEX_DTYPES, *_REAL_DTYPES), flat_shape),
            ("rfft", _REAL_DTYPES, flat_shape),
            ("ifft", _COMPLEX_DTYPES, flat_shape),
            ("fft2", (*_COMPLEX_DTYPES, *_REAL_DTYPES), square_shape),
            ("irfft", _COMPLEX_DTYPES, flat_shape),
            ("fftn", _COMPLEX_DTYPES, square_shape),
            ("ifft2", _COMPLEX_DTYPES, square_shape),
            ("rfft2", _REAL_DTYPES, square_shape),
        ):
            for dtype in dtypes:
                setup_code = _make_array_code(package, "x", shape, dtype)
                yield CallCase(package, name, dtype, size, "contiguous", setup_code, f"xp.fft.{name}(x)")


def _make_linalg_cases(package: str) -> Iterator[CallCase]:
    code_by_name = {
        "solve": "xp.linalg.solve(a, b)",
        "inv": "xp.linalg.inv(a)",
        "cholesky": "xp.linalg.cholesky(a)",
        "qr": "xp.linalg.qr(a)",
        "svd": "xp.linalg.svd(a)",
        "eigh": "xp.linalg.eigh(a)",
        "det": "xp.linalg.det(a)",
        "slogdet": "xp.linalg.slogdet(a)",
        "eigvalsh": "xp.linalg.eigvalsh(a)",
        "lstsq": "xp.linalg.lstsq(a, b, rcond=None)",
        "pinv": "xp.linalg.pinv(a)",
        "norm": "xp.linalg.norm(a)",
    }
    if package == "torch":
        code_by_name["lstsq"] = "xp.linalg.lstsq(a, b)"
    for size in (MEDIUM, SMALL, LARGE):
        n = _LINALG_EDGES[size]
        setup_codes = [
            _make_array_code(package, "a", f"({n}, {n})", ""),
            # Symmetric and positive definite, so that every decomposition has one.
            f"a = a @ a.T / {n} + xp.eye({n}, dtype=dt{', device=a.device' if package == 'torch' else ''})",
            "b = a[:, :1].copy()" if package == "cupy" else "b = a[:, :1].clone()",
        ]
        for name, call_code in code_by_name.items():
            if size == LARGE and name in ("svd", "eigh", "eigvalsh", "lstsq", "pinv"):
                continue  # seconds each
            dtypes = (*_REAL_DTYPES, *_COMPLEX_DTYPES) if size == MEDIUM else _REAL_DTYPES
            for dtype in dtypes:
                yield CallCase(package, name, dtype, size, "row-major", "\n".join(setup_codes), call_code)


def _make_cupy_sparse_cases() -> Iterator[CallCase]:
    for dtype in (*_REAL_DTYPES, *_COMPLEX_DTYPES):
        setup_code = _CUPY_SPARSE_CODE
        for name, call_code in {
            "sparse by vector": "s @ v",
            "sparse by matrix": "s @ d",
            "sparse by sparse": "s @ s",
            "sparse add": "s + t",
            "sparse tocsc": "s.tocsc()",
            "sparse toarray": "s[:512].toarray()",
        }.items():
            yield CallCase("cupy", name, dtype, MEDIUM, "CSR", setup_code, call_code)
        if dtype in _REAL_DTYPES:
            small_setup_code = setup_code.replace("1 << 18", "1 << 11").replace("1 << 14", "1 << 9")
            yield CallCase(
                "cupy", "sparse solve", dtype, SMALL, "CSR", small_setup_code, "sparse_linalg.spsolve(t, v)"
            )


def _make_torch_sparse_cases() -> Iterator[CallCase]:
    for dtype in _REAL_DTYPES:
        for name, layout, call_code in (
            ("sparse by vector", "CSR", "r @ v"),
            ("sparse by matrix", "CSR", "r @ d"),
            ("sparse by sparse", "CSR", "r @ r"),
            ("sparse by matrix", "COO", "s @ d"),
            ("sparse by vector", "COO", "xp.mv(s, v)"),
        ):
            yield CallCase("torch", name, dtype, MEDIUM, layout, _TORCH_SPARSE_CODE, call_code)


def _make_product_cases(package: str) -> Iterator[CallCase]:
    code_by_layout = {
        "row-major": "a @ b",
        "a transposed": "a.T @ b",
        "b transposed": "a @ b.T",
        "column-major": "a.T @ b.T",
        "strided": "wide[::2, ::2] @ b",
    }
    for dtype in ("float32", *_HALF_DTYPES[package], "float64", "tf32", "complex64"):
        for size in (MEDIUM, SMALL, LARGE):
            n = _MATRIX_EDGES[size]
            setup_code = "\n".join(_make_array_code(package, name, f"({n}, {n})", dtype) for name in "ab")
            wide_setup = _make_array_code(package, "wide", f"({2 * n}, {2 * n})", dtype)
            for layout, call_code in code_by_layout.items() if size == MEDIUM else (("row-major", "a @ b"),):
                case_setup = f"{setup_code}\n{wide_setup}" if layout == "strided" else setup_code
                yield CallCase(package, "matmul", dtype, size, layout, case_setup, call_code)
        n = _MATRIX_EDGES[MEDIUM]
        setup_code = _make_array_code(package, "a", f"({n}, {n})", dtype)
        yield CallCase(package, "matrix-vector", dtype, MEDIUM, "row-major", setup_code, "a @ a[0]")
        yield CallCase(package, "dot", dtype, MEDIUM, "row-major", setup_code, "xp.dot(a[0], a[1])")
        setup_code = "\n".join(_make_array_code(package, name, "(16, 512, 512)", dtype) for name in "ab")
        yield CallCase(package, "batched matmul", dtype, MEDIUM, "row-major", setup_code, "xp.matmul(a, b)")


def _make_epilogue_cases() -> Iterator[CallCase]:
    code_by_name = {
        "addmm": "xp.addmm(v, a, b)",
        "addmm, relu": "xp._addmm_activation(v, a, b)",
        "addmm, gelu": "xp._addmm_activation(v, a, b, use_gelu=True)",
        "linear": "F.linear(a, b, v)",
        "addmm, matrix added": "xp.addmm(b, a, b)",
    }
    n = _MATRIX_EDGES[MEDIUM]
    for dtype in ("float16", "bfloat16", "float32", "tf32", "float64"):
        setup_code = "\n".join(
            [*(_make_array_code("torch", name, f"({n}, {n})", dtype) for name in "ab"), "v = a[0].clone()"]
        )
        for name, call_code in code_by_name.items():
            yield CallCase("torch", name, dtype, MEDIUM, "row-major", setup_code, call_code)


def _make_cudnn_cases() -> Iterator[CallCase]:
    for dtype in ("float32", "float16", "bfloat16", "tf32", "float64"):
        setup_code = "\n".join(
            (
                _make_array_code("torch", "x", "(16, 64, 56, 56)", dtype),
                _make_array_code("torch", "w", "(64, 64, 3, 3)", dtype),
                "y = F.conv2d(x, w, padding=1)",
                "g, b = w[:, 0, 0, 0].clone(), w[0, :, 0, 0].clone()",
            )
        )
        channels_last_code = (
            f"{setup_code}\nx, w, y = (one.to(memory_format=xp.channels_last) for one in (x, w, y))"
        )
        gradient_code = (
            "xp.ops.aten.convolution_backward(y, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1"
        )
        for name, layout, setup_lines, call_code in (
            ("conv2d", "NCHW", setup_code, "F.conv2d(x, w, padding=1)"),
            ("conv2d", "NHWC", channels_last_code, "F.conv2d(x, w, padding=1)"),
            ("conv2d, gradient of x", "NCHW", setup_code, f"{gradient_code}, [True, False, False])"),
            ("conv2d, gradient of w", "NCHW", setup_code, f"{gradient_code}, [False, True, False])"),
            ("conv_transpose2d", "NCHW", setup_code, "F.conv_transpose2d(x, w, padding=1)"),
            ("batch norm", "NCHW", setup_code, "F.batch_norm(x, None, None, g, b, training=True)"),
            ("max_pool2d", "NCHW", setup_code, "F.max_pool2d(x, 2)"),
        ):
            yield CallCase("torch", name, dtype, MEDIUM, layout, setup_lines, call_code)
    for dtype in ("float32", "float16"):
        setup_code = (
            "net = xp.nn.LSTM(256, 256).to('cuda').to(dt)\n"
            f"{_make_array_code('torch', 'x', '(64, 32, 256)', dtype)}"
        )
        yield CallCase("torch", "lstm", dtype, MEDIUM, "row-major", setup_code, "net(x)")


def _make_sort_cases(package: str) -> Iterator[CallCase]:
    dtypes = (*_REAL_DTYPES, "int32", *_HALF_DTYPES[package][:1])
    code_by_name = {
        "sort": "xp.sort(x)",
        "cumsum": "xp.cumsum(x{dim})",
        "argsort": "xp.argsort(x)",
        "sum": "x.sum()",
        "max": "x.max()",
        "unique": "xp.unique(x)",
    }
    for name, call_template in code_by_name.items():
        for size in (MEDIUM, SMALL, LARGE):
            for dtype in dtypes if size == MEDIUM else _REAL_DTYPES:
                setup_code = _make_array_code(package, "x", f"({_ELEMENTS[size]},)", dtype)
                if dtype == "int32":
                    setup_code = setup_code.replace(" % 1", " % 1 * 1e6")
                call_code = call_template.format(dim=", 0" if package == "torch" else "")
                yield CallCase(package, name, dtype, size, "contiguous", setup_code, call_code)
    for name, axis in (("sum of rows", 1), ("sum of columns", 0)):
        for dtype in (*_REAL_DTYPES, *_HALF_DTYPES[package][:1]):
            setup_code = _make_array_code(package, "x", "(2048, 512)", dtype)
            yield CallCase(package, name, dtype, MEDIUM, "contiguous", setup_code, f"x.sum({axis})")
    if package == "torch":
        for dtype in (*_REAL_DTYPES, "float16"):
            setup_code = _make_array_code("torch", "x", f"({_ELEMENTS[MEDIUM]},)", dtype)
            yield CallCase("torch", "topk", dtype, MEDIUM, "contiguous", setup_code, "xp.topk(x, 10)")


def _make_cupy_random_cases() -> Iterator[CallCase]:
    for size in (MEDIUM, SMALL, LARGE):
        n = _ELEMENTS[size]
        for name, call_code in {
            "random": f"xp.random.random({n})",
            "standard_normal": f"xp.random.standard_normal({n})",
            "Generator.random": f"rng.random({n})",
        }.items():
            setup_code = "rng = xp.random.default_rng(1)" if "rng" in call_code else ""
            yield CallCase("cupy", name, "float64", size, "contiguous", setup_code, call_code)


def _make_torch_random_cases() -> Iterator[CallCase]:
    n = _ELEMENTS[MEDIUM]
    for dtype in _REAL_DTYPES:
        for name, call_code in {
            "rand": f"xp.rand({n}, dtype=dt, device='cuda')",
            "randn": f"xp.randn({n}, dtype=dt, device='cuda')",
            "randperm": f"xp.randperm({n}, device='cuda')",
        }.items():
            yield CallCase("torch", name, dtype, MEDIUM, "contiguous", "", call_code)


def _make_layer_cases() -> Iterator[CallCase]:
    n = _MATRIX_EDGES[MEDIUM]
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        setup_code = _make_array_code("torch", "a", f"({n}, {n})", dtype)
        heads_setup_code = "\n".join(
            _make_array_code("torch", name, "(4, 8, 512, 64)", dtype) for name in "qkv"
        )
        for name, setup_lines, call_code in (
            ("attention", heads_setup_code, "F.scaled_dot_product_attention(q, k, v)"),
            ("softmax", setup_code, "F.softmax(a, 1)"),
            ("layer norm", setup_code, f"F.layer_norm(a, ({n},))"),
            ("gelu", setup_code, "F.gelu(a)"),
            ("dropout", setup_code, "F.dropout(a)"),
        ):
            yield CallCase("torch", name, dtype, MEDIUM, "row-major", setup_lines, call_code)


def _make_elementwise_cases(package: str) -> Iterator[CallCase]:
    is_torch = package == "torch"
    code_by_name = {
        "add": "x + x",
        "multiply": "x * x",
        "exp": "xp.exp(x)",
        "copy": "x.clone()" if is_torch else "x.copy()",
        "mean": "x.mean()",
        "astype": "x.to(xp.int32)" if is_torch else "x.astype(xp.int32)",
        "take": "xp.take(x, i)",
        "boolean index": "x[m]",
        "where": "xp.where(m, x, x)",
        "histogram": "xp.histc(x, 10)" if is_torch else "xp.histogram(x, 10)",
    }
    if is_torch:
        code_by_name["index_select"] = "xp.index_select(x, 0, i)"
    for dtype in _REAL_DTYPES:
        flat_shape = f"({_ELEMENTS[MEDIUM]},)"
        integer_code = "i = (x * 100).to(xp.int64)" if is_torch else "i = (x * 100).astype(xp.int64)"
        setup_code = f"{_make_array_code(package, 'x', flat_shape, dtype)}\n{integer_code}\nm = x > 0.5"
        for name, call_code in code_by_name.items():
            yield CallCase(package, name, dtype, MEDIUM, "contiguous", setup_code, call_code)
        square_setup_code = _make_array_code(package, "x", "(1024, 1024)", dtype)
        transposed_code = "x.T.contiguous()" if is_torch else "xp.ascontiguousarray(x.T)"
        yield CallCase(
            package, "transpose copy", dtype, MEDIUM, "contiguous", square_setup_code, transposed_code
        )
        if not is_torch:
            softmax_code = "(lambda e: e / e.sum(1, keepdims=True))(xp.exp(x - x.max(1, keepdims=True)))"
            yield CallCase(
                package, "softmax by hand", dtype, MEDIUM, "contiguous", square_setup_code, softmax_code
            )
