"""Keys of recorded library calls, derived from the arrays of a virtual GPU's library kernels."""

from __future__ import annotations

import math
import re

from virtualgpu.records.libraries import ArrayLayout, LibraryCall, Operation

PRODUCTS = frozenset({"matmul", "dot", "inner", "vdot", "tensordot", "einsum"})
_LINALG_FUNCTIONS = frozenset(
    {"solve", "inv", "pinv", "det", "slogdet", "cholesky", "qr", "svd", "eigh", "eigvalsh", "lstsq", "norm"}
)
_REDUCTIONS = frozenset({"sum", "max", "min", "mean", "prod"})
_OPERATION_BY_KERNEL = {
    "curand_random": "random",
    "curand_standard_normal": "standard_normal",
    "random_uniform": "Generator.random",
}
SMALL = "small"
MEDIUM = "medium"
LARGE = "large"
# Libraries by patterns of the names of their routines and kernels; the first match counts.
_LIBRARY_PATTERNS = {
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
    """Return the name of the library that contains a routine or kernel, or an empty string."""
    return next(
        (
            library
            for library, pattern in _LIBRARY_PATTERNS.items()
            if re.search(pattern, name, re.IGNORECASE)
        ),
        "",
    )


def operation_of(call: LibraryCall) -> Operation:
    """Return the operation that a library kernel of the virtual GPU implements."""
    kernel, reads, writes = call
    name = _OPERATION_BY_KERNEL.get(kernel, kernel.removeprefix("cupy_").split("__")[0])
    arrays = reads or writes
    dtype = ""
    if arrays:
        dtype = arrays[1][0] if name == "where" and len(arrays) > 1 else arrays[0][0]
    if name == "copy" and reads and writes and reads[0][0] != writes[0][0]:
        name = "astype"
    if name in PRODUCTS:
        return _make_product_operation(name, reads, writes, dtype)
    if name in _REDUCTIONS and reads and writes and len(reads[0][1]) == 2 and len(writes[0][1]) == 1:
        name += " of rows" if reads[0][1][0] == writes[0][1][0] else " of columns"
    largest_size = max((math.prod(shape) for _, shape, _ in (*reads, *writes)), default=0)
    if name in _LINALG_FUNCTIONS:
        size_class = name_size_class(max(max(shape, default=1) for _, shape, _ in arrays), 256, 2048)
        return Operation("cupy", name, dtype, size_class, "row-major")
    if name == "take" and len(reads) > 1 and reads[1][0] == "bool":
        name = "boolean index"
    is_contiguous = all(_find_memory_order(array) != "strided" for array in (*reads, *writes))
    layout = "contiguous" if is_contiguous else "strided"
    return Operation("cupy", name, dtype, name_size_class(largest_size, 1 << 16, 1 << 24), layout)


def name_size_class(size: float, medium: int, large: int) -> str:
    """Return the name of the size class to which a size belongs. The arguments `medium` and `large` are the
    limits between the classes.
    """
    if size < medium:
        return SMALL
    return MEDIUM if size < large else LARGE


def _make_product_operation(
    name: str, reads: tuple[ArrayLayout, ...], writes: tuple[ArrayLayout, ...], dtype: str
) -> Operation:
    shapes = [shape for _, shape, _ in reads]
    dimension_counts = [len(shape) for shape in shapes]
    matrix_sizes = [math.prod(shape[-2:]) for shape in (*shapes, *(array[1] for array in writes))]
    edge_length = math.prod(matrix_sizes) ** (1 / 6) if len(matrix_sizes) > 2 else 0.0
    if sorted(dimension_counts) == [1, 2]:
        name = "matrix-vector"
        edge_length = max(math.sqrt(max(matrix_sizes)), 1)
    elif dimension_counts == [1, 1]:
        name = "dot"
        edge_length = float(matrix_sizes[0])
    elif max(dimension_counts, default=0) > 2:
        name = "batched matmul"
    elif name in ("dot", "inner") and dimension_counts == [2, 2]:
        name = "matmul"
    return Operation("cupy", name, dtype, name_size_class(edge_length, 256, 2048), _find_layout(reads))


def _find_layout(reads: tuple[ArrayLayout, ...]) -> str:
    memory_orders = [_find_memory_order(array) for array in reads[:2]]
    if "strided" in memory_orders:
        return "strided"
    if memory_orders == ["F", "F"]:
        return "column-major"
    return {"FC": "a transposed", "CF": "b transposed"}.get("".join(memory_orders), "row-major")


def _find_memory_order(array: ArrayLayout) -> str:
    """Return the memory order of a matrix or a batch of matrices: ``C``, ``F`` or ``strided``."""
    dtype, shape, strides = array
    if len(shape) < 2 or math.prod(shape) <= 1:
        bits_match = re.search(r"\d+$", dtype)
        item_bytes = int(bits_match[0]) // 8 if bits_match else 1
        return "C" if not shape or shape[0] <= 1 or strides[0] == item_bytes else "strided"
    (rows, columns), (row_stride, column_stride) = shape[-2:], strides[-2:]
    item_bytes = min(row_stride, column_stride)
    if column_stride == item_bytes and row_stride == columns * item_bytes:
        return "C"
    return "F" if row_stride == item_bytes and column_stride == rows * item_bytes else "strided"
