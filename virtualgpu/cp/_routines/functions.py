"""The functions of the ``cp`` namespace that take device arrays.

Element-wise functions are `ufunc` objects; the others come from NumPy by `lift_to_device`. Names and
keywords are CuPy's; ``missing_keywords`` lists NumPy keywords that CuPy does not know.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import Traceable
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.operators import check_sort_kind
from virtualgpu.cp._routines.from_numpy import adapt_host_function, lift_to_device
from virtualgpu.cp._routines.ufunc import ufunc

_UNSUPPORTED_REDUCTION_KEYWORDS = ("initial", "where")

# Arithmetic
add = ufunc(np.add)
subtract = ufunc(np.subtract)
multiply = ufunc(np.multiply)
divide = true_divide = ufunc(np.true_divide, "true_divide")
floor_divide = ufunc(np.floor_divide)
power = ufunc(np.power)
float_power = ufunc(np.float_power)
remainder = mod = ufunc(np.remainder)
fmod = ufunc(np.fmod)
divmod = ufunc(np.divmod)
modf = ufunc(np.modf)
negative = ufunc(np.negative)
positive = ufunc(np.positive)
reciprocal = ufunc(np.reciprocal)
absolute = abs = ufunc(np.absolute)
fabs = ufunc(np.fabs)
sign = ufunc(np.sign)
square = ufunc(np.square)
sqrt = ufunc(np.sqrt)
cbrt = ufunc(np.cbrt)
gcd = ufunc(np.gcd)
lcm = ufunc(np.lcm)
heaviside = ufunc(np.heaviside)
maximum = ufunc(np.maximum)
minimum = ufunc(np.minimum)
fmax = ufunc(np.fmax)
fmin = ufunc(np.fmin)
conjugate = conj = ufunc(np.conjugate)

# Rounding and floating-point parts
rint = ufunc(np.rint)
floor = ufunc(np.floor)
ceil = ufunc(np.ceil)
trunc = ufunc(np.trunc)
signbit = ufunc(np.signbit)
copysign = ufunc(np.copysign)
nextafter = ufunc(np.nextafter)
ldexp = ufunc(np.ldexp)
frexp = ufunc(np.frexp)
isnan = ufunc(np.isnan)
isinf = ufunc(np.isinf)
isfinite = ufunc(np.isfinite)

# Exponentials and trigonometry
exp = ufunc(np.exp)
exp2 = ufunc(np.exp2)
expm1 = ufunc(np.expm1)
log = ufunc(np.log)
log2 = ufunc(np.log2)
log10 = ufunc(np.log10)
log1p = ufunc(np.log1p)
logaddexp = ufunc(np.logaddexp)
logaddexp2 = ufunc(np.logaddexp2)
sin = ufunc(np.sin)
cos = ufunc(np.cos)
tan = ufunc(np.tan)
arcsin = ufunc(np.arcsin)
arccos = ufunc(np.arccos)
arctan = ufunc(np.arctan)
sinh = ufunc(np.sinh)
cosh = ufunc(np.cosh)
tanh = ufunc(np.tanh)
arcsinh = ufunc(np.arcsinh)
arccosh = ufunc(np.arccosh)
arctanh = ufunc(np.arctanh)
arctan2 = ufunc(np.arctan2)
hypot = ufunc(np.hypot)
deg2rad = ufunc(np.deg2rad)
rad2deg = ufunc(np.rad2deg)
degrees = ufunc(np.degrees)
radians = ufunc(np.radians)

acos = arccos
asin = arcsin
atan = arctan
acosh = arccosh
asinh = arcsinh
atanh = arctanh
atan2 = arctan2
pow = power

# Comparison, logic and bits
equal = ufunc(np.equal)
not_equal = ufunc(np.not_equal)
less = ufunc(np.less)
less_equal = ufunc(np.less_equal)
greater = ufunc(np.greater)
greater_equal = ufunc(np.greater_equal)
logical_and = ufunc(np.logical_and)
logical_or = ufunc(np.logical_or)
logical_xor = ufunc(np.logical_xor)
logical_not = ufunc(np.logical_not)
bitwise_and = ufunc(np.bitwise_and)
bitwise_or = ufunc(np.bitwise_or)
bitwise_xor = ufunc(np.bitwise_xor)
invert = bitwise_not = ufunc(np.invert)
bitwise_count = ufunc(np.bitwise_count)
left_shift = ufunc(np.left_shift)
right_shift = ufunc(np.right_shift)

bitwise_invert = invert
bitwise_left_shift = left_shift
bitwise_right_shift = right_shift

# Reductions and statistics
sum = lift_to_device(np.sum, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
prod = lift_to_device(np.prod, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
max = amax = lift_to_device(np.max, name="max", missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
min = amin = lift_to_device(np.min, name="min", missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)


def _argmax(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    result = (
        np.argmax(a, axis, keepdims=keepdims) if out is None else np.argmax(a, axis, out, keepdims=keepdims)
    )
    return result if dtype is None else np.asarray(result, dtype)


def _argmin(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    result = (
        np.argmin(a, axis, keepdims=keepdims) if out is None else np.argmin(a, axis, out, keepdims=keepdims)
    )
    return result if dtype is None else np.asarray(result, dtype)


argmax = lift_to_device(_argmax, name="argmax")
argmin = lift_to_device(_argmin, name="argmin")
all = lift_to_device(np.all, missing_keywords=("where",))
any = lift_to_device(np.any, missing_keywords=("where",))
mean = lift_to_device(np.mean, missing_keywords=("where",))
std = lift_to_device(np.std, missing_keywords=("where", "mean", "correction"))
var = lift_to_device(np.var, missing_keywords=("where", "mean", "correction"))
median = lift_to_device(np.median)
average = lift_to_device(np.average, operand_count=1)
ptp = lift_to_device(np.ptp)
percentile = lift_to_device(np.percentile)
quantile = lift_to_device(np.quantile)
cumsum = lift_to_device(np.cumsum)
cumprod = lift_to_device(np.cumprod)
diff = lift_to_device(np.diff)
gradient = lift_to_device(np.gradient)
ediff1d = lift_to_device(np.ediff1d)
nansum = lift_to_device(np.nansum, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
nanprod = lift_to_device(np.nanprod, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
nanmax = lift_to_device(np.nanmax, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
nanmin = lift_to_device(np.nanmin, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
nanmean = lift_to_device(np.nanmean)
nanstd = lift_to_device(np.nanstd)
nanvar = lift_to_device(np.nanvar)
nanargmax = lift_to_device(np.nanargmax)
nanargmin = lift_to_device(np.nanargmin)
nanmedian = lift_to_device(np.nanmedian)
nancumsum = lift_to_device(np.nancumsum)
nancumprod = lift_to_device(np.nancumprod)
count_nonzero = lift_to_device(np.count_nonzero)
histogram = lift_to_device(np.histogram, synchronizes=True)
histogram2d = lift_to_device(np.histogram2d, operand_count=2, synchronizes=True)
histogramdd = lift_to_device(np.histogramdd, synchronizes=True)
bincount = lift_to_device(np.bincount, synchronizes=True)
digitize = lift_to_device(np.digitize, operand_count=2)
interp = lift_to_device(np.interp, operand_count=3)
corrcoef = lift_to_device(np.corrcoef)
cov = lift_to_device(np.cov)
convolve = lift_to_device(np.convolve, operand_count=2)
correlate = lift_to_device(np.correlate, operand_count=2)
trapezoid = lift_to_device(np.trapezoid)

# Rounding, clipping and comparison functions that are not ufuncs


def _clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None
) -> Any:
    lower_bound = a_min if min is None else min
    upper_bound = a_max if max is None else max
    return np.clip(a, lower_bound, upper_bound, out=out)


clip = lift_to_device(_clip, name="clip")
round = around = lift_to_device(np.round, name="round")
fix = lift_to_device(np.fix)
nan_to_num = lift_to_device(np.nan_to_num)
sinc = lift_to_device(np.sinc)
isclose = lift_to_device(np.isclose, operand_count=2)
allclose = lift_to_device(np.allclose, operand_count=2)
array_equal = lift_to_device(np.array_equal, operand_count=2)
array_equiv = lift_to_device(np.array_equiv, operand_count=2)
isreal = lift_to_device(np.isreal)
iscomplex = lift_to_device(np.iscomplex)
isneginf = lift_to_device(np.isneginf)
isposinf = lift_to_device(np.isposinf)
real = lift_to_device(np.real)
imag = lift_to_device(np.imag)
angle = lift_to_device(np.angle)
isin = lift_to_device(np.isin, operand_count=2)
in1d = lift_to_device(np.isin, name="in1d", operand_count=2)
real_if_close = lift_to_device(np.real_if_close)
unwrap = lift_to_device(np.unwrap)
i0 = lift_to_device(np.i0)

# Shapes
_lifted_reshape = lift_to_device(np.reshape)
ravel = lift_to_device(np.ravel)
transpose = lift_to_device(np.transpose)


def reshape(
    a: ndarray, /, shape: Any = None, order: Any = "C", *, newshape: Any = None, copy: bool | None = None
) -> ndarray:
    """Return `a` with another shape. The result is a view if possible, and otherwise a copy in the given
    memory order.

    With ``copy=True`` it is always a copy. With ``copy=False`` a necessary copy raises ``ValueError``.
    """
    new_shape = shape if newshape is None else newshape
    if copy and isinstance(a, ndarray):
        a = a.copy(order="K")
    result: Any = _lifted_reshape(a, new_shape, order=order)
    if copy is False and isinstance(result, ndarray) and result.base is None:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    if order in ("C", None) or not isinstance(result, ndarray) or result.base is not None:
        return result  # type: ignore[no-any-return]
    return result.astype(result.dtype, order=order, copy=False)


swapaxes = lift_to_device(np.swapaxes)
moveaxis = lift_to_device(np.moveaxis)
rollaxis = lift_to_device(np.rollaxis)
squeeze = lift_to_device(np.squeeze)
expand_dims = lift_to_device(np.expand_dims)
atleast_1d = lift_to_device(np.atleast_1d)
atleast_2d = lift_to_device(np.atleast_2d)
atleast_3d = lift_to_device(np.atleast_3d)
broadcast_to = lift_to_device(np.broadcast_to)
broadcast_arrays = lift_to_device(np.broadcast_arrays)


class broadcast:  # noqa: N801 - CuPy's name
    """The result of broadcasting device arrays and scalars to a common shape.

    Attributes
    ----------
    values : list
        Views of the arrays in the common shape.
    shape, nd, size
        The common shape, its number of dimensions and of elements.
    """

    def __init__(self, *arrays: Any) -> None:
        device_arrays = [a for a in arrays if isinstance(a, ndarray)]
        self.shape = np.broadcast_shapes(*(a.shape for a in device_arrays))
        self.nd, self.size = len(self.shape), math.prod(self.shape)
        self.values = [broadcast_to(a, self.shape) if isinstance(a, ndarray) else a for a in arrays]


stack = lift_to_device(np.stack)


def concatenate(
    tup: Any, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """Join device arrays along an existing axis. The arrays must have equal lengths along all other axes."""
    if isinstance(tup, (list, tuple)) and not tup:
        raise ValueError("need at least one array to concatenate")
    return _lifted_concatenate(tup, axis, out, dtype=dtype, casting=casting)


_lifted_concatenate = lift_to_device(np.concatenate)
concat = concatenate
permute_dims = transpose
hstack = lift_to_device(np.hstack)
vstack = lift_to_device(np.vstack)
dstack = lift_to_device(np.dstack)
column_stack = lift_to_device(np.column_stack)
split = lift_to_device(np.split)
array_split = lift_to_device(np.array_split)
hsplit = lift_to_device(np.hsplit)
vsplit = lift_to_device(np.vsplit)
dsplit = lift_to_device(np.dsplit)
tile = lift_to_device(np.tile)
repeat = lift_to_device(np.repeat)
roll = lift_to_device(np.roll)
flip = lift_to_device(np.flip)
fliplr = lift_to_device(np.fliplr)
flipud = lift_to_device(np.flipud)
rot90 = lift_to_device(np.rot90)
pad = lift_to_device(np.pad)
append = lift_to_device(np.append)
delete = lift_to_device(np.delete)
resize = lift_to_device(np.resize)
trim_zeros = lift_to_device(np.trim_zeros)
matrix_transpose = lift_to_device(np.matrix_transpose)

# Choosing, sorting and searching
where = lift_to_device(np.where, operand_count=3, synchronizes=False)
nonzero = lift_to_device(np.nonzero, synchronizes=True)
argwhere = lift_to_device(np.argwhere, synchronizes=True)
flatnonzero = lift_to_device(np.flatnonzero, synchronizes=True)
extract = lift_to_device(np.extract, operand_count=2, synchronizes=True)
compress = lift_to_device(np.compress, synchronizes=True)
select = lift_to_device(np.select)


def _piecewise(x: Any, condlist: Any, funclist: Any) -> Any:
    if [piece_value for piece_value in funclist if callable(piece_value)]:
        raise NotImplementedError("Callable functions are not supported currently. Pass values or arrays.")
    # Elements of an array keep their positions; NumPy would assign them one after another where the condition
    # is true.
    result = np.piecewise(
        x, condlist, [0 if np.ndim(piece_value) else piece_value for piece_value in funclist]
    )
    for condition, piece_value in zip(condlist, funclist, strict=False):
        if np.ndim(piece_value):
            np.copyto(result, piece_value, where=condition, casting="unsafe")
    return result


piecewise = lift_to_device(_piecewise, name="piecewise")
diagonal = lift_to_device(np.diagonal)
tril = lift_to_device(np.tril)
triu = lift_to_device(np.triu)
diagflat = lift_to_device(np.diagflat)


def _diag(v: Any, k: int = 0) -> Any:
    return np.array(np.diag(v, k))  # a copy in both directions, as in CuPy


_lifted_diag = lift_to_device(_diag, name="diag")


def diag(v: Any, k: int = 0) -> Any:
    """Return a matrix with the vector `v` on its `k`-th diagonal, or the `k`-th diagonal of a matrix `v`."""
    is_device_array = isinstance(v, ndarray | Traceable)
    return _lifted_diag(v if is_device_array else ndarray._module.array(v), k)


def _sort(a: Any, axis: int | None = -1, kind: str | None = None) -> Any:
    check_sort_kind(kind)
    return np.sort(a, axis, kind="stable")


def _argsort(a: Any, axis: int | None = -1, kind: str | None = None) -> Any:
    check_sort_kind(kind)
    return np.argsort(a, axis, kind="stable")


sort = lift_to_device(_sort, name="sort")
argsort = lift_to_device(_argsort, name="argsort")
lexsort = lift_to_device(np.lexsort)
partition = lift_to_device(np.partition)
argpartition = lift_to_device(np.argpartition)
searchsorted = lift_to_device(np.searchsorted)
unique = lift_to_device(np.unique, synchronizes=True)
unique_all = lift_to_device(np.unique_all, synchronizes=True)
unique_counts = lift_to_device(np.unique_counts, synchronizes=True)
unique_inverse = lift_to_device(np.unique_inverse, synchronizes=True)
unique_values = lift_to_device(np.unique_values, synchronizes=True)
intersect1d = lift_to_device(np.intersect1d, operand_count=2, synchronizes=True)
setdiff1d = lift_to_device(np.setdiff1d, operand_count=2, synchronizes=True)
union1d = lift_to_device(np.union1d, operand_count=2, synchronizes=True)
setxor1d = lift_to_device(np.setxor1d, operand_count=2, synchronizes=True)
sort_complex = lift_to_device(np.sort_complex)
packbits = lift_to_device(np.packbits)
unpackbits = lift_to_device(np.unpackbits)
ravel_multi_index = lift_to_device(np.ravel_multi_index, operand_count=0)
tril_indices_from = lift_to_device(np.tril_indices_from)
triu_indices_from = lift_to_device(np.triu_indices_from)
diag_indices_from = lift_to_device(np.diag_indices_from)
take_along_axis = lift_to_device(np.take_along_axis)
put_along_axis = lift_to_device(np.put_along_axis)
unravel_index = lift_to_device(np.unravel_index)


def _place(arr: Any, mask: Any, vals: Any) -> None:
    np.place(arr, mask, np.asarray(vals).astype(arr.dtype))  # any type, as in CuPy


_copy_on_device = lift_to_device(np.copyto)


@functools.wraps(_copy_on_device)
def copyto(dst: Any, src: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(src, np.ndarray):
        if src.size != 1:
            raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
        src = src.reshape(())[()]
    if not isinstance(dst, ndarray) or not isinstance(src, ndarray) or dst.device == src.device:
        _copy_on_device(dst, src, *args, **kwargs)
    elif (
        dst.nbytes == src.nbytes
        and dst.dtype == src.dtype
        and _have_same_order(dst, src)
        and not (args or kwargs)
    ):
        if src.nbytes:  # an empty array has no memory to copy from
            dst.data.copy_from_device_async(src.data, src.nbytes)
    else:
        with dst.device:
            _copy_on_device(dst, src.copy(), *args, **kwargs)


def _have_same_order(first_array: ndarray, second_array: ndarray) -> bool:
    """Return whether both arrays are C-contiguous or both are Fortran-contiguous."""
    both_c = first_array.flags.c_contiguous and second_array.flags.c_contiguous
    return bool(both_c or (first_array.flags.f_contiguous and second_array.flags.f_contiguous))


putmask = lift_to_device(np.putmask)
place = lift_to_device(_place, name="place")
fill_diagonal = lift_to_device(np.fill_diagonal)


def _take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: Any = "wrap") -> Any:
    # A kernel cannot raise, so CuPy wraps indices around where NumPy raises.
    mode = "wrap" if mode is None else mode
    extent = np.size(a) if axis is None else np.shape(a)[axis]
    return np.take(a, _wrap_indices(indices, extent, mode), axis=axis, out=out, mode=mode)


def _put(a: Any, ind: Any, v: Any, mode: Any = "wrap") -> None:
    np.put(a, _wrap_indices(ind, np.size(a), mode), v, mode=mode)


def _choose(a: Any, choices: Any, out: Any = None, mode: Any = "raise") -> Any:
    return np.choose(_wrap_indices(a, len(choices), mode), choices, out=out, mode=mode)


def _wrap_indices(indices: Any, extent: int, mode: Any) -> Any:
    """Return integer indices modulo `extent` for the mode "wrap". NumPy subtracts the extent repeatedly."""
    index_array = np.asarray(indices)
    return index_array % extent if mode == "wrap" and extent and index_array.dtype.kind in "iu" else indices


take = lift_to_device(_take, name="take")
put = lift_to_device(_put, name="put")
choose = lift_to_device(_choose, name="choose")


# Products


def _count_matmul_flop(a: Any, b: Any, *_: Any) -> float:
    """Return the floating-point operations of a matrix product: 2 x result elements x inner length."""
    shape_a = np.shape(a)
    shape_b = np.shape(b)
    if not shape_a or not shape_b:
        return 0.0
    column_count = shape_b[-1] if len(shape_b) > 1 else 1
    batch_count = math.prod(shape_b[:-2]) if len(shape_b) > len(shape_a) else 1
    return 2.0 * float(math.prod(shape_a) * column_count * batch_count)


def _matmul(a: Any, b: Any, out: Any = None, *, axes: Any = None, casting: Any = None) -> Any:
    keywords = {"out": out, "axes": axes, "casting": casting}
    return np.matmul(a, b, **{name: value for name, value in keywords.items() if value is not None})


matmul = lift_to_device(_matmul, name="matmul", operand_count=2, count_flop=_count_matmul_flop)
dot = lift_to_device(np.dot, operand_count=2, count_flop=_count_matmul_flop)
vdot = lift_to_device(np.vdot, operand_count=2)
inner = lift_to_device(np.inner, operand_count=2)
outer = lift_to_device(np.outer, operand_count=2)
tensordot = lift_to_device(np.tensordot, operand_count=2)
kron = lift_to_device(np.kron, operand_count=2)
cross = lift_to_device(np.cross, operand_count=2)
trace = lift_to_device(np.trace)

# Polynomials by their coefficients, the highest power first
polyval = lift_to_device(np.polyval, operand_count=2)
polyfit = lift_to_device(np.polyfit, operand_count=2, synchronizes=True)
polyadd = lift_to_device(np.polyadd, operand_count=2)
polysub = lift_to_device(np.polysub, operand_count=2)
polymul = lift_to_device(np.polymul, operand_count=2)
roots = lift_to_device(np.roots, synchronizes=True)
poly = lift_to_device(np.poly)
vander = lift_to_device(np.vander)


def _einsum(*operands: Any, subscripts: str, **kwargs: Any) -> Any:
    return np.einsum(subscripts, *operands, **kwargs)


_lifted_einsum = lift_to_device(_einsum, name="einsum", operand_count=64)


def _convert_subscript_lists(arguments: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Convert list subscripts of `einsum` (``a, [0, 1], b, [1, 2], [0, 2]``) to letters and operands."""

    def format_subscripts(labels: Any) -> str:
        return "".join("..." if label is ... else ascii_letters.swapcase()[label] for label in labels)

    operands = tuple(arguments[: len(arguments) // 2 * 2 : 2])
    subscript_lists = arguments[1::2]
    output_subscript = [f"->{format_subscripts(arguments[-1])}"] if len(arguments) % 2 else []
    return "".join([",".join(map(format_subscripts, subscript_lists)), *output_subscript]), operands


def einsum(subscripts: Any, *operands: Any, dtype: Any = None, optimize: Any = False) -> ndarray:
    """Compute an Einstein summation of device arrays, like ``numpy.einsum``."""
    if not isinstance(subscripts, str):
        subscripts, operands = _convert_subscript_lists((subscripts, *operands))
    result: ndarray = _lifted_einsum(*operands, subscripts=subscripts, dtype=dtype, optimize=optimize)
    return result


# Queries of shapes and dtypes
ndim = adapt_host_function(np.ndim)
shape = adapt_host_function(np.shape)
size = adapt_host_function(np.size)
result_type = adapt_host_function(np.result_type)
can_cast = adapt_host_function(np.can_cast)
min_scalar_type = adapt_host_function(np.min_scalar_type)
isscalar = adapt_host_function(np.isscalar)
iscomplexobj = adapt_host_function(np.iscomplexobj)
isrealobj = adapt_host_function(np.isrealobj)
isfortran = adapt_host_function(np.isfortran)
isdtype = adapt_host_function(np.isdtype)
common_type = adapt_host_function(np.common_type)


def astype(x: ndarray, dtype: Any, /, *, copy: bool = True) -> ndarray:
    """Convert `x` to another dtype. If `x` already has that dtype and `copy` is False, `x` itself is
    returned.
    """
    return x.astype(dtype, copy=copy)


def shares_memory(a: ndarray, b: ndarray, max_work: int | None = None) -> bool:
    """Return whether two device arrays have elements in common."""
    if max_work is not None:
        raise NotImplementedError("Not supported for integer `max_work`.")
    return bool(np.shares_memory(a._host, b._host))


def byte_bounds(a: ndarray) -> tuple[int, int]:
    """Return the address of the first byte of an array, and the address after its last byte."""
    low_address, high_address = np.lib.array_utils.byte_bounds(a._host)
    return int(low_address), int(high_address)


def may_share_memory(a: ndarray, b: ndarray, max_work: int = 0) -> bool:
    """Return whether the memory ranges of two device arrays overlap."""
    return bool(np.may_share_memory(a._host, b._host))


__all__ = [
    _name
    for _name, _value in list(globals().items())
    if _name not in ("lift_to_device", "adapt_host_function")
    and not _name.startswith("_")
    and (
        getattr(_value, "__module__", "") in (__name__, "virtualgpu.cp._routines.from_numpy")
        or isinstance(_value, ufunc)
    )
]
