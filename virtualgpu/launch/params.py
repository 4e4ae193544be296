"""Kernel arguments to the parameter buffer a launch hands over, with every mismatch explained.

CuPy copies the bytes it is given and the GPU reads as many as the parameter has, so a wrong type
turns into a wrong number in silence, and what is passed beyond the last parameter is not looked at. The
virtual GPU knows both sides: it reads the same and warns (`ArgumentWarning`), or raises where a GPU would
read beyond what was given.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from virtualgpu.compile.ptx import ir
from virtualgpu.cp._core.arguments import check_device
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp.cuda._memory.pointer import MemoryPointer
from virtualgpu.cp.cuda.texture import SurfaceObject, TextureObject
from virtualgpu.errors import warn
from virtualgpu.launch.signature import SourceParam
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.words import count, noun

_FLOAT_TYPES = frozenset({"f16", "f32", "f64"})
_INTEGER_KINDS = "biu"


@dataclass(frozen=True, slots=True)
class Packed:
    """The parameter buffer, and the arrays that pointers in it point to (address -> bytes, parameter)."""

    buffer: bytes
    arrays: dict[int, int]
    names: dict[int, str] = field(default_factory=dict)


def pack(
    kernel: str,
    params: Sequence[ir.Param],
    param_bytes: int,
    source: Sequence[SourceParam] | None,
    args: tuple[Any, ...],
    device: VirtualDevice,
    *,
    surplus: bool = False,
) -> Packed:
    """Lay out `args` as the kernel's PTX expects them.

    Parameters
    ----------
    kernel
        Name for messages.
    params, param_bytes
        From the PTX.
    source
        The same parameters as the source spells them, if that is known.
    args
        What the learner passed.
    device
        Where the kernel will run.
    surplus
        Whether arguments beyond the kernel's parameters are passed over with a warning, as CuPy does
        without one.

    Raises
    ------
    TypeError
        For too few arguments or too many, or one whose type or size does not fit its parameter.
    OverflowError
        For a Python int of more than 64 bits.
    ValueError
        For an array of a machine that is gone.
    """
    known = source if source is not None and len(source) == len(params) else None
    if len(args) < len(params) or (len(args) > len(params) and not surplus):
        names = ", ".join(f"{p.type_text} {p.name}".strip() for p in known) if known else ""
        raise TypeError(
            f"Kernel '{kernel}' takes {count(len(params), 'argument')} but {len(args)} "
            f"{noun(len(args), 'was', 'were')} passed. Pass one value per parameter"
            f"{f': ({names})' if names else ''}."
        )
    if len(args) > len(params):
        extra = len(args) - len(params)
        ignored = "the last one is" if extra == 1 else f"the last {extra} are"
        warn(
            f"Kernel '{kernel}' takes {count(len(params), 'argument')} but {len(args)} were passed. As "
            f"with CuPy, {ignored} not looked at: leave out what the kernel does not take."
        )
    buffer = bytearray(param_bytes)
    arrays: dict[int, int] = {}
    called: dict[int, str] = {}
    numbers = {int(value) for value in args if isinstance(value, int | np.integer)}
    told = any(isinstance(value, np.void) for value in args)  # a structure can hold the strides
    for index, (value, param) in enumerate(zip(args, params, strict=False)):
        spelled = known[index] if known else None
        where = f"Kernel '{kernel}', argument {index + 1}" + (f" ('{spelled.name}')" if spelled else "")
        data = _bytes_of(value, param, spelled, where, device, arrays)
        buffer[param.offset : param.offset + len(data)] = data
        if device.memory.uses_remote_memory and isinstance(value, int | np.integer | MemoryPointer):
            _note_reach(int.from_bytes(data, "little"), device, arrays)
        if isinstance(value, ndarray) and param.size_bytes == 8 and not told:
            _warn_of_strides(value, numbers, where)
        if isinstance(value, ndarray) and value.nbytes and spelled and spelled.name:
            called.setdefault(value.data.ptr, spelled.name)
    return Packed(bytes(buffer), arrays, called)


def _bytes_of(
    value: Any,
    param: ir.Param,
    spelled: SourceParam | None,
    where: str,
    device: VirtualDevice,
    arrays: dict[int, int],
) -> bytes:
    if isinstance(value, ndarray):
        if value._mem.owner.machine is not device.machine:
            check_device(value, device)
        address = value.data.ptr if value.nbytes else 0
        # A kernel is given any address; without peer access the array of another device is out of its reach.
        if address and (value._mem.owner is device or device.memory.peer_of(address)):
            arrays[address] = max(arrays.get(address, 0), value.nbytes)
        if param.type == "b8" and param.size_bytes == 16 + 16 * value.ndim:
            # CuPy's CArray: of a whole description a pointer takes the first part.
            return np.array([address, value.size, *value.shape, *value.strides], np.int64).tobytes()
        _check_pointer(value, param, spelled, where)
        return address.to_bytes(8, "little")
    if isinstance(value, MemoryPointer) or value is None:
        address = 0 if value is None else value.ptr
        if param.size_bytes != 8 or param.type in _FLOAT_TYPES:
            raise TypeError(
                f"{where}: a pointer was passed where the kernel takes {_wanted(param, spelled)}."
            )
        return int(address).to_bytes(8, "little")
    if isinstance(value, TextureObject | SurfaceObject):
        if param.size_bytes != 8 or param.type in _FLOAT_TYPES:
            what = type(value).__name__
            raise TypeError(f"{where}: a {what} was passed where the kernel takes {_wanted(param, spelled)}.")
        if value.device is not device:
            raise ValueError(f"{where}: this {type(value).__name__} was made on another device.")
        arrays[value.address] = max(arrays.get(value.address, 0), value.size_bytes)
        return value.ptr.to_bytes(8, "little")
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise TypeError(
                f"{where}: a numpy.ndarray of shape {value.shape} lives in host memory, which a kernel "
                "cannot read. Pass a device array: cp.asarray(x)."
            )
        value = value.reshape(())[()]
    if isinstance(value, np.generic | int | float | complex):
        return _number_bytes(value, param, spelled, where)
    if type(value).__module__.split(".")[0] == "cupy":
        raise TypeError(
            f"{where}: this {type(value).__name__} belongs to a real GPU, but the kernel runs on "
            f"{device.info.as_virtual.device}. Create it with the same `cp` as the kernel."
        )
    raise TypeError(f"{where}: Unsupported type {type(value)}. Pass a device array or a NumPy scalar.")


def _warn_of_strides(array: ndarray, numbers: Set[int], where: str) -> None:
    """Tell of a view whose strides are not among the other arguments: a kernel is given an address alone."""
    if array.flags.c_contiguous or (array.base is None and array.flags.f_contiguous):
        return
    steps = {step // part for step in array.strides for part in (1, array.itemsize)}
    rows = np.cumprod([1, *array.shape[:0:-1]]).tolist()  # the steps of an array without gaps
    if numbers & (steps - {0, 1, array.itemsize, *rows, *(array.itemsize * row for row in rows)}):
        return
    warn(
        f"{where}: this view of shape {array.shape} has strides of {array.strides} bytes, which the kernel "
        "does not see. As with CuPy, the kernel gets the address of the first element. Pass "
        "cp.ascontiguousarray(x), or pass the strides too and use them in the kernel."
    )


def _note_reach(address: int, device: VirtualDevice, arrays: dict[int, int]) -> None:
    """Let a bare address of page-locked or managed memory cost what an array there costs."""
    memory = device.memory
    start = memory.segment(address)[0]
    managed = memory.managed.get(start)
    size_bytes = memory.host_ranges.get(start, 0) if managed is None else managed.size_bytes
    if size_bytes:
        arrays[address] = max(arrays.get(address, 0), start + size_bytes - address)


def _check_pointer(array: ndarray, param: ir.Param, spelled: SourceParam | None, where: str) -> None:
    if param.size_bytes != 8 or param.type in _FLOAT_TYPES:
        raise TypeError(
            f"{where}: a device array was passed where the kernel takes {_wanted(param, spelled)}. "
            "Pass a number, for instance x.item()."
        )
    if spelled is not None and not spelled.element and not spelled.type_text.endswith("*"):
        return
    element = np.dtype(spelled.element) if spelled and spelled.element else None
    if element is None or array.dtype.kind not in "biuf" or array.dtype.itemsize == 1:
        return
    same_kind = (element.kind == "f") == (array.dtype.kind == "f")
    if array.dtype.itemsize == element.itemsize and (same_kind or element.itemsize == 2):
        return
    assert spelled is not None
    raise TypeError(
        f"{where}: the kernel reads '{spelled.type_text}' but the array holds {array.dtype}. Convert it with "
        f"x.astype(cp.{element.name}), or pass x.view(cp.{element.name}) if its bytes are meant as they are."
    )


def _number_bytes(value: Any, param: ir.Param, spelled: SourceParam | None, where: str) -> bytes:
    """What the kernel reads of a number: the first of its bytes, as CuPy hands them over.

    Those are 8 of a Python int or float, 16 of a complex and a NumPy scalar's own.
    """
    wanted = _wanted(param, spelled)
    remedy = _remedy(param, spelled)
    size = param.size_bytes
    is_python = not isinstance(value, np.generic)
    called = f"a Python {type(value).__name__}" if is_python else f"numpy.{value.dtype.name}"
    number = _as_numpy(value, where)
    kind = number.dtype.kind
    held = count(number.itemsize, "byte")
    is_structure = param.type == "b8"
    is_pointer = spelled is not None and spelled.type_text.endswith("*")
    if (is_structure and is_python and kind != "c") or (is_pointer and kind not in _INTEGER_KINDS):
        raise TypeError(f"{where}: {called} was passed where the kernel takes {wanted}. {remedy}")
    if number.itemsize < size or (is_structure and number.itemsize > size and kind != "c"):
        raise TypeError(f"{where}: {called} has {held} but the kernel takes {wanted}. {remedy}")
    data = bytes(number.tobytes()[:size])
    if is_structure and number.itemsize == size:
        return data
    if param.type not in _FLOAT_TYPES and kind in _INTEGER_KINDS:
        bits = 8 * size
        if not -(1 << (bits - 1)) <= int(number) < 1 << bits:
            read = int.from_bytes(data, "little", signed=True)
            warn(
                f"{where}: {number} does not fit into {wanted}. As with CuPy, the kernel reads {read}, its "
                "lower bytes. Use a wider parameter type in the kernel."
            )
    elif number.itemsize > size:
        warn(
            f"{where}: {called} has {held} but the kernel takes {wanted}. As with CuPy, it reads a part of "
            f"{value}, as {_read(data, param)}. {remedy}"
        )
    elif (kind == "f") != (param.type in _FLOAT_TYPES):
        warn(
            f"{where}: {called} was passed where the kernel takes {wanted}. As with CuPy, it reads the bytes "
            f"of {value}, as {_read(data, param)}. {remedy}"
        )
    return data


def _as_numpy(value: Any, where: str) -> np.generic:
    """A number with the bytes that CuPy passes for it."""
    if isinstance(value, np.generic):
        return value
    if not isinstance(value, int):
        return np.complex128(value) if isinstance(value, complex) else np.float64(value)
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"{where}: Python int too large to convert to C long: {value}.")
    return np.uint64(value) if value >= 1 << 63 else np.int64(value)


def _read(data: bytes, param: ir.Param) -> str:
    """A parameter's bytes as a kernel sees them."""
    kind = "f" if param.type in _FLOAT_TYPES or param.type == "b8" else "i"
    size = param.size_bytes if param.type != "b8" else 4
    return ", ".join(map(str, np.frombuffer(data, f"{kind}{size}")))


def _wanted(param: ir.Param, spelled: SourceParam | None) -> str:
    size = count(param.size_bytes, "byte")
    if spelled is not None and spelled.type_text:
        return f"'{spelled.type_text}' ({size})"
    if param.type in _FLOAT_TYPES:
        return f"a floating-point number of {size}"
    return f"a value of {size}"


def _remedy(param: ir.Param, spelled: SourceParam | None) -> str:
    if spelled is not None and spelled.type_text.endswith("*"):
        return "Pass a device array."
    name = spelled.name if spelled and spelled.name else "x"
    if param.type in _FLOAT_TYPES:
        return f"Pass np.float{8 * param.size_bytes}({name})."
    if param.type == "b8":
        return f"Pass a structured NumPy scalar of {count(param.size_bytes, 'byte')}."
    unsigned = spelled is not None and (
        "unsigned" in spelled.type_text or spelled.type_text.startswith("uint")
    )
    return f"Pass np.{'uint' if unsigned else 'int'}{8 * param.size_bytes}({name})."
