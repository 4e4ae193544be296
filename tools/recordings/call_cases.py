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
_EDGES = {SMALL: 64, MEDIUM: 1024, LARGE: 4096}
_LINALG_EDGES = {SMALL: 64, MEDIUM: 512, LARGE: 2048}
_REALS = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
_SPARSE_CUPY = """
i, n = np.arange(1 << 18), 1 << 14
where = xp.asarray(i * 7919 % n), xp.asarray(i * 104729 % n)
s = sparse.coo_matrix((xp.ones(i.size, dt), where), shape=(n, n)).tocsr()
s.sum_duplicates()
v, d = xp.ones(n, dt), xp.ones((n, 32), dt)
t = sparse.eye(n, dtype=dt, format="csr") * 3 + s * dt(1e-3)
"""
_SPARSE_TORCH = """
i, n = np.arange(1 << 18), 1 << 14
where = xp.from_numpy(np.stack([i * 7919 % n, i * 104729 % n])).to("cuda")
s = xp.sparse_coo_tensor(where, xp.ones(i.size, dtype=dt, device="cuda"), (n, n)).coalesce()
r = s.to_sparse_csr()
v, d = xp.ones(n, dtype=dt, device="cuda"), xp.ones((n, 32), dtype=dt, device="cuda")
"""
_HALVES = {"cupy": ("float16",), "torch": ("float16", "bfloat16")}


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
    count = f"int(np.prod({shape}))"
    values = f"(np.arange({count}) * 0.7548776662466927 % 1 + 0.01).reshape({shape})"
    if package == "torch":
        return f"{name} = xp.from_numpy({values}).to('cuda').to(dt)"
    return f"{name} = xp.asarray({values}).astype(dt)"


def _make_fft_cases(package: str) -> Iterator[CallCase]:
    for size in (MEDIUM, SMALL, LARGE):
        n = _ELEMENTS[size]
        side = int(n**0.5)
        flat_shape = f"({n},)"
        square_shape = f"({side}, {side})"
        for name, dtypes, shape in (
            ("fft", (*_COMPLEX, *_REALS), flat_shape),
            ("rfft", _REALS, flat_shape),
            ("ifft", _COMPLEX, flat_shape),
            ("fft2", (*_COMPLEX, *_REALS), square_shape),
            ("irfft", _COMPLEX, flat_shape),
            ("fftn", _COMPLEX, square_shape),
            ("ifft2", _COMPLEX, square_shape),
            ("rfft2", _REALS, square_shape),
        ):
            for dtype in dtypes:
                setup = _make_array_code(package, "x", shape, dtype)
                yield CallCase(package, name, dtype, size, "contiguous", setup, f"xp.fft.{name}(x)")


