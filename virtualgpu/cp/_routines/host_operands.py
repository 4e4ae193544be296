"""Arguments in host memory (NumPy arrays, lists) that some functions of ``cp`` accept, as in CuPy 14.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import make_type_error
from virtualgpu.cp._core.array import ndarray

# A function and its parameters in CuPy's order. A mark shows how CuPy handles a value on the host:
#   +  CuPy copies array-likes to the device (cupy.asarray)
#   ^  it does so with NumPy arrays, but reads attributes such as `ndim` first, which a list does not have
#   *  `+` (`*^`: `^`) for each further argument;  ~  `+` for each item of a sequence
#   #  it reads the numbers on the host
#   !  it accepts only device arrays and scalars
# `indices=obj`: CuPy calls the parameter `indices`, NumPy calls it `obj`.
_FUNCTION_TABLE = """
allclose a+ b+
append arr+ values+
around a+
array_split ary indices_or_sections#
atleast_1d *
atleast_2d *
atleast_3d *
average a+ axis weights+
bincount x weights!
broadcast_to array shape#
choose a choices!
clip a a_min! a_max!
compress condition+ a
cond x+
copyto dst src!
corrcoef a=x^ y^
cov a=m^ y^ rowvar bias ddof fweights! aweights!
cross a+ b+
delete arr indices=obj+
diagflat v^
diff a+ n axis prepend+ append+
dsplit ary indices_or_sections#
dstack tup~
ediff1d arr=ary to_end! to_begin!
einsum *
extract condition+ a=arr
flip a=m
fliplr a=m
flipud a=m
gradient f+ *^
histogram x=a bins+ range density weights!
histogramdd sample bins range weights+
hsplit ary indices_or_sections#
hstack tup~
imag val+
in1d ar1=element ar2=test_elements
isclose a+ b+
intersect1d arr1=ar1^ arr2=ar2^
lexsort keys!
linspace start+ stop+
matrix_power M=a
matrix_rank M=A
matrix_transpose a=x
norm x^
pad array pad_width#
percentile a q+
place arr mask+ vals+
polyfit x y deg rcond full w!
polyval p x+
put a ind+ v+
put_along_axis arr indices^ values+
putmask a mask! values!
quantile a q+
ravel_multi_index multi_index dims#
real val+
repeat a repeats
reshape a shape#
resize a+ new_shape#
roll a shift# axis#
rot90 a=m k axes#
round a+
searchsorted a v! side sorter!
setdiff1d ar1^ ar2^
setxor1d ar1^ ar2^
split ary indices_or_sections#
stack tup=arrays
take a indices+
take_along_axis a=arr indices^
tile A+ reps#
transpose a axes#
trapezoid y x!
tril m+
triu m+
union1d arr1=ar1 arr2=ar2
unique ar^
unique_all x^
unique_counts x^
unique_inverse x^
unique_values x^
unravel_index indices! dims=shape#
unwrap p+
vander x+
vstack tup~
vsplit ary indices_or_sections#
fftshift x+
ifftshift x+
ndimage_affine_transform input matrix+ offset+
ndimage_grey_dilation input size footprint+ structure+
ndimage_grey_erosion input size footprint+ structure+
ndimage_label input structure+
ndimage_maximum_filter input size footprint+
ndimage_median_filter input size footprint+
ndimage_minimum_filter input size footprint+
ndimage_percentile_filter input percentile size footprint+
ndimage_rank_filter input rank size footprint+
ndimage_shift input shift#
ndimage_zoom input zoom#
"""
# Functions that call the method of their first argument. NumPy arrays have the method too, and run it on the
# host.
_METHOD_CALLS = """
argpartition argsort choose clip diagonal dot fliplr flipud matrix_transpose max mean min
partition prod ravel repeat reshape sort squeeze std sum swapaxes take trace transpose var
""".split()  # noqa: SIM905 - shorter


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    numpy_name: str
    operand_mark: str


def _parse_parameters(operand_texts: list[str]) -> tuple[_Parameter, ...]:
    parameters = []
    for operand_text in operand_texts:
        names_text = operand_text.rstrip("+^*~#!")
        cupy_name, _, numpy_name = names_text.partition("=")
        parameters.append(_Parameter(cupy_name, numpy_name or cupy_name, operand_text[len(names_text) :]))
    return tuple(parameters)


_PARAMETERS_BY_FUNCTION = {
    function_line.split()[0]: _parse_parameters(function_line.split()[1:])
    for function_line in _FUNCTION_TABLE.strip().split("\n")
}


def computes_on_the_host(name: str, args: tuple[Any, ...]) -> bool:
    """Return whether CuPy computes on the host by calling a method of its NumPy argument."""
    return (
        name in _METHOD_CALLS
        and bool(args)
        and isinstance(args[0], np.ndarray | np.generic)
        and not any(isinstance(argument, ndarray) for argument in args)
    )


def read_operands(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy host arguments of a function to the device if CuPy also copies them.

    Returns
    -------
    args, kwargs
        Arguments with device arrays in place of the copied operands, lists in place of the NumPy arrays
        that the host reads, and NumPy's parameter names.

    Raises
    ------
    TypeError
        For an operand that CuPy does not accept.
    """
    parameters = _PARAMETERS_BY_FUNCTION.get(name, ())
    if not parameters:
        return args, kwargs
    values = list(args)
    keywords = dict(kwargs)
    for index, parameter in enumerate(parameters):
        if parameter.operand_mark.startswith("*"):
            values[index:] = [
                _read_operand(argument, parameter.operand_mark[1:] or "+") for argument in values[index:]
            ]
        elif index < len(values):
            values[index] = _read_operand(values[index], parameter.operand_mark)
        elif parameter.name in keywords:
            keywords[parameter.numpy_name] = _read_operand(
                keywords.pop(parameter.name), parameter.operand_mark
            )
        elif parameter.numpy_name in keywords:
            keywords[parameter.numpy_name] = _read_operand(
                keywords[parameter.numpy_name], parameter.operand_mark
            )
    return tuple(values), keywords


def _read_operand(value: Any, operand_mark: str) -> Any:
    if operand_mark == "~" and isinstance(value, list | tuple):
        return [_read_operand(item, "+") for item in value]
    if not isinstance(value, np.ndarray | list | tuple | range):
        return value
    if operand_mark == "+" or (operand_mark == "^" and isinstance(value, np.ndarray)):
        return ndarray._module.asarray(value)
    if operand_mark == "#" and isinstance(value, np.ndarray):
        return value.tolist()
    if operand_mark in "!^" and operand_mark:
        raise make_type_error(value)
    return value
