"""Write records to ``.npz`` files and read them; each file contains one record.

A file contains the record's arrays unchanged, and a JSON header with the format, its version and the
structure of the record.
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
    name: value
    for module in (records, as_run, columns, memory, watched)
    for name, value in vars(module).items()
    if isinstance(value, type) and dataclasses.is_dataclass(value)
}


class TraceFormatError(GpulabError, ValueError):
    """Error for a file that does not contain a record or has an unknown version."""


def save(record: Any, path: str | Path) -> Path:
    """Write a record of `virtualgpu.records` to a file.

    Parameters
    ----------
    record
        Any of the records, such as a `LaunchTrace`.
    path
        Name of the file; ``.npz`` is added if it has no suffix.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    TypeError
        If `record` is not one of gpulab's records.
    """
    if type(record).__name__ not in _RECORD_TYPES:
        raise TypeError(
            f"{type(record).__name__} is not a record of gpulab. Functions such as gl.launch create records."
        )
    arrays: dict[str, Array] = {}
    header = {"format": FORMAT, "version": VERSION, "record": _encode(record, arrays, "")}
    target_path = Path(path)
    if not target_path.suffix:
        target_path = target_path.with_suffix(".npz")
    header_bytes = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with target_path.open("wb") as file:  # NumPy would add a suffix to a name
        np.savez_compressed(file, **{_HEADER: header_bytes}, **arrays)  # type: ignore[arg-type]
    return target_path


def load(path: str | Path) -> Any:
    """Return a record from a file that `save` wrote.

    Raises
    ------
    TraceFormatError
        If the file does not contain a record, or was written by a newer version.
    FileNotFoundError
        If there is no such file.
    """
    return read(Path(path).read_bytes(), str(path))


def as_recorded(record: Record, detail: str) -> Record:
    """Return a copy of a measured record with the provenance "recorded". The string ``detail``, such as a
    date, is stored in the provenance.
    """
    return cast(Record, _replace_provenance(record, detail))


def read(content: bytes, name: str) -> Any:
    """Return a record from the contents of its file. The file name ``name`` appears in error messages."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            header = json.loads(bytes(file[_HEADER]))
            arrays = {key: file[key] for key in file.files if key != _HEADER}
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise TraceFormatError(
            f"{name} contains no gpulab record. Choose a file that gpulab saved."
        ) from error
    check_version(header, FORMAT, name)
    try:
        return _decode(header["record"], arrays)
    except (KeyError, TypeError) as error:
        raise TraceFormatError(f"{name} is damaged or incomplete: {error}.") from error


def check_version(header: Any, expected_format: str, name: str) -> None:
    """Raise `TraceFormatError` unless the header of a file has the expected format and a known version."""
    if not isinstance(header, dict) or header.get("format") != expected_format:
        raise TraceFormatError(f"{name} does not have the format {expected_format}.")
    if int(header.get("version", 0)) > VERSION:
        raise TraceFormatError(f"{name} was written by a newer version of gpulab. Update gpulab to read it.")


def _encode(value: Any, arrays: dict[str, Array], path: str) -> Any:
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return {"array": path}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [record_field.name for record_field in dataclasses.fields(value)]
        fields = {name: _encode(getattr(value, name), arrays, f"{path}.{name}".lstrip(".")) for name in names}
        return {"record": type(value).__name__, "fields": fields}
    if isinstance(value, (tuple, list)):
        return {"tuple": [_encode(item, arrays, f"{path}.{index}") for index, item in enumerate(value)]}
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
    record_type = _RECORD_TYPES[value["record"]]
    known_names = {record_field.name for record_field in dataclasses.fields(record_type)}
    decoded_fields = {
        name: _decode(item, arrays) for name, item in value["fields"].items() if name in known_names
    }
    return record_type(**decoded_fields)


def _replace_provenance(value: Any, detail: str) -> Any:
    if isinstance(value, Provenance):
        joined_details = "; ".join(part for part in (value.detail, detail) if part)
        return dataclasses.replace(value, source="recorded", detail=joined_details)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    names = (record_field.name for record_field in dataclasses.fields(value))
    changed_fields = {name: _replace_provenance(getattr(value, name), detail) for name in names}
    return dataclasses.replace(value, **changed_fields)
