"""The functions of the ``cp`` namespace that take device arrays.

Element-wise functions are `ufunc` objects; the others come from NumPy by `lift`. Names and keywords
are CuPy's; ``lacks`` lists NumPy keywords that CuPy does not know.
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
from virtualgpu.cp._core.operators import check_kind
from virtualgpu.cp._routines.from_numpy import host_only, lift
from virtualgpu.cp._routines.ufunc import ufunc

_REDUCTION = ("initial", "where")

# Arithmetic
add, subtract, multiply = ufunc(np.add), ufunc(np.subtract), ufunc(np.multiply)
divide = true_divide = ufunc(np.true_divide, "true_divide")
floor_divide, power, float_power = ufunc(np.floor_divide), ufunc(np.power), ufunc(np.float_power)
remainder = mod = ufunc(np.remainder)
fmod, divmod, modf = ufunc(np.fmod), ufunc(np.divmod), ufunc(np.modf)
negative, positive, reciprocal = ufunc(np.negative), ufunc(np.positive), ufunc(np.reciprocal)
absolute = abs = ufunc(np.absolute)
fabs, sign, square, sqrt, cbrt = (
    ufunc(np.fabs),
    ufunc(np.sign),
    ufunc(np.square),
    ufunc(np.sqrt),
    ufunc(np.cbrt),
)
gcd, lcm, heaviside = ufunc(np.gcd), ufunc(np.lcm), ufunc(np.heaviside)
maximum, minimum, fmax, fmin = ufunc(np.maximum), ufunc(np.minimum), ufunc(np.fmax), ufunc(np.fmin)
conjugate = conj = ufunc(np.conjugate)

# Rounding and floating-point parts
rint, floor, ceil, trunc = ufunc(np.rint), ufunc(np.floor), ufunc(np.ceil), ufunc(np.trunc)
signbit, copysign, nextafter = ufunc(np.signbit), ufunc(np.copysign), ufunc(np.nextafter)
ldexp, frexp = ufunc(np.ldexp), ufunc(np.frexp)
isnan, isinf, isfinite = ufunc(np.isnan), ufunc(np.isinf), ufunc(np.isfinite)

# Exponentials and trigonometry
exp, exp2, expm1 = ufunc(np.exp), ufunc(np.exp2), ufunc(np.expm1)
log, log2, log10, log1p = ufunc(np.log), ufunc(np.log2), ufunc(np.log10), ufunc(np.log1p)
logaddexp, logaddexp2 = ufunc(np.logaddexp), ufunc(np.logaddexp2)
sin, cos, tan = ufunc(np.sin), ufunc(np.cos), ufunc(np.tan)
arcsin, arccos, arctan = ufunc(np.arcsin), ufunc(np.arccos), ufunc(np.arctan)
sinh, cosh, tanh = ufunc(np.sinh), ufunc(np.cosh), ufunc(np.tanh)
arcsinh, arccosh, arctanh = ufunc(np.arcsinh), ufunc(np.arccosh), ufunc(np.arctanh)
arctan2, hypot = ufunc(np.arctan2), ufunc(np.hypot)
deg2rad, rad2deg, degrees, radians = (
    ufunc(np.deg2rad),
    ufunc(np.rad2deg),
    ufunc(np.degrees),
    ufunc(np.radians),
)

acos, asin, atan, acosh, asinh, atanh = arccos, arcsin, arctan, arccosh, arcsinh, arctanh
atan2, pow = arctan2, power

# Comparison, logic and bits
equal, not_equal = ufunc(np.equal), ufunc(np.not_equal)
less, less_equal, greater, greater_equal = (
    ufunc(np.less),
    ufunc(np.less_equal),
    ufunc(np.greater),
    ufunc(np.greater_equal),
)
logical_and, logical_or, logical_xor, logical_not = (
    ufunc(np.logical_and),
    ufunc(np.logical_or),
    ufunc(np.logical_xor),
    ufunc(np.logical_not),
)
bitwise_and, bitwise_or, bitwise_xor = ufunc(np.bitwise_and), ufunc(np.bitwise_or), ufunc(np.bitwise_xor)
invert = bitwise_not = ufunc(np.invert)
bitwise_count = ufunc(np.bitwise_count)
left_shift, right_shift = ufunc(np.left_shift), ufunc(np.right_shift)

bitwise_invert, bitwise_left_shift, bitwise_right_shift = invert, left_shift, right_shift

# Reductions and statistics
sum, prod = lift(np.sum, lacks=_REDUCTION), lift(np.prod, lacks=_REDUCTION)
max = amax = lift(np.max, name="max", lacks=_REDUCTION)
min = amin = lift(np.min, name="min", lacks=_REDUCTION)


def _argmax(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    found = (
        np.argmax(a, axis, keepdims=keepdims) if out is None else np.argmax(a, axis, out, keepdims=keepdims)
    )
    return found if dtype is None else np.asarray(found, dtype)


def _argmin(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    found = (
        np.argmin(a, axis, keepdims=keepdims) if out is None else np.argmin(a, axis, out, keepdims=keepdims)
    )
    return found if dtype is None else np.asarray(found, dtype)


argmax, argmin = lift(_argmax, name="argmax"), lift(_argmin, name="argmin")
all, any = lift(np.all, lacks=("where",)), lift(np.any, lacks=("where",))
mean = lift(np.mean, lacks=("where",))
std, var = (
    lift(np.std, lacks=("where", "mean", "correction")),
    lift(np.var, lacks=("where", "mean", "correction")),
)
median, average, ptp = lift(np.median), lift(np.average, operands=1), lift(np.ptp)
percentile, quantile = lift(np.percentile), lift(np.quantile)
cumsum, cumprod = lift(np.cumsum), lift(np.cumprod)
diff, gradient, ediff1d = lift(np.diff), lift(np.gradient), lift(np.ediff1d)
nansum, nanprod = lift(np.nansum, lacks=_REDUCTION), lift(np.nanprod, lacks=_REDUCTION)
nanmax, nanmin = lift(np.nanmax, lacks=_REDUCTION), lift(np.nanmin, lacks=_REDUCTION)
nanmean, nanstd, nanvar = lift(np.nanmean), lift(np.nanstd), lift(np.nanvar)
nanargmax, nanargmin, nanmedian = lift(np.nanargmax), lift(np.nanargmin), lift(np.nanmedian)
nancumsum, nancumprod = lift(np.nancumsum), lift(np.nancumprod)
count_nonzero = lift(np.count_nonzero)
histogram, histogram2d = lift(np.histogram, waits=True), lift(np.histogram2d, operands=2, waits=True)
histogramdd = lift(np.histogramdd, waits=True)
bincount = lift(np.bincount, waits=True)
digitize, interp = lift(np.digitize, operands=2), lift(np.interp, operands=3)
corrcoef, cov = lift(np.corrcoef), lift(np.cov)
convolve, correlate = lift(np.convolve, operands=2), lift(np.correlate, operands=2)
trapezoid = lift(np.trapezoid)

# Rounding, clipping and comparison that are no ufuncs


def _clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None
) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    return np.clip(a, low, high, out=out)


clip = lift(_clip, name="clip")
round = around = lift(np.round, name="round")
fix, nan_to_num, sinc = lift(np.fix), lift(np.nan_to_num), lift(np.sinc)
isclose, allclose = lift(np.isclose, operands=2), lift(np.allclose, operands=2)
array_equal, array_equiv = lift(np.array_equal, operands=2), lift(np.array_equiv, operands=2)
isreal, iscomplex = lift(np.isreal), lift(np.iscomplex)
isneginf, isposinf = lift(np.isneginf), lift(np.isposinf)
real, imag, angle = lift(np.real), lift(np.imag), lift(np.angle)
isin, in1d = lift(np.isin, operands=2), lift(np.isin, name="in1d", operands=2)
real_if_close, unwrap, i0 = lift(np.real_if_close), lift(np.unwrap), lift(np.i0)

# Shapes
_reshaped, ravel, transpose = lift(np.reshape), lift(np.ravel), lift(np.transpose)


def reshape(
    a: ndarray, /, shape: Any = None, order: Any = "C", *, newshape: Any = None, copy: bool | None = None
) -> ndarray:
    """`a` with another shape: a view where possible, else a copy that lies in memory in that order.

    With ``copy=True`` it is one always; with ``copy=False`` it is a ``ValueError`` where it had to be.
    """
    wanted = shape if newshape is None else newshape
    if copy and isinstance(a, ndarray):
        a = a.copy(order="K")
    result: Any = _reshaped(a, wanted, order=order)
    if copy is False and isinstance(result, ndarray) and result.base is None:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    if order in ("C", None) or not isinstance(result, ndarray) or result.base is not None:
        return result  # type: ignore[no-any-return]
    return result.astype(result.dtype, order=order, copy=False)


swapaxes, moveaxis, rollaxis = lift(np.swapaxes), lift(np.moveaxis), lift(np.rollaxis)
squeeze, expand_dims = lift(np.squeeze), lift(np.expand_dims)
atleast_1d, atleast_2d, atleast_3d = lift(np.atleast_1d), lift(np.atleast_2d), lift(np.atleast_3d)
broadcast_to, broadcast_arrays = lift(np.broadcast_to), lift(np.broadcast_arrays)


class broadcast:  # noqa: N801 - CuPy's name
    """Device arrays, and scalars, as they look broadcast against each other.

    Attributes
    ----------
    values : list
        Views of the arrays in the common shape.
    shape, nd, size
        Of that shape.
    """

    def __init__(self, *arrays: Any) -> None:
        given = [a for a in arrays if isinstance(a, ndarray)]
        self.shape = np.broadcast_shapes(*(a.shape for a in given))
        self.nd, self.size = len(self.shape), math.prod(self.shape)
        self.values = [broadcast_to(a, self.shape) if isinstance(a, ndarray) else a for a in arrays]


stack = lift(np.stack)


def concatenate(
    tup: Any, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """Join device arrays along an axis that exists; they agree in the lengths of the others."""
    if isinstance(tup, (list, tuple)) and not tup:
        raise ValueError("need at least one array to concatenate")
    return _concatenate(tup, axis, out, dtype=dtype, casting=casting)


_concatenate = lift(np.concatenate)
concat, permute_dims = concatenate, transpose
hstack, vstack, dstack = lift(np.hstack), lift(np.vstack), lift(np.dstack)
column_stack = lift(np.column_stack)
split, array_split = lift(np.split), lift(np.array_split)
hsplit, vsplit, dsplit = lift(np.hsplit), lift(np.vsplit), lift(np.dsplit)
tile, repeat, roll, flip = lift(np.tile), lift(np.repeat), lift(np.roll), lift(np.flip)
fliplr, flipud, rot90, pad = lift(np.fliplr), lift(np.flipud), lift(np.rot90), lift(np.pad)
append, delete, resize, trim_zeros = lift(np.append), lift(np.delete), lift(np.resize), lift(np.trim_zeros)
matrix_transpose = lift(np.matrix_transpose)

# Choosing, sorting and searching
where = lift(np.where, operands=3, waits=False)
nonzero, argwhere, flatnonzero = (
    lift(np.nonzero, waits=True),
    lift(np.argwhere, waits=True),
    lift(np.flatnonzero, waits=True),
)
extract, compress = lift(np.extract, operands=2, waits=True), lift(np.compress, waits=True)
select = lift(np.select)


def _piecewise(x: Any, condlist: Any, funclist: Any) -> Any:
    if [item for item in funclist if callable(item)]:
        raise NotImplementedError("Callable functions are not supported currently: give values, or arrays.")
    # An array's elements go where they stand, and not one by one to where the condition holds.
    result = np.piecewise(x, condlist, [0 if np.ndim(item) else item for item in funclist])
    for holds, item in zip(condlist, funclist, strict=False):
        if np.ndim(item):
            np.copyto(result, item, where=holds, casting="unsafe")
    return result


piecewise = lift(_piecewise, name="piecewise")
diagonal, tril, triu = lift(np.diagonal), lift(np.tril), lift(np.triu)
diagflat = lift(np.diagflat)


def _diag(v: Any, k: int = 0) -> Any:
    return np.array(np.diag(v, k))  # a copy in both directions, as in CuPy


_diagonal_of = lift(_diag, name="diag")


def diag(v: Any, k: int = 0) -> Any:
    """A matrix with the vector `v` (a list, too) on its `k`-th diagonal, or that diagonal of a matrix."""
    on_device = isinstance(v, ndarray | Traceable)
    return _diagonal_of(v if on_device else ndarray._module.array(v), k)


def _sort(a: Any, axis: int | None = -1, kind: str | None = None) -> Any:
    check_kind(kind)
    return np.sort(a, axis, kind="stable")


def _argsort(a: Any, axis: int | None = -1, kind: str | None = None) -> Any:
    check_kind(kind)
    return np.argsort(a, axis, kind="stable")


sort, argsort = lift(_sort, name="sort"), lift(_argsort, name="argsort")
lexsort = lift(np.lexsort)
partition, argpartition = lift(np.partition), lift(np.argpartition)
searchsorted = lift(np.searchsorted)
unique = lift(np.unique, waits=True)
unique_all, unique_counts = lift(np.unique_all, waits=True), lift(np.unique_counts, waits=True)
unique_inverse, unique_values = lift(np.unique_inverse, waits=True), lift(np.unique_values, waits=True)
intersect1d, setdiff1d = (
    lift(np.intersect1d, operands=2, waits=True),
    lift(np.setdiff1d, operands=2, waits=True),
)
union1d, setxor1d = lift(np.union1d, operands=2, waits=True), lift(np.setxor1d, operands=2, waits=True)
sort_complex, packbits, unpackbits = lift(np.sort_complex), lift(np.packbits), lift(np.unpackbits)
ravel_multi_index = lift(np.ravel_multi_index, operands=0)
tril_indices_from, triu_indices_from = lift(np.tril_indices_from), lift(np.triu_indices_from)
diag_indices_from = lift(np.diag_indices_from)
take_along_axis, put_along_axis = lift(np.take_along_axis), lift(np.put_along_axis)
unravel_index = lift(np.unravel_index)


def _place(arr: Any, mask: Any, vals: Any) -> None:
    np.place(arr, mask, np.asarray(vals).astype(arr.dtype))  # any type, as in CuPy


_copy_here = lift(np.copyto)


@functools.wraps(_copy_here)
def copyto(dst: Any, src: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(src, np.ndarray):
        if src.size != 1:
            raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
        src = src.reshape(())[()]
    if not isinstance(dst, ndarray) or not isinstance(src, ndarray) or dst.device == src.device:
        _copy_here(dst, src, *args, **kwargs)
    elif dst.nbytes == src.nbytes and dst.dtype == src.dtype and _alike(dst, src) and not (args or kwargs):
        if src.nbytes:  # an empty array has no memory to copy from
            dst.data.copy_from_device_async(src.data, src.nbytes)
    else:
        with dst.device:
            _copy_here(dst, src.copy(), *args, **kwargs)


def _alike(first: ndarray, second: ndarray) -> bool:
    """Whether the elements of both lie in one order without gaps."""
    c = first.flags.c_contiguous and second.flags.c_contiguous
    return bool(c or (first.flags.f_contiguous and second.flags.f_contiguous))


putmask, place, fill_diagonal = (
    lift(np.putmask),
    lift(_place, name="place"),
    lift(np.fill_diagonal),
)


def _take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: Any = "wrap") -> Any:
    # A kernel cannot raise, so CuPy wraps indices around where NumPy raises.
    mode = "wrap" if mode is None else mode
    extent = np.size(a) if axis is None else np.shape(a)[axis]
    return np.take(a, _within(indices, extent, mode), axis=axis, out=out, mode=mode)


def _put(a: Any, ind: Any, v: Any, mode: Any = "wrap") -> None:
    np.put(a, _within(ind, np.size(a), mode), v, mode=mode)


def _choose(a: Any, choices: Any, out: Any = None, mode: Any = "raise") -> Any:
    return np.choose(_within(a, len(choices), mode), choices, out=out, mode=mode)


def _within(indices: Any, extent: int, mode: Any) -> Any:
    """Indices that wrap around, brought into range: NumPy takes a step for each time that they do."""
    given = np.asarray(indices)
    return given % extent if mode == "wrap" and extent and given.dtype.kind in "iu" else indices


take, put, choose = lift(_take, name="take"), lift(_put, name="put"), lift(_choose, name="choose")


# Products


def _matmul_flop(a: Any, b: Any, *_: Any) -> float:
    """Twice the multiply-adds of a matrix product: 2 x result elements x inner length."""
    shape_a, shape_b = np.shape(a), np.shape(b)
    if not shape_a or not shape_b:
        return 0.0
    columns = shape_b[-1] if len(shape_b) > 1 else 1
    batch = math.prod(shape_b[:-2]) if len(shape_b) > len(shape_a) else 1
    return 2.0 * float(math.prod(shape_a) * columns * batch)


def _matmul(a: Any, b: Any, out: Any = None, *, axes: Any = None, casting: Any = None) -> Any:
    keywords = {"out": out, "axes": axes, "casting": casting}
    return np.matmul(a, b, **{name: value for name, value in keywords.items() if value is not None})


matmul = lift(_matmul, name="matmul", operands=2, flop=_matmul_flop)
dot = lift(np.dot, operands=2, flop=_matmul_flop)
vdot, inner, outer = lift(np.vdot, operands=2), lift(np.inner, operands=2), lift(np.outer, operands=2)
tensordot, kron, cross = (
    lift(np.tensordot, operands=2),
    lift(np.kron, operands=2),
    lift(np.cross, operands=2),
)
trace = lift(np.trace)

# Polynomials by their coefficients, the highest power first
polyval, polyfit = lift(np.polyval, operands=2), lift(np.polyfit, operands=2, waits=True)
polyadd, polysub, polymul = (
    lift(np.polyadd, operands=2),
    lift(np.polysub, operands=2),
    lift(np.polymul, operands=2),
)
roots, poly, vander = lift(np.roots, waits=True), lift(np.poly), lift(np.vander)


def _einsum(*operands: Any, subscripts: str, **kwargs: Any) -> Any:
    return np.einsum(subscripts, *operands, **kwargs)


_lifted_einsum = lift(_einsum, name="einsum", operands=64)


def _lettered(given: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts in letters, and the operands, of those in lists: ``a, [0, 1], b, [1, 2], [0, 2]``."""

    def term(labels: Any) -> str:
        return "".join("..." if label is ... else ascii_letters.swapcase()[label] for label in labels)

    operands, lists = tuple(given[: len(given) // 2 * 2 : 2]), given[1::2]
    result = [f"->{term(given[-1])}"] if len(given) % 2 else []
    return "".join([",".join(map(term, lists)), *result]), operands


def einsum(subscripts: Any, *operands: Any, dtype: Any = None, optimize: Any = False) -> ndarray:
    """Einstein summation, like ``numpy.einsum``, on device arrays."""
    if not isinstance(subscripts, str):
        subscripts, operands = _lettered((subscripts, *operands))
    result: ndarray = _lifted_einsum(*operands, subscripts=subscripts, dtype=dtype, optimize=optimize)
    return result


# Questions about shapes and dtypes
ndim, shape, size = host_only(np.ndim), host_only(np.shape), host_only(np.size)
result_type, can_cast = host_only(np.result_type), host_only(np.can_cast)
min_scalar_type, isscalar = host_only(np.min_scalar_type), host_only(np.isscalar)
iscomplexobj, isrealobj = host_only(np.iscomplexobj), host_only(np.isrealobj)
isfortran, isdtype, common_type = host_only(np.isfortran), host_only(np.isdtype), host_only(np.common_type)


def astype(x: ndarray, dtype: Any, /, *, copy: bool = True) -> ndarray:
    """`x` as another dtype; itself, if it has that and `copy` is False."""
    return x.astype(dtype, copy=copy)


def shares_memory(a: ndarray, b: ndarray, max_work: int | None = None) -> bool:
    """Whether two device arrays have elements in common."""
    if max_work is not None:
        raise NotImplementedError("Not supported for integer `max_work`.")
    return bool(np.shares_memory(a._host, b._host))


def byte_bounds(a: ndarray) -> tuple[int, int]:
    """The first address of an array's elements, and that after the last."""
    low, high = np.lib.array_utils.byte_bounds(a._host)
    return int(low), int(high)


def may_share_memory(a: ndarray, b: ndarray, max_work: int = 0) -> bool:
    """Whether the memory ranges of two device arrays overlap."""
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
