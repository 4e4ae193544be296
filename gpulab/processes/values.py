"""Transfer of plain data between the judge and an answer's process: JSON, and arrays as ``.npy``.

Values of an answer are never unpickled. Numbers, strings and containers are converted to their exact types,
so that no subclass, such as one with its own comparison, reaches the process of the judge.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_BYTES = 64 << 20
_MOST_PARTS = 100_000
_MOST_BITS = 4096
_MAX_DEPTH = 20
_LENGTH_BYTES = 8
_DTYPE_KINDS = "biufcSU"  # of arrays: what needs no Python objects


class TooMuchError(ValueError):
    """Error for a value that is too large to be sent to another process."""


class DamagedError(ValueError):
    """Error for bytes from which no value can be decoded."""


@dataclass(frozen=True, slots=True)
class Other:
    """A placeholder for a value that is not plain data. Only the name of the value's type was transferred."""

    kind: str

    def __repr__(self) -> str:
        return f"a value of type {self.kind}"


@dataclass(frozen=True, slots=True)
class OnDevice:
    """The contents of a device array that the answer of a learner returned."""

    values: npt.NDArray[Any]


def kind_of(value: Any) -> str:
    """Return the type name of a value as it appears in the learner's program."""
    if isinstance(value, Other):
        return value.kind
    return "cupy.ndarray" if isinstance(value, OnDevice) else type(value).__name__


def encode(value: Any) -> bytes:
    """Encode a value as bytes.

    Raises
    ------
    TooMuchError
        If the value is too large to be transferred.
    """
    arrays: list[bytes] = []
    encoder = _Parts(arrays)
    text = json.dumps(encoder.of(value, 0)).encode()
    data = len(text).to_bytes(_LENGTH_BYTES, "big") + text + b"".join(arrays)
    if len(data) > MOST_BYTES:
        raise TooMuchError(f"more than {MOST_BYTES >> 20} MiB")
    return data


class _Parts:
    """Converter of a value to a tree that JSON supports; arrays are stored separately."""

    def __init__(self, arrays: list[bytes]) -> None:
        self._arrays = arrays
        self._free_parts = _MOST_PARTS
        self._array_bytes = 0

    def of(self, value: Any, depth: int) -> Any:
        self._free_parts -= 1
        if self._free_parts < 0 or depth > _MAX_DEPTH:
            raise TooMuchError("too many parts")
        value_type = type(value)  # the real type, which `__class__` can hide
        if value is None or value_type is bool:
            return value
        if issubclass(value_type, np.generic):
            return self._array("scalar", np.asarray(value))
        if issubclass(value_type, int):
            integer = int.__add__(value, 0)
            if integer.bit_length() > _MOST_BITS:
                raise TooMuchError("a number with thousands of digits")
            return ["int", hex(integer)]
        if issubclass(value_type, float):
            return ["float", float.__float__(value).hex()]
        if issubclass(value_type, complex):
            return ["complex", complex.__add__(value, 0).real.hex(), complex.__add__(value, 0).imag.hex()]
        if issubclass(value_type, str):
            return ["str", str.__str__(value)]
        if issubclass(value_type, tuple):
            return ["tuple", [self.of(element, depth + 1) for element in tuple.__iter__(value)]]
        if issubclass(value_type, list):
            return ["list", [self.of(element, depth + 1) for element in list.__iter__(value)]]
        if issubclass(value_type, dict):
            items = [
                [self.of(key, depth + 1), self.of(element, depth + 1)] for key, element in dict.items(value)
            ]
            return ["dict", items]
        if issubclass(value_type, np.ndarray) and value.dtype.kind in _DTYPE_KINDS:
            return self._array("array", np.array(value, subok=False))
        if value_type is OnDevice:
            return self._array("device", value.values)
        return ["other", value_type.__name__]

    def _array(self, tag: str, array: npt.NDArray[Any]) -> list[Any]:
        if array.dtype.kind not in _DTYPE_KINDS:
            return ["other", array.dtype.name]
        self._array_bytes += array.nbytes
        if self._array_bytes > MOST_BYTES:
            raise TooMuchError(f"more than {MOST_BYTES >> 20} MiB")
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, array, allow_pickle=False)
        self._arrays.append(buffer.getvalue())
        return [tag, len(self._arrays[-1])]


def decode(data: bytes) -> Any:
    """Decode a value from the bytes that the function `encode` returned.

    Raises
    ------
    DamagedError
        If the bytes are not the encoding of a value.
    """
    try:
        start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
        arrays = io.BytesIO(data[start:])
        value = _value(json.loads(data[_LENGTH_BYTES:start]), arrays)
        if arrays.read(1):
            raise DamagedError("there is more than one value")
        return value
    except DamagedError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise DamagedError(str(error)) from None


def _value(tree: Any, arrays: io.BytesIO) -> Any:
    if tree is None or isinstance(tree, bool):
        return tree
    tag, *fields = tree
    return _DECODERS[tag](arrays, *fields)


def _array(arrays: io.BytesIO, length: int) -> npt.NDArray[Any]:
    """Return an array from its bytes, after a check that its header matches the size of the data."""
    buffer = io.BytesIO(arrays.read(length))
    version = np.lib.format.read_magic(buffer)
    if version != (1, 0):
        raise DamagedError("an array has an unknown format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(buffer)
    if dtype.kind not in _DTYPE_KINDS or math.prod(shape) * dtype.itemsize != length - buffer.tell():
        raise DamagedError("an array does not have the size in its header")
    elements = (
        np.frombuffer(buffer.read(), dtype) if math.prod(shape) and dtype.itemsize else np.zeros(0, dtype)
    )
    return elements.reshape(shape, order="F" if fortran else "C").copy()


_DECODERS: dict[str, Callable[..., Any]] = {
    "int": lambda arrays, text: int(str.__str__(text), 16),
    "float": lambda arrays, text: float.fromhex(text),
    "complex": lambda arrays, real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "str": lambda arrays, text: str.__str__(text),
    "tuple": lambda arrays, parts: tuple(_value(part, arrays) for part in list.__iter__(parts)),
    "list": lambda arrays, parts: [_value(part, arrays) for part in list.__iter__(parts)],
    "dict": lambda arrays, pairs: {_value(key, arrays): _value(part, arrays) for key, part in pairs},
    "array": _array,
    "scalar": lambda arrays, length: _array(arrays, length)[()],
    "device": lambda arrays, length: OnDevice(_array(arrays, length)),
    "other": lambda arrays, kind: Other(str.__str__(kind)),
}
