"""Packing of kernel arguments into the parameter buffer, with a warning or error for every mismatch.

CuPy copies the bytes of an argument, and the GPU reads as many as the parameter has. A wrong type therefore
becomes a wrong number without an error, and extra arguments are ignored. The virtual GPU knows both types:
it reads the same bytes and warns (`ArgumentWarning`), or raises if a GPU would read beyond the argument.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from virtualgpu.compile.ptx import ir
from virtualgpu.errors import warn
from virtualgpu.launch.arguments import DeviceArray, DevicePointer, TextureHandle, make_other_machine_error
from virtualgpu.launch.signature import SourceParam
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.words import count, noun

_FLOAT_TYPES = frozenset({"f16", "f32", "f64"})
_INTEGER_DTYPE_KINDS = "biu"


@dataclass(frozen=True, slots=True)
class PackedArguments:
    """The packed parameters of a launch, with the address and size of each array argument."""

    buffer: bytes
    arrays: dict[int, int]
    names: dict[int, str] = field(default_factory=dict)


def pack_arguments(
    kernel: str,
    params: Sequence[ir.Param],
    param_bytes: int,
    source: Sequence[SourceParam] | None,
    args: tuple[Any, ...],
    device: VirtualDevice,
    *,
    allow_extra: bool = False,
) -> PackedArguments:
    """Pack the arguments of a launch into a buffer with the layout of the kernel's PTX parameters.

    Parameters
    ----------
    kernel
        Name for messages.
    params, param_bytes
        From the PTX.
    source
        The same parameters as written in the source, if known.
    args
        Arguments of the program.
    device
        Device of the kernel.
    allow_extra
        Whether extra arguments are ignored with a warning, as CuPy does without a warning.

    Raises
    ------
    TypeError
        For too few arguments or too many, or one whose type or size does not fit its parameter.
    OverflowError
        For a Python int of more than 64 bits.
    ValueError
        For an array of a machine that is no longer used.
    """
    source_params = source if source is not None and len(source) == len(params) else None
    if len(args) < len(params) or (len(args) > len(params) and not allow_extra):
        parameter_list = (
            ", ".join(f"{p.type_text} {p.name}".strip() for p in source_params) if source_params else ""
        )
        raise TypeError(
            f"Kernel '{kernel}' takes {count(len(params), 'argument')} but {len(args)} "
            f"{noun(len(args), 'was', 'were')} passed. Pass one value per parameter"
            f"{f': ({parameter_list})' if parameter_list else ''}."
        )
    if len(args) > len(params):
        extra_count = len(args) - len(params)
        ignored_text = "the last one is" if extra_count == 1 else f"the last {extra_count} are"
        warn(
            f"Kernel '{kernel}' takes {count(len(params), 'argument')} but {len(args)} "
            f"were passed. As with CuPy, {ignored_text} ignored. Leave out the arguments "
            "that the kernel does not take."
        )
    buffer = bytearray(param_bytes)
    arrays: dict[int, int] = {}
    array_names: dict[int, str] = {}
    integer_args = {int(argument) for argument in args if isinstance(argument, int | np.integer)}
    has_structure = any(
        isinstance(argument, np.void) for argument in args
    )  # a structure can hold the strides
    for parameter_index, (argument, param) in enumerate(zip(args, params, strict=False)):
        source_param = source_params[parameter_index] if source_params else None
        location = f"Kernel '{kernel}', argument {parameter_index + 1}" + (
            f" ('{source_param.name}')" if source_param else ""
        )
        packed_bytes = _pack_parameter(argument, param, source_param, location, device, arrays)
        buffer[param.offset : param.offset + len(packed_bytes)] = packed_bytes
        if device.memory.uses_remote_memory and isinstance(argument, int | np.integer | DevicePointer):
            _record_host_range(int.from_bytes(packed_bytes, "little"), device, arrays)
        is_array = isinstance(argument, DeviceArray)
        if is_array and param.size_bytes == 8 and not has_structure:
            _warn_of_strides(argument, integer_args, location)
        if is_array and argument.nbytes and source_param and source_param.name:
            array_names.setdefault(argument.data.ptr, source_param.name)
    return PackedArguments(bytes(buffer), arrays, array_names)


def _pack_parameter(
    value: Any,
    param: ir.Param,
    source_param: SourceParam | None,
    location: str,
    device: VirtualDevice,
    arrays: dict[int, int],
) -> bytes:
    is_array = isinstance(value, DeviceArray)
    if is_array:
        if value._mem.ptr and value._mem.owner.machine is not device.machine:
            raise make_other_machine_error(value._mem.owner)
        address = value.data.ptr if value.nbytes else 0
        # Any address can be passed, but without peer access the kernel cannot access another device's array.
        if address and (value._mem.owner is device or device.memory.peer_of(address)):
            arrays[address] = max(arrays.get(address, 0), value.nbytes)
        if param.type == "b8" and param.size_bytes == 16 + 16 * value.ndim:
            # The description of a CArray of CuPy; a pointer parameter takes its first part.
            return np.array([address, value.size, *value.shape, *value.strides], np.int64).tobytes()
        _check_pointer(value, param, source_param, location)
        return address.to_bytes(8, "little")
    if isinstance(value, DevicePointer) or value is None:
        address = 0 if value is None else value.ptr
        if param.size_bytes != 8 or param.type in _FLOAT_TYPES:
            raise TypeError(
                f"{location}: a pointer was passed where the kernel takes "
                f"{_describe_parameter(param, source_param)}."
            )
        return int(address).to_bytes(8, "little")
    if isinstance(value, TextureHandle):
        if param.size_bytes != 8 or param.type in _FLOAT_TYPES:
            type_name = type(value).__name__
            raise TypeError(
                f"{location}: a {type_name} was passed where the kernel takes "
                f"{_describe_parameter(param, source_param)}."
            )
        if value.device is not device:
            raise ValueError(
                f"{location}: this {type(value).__name__} was created on another device. Create it on the "
                "device of the kernel."
            )
        arrays[value.address] = max(arrays.get(value.address, 0), value.size_bytes)
        return value.ptr.to_bytes(8, "little")
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise TypeError(
                f"{location}: a numpy.ndarray of shape {value.shape} is in host memory, which a kernel "
                "cannot read. Pass a device array: cp.asarray(x)."
            )
        value = value.reshape(())[()]
    if isinstance(value, np.generic | int | float | complex):
        return _pack_number(value, param, source_param, location)
    if type(value).__module__.split(".")[0] == "cupy":
        raise TypeError(
            f"{location}: this {type(value).__name__} belongs to a real GPU, but the kernel runs on "
            f"{device.info.as_virtual.device}. Create it with the same `cp` as the kernel."
        )
    raise TypeError(f"{location}: Unsupported type {type(value)}. Pass a device array or a NumPy scalar.")


def _warn_of_strides(array: Any, integer_args: Set[int], location: str) -> None:
    """Warn of a non-contiguous array whose strides are not passed: a kernel gets only its address."""
    if array.flags.c_contiguous or (array.base is None and array.flags.f_contiguous):
        return
    stride_values = {stride // unit_bytes for stride in array.strides for unit_bytes in (1, array.itemsize)}
    contiguous_strides = np.cumprod([1, *array.shape[:0:-1]]).tolist()  # strides of a contiguous array
    if integer_args & (
        stride_values
        - {
            0,
            1,
            array.itemsize,
            *contiguous_strides,
            *(array.itemsize * contiguous_stride for contiguous_stride in contiguous_strides),
        }
    ):
        return
    warn(
        f"{location}: this view of shape {array.shape} has strides of {array.strides} "
        "bytes, which the kernel does not receive. As with CuPy, the kernel gets the "
        "address of the first element. Pass cp.ascontiguousarray(x), or pass the strides "
        "too and use them in the kernel."
    )


def _record_host_range(address: int, device: VirtualDevice, arrays: dict[int, int]) -> None:
    """Record an address of pinned or managed memory as an array, so that its accesses cost time."""
    memory = device.memory
    allocation_start = memory.find_segment(address)[0]
    managed_pages = memory.managed_pages.get(allocation_start)
    size_bytes = (
        memory.host_ranges.get(allocation_start, 0) if managed_pages is None else managed_pages.size_bytes
    )
    if size_bytes:
        arrays[address] = max(arrays.get(address, 0), allocation_start + size_bytes - address)


def _check_pointer(array: Any, param: ir.Param, source_param: SourceParam | None, location: str) -> None:
    if param.size_bytes != 8 or param.type in _FLOAT_TYPES:
        raise TypeError(
            f"{location}: a device array was passed where the kernel takes "
            f"{_describe_parameter(param, source_param)}. Pass a number, for instance x.item()."
        )
    if source_param is not None and not source_param.element and not source_param.type_text.endswith("*"):
        return
    element_dtype = np.dtype(source_param.element) if source_param and source_param.element else None
    if element_dtype is None or array.dtype.kind not in "biuf" or array.dtype.itemsize == 1:
        return
    is_same_kind = (element_dtype.kind == "f") == (array.dtype.kind == "f")
    if array.dtype.itemsize == element_dtype.itemsize and (is_same_kind or element_dtype.itemsize == 2):
        return
    assert source_param is not None
    raise TypeError(
        f"{location}: the kernel reads '{source_param.type_text}' but the array has "
        f"{array.dtype}. Convert it with x.astype(cp.{element_dtype.name}), or pass "
        f"x.view(cp.{element_dtype.name}) to pass its bytes unchanged."
    )


def _pack_number(value: Any, param: ir.Param, source_param: SourceParam | None, location: str) -> bytes:
    """Return the bytes of a number that the kernel reads: the first ones, as CuPy passes them.

    A Python int or float has 8 bytes, a complex number 16, and a NumPy scalar its own size.
    """
    parameter_text = _describe_parameter(param, source_param)
    remedy = _suggest_conversion(param, source_param)
    size_bytes = param.size_bytes
    is_python_number = not isinstance(value, np.generic)
    value_text = f"a Python {type(value).__name__}" if is_python_number else f"numpy.{value.dtype.name}"
    numpy_scalar = _to_numpy_scalar(value, location)
    dtype_kind = numpy_scalar.dtype.kind
    size_text = count(numpy_scalar.itemsize, "byte")
    is_structure = param.type == "b8"
    is_pointer = source_param is not None and source_param.type_text.endswith("*")
    if (is_structure and is_python_number and dtype_kind != "c") or (
        is_pointer and dtype_kind not in _INTEGER_DTYPE_KINDS
    ):
        raise TypeError(
            f"{location}: {value_text} was passed where the kernel takes {parameter_text}. {remedy}"
        )
    if numpy_scalar.itemsize < size_bytes or (
        is_structure and numpy_scalar.itemsize > size_bytes and dtype_kind != "c"
    ):
        raise TypeError(
            f"{location}: {value_text} has {size_text} but the kernel takes {parameter_text}. {remedy}"
        )
    packed_bytes = bytes(numpy_scalar.tobytes()[:size_bytes])
    if is_structure and numpy_scalar.itemsize == size_bytes:
        return packed_bytes
    if param.type not in _FLOAT_TYPES and dtype_kind in _INTEGER_DTYPE_KINDS:
        bit_count = 8 * size_bytes
        if not -(1 << (bit_count - 1)) <= int(numpy_scalar) < 1 << bit_count:
            value_read = int.from_bytes(packed_bytes, "little", signed=True)
            warn(
                f"{location}: {numpy_scalar} does not fit into {parameter_text}. As with CuPy, the kernel "
                f"reads {value_read}, its lower bytes. Use a wider parameter type in the kernel."
            )
    elif numpy_scalar.itemsize > size_bytes:
        warn(
            f"{location}: {value_text} has {size_text} but the kernel takes {parameter_text}. As with CuPy, "
            f"the kernel reads a part of {value}, as {_read_parameter_value(packed_bytes, param)}. {remedy}"
        )
    elif (dtype_kind == "f") != (param.type in _FLOAT_TYPES):
        warn(
            f"{location}: {value_text} was passed where the kernel takes {parameter_text}. As with CuPy, the "
            f"kernel reads the bytes of {value}, as {_read_parameter_value(packed_bytes, param)}. {remedy}"
        )
    return packed_bytes


def _to_numpy_scalar(value: Any, location: str) -> np.generic:
    """Return a number as the NumPy scalar whose bytes CuPy passes to the kernel."""
    if isinstance(value, np.generic):
        return value
    if not isinstance(value, int):
        return np.complex128(value) if isinstance(value, complex) else np.float64(value)
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"{location}: Python int too large to convert to C long: {value}.")
    return np.uint64(value) if value >= 1 << 63 else np.int64(value)


def _read_parameter_value(data: bytes, param: ir.Param) -> str:
    """Return a parameter's bytes as text: the value that the kernel reads from them."""
    dtype_kind = "f" if param.type in _FLOAT_TYPES or param.type == "b8" else "i"
    value_bytes = param.size_bytes if param.type != "b8" else 4
    return ", ".join(map(str, np.frombuffer(data, f"{dtype_kind}{value_bytes}")))


def _describe_parameter(param: ir.Param, source_param: SourceParam | None) -> str:
    size_text = count(param.size_bytes, "byte")
    if source_param is not None and source_param.type_text:
        return f"'{source_param.type_text}' ({size_text})"
    if param.type in _FLOAT_TYPES:
        return f"a floating-point number of {size_text}"
    return f"a value of {size_text}"


def _suggest_conversion(param: ir.Param, source_param: SourceParam | None) -> str:
    if source_param is not None and source_param.type_text.endswith("*"):
        return "Pass a device array."
    name = source_param.name if source_param and source_param.name else "x"
    if param.type in _FLOAT_TYPES:
        return f"Pass np.float{8 * param.size_bytes}({name})."
    if param.type == "b8":
        return f"Pass a structured NumPy scalar of {count(param.size_bytes, 'byte')}."
    is_unsigned = source_param is not None and (
        "unsigned" in source_param.type_text or source_param.type_text.startswith("uint")
    )
    return f"Pass np.{'uint' if is_unsigned else 'int'}{8 * param.size_bytes}({name})."
