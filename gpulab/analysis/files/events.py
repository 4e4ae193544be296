"""Read trace events one by one from files of any size, without keeping them in memory.

Parsed JSON takes up to thirty times the size of its text in Python's memory, and a compressed file of a few
hundred kB can contain hundreds of MB.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from virtualgpu.records.io import TraceFormatError

# Limits in characters: a file, compressed or not; one event; and everything that is not an event.
MAX_TEXT_LENGTH = 512 << 20
MAX_EVENT_LENGTH = 4 << 20
MAX_HEADER_LENGTH = 8 << 20
_PIECE_LENGTH = 1 << 20
_GZIP_SIGNATURE = b"\x1f\x8b"
_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive",
    b"\x0a": "a trace in Perfetto's own format",
}
_TEXT_SIGNATURES = (b"\x0a",)  # JSON may begin like this
_SPACE_PATTERN = re.compile(r"[ \t\n\r]*")
_EVENTS_KEY = "traceEvents"


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number in JSON")


class Document:
    """A reader for a JSON file of trace events. The file contains an array of events, or an object with the
    key ``traceEvents``.

    Attributes
    ----------
    header : dict
        The object's values other than its events, as far as they have been read.
    has_events : bool
        Whether an array of events has been read.
    """

    def __init__(self, path: Path) -> None:
        self.header: dict[str, Any] = {}
        self.has_events = False
        self._name = path.name
        self._path = path
        self._scan_json = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]
        self._text = ""
        self._text_index = 0
        self._dropped_character_count = 0
        self._header_character_count = 0
        self._is_at_end = False
        self._open_files = ExitStack()

    def __enter__(self) -> Self:
        file: Any = self._open_files.enter_context(self._path.open("rb"))
        self._head = file.peek(16)[:16]
        if self._head.startswith(_GZIP_SIGNATURE):
            file = self._open_files.enter_context(gzip.GzipFile(fileobj=file))
        elif any(
            self._head.startswith(file_signature)
            for file_signature in _OTHER_FORMATS
            if file_signature not in _TEXT_SIGNATURES
        ):
            self._open_files.close()
            self._refuse_bytes(None)
        self._file = io.TextIOWrapper(file, "utf-8-sig", newline="")
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open_files.close()

    def events(self) -> Iterator[Any]:
        """Yield all trace events in the order of the file. The attribute ``header`` is complete only after
        the last event.

        Raises
        ------
        TraceFormatError
            If the file is empty, damaged, too large or not JSON.
        """
        try:
            first_character = self._next_character()
            if not first_character:
                raise TraceFormatError(f"{self._name} is empty.")
            if first_character == "[":
                yield from self._read_array(is_whole_file=True)
            elif first_character == "{":
                yield from self._read_object()
            else:
                self._read_value(MAX_EVENT_LENGTH)
            if self._next_character():
                self._raise_format_error("it has data after its end")
        except RecursionError as error:
            raise TraceFormatError(
                f"{self._name} is not a trace: its parts are nested too deeply."
            ) from error

    def _read_object(self) -> Iterator[Any]:
        """Yield the events of an object, and store its other values in ``header``."""
        self._text_index += 1
        if self._next_character() == "}":
            self._text_index += 1
            return
        while True:
            key = self._read_value(MAX_EVENT_LENGTH)
            if not isinstance(key, str) or self._next_character() != ":":
                self._raise_format_error()
            self._text_index += 1
            if key == _EVENTS_KEY and self._next_character() == "[":
                yield from self._read_array(is_whole_file=False)
            else:
                value_start = self._dropped_character_count + self._text_index
                self.header[key] = self._read_value(MAX_HEADER_LENGTH - self._header_character_count)
                self._header_character_count += self._dropped_character_count + self._text_index - value_start
            delimiter = self._next_character()
            self._text_index += 1
            if delimiter == "}":
                return
            if delimiter != ",":
                self._raise_format_error()

    def _read_array(self, *, is_whole_file: bool) -> Iterator[Any]:
        """Yield the elements of an array; if the array is the whole file, its end may be missing."""
        self.has_events = True
        self._text_index += 1
        last_element: Any = None
        if self._next_character() == "]":
            self._text_index += 1
            return
        while True:
            last_element = self._read_value(MAX_EVENT_LENGTH)
            yield last_element
            delimiter = self._next_character()
            if delimiter == ",":
                self._text_index += 1
                delimiter = self._next_character()
                if delimiter:
                    continue
            if not delimiter and is_whole_file and isinstance(last_element, dict):
                return
            if delimiter != "]":
                self._raise_format_error()
            self._text_index += 1
            return

    def _next_character(self) -> str:
        """Return the next character that is not a space, or an empty string at the end."""
        while True:
            space_match = _SPACE_PATTERN.match(self._text, self._text_index)
            assert space_match is not None
            self._text_index = space_match.end()
            if self._text_index < len(self._text):
                return self._text[self._text_index]
            if not self._read_piece():
                return ""

    def _read_value(self, max_characters: int) -> Any:
        """Return the JSON value at this position, of a limited number of characters."""
        self._next_character()
        while True:
            try:
                value, value_end = self._scan_json(self._text, self._text_index)
                if (
                    value_end < len(self._text)
                    or not isinstance(value, (int, float))
                    or not self._read_piece()
                ):
                    if value_end - self._text_index > max_characters:
                        self._raise_too_large()
                    self._text_index = value_end
                    return value
            except (StopIteration, json.JSONDecodeError) as error:
                if len(self._text) - self._text_index > max_characters:
                    self._raise_too_large()
                if not self._read_piece():
                    self._raise_format_error(
                        "", error.pos if isinstance(error, json.JSONDecodeError) else self._text_index
                    )
            except ValueError as error:
                self._raise_format_error(str(error))

    def _read_piece(self) -> bool:
        """Read the next piece of the file; return whether there was one."""
        if self._is_at_end:
            return False
        try:
            new_text = self._file.read(_PIECE_LENGTH)
        except UnicodeDecodeError as error:
            self._refuse_bytes(error)
        except EOFError as error:
            raise TraceFormatError(f"{self._name} is damaged: its compressed data is incomplete.") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise TraceFormatError(f"{self._name} is damaged: its compressed data cannot be read.") from error
        self._dropped_character_count += self._text_index
        self._text = self._text[self._text_index :] + new_text
        self._text_index = 0
        self._is_at_end = not new_text
        if self._dropped_character_count + len(self._text) > MAX_TEXT_LENGTH:
            raise TraceFormatError(
                f"{self._name} has more than {MAX_TEXT_LENGTH >> 20} MB. Record a shorter part of the "
                "program."
            )
        return bool(new_text)

    def _refuse_bytes(self, error: Exception | None) -> NoReturn:
        description = next(
            (
                description
                for signature, description in _OTHER_FORMATS.items()
                if self._head.startswith(signature)
            ),
            "no text",
        )
        raise TraceFormatError(
            f"{self._name} is {description}, but gpulab can open only Chrome trace events. Export the trace "
            "as JSON."
        ) from error

    def _raise_too_large(self) -> NoReturn:
        raise TraceFormatError(
            f"{self._name} is not a trace: a single item in it is larger than {MAX_EVENT_LENGTH >> 20} MB."
        )

    def _raise_format_error(self, reason: str = "", text_index: int | None = None) -> NoReturn:
        position = self._dropped_character_count + (self._text_index if text_index is None else text_index)
        raise TraceFormatError(
            f"{self._name} is damaged or is not JSON: it cannot be read at character "
            f"{position:,}{f' ({reason})' if reason else ''}."
        )
