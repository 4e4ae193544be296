"""Operations by which calls are recorded: told from what the virtual GPU's library kernels read and write."""

from __future__ import annotations

import math
import re

from virtualgpu.records.libraries import ArrayLayout, LibraryCall, Operation

PRODUCTS = frozenset({"matmul", "dot", "inner", "vdot", "tensordot", "einsum"})
_LINALG = frozenset(
    {"solve", "inv", "pinv", "det", "slogdet", "cholesky", "qr", "svd", "eigh", "eigvalsh", "lstsq", "norm"}
)
_REDUCED = frozenset({"sum", "max", "min", "mean", "prod"})
_OTHER_NAMES = {
    "curand_random": "random",
    "curand_standard_normal": "standard_normal",
    "random_uniform": "Generator.random",
}
SMALL = "small"
MEDIUM = "medium"
LARGE = "large"
# Which library a routine or a kernel is from, by its name; the first that fits.
_LIBRARIES = {
    "cuDNN": r"cudnn|fprop|dgrad|wgrad",
    "cuBLASLt": r"cublasLt",
    "cuBLAS": r"cublas|nvjet|gemm|gemv|xmma|splitK",
    "cuFFT": r"cufft|(regular|vector)_fft|_fft_",
    "cuSOLVER": r"cusolver|getrf|potrf|geqr|syevd|trsm|gesvd",
    "cuSPARSE": r"cusparse|csrmv|csrmm|spgemm",
    "cuRAND": r"curand|gen_sequenced|generate_seed|init_curand",
    "NCCL": r"nccl",
    "CUB": r"cub::|Device(\w*Reduce|RadixSort|Scan|MergeSort|Compact|Select|Histogram)",
    "Thrust": r"thrust::",
    "CUTLASS": r"cutlass",
    "PyTorch's own": r"at::|_elementwise_kernel",
    "CuPy's own": r"cupy",
}


def library_of(name: str) -> str:
    """Which library a routine or kernel is from, by its name; empty if none is known."""
    return next((lib for lib, kinds in _LIBRARIES.items() if re.search(kinds, name, re.IGNORECASE)), "")


def operation_of(call: LibraryCall) -> Operation:
    """What a library kernel of the virtual GPU stands for, as records name it."""
    kernel, reads, writes = call
    name = _OTHER_NAMES.get(kernel, kernel.removeprefix("cupy_").split("__")[0])
    arrays = reads or writes
    dtype = (arrays[1] if name == "where" and len(arrays) > 1 else arrays[0])[0] if arrays else ""
    if name == "copy" and reads and writes and reads[0][0] != writes[0][0]:
        name = "astype"
    if name in PRODUCTS:
        return _product(name, reads, writes, dtype)
    if name in _REDUCED and reads and writes and len(reads[0][1]) == 2 and len(writes[0][1]) == 1:
        name += " of rows" if reads[0][1][0] == writes[0][1][0] else " of columns"
    largest = max((math.prod(shape) for _, shape, _ in (*reads, *writes)), default=0)
    if name in _LINALG:
        size = size_of(max(max(shape, default=1) for _, shape, _ in arrays), 256, 2048)
        return Operation("cupy", name, dtype, size, "row-major")
    if name == "take" and len(reads) > 1 and reads[1][0] == "bool":
        name = "boolean index"
    whole = all(_order(one) != "strided" for one in (*reads, *writes))
    layout = "contiguous" if whole else "strided"
    return Operation("cupy", name, dtype, size_of(largest, 1 << 16, 1 << 24), layout)


def size_of(n: float, medium: int, large: int) -> str:
    """The class of a size: below `medium`, below `large`, or not."""
    return SMALL if n < medium else MEDIUM if n < large else LARGE


def _product(
    name: str, reads: tuple[ArrayLayout, ...], writes: tuple[ArrayLayout, ...], dtype: str
) -> Operation:
    shapes = [shape for _, shape, _ in reads]
    dims = [len(shape) for shape in shapes]
    ends = [math.prod(shape[-2:]) for shape in (*shapes, *(one[1] for one in writes))]
    edge = math.prod(ends) ** (1 / 6) if len(ends) > 2 else 0.0
    if sorted(dims) == [1, 2]:
        name = "matrix-vector"
        edge = max(math.sqrt(max(ends)), 1)
    elif dims == [1, 1]:
        name = "dot"
        edge = float(ends[0])
    elif max(dims, default=0) > 2:
        name = "batched matmul"
    elif name in ("dot", "inner") and dims == [2, 2]:
        name = "matmul"
    return Operation("cupy", name, dtype, size_of(edge, 256, 2048), _layout(reads))


def _layout(reads: tuple[ArrayLayout, ...]) -> str:
    orders = [_order(one) for one in reads[:2]]
    if "strided" in orders:
        return "strided"
    if orders == ["F", "F"]:
        return "column-major"
    return {"FC": "a transposed", "CF": "b transposed"}.get("".join(orders), "row-major")


def _order(array: ArrayLayout) -> str:
    """``C`` or ``F`` for a matrix that lies so in memory, each of a batch; else ``strided``."""
    dtype, shape, strides = array
    if len(shape) < 2 or math.prod(shape) <= 1:
        bits = re.search(r"\d+$", dtype)
        item = int(bits[0]) // 8 if bits else 1
        return "C" if not shape or shape[0] <= 1 or strides[0] == item else "strided"
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    item = min(down, across)
    if across == item and down == columns * item:
        return "C"
    return "F" if down == item and across == rows * item else "strided"
