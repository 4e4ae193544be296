"""Check, broadcast and convert the arguments of generated kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import check_device, make_type_error
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dtypes import check_dtype
from virtualgpu.cp._elementwise.parameters import Parameter, get_cpp_type
from virtualgpu.cp.cuda.texture import TextureObject

Shape = tuple[int, ...]


def check_arguments(arguments: Sequence[Any]) -> list[Any]:
    """Check that all arguments of a kernel are scalars or arrays of the current device, and return them as a
    list.

    Any other argument raises CuPy's ``TypeError``.
    """
    for argument in arguments:
        if isinstance(argument, ndarray):
            check_device(argument)
        elif isinstance(argument, np.generic):
            check_dtype(argument.dtype)
        elif not isinstance(argument, (bool, int, float, complex, TextureObject)):
            raise make_type_error(argument)
    return list(arguments)


def get_dtype(value: Any) -> np.dtype[Any] | None:
    """Return the dtype of an array or a texture handle, or None for a number."""
    if isinstance(value, TextureObject):
        return np.dtype(np.uint64)
    return value.dtype if isinstance(value, ndarray) else None


def find_loop_shape(args: Sequence[Any], params: Sequence[Parameter], loop_size: int | None) -> Shape:
    """Return the shape of the loop in which a kernel computes its elements. The result is the broadcast shape
    of the non-raw arrays, or `loop_size`.

    Raises
    ------
    ValueError
        If arrays and `loop_size` both determine the shape, or neither does.
    """
    shapes = [
        a.shape for a, param in zip(args, params, strict=False) if isinstance(a, ndarray) and not param.is_raw
    ]
    if loop_size is not None:
        if shapes:
            raise ValueError("Specified 'size' can be used only if all of the ndarray are 'raw'.")
        return (loop_size,)
    if not shapes:
        raise ValueError("Loop size is undecided. Pass size=, because every array argument is raw.")
    return np.broadcast_shapes(*shapes)


def broadcast_arguments(args: Sequence[Any], params: Sequence[Parameter], shape: Shape) -> list[Any]:
    """Return the arguments of a kernel, with each non-raw array broadcast to `shape`."""
    return [
        a._make_view(np.broadcast_to(a._host, shape)) if isinstance(a, ndarray) and not param.is_raw else a
        for a, param in zip(args, params, strict=True)
    ]


def prepare_outputs(
    out_args: Sequence[Any],
    params: Sequence[Parameter],
    dtypes: Sequence[np.dtype[Any]],
    shape: Shape,
    size_is_known: bool,
) -> list[ndarray]:
    """Return the output arrays of a kernel. Output arrays are allocated if none were passed.

    Raises
    ------
    TypeError, ValueError
        If an output is not a device array, has another shape, or is raw and of unknown size.
    """
    if not out_args:
        if any(param.is_raw for param in params) and not size_is_known:
            raise ValueError(
                "Output array size is Undecided. Pass an array for the raw output, or pass size=."
            )
        return [ndarray(shape, dtype) for dtype in dtypes]
    for array, parameter in zip(out_args, params, strict=True):
        if not isinstance(array, ndarray):
            raise TypeError("Output arguments type must be cupy.ndarray")
        if not parameter.is_raw and array.shape != shape:
            raise ValueError(
                f"Out shape is mismatched: {parameter.name} has the shape {array.shape}, but the shape must "
                f"be {shape}."
            )
    return list(out_args)


def convert_scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a Python or NumPy scalar to the type of a kernel parameter by the rules of C++."""
    with np.errstate(all="ignore"):
        if dtype.kind in "iu" and isinstance(value, int):
            return np.array(int(value) & ((1 << 64) - 1), dtype=np.uint64).astype(dtype)[()]
        if dtype.kind != "c" and isinstance(value, (complex, np.complexfloating)):
            value = value.real
        return np.asarray(value).astype(dtype)[()]


