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

MAX_VALUE_BYTES = 64 << 20
_MAX_VALUE_PARTS = 100_000
_MAX_INTEGER_BITS = 4096
_MAX_DEPTH = 20
_LENGTH_BYTES = 8
_DTYPE_KINDS = "biufcSU"  # of arrays: what needs no Python objects


class ValueTooLargeError(ValueError):
    """Error for a value that is too large to be sent to another process."""


class DamagedBytesError(ValueError):
    """Error for bytes from which no value can be decoded."""


@dataclass(frozen=True, slots=True)
class OtherObject:
    """A placeholder for a value that is not plain data. Only the name of the value's type was transferred."""

    type_name: str

    def __repr__(self) -> str:
        return f"a value of type {self.type_name}"


@dataclass(frozen=True, slots=True)
class DeviceContents:
    """The contents of a device array that the answer of a learner returned."""

    values: npt.NDArray[Any]


def find_type_name(value: Any) -> str:
    """Return the type name of a value as it appears in the learner's program."""
    if isinstance(value, OtherObject):
        return value.type_name
    return "cupy.ndarray" if isinstance(value, DeviceContents) else type(value).__name__


def encode(value: Any) -> bytes:
    """Encode a value as bytes.

    Raises
    ------
    ValueTooLargeError
        If the value is too large to be transferred.
    """
    encoded_arrays: list[bytes] = []
    encoder = _TreeEncoder(encoded_arrays)
    json_bytes = json.dumps(encoder.convert(value, 0)).encode()
    encoded_value = len(json_bytes).to_bytes(_LENGTH_BYTES, "big") + json_bytes + b"".join(encoded_arrays)
    if len(encoded_value) > MAX_VALUE_BYTES:
        raise ValueTooLargeError(f"it has more than {MAX_VALUE_BYTES >> 20} MiB")
    return encoded_value


class _TreeEncoder:
    """Converter of a value to a tree that JSON supports; arrays are stored separately."""

    def __init__(self, encoded_arrays: list[bytes]) -> None:
        self._encoded_arrays = encoded_arrays
        self._remaining_parts = _MAX_VALUE_PARTS
        self._array_bytes = 0

    def convert(self, value: Any, depth: int) -> Any:
        self._remaining_parts -= 1
        if self._remaining_parts < 0 or depth > _MAX_DEPTH:
            raise ValueTooLargeError("it has too many parts")
        value_type = type(value)  # the real type, which `__class__` can hide
        if value is None or value_type is bool:
            return value
        if issubclass(value_type, np.generic):
            return self._store_array("scalar", np.asarray(value))
        if issubclass(value_type, int):
            plain_int = int.__add__(value, 0)
            if plain_int.bit_length() > _MAX_INTEGER_BITS:
                raise ValueTooLargeError("it contains a number with thousands of digits")
            return ["int", hex(plain_int)]
        if issubclass(value_type, float):
            return ["float", float.__float__(value).hex()]
        if issubclass(value_type, complex):
            return ["complex", complex.__add__(value, 0).real.hex(), complex.__add__(value, 0).imag.hex()]
        if issubclass(value_type, str):
            return ["str", str.__str__(value)]
        if issubclass(value_type, tuple):
            return ["tuple", [self.convert(element, depth + 1) for element in tuple.__iter__(value)]]
        if issubclass(value_type, list):
            return ["list", [self.convert(element, depth + 1) for element in list.__iter__(value)]]
        if issubclass(value_type, dict):
            encoded_items = [
                [self.convert(key, depth + 1), self.convert(element, depth + 1)]
                for key, element in dict.items(value)
            ]
            return ["dict", encoded_items]
        if issubclass(value_type, np.ndarray) and value.dtype.kind in _DTYPE_KINDS:
            return self._store_array("array", np.array(value, subok=False))
        if value_type is DeviceContents:
            return self._store_array("device", value.values)
        return ["other", value_type.__name__]

    def _store_array(self, tag: str, array: npt.NDArray[Any]) -> list[Any]:
        if array.dtype.kind not in _DTYPE_KINDS:
            return ["other", array.dtype.name]
        self._array_bytes += array.nbytes
        if self._array_bytes > MAX_VALUE_BYTES:
            raise ValueTooLargeError(f"it has more than {MAX_VALUE_BYTES >> 20} MiB")
        npy_buffer = io.BytesIO()
        np.lib.format.write_array(npy_buffer, array, allow_pickle=False)
        self._encoded_arrays.append(npy_buffer.getvalue())
        return [tag, len(self._encoded_arrays[-1])]


def decode(data: bytes) -> Any:
    """Decode a value from the bytes that the function `encode` returned.

    Raises
    ------
    DamagedBytesError
        If the bytes are not the encoding of a value.
    """
    try:
        json_end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
        array_stream = io.BytesIO(data[json_end:])
        decoded_value = _decode_tree(json.loads(data[_LENGTH_BYTES:json_end]), array_stream)
        if array_stream.read(1):
            raise DamagedBytesError("there is more than one value")
        return decoded_value
    except DamagedBytesError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise DamagedBytesError(str(error)) from None


def _decode_tree(tree: Any, array_stream: io.BytesIO) -> Any:
    if tree is None or isinstance(tree, bool):
        return tree
    tag, *tree_fields = tree
    return _DECODERS[tag](array_stream, *tree_fields)


def _decode_array(array_stream: io.BytesIO, length: int) -> npt.NDArray[Any]:
    """Return an array from its bytes, after a check that its header matches the size of the data."""
    npy_buffer = io.BytesIO(array_stream.read(length))
    npy_version = np.lib.format.read_magic(npy_buffer)
    if npy_version != (1, 0):
        raise DamagedBytesError("an array has an unknown format")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(npy_buffer)
    if dtype.kind not in _DTYPE_KINDS or math.prod(shape) * dtype.itemsize != length - npy_buffer.tell():
        raise DamagedBytesError("an array does not have the size in its header")
    flat_elements = (
        np.frombuffer(npy_buffer.read(), dtype) if math.prod(shape) and dtype.itemsize else np.zeros(0, dtype)
    )
    return flat_elements.reshape(shape, order="F" if is_fortran else "C").copy()


_DECODERS: dict[str, Callable[..., Any]] = {
    "int": lambda arrays, text: int(str.__str__(text), 16),
    "float": lambda arrays, text: float.fromhex(text),
    "complex": lambda arrays, real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "str": lambda arrays, text: str.__str__(text),
    "tuple": lambda arrays, parts: tuple(_decode_tree(part, arrays) for part in list.__iter__(parts)),
    "list": lambda arrays, parts: [_decode_tree(part, arrays) for part in list.__iter__(parts)],
    "dict": lambda arrays, pairs: {
        _decode_tree(key, arrays): _decode_tree(part, arrays) for key, part in pairs
    },
    "array": _decode_array,
    "scalar": lambda arrays, length: _decode_array(arrays, length)[()],
    "device": lambda arrays, length: DeviceContents(_decode_array(arrays, length)),
    "other": lambda arrays, kind: OtherObject(str.__str__(kind)),
}
