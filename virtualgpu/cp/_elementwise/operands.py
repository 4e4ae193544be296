"""Arguments of generated kernels: checked, broadcast, and laid out as the C++ code takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import check_device, unsupported
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dtypes import checked_dtype
from virtualgpu.cp._elementwise.parameters import Parameter, c_name
from virtualgpu.cp.cuda.texture import TextureObject

Shape = tuple[int, ...]


def checked(args: Sequence[Any]) -> list[Any]:
    """Device arrays of the current device and scalars; anything else is CuPy's ``TypeError``."""
    for value in args:
        if isinstance(value, ndarray):
            check_device(value)
        elif isinstance(value, np.generic):
            checked_dtype(value.dtype)
        elif not isinstance(value, (bool, int, float, complex, TextureObject)):
            raise unsupported(value)
    return list(args)


def dtype_of(value: Any) -> np.dtype[Any] | None:
    """The dtype that an argument brings along: an array's, that of a texture's handle, no number's."""
    if isinstance(value, TextureObject):
        return np.dtype(np.uint64)
    return value.dtype if isinstance(value, ndarray) else None


def loop_shape(args: Sequence[Any], params: Sequence[Parameter], size: int | None) -> Shape:
    """The shape a kernel loops over: its non-raw arrays broadcast together, or `size`.

    Raises
    ------
    ValueError
        If both or neither decide it.
    """
    shapes = [a.shape for a, p in zip(args, params, strict=False) if isinstance(a, ndarray) and not p.raw]
    if size is not None:
        if shapes:
            raise ValueError("Specified 'size' can be used only if all of the ndarray are 'raw'.")
        return (size,)
    if not shapes:
        raise ValueError("Loop size is undecided. Pass size=, since no array that is not raw decides it.")
    return np.broadcast_shapes(*shapes)


def broadcast(args: Sequence[Any], params: Sequence[Parameter], shape: Shape) -> list[Any]:
    """The arguments with every non-raw array seen in `shape`."""
    return [
        a._view_of(np.broadcast_to(a._host, shape)) if isinstance(a, ndarray) and not p.raw else a
        for a, p in zip(args, params, strict=True)
    ]


def outputs(
    given: Sequence[Any],
    params: Sequence[Parameter],
    dtypes: Sequence[np.dtype[Any]],
    shape: Shape,
    sized: bool,
) -> list[ndarray]:
    """The output arrays, made where none were passed.

    Raises
    ------
    TypeError, ValueError
        If one is no device array, has another shape, or is raw and its size unknown.
    """
    if not given:
        if any(p.raw for p in params) and not sized:
            raise ValueError("Output array size is Undecided: pass the raw output array, or size=.")
        return [ndarray(shape, dtype) for dtype in dtypes]
    for array, parameter in zip(given, params, strict=True):
        if not isinstance(array, ndarray):
            raise TypeError("Output arguments type must be cupy.ndarray")
        if not parameter.raw and array.shape != shape:
            raise ValueError(f"Out shape is mismatched: {parameter.name} is {array.shape}, not {shape}.")
    return list(given)


def as_scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    """A Python or NumPy scalar as the type that its parameter has, converted as C++ converts."""
    with np.errstate(all="ignore"):
        if dtype.kind in "iu" and isinstance(value, int):
            return np.array(int(value) & ((1 << 64) - 1), dtype=np.uint64).astype(dtype)[()]
        if dtype.kind != "c" and isinstance(value, (complex, np.complexfloating)):
            value = value.real
        return np.asarray(value).astype(dtype)[()]


def merged(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """Axes that all arrays walk through as one, joined: the fewest index calculations."""
    axes: list[list[int]] = []
    for axis, extent in enumerate(shape):
        if extent == 1 and len(shape) > 1:
            continue
        if axes and all(s[axes[-1][-1]] == s[axis] * extent for s in strides):
            axes[-1].append(axis)
        else:
            axes.append([axis])
    if not axes:
        return (1,), [(0,) for _ in strides]
    new_shape = tuple(math.prod(shape[a] for a in group) for group in axes)
    return new_shape, [tuple(s[group[-1]] for group in axes) for s in strides]


def layout_value(shape: Shape, strides: Shape | None = None) -> Any:
    """A ``CLayout`` as a scalar that can be a kernel's argument; steps default to those of C order."""
    if strides is None:
        strides = (0,) * len(shape)
    value = np.zeros((), dtype=[("axes", np.int64, (2, len(shape)))])
    value["axes"] = (shape, strides)
    return value[()]


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument in the generated source: what declares it, what sets it up, what is passed.

    `key` holds all that the source depends on.
    """

    parameter: Parameter
    constant: bool
    c_type: str
    ndim: int
    contiguous: bool
    is_array: bool

    @property
    def declared(self) -> str:
        """Its parameters in the kernel's signature."""
        name = self.parameter.name
        if not self.is_array:
            return f"const {self.c_type} {name}"
        return f"{self.c_type}* _{name}_, CLayout<{self.ndim}> _layout_{name}"

    @property
    def setup(self) -> str:
        """The statement that makes the array object."""
        if not self.is_array:
            return ""
        name = self.parameter.name
        const = "const " if self.constant else ""
        variable = name if self.parameter.raw else f"_raw_{name}"
        flags = f"{self.ndim}, {str(self.contiguous).lower()}"
        return f"{const}CArray<{self.c_type}, {flags}> {variable}(_{name}_, _layout_{name});"

    def element(self, indexer: str, linear: str) -> str:
        """The statement that names the element of one turn of the loop."""
        if not self.is_array or self.parameter.raw:
            return ""
        name = self.parameter.name
        const = "const " if self.constant else ""
        place = linear if self.contiguous else f"{indexer}.get()"
        return f"{const}{self.c_type} &{name} = _raw_{name}[{place}];"


def lay_out(
    args: Sequence[Any],
    params: Sequence[Parameter],
    dtypes: Sequence[np.dtype[Any]],
    constant: Sequence[bool],
    shape: Shape,
    merge: bool = True,
) -> tuple[list[Operand], list[Any], Shape]:
    """Operands, launch arguments and the loop's shape, with axes joined where possible."""
    looped = [
        i for i, (a, p) in enumerate(zip(args, params, strict=True)) if isinstance(a, ndarray) and not p.raw
    ]
    steps = {i: args[i].strides for i in looped}
    if not shape:
        shape = (1,)
        steps = dict.fromkeys(looped, (0,))
    elif merge:
        shape, joined = merged(shape, [steps[i] for i in looped])
        steps = dict(zip(looped, joined, strict=True))
    operands = []
    values = []
    for i, (a, p, dtype) in enumerate(zip(args, params, dtypes, strict=True)):
        c_type = c_name(dtype)
        if not isinstance(a, ndarray):
            operands.append(Operand(p, True, c_type, 0, True, False))
            values.append(a if isinstance(a, TextureObject) else as_scalar(a, dtype))
            continue
        extents, strides = (a.shape or (1,), a.strides or (0,)) if p.raw else (shape, steps[i])
        contiguous = _is_contiguous(extents, strides, dtype.itemsize)
        operands.append(Operand(p, constant[i], c_type, len(extents), contiguous, True))
        values += [a, layout_value(extents, strides)]
    return operands, values, shape


def _is_contiguous(shape: Shape, strides: Shape, itemsize: int) -> bool:
    expected = itemsize
    for extent, step in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and step != expected:
            return False
        expected *= extent
    return True