def _make_linalg_cases(package: str) -> Iterator[CallCase]:
    calls = {
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
        calls["lstsq"] = "xp.linalg.lstsq(a, b)"
    for size in (MEDIUM, SMALL, LARGE):
        n = _LINALG_EDGES[size]
        setup = [
            _make_array_code(package, "a", f"({n}, {n})", ""),
            # Symmetric and positive definite, so that every decomposition has one.
            f"a = a @ a.T / {n} + xp.eye({n}, dtype=dt{', device=a.device' if package == 'torch' else ''})",
            "b = a[:, :1].copy()" if package == "cupy" else "b = a[:, :1].clone()",
        ]
        for name, call in calls.items():
            if size == LARGE and name in ("svd", "eigh", "eigvalsh", "lstsq", "pinv"):
                continue  # seconds each
            dtypes = (*_REALS, *_COMPLEX) if size == MEDIUM else _REALS
            for dtype in dtypes:
                yield CallCase(package, name, dtype, size, "row-major", "\n".join(setup), call)


def _make_cupy_sparse_cases() -> Iterator[CallCase]:
    for dtype in (*_REALS, *_COMPLEX):
        setup = _SPARSE_CUPY
        for name, call in {
            "sparse by vector": "s @ v",
            "sparse by matrix": "s @ d",
            "sparse by sparse": "s @ s",
            "sparse add": "s + t",
            "sparse tocsc": "s.tocsc()",
            "sparse toarray": "s[:512].toarray()",
        }.items():
            yield CallCase("cupy", name, dtype, MEDIUM, "CSR", setup, call)
        if dtype in _REALS:
            small = setup.replace("1 << 18", "1 << 11").replace("1 << 14", "1 << 9")
            yield CallCase("cupy", "sparse solve", dtype, SMALL, "CSR", small, "sparse_linalg.spsolve(t, v)")


def _make_torch_sparse_cases() -> Iterator[CallCase]:
    for dtype in _REALS:
        for name, layout, call in (
            ("sparse by vector", "CSR", "r @ v"),
            ("sparse by matrix", "CSR", "r @ d"),
            ("sparse by sparse", "CSR", "r @ r"),
            ("sparse by matrix", "COO", "s @ d"),
            ("sparse by vector", "COO", "xp.mv(s, v)"),
        ):
            yield CallCase("torch", name, dtype, MEDIUM, layout, _SPARSE_TORCH, call)


def _make_product_cases(package: str) -> Iterator[CallCase]:
    layouts = {
        "row-major": "a @ b",
        "a transposed": "a.T @ b",
        "b transposed": "a @ b.T",
        "column-major": "a.T @ b.T",
        "strided": "wide[::2, ::2] @ b",
    }
    for dtype in ("float32", *_HALVES[package], "float64", "tf32", "complex64"):
        for size in (MEDIUM, SMALL, LARGE):
            n = _EDGES[size]
            setup = "\n".join(_make_array_code(package, name, f"({n}, {n})", dtype) for name in "ab")
            wide_setup = _make_array_code(package, "wide", f"({2 * n}, {2 * n})", dtype)
            for layout, call in layouts.items() if size == MEDIUM else (("row-major", "a @ b"),):
                case_setup = f"{setup}\n{wide_setup}" if layout == "strided" else setup
                yield CallCase(package, "matmul", dtype, size, layout, case_setup, call)
        n = _EDGES[MEDIUM]
        setup = _make_array_code(package, "a", f"({n}, {n})", dtype)
        yield CallCase(package, "matrix-vector", dtype, MEDIUM, "row-major", setup, "a @ a[0]")
        yield CallCase(package, "dot", dtype, MEDIUM, "row-major", setup, "xp.dot(a[0], a[1])")
        setup = "\n".join(_make_array_code(package, name, "(16, 512, 512)", dtype) for name in "ab")
        yield CallCase(package, "batched matmul", dtype, MEDIUM, "row-major", setup, "xp.matmul(a, b)")


def _make_epilogue_cases() -> Iterator[CallCase]:
    calls = {
        "addmm": "xp.addmm(v, a, b)",
        "addmm, relu": "xp._addmm_activation(v, a, b)",
        "addmm, gelu": "xp._addmm_activation(v, a, b, use_gelu=True)",
        "linear": "F.linear(a, b, v)",
        "addmm, matrix added": "xp.addmm(b, a, b)",
    }
    n = _EDGES[MEDIUM]
    for dtype in ("float16", "bfloat16", "float32", "tf32", "float64"):
        setup = "\n".join(
            [*(_make_array_code("torch", name, f"({n}, {n})", dtype) for name in "ab"), "v = a[0].clone()"]
        )
        for name, call in calls.items():
            yield CallCase("torch", name, dtype, MEDIUM, "row-major", setup, call)


def _make_cudnn_cases() -> Iterator[CallCase]:
    for dtype in ("float32", "float16", "bfloat16", "tf32", "float64"):
        setup = "\n".join(
            (
                _make_array_code("torch", "x", "(16, 64, 56, 56)", dtype),
                _make_array_code("torch", "w", "(64, 64, 3, 3)", dtype),
                "y = F.conv2d(x, w, padding=1)",
                "g, b = w[:, 0, 0, 0].clone(), w[0, :, 0, 0].clone()",
            )
        )
        last = f"{setup}\nx, w, y = (one.to(memory_format=xp.channels_last) for one in (x, w, y))"
        gradient = "xp.ops.aten.convolution_backward(y, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1"
        for name, layout, lines, call in (
            ("conv2d", "NCHW", setup, "F.conv2d(x, w, padding=1)"),
            ("conv2d", "NHWC", last, "F.conv2d(x, w, padding=1)"),
            ("conv2d, gradient of x", "NCHW", setup, f"{gradient}, [True, False, False])"),
            ("conv2d, gradient of w", "NCHW", setup, f"{gradient}, [False, True, False])"),
            ("conv_transpose2d", "NCHW", setup, "F.conv_transpose2d(x, w, padding=1)"),
            ("batch norm", "NCHW", setup, "F.batch_norm(x, None, None, g, b, training=True)"),
            ("max_pool2d", "NCHW", setup, "F.max_pool2d(x, 2)"),
        ):
            yield CallCase("torch", name, dtype, MEDIUM, layout, lines, call)
    for dtype in ("float32", "float16"):
        setup = (
            "net = xp.nn.LSTM(256, 256).to('cuda').to(dt)\n"
            f"{_make_array_code('torch', 'x', '(64, 32, 256)', dtype)}"
        )
        yield CallCase("torch", "lstm", dtype, MEDIUM, "row-major", setup, "net(x)")


def _make_sort_cases(package: str) -> Iterator[CallCase]:
    dtypes = (*_REALS, "int32", *_HALVES[package][:1])
    calls = {
        "sort": "xp.sort(x)",
        "cumsum": "xp.cumsum(x{dim})",
        "argsort": "xp.argsort(x)",
        "sum": "x.sum()",
        "max": "x.max()",
        "unique": "xp.unique(x)",
    }
    for name, call in calls.items():
        for size in (MEDIUM, SMALL, LARGE):
            for dtype in dtypes if size == MEDIUM else _REALS:
                setup = _make_array_code(package, "x", f"({_ELEMENTS[size]},)", dtype)
                if dtype == "int32":
                    setup = setup.replace(" % 1", " % 1 * 1e6")
                code = call.format(dim=", 0" if package == "torch" else "")
                yield CallCase(package, name, dtype, size, "contiguous", setup, code)
    for name, axis in (("sum of rows", 1), ("sum of columns", 0)):
        for dtype in (*_REALS, *_HALVES[package][:1]):
            setup = _make_array_code(package, "x", "(2048, 512)", dtype)
            yield CallCase(package, name, dtype, MEDIUM, "contiguous", setup, f"x.sum({axis})")
    if package == "torch":
        for dtype in (*_REALS, "float16"):
            setup = _make_array_code("torch", "x", f"({_ELEMENTS[MEDIUM]},)", dtype)
            yield CallCase("torch", "topk", dtype, MEDIUM, "contiguous", setup, "xp.topk(x, 10)")


def _make_cupy_random_cases() -> Iterator[CallCase]:
    for size in (MEDIUM, SMALL, LARGE):
        n = _ELEMENTS[size]
        for name, call in {
            "random": f"xp.random.random({n})",
            "standard_normal": f"xp.random.standard_normal({n})",
            "Generator.random": f"rng.random({n})",
        }.items():
            setup = "rng = xp.random.default_rng(1)" if "rng" in call else ""
            yield CallCase("cupy", name, "float64", size, "contiguous", setup, call)


def _make_torch_random_cases() -> Iterator[CallCase]:
    n = _ELEMENTS[MEDIUM]
    for dtype in _REALS:
        for name, call in {
            "rand": f"xp.rand({n}, dtype=dt, device='cuda')",
            "randn": f"xp.randn({n}, dtype=dt, device='cuda')",
            "randperm": f"xp.randperm({n}, device='cuda')",
        }.items():
            yield CallCase("torch", name, dtype, MEDIUM, "contiguous", "", call)


def _make_layer_cases() -> Iterator[CallCase]:
    n = _EDGES[MEDIUM]
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        setup = _make_array_code("torch", "a", f"({n}, {n})", dtype)
        heads = "\n".join(_make_array_code("torch", name, "(4, 8, 512, 64)", dtype) for name in "qkv")
        for name, lines, call in (
            ("attention", heads, "F.scaled_dot_product_attention(q, k, v)"),
            ("softmax", setup, "F.softmax(a, 1)"),
            ("layer norm", setup, f"F.layer_norm(a, ({n},))"),
            ("gelu", setup, "F.gelu(a)"),
            ("dropout", setup, "F.dropout(a)"),
        ):
            yield CallCase("torch", name, dtype, MEDIUM, "row-major", lines, call)


def _make_elementwise_cases(package: str) -> Iterator[CallCase]:
    torch = package == "torch"
    calls = {
        "add": "x + x",
        "multiply": "x * x",
        "exp": "xp.exp(x)",
        "copy": "x.clone()" if torch else "x.copy()",
        "mean": "x.mean()",
        "astype": "x.to(xp.int32)" if torch else "x.astype(xp.int32)",
        "take": "xp.take(x, i)",
        "boolean index": "x[m]",
        "where": "xp.where(m, x, x)",
        "histogram": "xp.histc(x, 10)" if torch else "xp.histogram(x, 10)",
    }
    if torch:
        calls["index_select"] = "xp.index_select(x, 0, i)"
    for dtype in _REALS:
        flat = f"({_ELEMENTS[MEDIUM]},)"
        integer_code = "i = (x * 100).to(xp.int64)" if torch else "i = (x * 100).astype(xp.int64)"
        setup = f"{_make_array_code(package, 'x', flat, dtype)}\n{integer_code}\nm = x > 0.5"
        for name, call in calls.items():
            yield CallCase(package, name, dtype, MEDIUM, "contiguous", setup, call)
        square = _make_array_code(package, "x", "(1024, 1024)", dtype)
        transposed_code = "x.T.contiguous()" if torch else "xp.ascontiguousarray(x.T)"
        yield CallCase(package, "transpose copy", dtype, MEDIUM, "contiguous", square, transposed_code)
        if not torch:
            by_hand = "(lambda e: e / e.sum(1, keepdims=True))(xp.exp(x - x.max(1, keepdims=True)))"
            yield CallCase(package, "softmax by hand", dtype, MEDIUM, "contiguous", square, by_hand)
