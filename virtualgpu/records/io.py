"""Records as files: one record is one ``.npz``.

It holds the record's arrays as they are, and a JSON header that says which format, which version
and how the record is put together.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from virtualgpu import records
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance, as_run, memory
from virtualgpu.records.warp import columns, watched

FORMAT = "gpulab-record"
VERSION = 1
_HEADER = "header"

Record = TypeVar("Record")
Array = npt.NDArray[Any]
_RECORD_TYPES = {
    name: thing
    for module in (records, as_run, columns, memory, watched)
    for name, thing in vars(module).items()
    if isinstance(thing, type) and dataclasses.is_dataclass(thing)
}


class TraceFormatError(GpulabError, ValueError):
    """A file that holds no record, or one of a version this gpulab does not know."""


def save(record: Any, path: str | Path) -> Path:
    """Write one record of `virtualgpu.records` to a file.

    Parameters
    ----------
    record
        Any of the records, such as a `LaunchTrace`.
    path
        Where to; ``.npz`` is added if it has no suffix.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    TypeError
        If `record` is none of gpulab's records.
    """
    if type(record).__name__ not in _RECORD_TYPES:
        raise TypeError(
            f"{type(record).__name__} is no record of gpulab; records are made by gl.launch and its kin."
        )
    arrays: dict[str, Array] = {}
    header = {"format": FORMAT, "version": VERSION, "record": _encode(record, arrays, "")}
    target = Path(path)
    if not target.suffix:
        target = target.with_suffix(".npz")
    packed = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with target.open("wb") as file:  # given a name, NumPy would add a suffix of its own
        np.savez_compressed(file, **{_HEADER: packed}, **arrays)  # type: ignore[arg-type]
    return target


def load(path: str | Path) -> Any:
    """Read a record that `save` wrote.

    Raises
    ------
    TraceFormatError
        If the file holds no record, or was written by a newer version.
    FileNotFoundError
        If there is no such file.
    """
    return read(Path(path).read_bytes(), str(path))


def as_recorded(record: Record, detail: str) -> Record:
    """A copy of a measured record that says "recorded", and when and with what (`detail`)."""
    return cast(Record, _replace_provenance(record, detail))


def read(content: bytes, name: str) -> Any:
    """Read a record from the bytes of its file; `name` is what messages call it."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            header = json.loads(bytes(file[_HEADER]))
            arrays = {key: file[key] for key in file.files if key != _HEADER}
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise TraceFormatError(f"{name} holds no gpulab record; choose a file that gpulab saved.") from error
    check_version(header, FORMAT, name)
    try:
        return _decode(header["record"], arrays)
    except (KeyError, TypeError) as error:
        raise TraceFormatError(f"{name} is damaged or incomplete: {error}.") from error


def check_version(header: Any, wanted: str, name: str) -> None:
    """Raise `TraceFormatError` unless a file's header names the format and a version this gpulab knows."""
    if not isinstance(header, dict) or header.get("format") != wanted:
        raise TraceFormatError(f"{name} is no {wanted} file.")
    if int(header.get("version", 0)) > VERSION:
        raise TraceFormatError(f"{name} was written by a newer gpulab; update this one to read it.")


def _encode(value: Any, arrays: dict[str, Array], path: str) -> Any:
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return {"array": path}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        fields = {n: _encode(getattr(value, n), arrays, f"{path}.{n}".lstrip(".")) for n in names}
        return {"record": type(value).__name__, "fields": fields}
    if isinstance(value, (tuple, list)):
        return {"tuple": [_encode(item, arrays, f"{path}.{i}") for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return {"dict": [[key, _encode(item, arrays, f"{path}.{key}")] for key, item in value.items()]}
    if isinstance(value, np.generic):
        return value.item()
    return value


def _decode(value: Any, arrays: dict[str, Array]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "tuple" in value:
        return tuple(_decode(item, arrays) for item in value["tuple"])
    if "dict" in value:
        return {key: _decode(item, arrays) for key, item in value["dict"]}
    kind = _RECORD_TYPES[value["record"]]
    known = {f.name for f in dataclasses.fields(kind)}
    return kind(**{name: _decode(item, arrays) for name, item in value["fields"].items() if name in known})


def _replace_provenance(value: Any, detail: str) -> Any:
    if isinstance(value, Provenance):
        details = "; ".join(part for part in (value.detail, detail) if part)
        return dataclasses.replace(value, source="recorded", detail=details)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    names = (f.name for f in dataclasses.fields(value))
    changed = {name: _replace_provenance(getattr(value, name), detail) for name in names}
    return dataclasses.replace(value, **changed)