def merge_axes(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """Merge adjacent axes of a loop that are contiguous in all arrays. The kernel then needs fewer index
    calculations.
    """
    merged_axes: list[list[int]] = []
    for axis, extent in enumerate(shape):
        if extent == 1 and len(shape) > 1:
            continue
        if merged_axes and all(
            axis_strides[merged_axes[-1][-1]] == axis_strides[axis] * extent for axis_strides in strides
        ):
            merged_axes[-1].append(axis)
        else:
            merged_axes.append([axis])
    if not merged_axes:
        return (1,), [(0,) for _ in strides]
    new_shape = tuple(math.prod(shape[a] for a in axis_group) for axis_group in merged_axes)
    return new_shape, [
        tuple(axis_strides[axis_group[-1]] for axis_group in merged_axes) for axis_strides in strides
    ]


def make_layout_value(shape: Shape, strides: Shape | None = None) -> Any:
    """Return a kernel argument of the C++ type ``CLayout`` with the given shape and strides. The default
    strides are 0.
    """
    if strides is None:
        strides = (0,) * len(shape)
    layout = np.zeros((), dtype=[("axes", np.int64, (2, len(shape)))])
    layout["axes"] = (shape, strides)
    return layout[()]


@dataclass(frozen=True, slots=True)
class Operand:
    """A description of one argument of a generated kernel, which also generates the argument's C++ code.

    The fields of the operands alone determine the generated source.
    """

    parameter: Parameter
    is_constant: bool
    c_type: str
    ndim: int
    is_contiguous: bool
    is_array: bool

    @property
    def declaration(self) -> str:
        """C++ declarations of the argument in the signature of the kernel."""
        name = self.parameter.name
        if not self.is_array:
            return f"const {self.c_type} {name}"
        return f"{self.c_type}* _{name}_, CLayout<{self.ndim}> _layout_{name}"

    @property
    def setup_statement(self) -> str:
        """C++ statement that creates the array object of the argument."""
        if not self.is_array:
            return ""
        name = self.parameter.name
        const_prefix = "const " if self.is_constant else ""
        variable_name = name if self.parameter.is_raw else f"_raw_{name}"
        template_arguments = f"{self.ndim}, {str(self.is_contiguous).lower()}"
        return (
            f"{const_prefix}CArray<{self.c_type}, {template_arguments}> "
            f"{variable_name}(_{name}_, _layout_{name});"
        )

    def define_element(self, indexer: str, linear_index: str) -> str:
        """Return the C++ statement that defines a reference to one array element in a loop iteration."""
        if not self.is_array or self.parameter.is_raw:
            return ""
        name = self.parameter.name
        const = "const " if self.is_constant else ""
        index = linear_index if self.is_contiguous else f"{indexer}.get()"
        return f"{const}{self.c_type} &{name} = _raw_{name}[{index}];"


def lay_out_arguments(
    args: Sequence[Any],
    params: Sequence[Parameter],
    dtypes: Sequence[np.dtype[Any]],
    constant_flags: Sequence[bool],
    shape: Shape,
    merges_axes: bool = True,
) -> tuple[list[Operand], list[Any], Shape]:
    """Return the operands, the launch arguments and the loop shape of a kernel. Axes are merged if
    possible.
    """
    loop_positions = [
        i
        for i, (a, param) in enumerate(zip(args, params, strict=True))
        if isinstance(a, ndarray) and not param.is_raw
    ]
    strides_by_position = {i: args[i].strides for i in loop_positions}
    if not shape:
        shape = (1,)
        strides_by_position = dict.fromkeys(loop_positions, (0,))
    elif merges_axes:
        shape, merged_strides = merge_axes(shape, [strides_by_position[i] for i in loop_positions])
        strides_by_position = dict(zip(loop_positions, merged_strides, strict=True))
    operands = []
    launch_arguments = []
    for i, (a, param, dtype) in enumerate(zip(args, params, dtypes, strict=True)):
        c_type = get_cpp_type(dtype)
        if not isinstance(a, ndarray):
            operands.append(Operand(param, True, c_type, 0, True, False))
            launch_arguments.append(a if isinstance(a, TextureObject) else convert_scalar(a, dtype))
            continue
        extents, strides = (
            (a.shape or (1,), a.strides or (0,)) if param.is_raw else (shape, strides_by_position[i])
        )
        is_contiguous = _is_contiguous(extents, strides, dtype.itemsize)
        operands.append(Operand(param, constant_flags[i], c_type, len(extents), is_contiguous, True))
        launch_arguments += [a, make_layout_value(extents, strides)]
    return operands, launch_arguments, shape


def _is_contiguous(shape: Shape, strides: Shape, itemsize: int) -> bool:
    expected_stride = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected_stride:
            return False
        expected_stride *= extent
    return True
