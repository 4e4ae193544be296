"""Kernel arguments to the parameter buffer a launch hands over, with every mismatch explained.

CuPy copies the bytes it is given and the GPU reads as many as the parameter has, so a wrong type
turns into a wrong number in silence. The virtual GPU knows both sides and raises instead.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from virtualgpu.compile.ptx import ir
from virtualgpu.cp._core.arguments import check_device
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp.cuda._memory.pointer import MemoryPointer
from virtualgpu.launch.signature import SourceParam
from virtualgpu.model.machine import VirtualDevice

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

    Raises
    ------
    TypeError
        For a wrong number of arguments, or one whose type or size does not fit its parameter.
    ValueError
        For an array on another device.
    """
    known = source if source is not None and len(source) == len(params) else None
    if len(args) != len(params):
        names = ", ".join(f"{p.type_text} {p.name}".strip() for p in known) if known else ""
        raise TypeError(
            f"Kernel '{kernel}' takes {_plural(len(params), 'argument')} but {len(args)} "
            f"{'was' if len(args) == 1 else 'were'} passed. Pass one value per parameter"
            f"{f': ({names})' if names else ''}."
        )
    buffer = bytearray(param_bytes)
    arrays: dict[int, int] = {}
    called: dict[int, str] = {}
    for index, (value, param) in enumerate(zip(args, params, strict=True)):
        spelled = known[index] if known else None
        where = f"Kernel '{kernel}', argument {index + 1}" + (f" ('{spelled.name}')" if spelled else "")
        data = _bytes_of(value, param, spelled, where, device, arrays)
        buffer[param.offset : param.offset + len(data)] = data
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
        check_device(value, device)
        _check_pointer(value, param, spelled, where)
        address = value.data.ptr if value.nbytes else 0
        if address:
            arrays[address] = max(arrays.get(address, 0), value.nbytes)
        return address.to_bytes(8, "little")
    if isinstance(value, MemoryPointer) or value is None:
        address = 0 if value is None else value.ptr
        if param.size_bytes != 8 or param.type in _FLOAT_TYPES:
            raise TypeError(
                f"{where}: a pointer was passed where the kernel takes {_wanted(param, spelled)}."
            )
        return int(address).to_bytes(8, "little")
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise TypeError(
                f"{where}: a numpy.ndarray of shape {value.shape} lives in host memory, which a kernel "
                "cannot read. Pass a device array: cp.asarray(x)."
            )
        value = value.reshape(())[()]
    if isinstance(value, np.generic):
        return _scalar_bytes(value, param, spelled, where)
    if isinstance(value, (bool, int, float, complex)):
        return _python_bytes(value, param, spelled, where)
    if type(value).__module__.split(".")[0] == "cupy":
        raise TypeError(
            f"{where}: this {type(value).__name__} belongs to a real GPU, but the kernel runs on "
            f"{device.info.as_virtual.device}. Create it with the same `cp` as the kernel."
        )
    raise TypeError(f"{where}: Unsupported type {type(value)}. Pass a device array or a NumPy scalar.")


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


def _scalar_bytes(value: Any, param: ir.Param, spelled: SourceParam | None, where: str) -> bytes:
    dtype = value.dtype
    wanted, remedy = _wanted(param, spelled), _remedy(param, spelled)
    if dtype.itemsize != param.size_bytes:
        raise TypeError(
            f"{where}: numpy.{dtype.name} has {_plural(dtype.itemsize, 'byte')} but the kernel takes "
            f"{wanted}. {remedy}"
        )
    float_param = param.type in _FLOAT_TYPES
    if param.type != "b8" and not param.type.startswith("b") and (dtype.kind == "f") != float_param:
        raise TypeError(f"{where}: numpy.{dtype.name} was passed where the kernel takes {wanted}. {remedy}")
    return bytes(value.tobytes())


def _python_bytes(value: Any, param: ir.Param, spelled: SourceParam | None, where: str) -> bytes:
    wanted, remedy = _wanted(param, spelled), _remedy(param, spelled)
    if isinstance(value, complex):
        if param.size_bytes != 16:
            raise TypeError(f"{where}: a Python complex has 16 bytes but the kernel takes {wanted}. {remedy}")
        return np.complex128(value).tobytes()
    if isinstance(value, float):
        if param.type != "f64":
            raise TypeError(f"{where}: a Python float has 8 bytes but the kernel takes {wanted}. {remedy}")
        return np.float64(value).tobytes()
    if param.type in _FLOAT_TYPES or param.size_bytes > 8:
        raise TypeError(
            f"{where}: a Python {type(value).__name__} was passed where the kernel takes {wanted}. {remedy}"
        )
    number, bits = operator.index(value), 8 * param.size_bytes
    if not -(1 << (bits - 1)) <= number < 1 << bits:
        raise TypeError(
            f"{where}: {number} does not fit into {wanted}. Use a wider parameter type in the kernel."
        )
    return (number & ((1 << bits) - 1)).to_bytes(param.size_bytes, "little")


def _wanted(param: ir.Param, spelled: SourceParam | None) -> str:
    size = _plural(param.size_bytes, "byte")
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
    if param.type == "b8" and param.size_bytes not in (1, 2, 4, 8):
        return f"Pass a structured NumPy scalar of {param.size_bytes} bytes."
    unsigned = spelled is not None and (
        "unsigned" in spelled.type_text or spelled.type_text.startswith("uint")
    )
    return f"Pass np.{'uint' if unsigned else 'int'}{8 * param.size_bytes}({name})."


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
