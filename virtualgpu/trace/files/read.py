"""Opens a trace file of gpulab, of the PyTorch profiler or of another tool that writes Chrome trace events.

Files come from anywhere: nothing in them is executed, sizes and depths are bounded, and what does not fit
is either left out and counted, or ends in an error that says so.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, NoReturn

from virtualgpu.records import Timeline
from virtualgpu.records.io import TraceFormatError
from virtualgpu.trace.files import foreign, ours
from virtualgpu.trace.files.write import FORMAT

# JSON takes some ten times as much in Python's memory.
MAX_BYTES = 512 << 20
_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"SQLite format 3": "an SQLite database, as nsys exports it",
    b"PK\x03\x04": "a zip archive",
    b"\x0a": "a trace of Perfetto's own format",
}


def open_file(path: str | Path) -> Timeline:
    """Read a timeline.

    Times of a file that gpulab saved are exactly those of the record. What it had measured is recorded now,
    on the day that it was saved. What other tools wrote is recorded on the device that they name.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TraceFormatError
        If the file holds no timeline, is damaged, or is too large.
    """
    path = Path(path)
    name = path.name
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {name} here; t.save({name!r}) writes one.")
    content = _content(path)
    data = _parsed(content, name)
    try:
        about = data.get("otherData") if isinstance(data, dict) else None
        if isinstance(about, dict) and about.get("format") == FORMAT:
            return ours.timeline(data, name)
        return foreign.timeline(data, name)
    except (OverflowError, RecursionError) as error:
        raise TraceFormatError(f"{name} is damaged: a number in it is too large to be a time.") from error


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if content.startswith(_GZIP):
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            content = unpacker.decompress(content, MAX_BYTES + 1)
        except zlib.error as error:
            raise TraceFormatError(f"{path.name} is damaged: its compressed data cannot be read.") from error
        if not unpacker.eof and len(content) <= MAX_BYTES:
            raise TraceFormatError(f"{path.name} is damaged: its compressed data breaks off.")
    if len(content) > MAX_BYTES:
        raise TraceFormatError(
            f"{path.name} holds more than {MAX_BYTES >> 20} MB; record a shorter stretch of the program."
        )
    return content


def _parsed(content: bytes, name: str) -> Any:
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        what = next((what for begin, what in _OTHERS.items() if content.startswith(begin)), "no text")
        raise TraceFormatError(
            f"{name} is {what}, and gpulab opens Chrome trace events: export the trace as JSON."
        ) from error
    del content
    if not text:
        raise TraceFormatError(f"{name} is empty.")
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        if text.startswith("[") and text.rstrip(",").endswith("}"):
            # The format lets a program that stops early leave out the bracket at the end.
            try:
                return json.loads(f"{text.rstrip(',')}]", parse_constant=_refuse)
            except ValueError:
                pass
        where = f" at character {error.pos:,}" if isinstance(error, json.JSONDecodeError) else ""
        raise TraceFormatError(f"{name} is damaged or no JSON: it cannot be read{where}.") from error
    except RecursionError as error:
        raise TraceFormatError(f"{name} is no trace: its parts are nested too deeply.") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
