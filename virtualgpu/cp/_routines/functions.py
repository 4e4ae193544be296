"""The functions of the ``cp`` namespace that take device arrays.

Element-wise functions are `ufunc` objects; the others come from NumPy by `lift`. Names and keywords are
CuPy's; ``missing_keywords`` lists NumPy keywords that CuPy does not know.
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
from virtualgpu.cp._routines.from_numpy import host_only, lift
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
sum = lift(np.sum, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
prod = lift(np.prod, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
max = amax = lift(np.max, name="max", missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
min = amin = lift(np.min, name="min", missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)


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


argmax = lift(_argmax, name="argmax")
argmin = lift(_argmin, name="argmin")
all = lift(np.all, missing_keywords=("where",))
any = lift(np.any, missing_keywords=("where",))
mean = lift(np.mean, missing_keywords=("where",))
std = lift(np.std, missing_keywords=("where", "mean", "correction"))
var = lift(np.var, missing_keywords=("where", "mean", "correction"))
median = lift(np.median)
average = lift(np.average, operand_count=1)
ptp = lift(np.ptp)
percentile = lift(np.percentile)
quantile = lift(np.quantile)
cumsum = lift(np.cumsum)
cumprod = lift(np.cumprod)
diff = lift(np.diff)
gradient = lift(np.gradient)
ediff1d = lift(np.ediff1d)
nansum = lift(np.nansum, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
nanprod = lift(np.nanprod, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
nanmax = lift(np.nanmax, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
nanmin = lift(np.nanmin, missing_keywords=_UNSUPPORTED_REDUCTION_KEYWORDS)
nanmean = lift(np.nanmean)
nanstd = lift(np.nanstd)
nanvar = lift(np.nanvar)
nanargmax = lift(np.nanargmax)
nanargmin = lift(np.nanargmin)
nanmedian = lift(np.nanmedian)
nancumsum = lift(np.nancumsum)
nancumprod = lift(np.nancumprod)
count_nonzero = lift(np.count_nonzero)
histogram = lift(np.histogram, synchronizes=True)
histogram2d = lift(np.histogram2d, operand_count=2, synchronizes=True)
histogramdd = lift(np.histogramdd, synchronizes=True)
bincount = lift(np.bincount, synchronizes=True)
digitize = lift(np.digitize, operand_count=2)
interp = lift(np.interp, operand_count=3)
corrcoef = lift(np.corrcoef)
cov = lift(np.cov)
convolve = lift(np.convolve, operand_count=2)
correlate = lift(np.correlate, operand_count=2)
trapezoid = lift(np.trapezoid)

# Rounding, clipping and comparison functions that are not ufuncs


def _clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None
) -> Any:
    lower_bound = a_min if min is None else min
    upper_bound = a_max if max is None else max
    return np.clip(a, lower_bound, upper_bound, out=out)


clip = lift(_clip, name="clip")
round = around = lift(np.round, name="round")
fix = lift(np.fix)
nan_to_num = lift(np.nan_to_num)
sinc = lift(np.sinc)
isclose = lift(np.isclose, operand_count=2)
allclose = lift(np.allclose, operand_count=2)
array_equal = lift(np.array_equal, operand_count=2)
array_equiv = lift(np.array_equiv, operand_count=2)
isreal = lift(np.isreal)
iscomplex = lift(np.iscomplex)
isneginf = lift(np.isneginf)
isposinf = lift(np.isposinf)
real = lift(np.real)
imag = lift(np.imag)
angle = lift(np.angle)
isin = lift(np.isin, operand_count=2)
in1d = lift(np.isin, name="in1d", operand_count=2)
real_if_close = lift(np.real_if_close)
unwrap = lift(np.unwrap)
i0 = lift(np.i0)

# Shapes
_reshaped = lift(np.reshape)
ravel = lift(np.ravel)
transpose = lift(np.transpose)


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
    result: Any = _reshaped(a, new_shape, order=order)
    if copy is False and isinstance(result, ndarray) and result.base is None:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    if order in ("C", None) or not isinstance(result, ndarray) or result.base is not None:
        return result  # type: ignore[no-any-return]
    return result.astype(result.dtype, order=order, copy=False)


swapaxes = lift(np.swapaxes)
moveaxis = lift(np.moveaxis)
rollaxis = lift(np.rollaxis)
squeeze = lift(np.squeeze)
expand_dims = lift(np.expand_dims)
atleast_1d = lift(np.atleast_1d)
atleast_2d = lift(np.atleast_2d)
atleast_3d = lift(np.atleast_3d)
broadcast_to = lift(np.broadcast_to)
broadcast_arrays = lift(np.broadcast_arrays)


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


stack = lift(np.stack)


def concatenate(
    tup: Any, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """Join device arrays along an existing axis. The arrays must have equal lengths along all other axes."""
    if isinstance(tup, (list, tuple)) and not tup:
        raise ValueError("need at least one array to concatenate")
    return _concatenate(tup, axis, out, dtype=dtype, casting=casting)


_concatenate = lift(np.concatenate)
concat = concatenate
permute_dims = transpose
hstack = lift(np.hstack)
vstack = lift(np.vstack)
dstack = lift(np.dstack)
column_stack = lift(np.column_stack)
split = lift(np.split)
array_split = lift(np.array_split)
hsplit = lift(np.hsplit)
vsplit = lift(np.vsplit)
dsplit = lift(np.dsplit)
tile = lift(np.tile)
repeat = lift(np.repeat)
roll = lift(np.roll)
flip = lift(np.flip)
fliplr = lift(np.fliplr)
flipud = lift(np.flipud)
rot90 = lift(np.rot90)
pad = lift(np.pad)
append = lift(np.append)
delete = lift(np.delete)
resize = lift(np.resize)
trim_zeros = lift(np.trim_zeros)
matrix_transpose = lift(np.matrix_transpose)

# Choosing, sorting and searching
where = lift(np.where, operand_count=3, synchronizes=False)
nonzero = lift(np.nonzero, synchronizes=True)
argwhere = lift(np.argwhere, synchronizes=True)
flatnonzero = lift(np.flatnonzero, synchronizes=True)
extract = lift(np.extract, operand_count=2, synchronizes=True)
compress = lift(np.compress, synchronizes=True)
select = lift(np.select)


def _piecewise(x: Any, condlist: Any, funclist: Any) -> Any:
    if [choice for choice in funclist if callable(choice)]:
        raise NotImplementedError("Callable functions are not supported currently. Pass values or arrays.")
    # Elements of an array keep their positions; NumPy would assign them one after another where the condition
    # is true.
    result = np.piecewise(x, condlist, [0 if np.ndim(choice) else choice for choice in funclist])
    for condition, choice in zip(condlist, funclist, strict=False):
        if np.ndim(choice):
            np.copyto(result, choice, where=condition, casting="unsafe")
    return result


piecewise = lift(_piecewise, name="piecewise")
diagonal = lift(np.diagonal)
tril = lift(np.tril)
triu = lift(np.triu)
diagflat = lift(np.diagflat)


def _diag(v: Any, k: int = 0) -> Any:
    return np.array(np.diag(v, k))  # a copy in both directions, as in CuPy


_lifted_diag = lift(_diag, name="diag")


def diag(v: Any, k: int = 0) -> Any:
    """Return a matrix with the vector `v` on its `k`-th diagonal, or the `k`-th diagonal of a matrix `v`."""
    on_device = isinstance(v, ndarray | Traceable)
    return _lifted_diag(v if on_device else ndarray._module.array(v), k)


def _sort(a: Any, axis: int | None = -1, kind: str | None = None) -> Any:
    check_sort_kind(kind)
    return np.sort(a, axis, kind="stable")


def _argsort(a: Any, axis: int | None = -1, kind: str | None = None) -> Any:
    check_sort_kind(kind)
    return np.argsort(a, axis, kind="stable")


sort = lift(_sort, name="sort")
argsort = lift(_argsort, name="argsort")
lexsort = lift(np.lexsort)
partition = lift(np.partition)
argpartition = lift(np.argpartition)
searchsorted = lift(np.searchsorted)
unique = lift(np.unique, synchronizes=True)
unique_all = lift(np.unique_all, synchronizes=True)
unique_counts = lift(np.unique_counts, synchronizes=True)
unique_inverse = lift(np.unique_inverse, synchronizes=True)
unique_values = lift(np.unique_values, synchronizes=True)
intersect1d = lift(np.intersect1d, operand_count=2, synchronizes=True)
setdiff1d = lift(np.setdiff1d, operand_count=2, synchronizes=True)
union1d = lift(np.union1d, operand_count=2, synchronizes=True)
setxor1d = lift(np.setxor1d, operand_count=2, synchronizes=True)
sort_complex = lift(np.sort_complex)
packbits = lift(np.packbits)
unpackbits = lift(np.unpackbits)
ravel_multi_index = lift(np.ravel_multi_index, operand_count=0)
tril_indices_from = lift(np.tril_indices_from)
triu_indices_from = lift(np.triu_indices_from)
diag_indices_from = lift(np.diag_indices_from)
take_along_axis = lift(np.take_along_axis)
put_along_axis = lift(np.put_along_axis)
unravel_index = lift(np.unravel_index)


def _place(arr: Any, mask: Any, vals: Any) -> None:
    np.place(arr, mask, np.asarray(vals).astype(arr.dtype))  # any type, as in CuPy


_copy_on_device = lift(np.copyto)


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
        and _same_contiguous_order(dst, src)
        and not (args or kwargs)
    ):
        if src.nbytes:  # an empty array has no memory to copy from
            dst.data.copy_from_device_async(src.data, src.nbytes)
    else:
        with dst.device:
            _copy_on_device(dst, src.copy(), *args, **kwargs)


def _same_contiguous_order(first_array: ndarray, second_array: ndarray) -> bool:
    """Return whether both arrays are C-contiguous or both are Fortran-contiguous."""
    both_c = first_array.flags.c_contiguous and second_array.flags.c_contiguous
    return bool(both_c or (first_array.flags.f_contiguous and second_array.flags.f_contiguous))


putmask = lift(np.putmask)
place = lift(_place, name="place")
fill_diagonal = lift(np.fill_diagonal)


def _take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: Any = "wrap") -> Any:
    # A kernel cannot raise, so CuPy wraps indices around where NumPy raises.
    mode = "wrap" if mode is None else mode
    extent = np.size(a) if axis is None else np.shape(a)[axis]
    return np.take(a, _wrapped_indices(indices, extent, mode), axis=axis, out=out, mode=mode)


def _put(a: Any, ind: Any, v: Any, mode: Any = "wrap") -> None:
    np.put(a, _wrapped_indices(ind, np.size(a), mode), v, mode=mode)


def _choose(a: Any, choices: Any, out: Any = None, mode: Any = "raise") -> Any:
    return np.choose(_wrapped_indices(a, len(choices), mode), choices, out=out, mode=mode)


def _wrapped_indices(indices: Any, extent: int, mode: Any) -> Any:
    """Return integer indices modulo `extent` for the mode "wrap"; NumPy would subtract once per wrap."""
    index_array = np.asarray(indices)
    return index_array % extent if mode == "wrap" and extent and index_array.dtype.kind in "iu" else indices


take = lift(_take, name="take")
put = lift(_put, name="put")
choose = lift(_choose, name="choose")


# Products


def _matmul_flop(a: Any, b: Any, *_: Any) -> float:
    """Return the floating-point operations of a matrix product: 2 x result elements x inner length."""
    shape_a = np.shape(a)
    shape_b = np.shape(b)
    if not shape_a or not shape_b:
        return 0.0
    columns = shape_b[-1] if len(shape_b) > 1 else 1
    batch = math.prod(shape_b[:-2]) if len(shape_b) > len(shape_a) else 1
    return 2.0 * float(math.prod(shape_a) * columns * batch)


def _matmul(a: Any, b: Any, out: Any = None, *, axes: Any = None, casting: Any = None) -> Any:
    keywords = {"out": out, "axes": axes, "casting": casting}
    return np.matmul(a, b, **{name: value for name, value in keywords.items() if value is not None})


matmul = lift(_matmul, name="matmul", operand_count=2, flop=_matmul_flop)
dot = lift(np.dot, operand_count=2, flop=_matmul_flop)
vdot = lift(np.vdot, operand_count=2)
inner = lift(np.inner, operand_count=2)
outer = lift(np.outer, operand_count=2)
tensordot = lift(np.tensordot, operand_count=2)
kron = lift(np.kron, operand_count=2)
cross = lift(np.cross, operand_count=2)
trace = lift(np.trace)

# Polynomials by their coefficients, the highest power first
polyval = lift(np.polyval, operand_count=2)
polyfit = lift(np.polyfit, operand_count=2, synchronizes=True)
polyadd = lift(np.polyadd, operand_count=2)
polysub = lift(np.polysub, operand_count=2)
polymul = lift(np.polymul, operand_count=2)
roots = lift(np.roots, synchronizes=True)
poly = lift(np.poly)
vander = lift(np.vander)


def _einsum(*operands: Any, subscripts: str, **kwargs: Any) -> Any:
    return np.einsum(subscripts, *operands, **kwargs)


_lifted_einsum = lift(_einsum, name="einsum", operand_count=64)


def _subscripts_of_lists(arguments: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Convert list subscripts of `einsum` (``a, [0, 1], b, [1, 2], [0, 2]``) to letters and operands."""

    def subscript_term(labels: Any) -> str:
        return "".join("..." if label is ... else ascii_letters.swapcase()[label] for label in labels)

    operands = tuple(arguments[: len(arguments) // 2 * 2 : 2])
    subscript_lists = arguments[1::2]
    output_subscript = [f"->{subscript_term(arguments[-1])}"] if len(arguments) % 2 else []
    return "".join([",".join(map(subscript_term, subscript_lists)), *output_subscript]), operands


def einsum(subscripts: Any, *operands: Any, dtype: Any = None, optimize: Any = False) -> ndarray:
    """Compute an Einstein summation of device arrays, like ``numpy.einsum``."""
    if not isinstance(subscripts, str):
        subscripts, operands = _subscripts_of_lists((subscripts, *operands))
    result: ndarray = _lifted_einsum(*operands, subscripts=subscripts, dtype=dtype, optimize=optimize)
    return result


# Queries of shapes and dtypes
ndim = host_only(np.ndim)
shape = host_only(np.shape)
size = host_only(np.size)
result_type = host_only(np.result_type)
can_cast = host_only(np.can_cast)
min_scalar_type = host_only(np.min_scalar_type)
isscalar = host_only(np.isscalar)
iscomplexobj = host_only(np.iscomplexobj)
isrealobj = host_only(np.isrealobj)
isfortran = host_only(np.isfortran)
isdtype = host_only(np.isdtype)
common_type = host_only(np.common_type)


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
    if _name not in ("lift", "host_only")
    and not _name.startswith("_")
    and (
        getattr(_value, "__module__", "") in (__name__, "virtualgpu.cp._routines.from_numpy")
        or isinstance(_value, ufunc)
    )
]
