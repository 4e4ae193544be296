"""Random inputs of any size for the series of kernels, with the expected outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpulab import session


@dataclass(frozen=True, slots=True)
class Example:
    """Arguments for the kernels of a series, and their expected output. The last array receives the output.

    A right output differs from ``expected`` by at most ``tolerance``. ``moved_bytes`` is the smallest number
    of bytes that a kernel must move to or from memory, and ``flops`` the number of operations of a matrix
    multiplication.
    """

    arrays: tuple[Any, ...]
    expected: Any
    tolerance: float
    moved_bytes: int
    flops: int = 0

    def error(self) -> float:
        """Return the largest absolute difference between the output and the expected output."""
        cp = session.cp()
        out = self.arrays[-1].astype(cp.float64)
        return float(cp.abs(out - self.expected).max()) if out.size else 0.0


def example(name: str, size: tuple[int, ...] | None = None, seed: int = 1) -> Example:
    """Return random input arrays for a series of kernels, created on the device in use.

    Parameters
    ----------
    name
        The name of the series.
    size
        The size: (n,) for copy, reduction, scan and histogram, (m, n, k) for matrix multiplications,
        otherwise (rows, columns). By default, the size of the series.
    seed
        The seed of the random numbers.
    """
    from gpulab_course.content.kernels.catalogue import ladder

    cp = session.cp()
    size = ladder(name).input_size if size is None else size
    cp.random.seed(seed)
    if name in ("sgemm", "tensor_cores"):
        return _make_product_example(size, cp.float16 if name == "tensor_cores" else cp.float32)
    if name == "scan":
        x = cp.random.randint(-9, 10, size).astype(cp.int32)
        return Example((x, cp.empty_like(x)), cp.cumsum(x).astype(cp.int32), 0, 2 * x.nbytes)
    if name == "histogram":
        x = cp.random.randint(0, 256, size).astype(cp.uint8)
        return Example((x, cp.empty(256, cp.uint32)), cp.bincount(x, minlength=256), 0, x.nbytes)
    x = cp.random.standard_normal(size, dtype=cp.float32)
    if name == "copy":
        return Example((x, cp.empty_like(x)), x, 0, 2 * x.nbytes)
    if name == "transpose":
        return Example((x, cp.empty(size[::-1], cp.float32)), x.T, 0, 2 * x.nbytes)
    wide_x = x.astype(cp.float64)
    if name == "reduction":
        return Example((x, cp.empty(1, cp.float32)), wide_x.sum(), 1e-3 * x.size**0.5, x.nbytes)
    if name == "stencil":
        expected = cp.zeros(size)
        padded_x = cp.pad(wide_x, 2)
        for dy in range(5):
            for dx in range(5):
                expected += padded_x[dy : dy + size[0], dx : dx + size[1]] / 25
    elif name == "softmax":
        exponentials = cp.exp(wide_x - wide_x.max(axis=1, keepdims=True))
        expected = exponentials / exponentials.sum(axis=1, keepdims=True)
    else:
        centred_x = wide_x - wide_x.mean(axis=1, keepdims=True)
        expected = centred_x / cp.sqrt((centred_x**2).mean(axis=1, keepdims=True) + 1e-5)
    return Example((x, cp.empty_like(x)), expected, 1e-5, 2 * x.nbytes)


def _make_product_example(size: tuple[int, ...], dtype: Any) -> Example:
    cp, (m, n, k) = session.cp(), size
    a = cp.random.standard_normal((m, k), dtype=cp.float32).astype(dtype)
    b = cp.random.standard_normal((k, n), dtype=cp.float32).astype(dtype)
    expected = cp.matmul(a.astype(cp.float32), b.astype(cp.float32)).astype(cp.float64)
    moved_bytes = (m * k + k * n) * a.itemsize + 4 * m * n
    return Example((a, b, cp.empty((m, n), cp.float32)), expected, 1e-3 * k**0.5, moved_bytes, 2 * m * n * k)
