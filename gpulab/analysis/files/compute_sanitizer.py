"""Read reports of NVIDIA's compute-sanitizer (``--xml --save FILE``) as records of `gl.sanitize`.

Files are not trusted: their size and depth are limited, document types and entities are refused, and missing
elements are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from virtualgpu.errors import GpulabError
from virtualgpu.records import Dim3, Hazard, Place, SanitizerReport

CHECKER = "compute-sanitizer"
# The tool's options for each of our checks; the path of its file follows.
TOOL_OPTIONS = {
    check: ("--tool", tool, *options, "--print-limit", "10000", "--xml", "--save")
    for check, tool, *options in (
        ("memory", "memcheck", "--report-api-errors", "no"),
        ("race", "racecheck", "--racecheck-report", "hazard"),
        ("init", "initcheck"),
        ("sync", "synccheck"),
    )
}
MAX_FILE_BYTES = 16 << 20
MAX_RECORDS = 20_000
_MAX_XML_DEPTH = 32
_MAX_MESSAGE_LENGTH = 300  # largest number of characters of a message
_ROOT_TAG = "ComputeSanitizerOutput"
# Patterns of the tool's messages, and the kind of hazard in our reports; the first match is used.
_KIND_PATTERNS = (
    (r"misaligned", "misaligned"),
    (r"stack overflow", "stack overflow"),
    (r"out of bounds|Invalid __\w+__|Invalid (read|write|atomic)|nearest allocation", "out of bounds"),
    (r"\bRAW\b", "RAW"),
    (r"\bWAR\b", "WAR"),
    (r"\bWAW\b", "WAW"),
    (r"race reported|hazard", "race"),
    (r"uninitialized", "uninitialised read"),
    (r"divergent thread", "divergent barrier"),
    (r"invalid arguments", "lane outside its mask"),
    (r"assert", "assert"),
    (r"trap", "trap"),
)
_SITE_PATTERN = re.compile(
    r"(Read|Write|Atomic)\w*(?: Thread \((\d+),(\d+),(\d+)\))?.*?\bin [^\s:]+:(\d+)", re.DOTALL
)
_SPACE_PATTERN = re.compile(r"__(\w+)__")


_LIMITS_NOTE = (
    "This tool detects races only in shared memory, and uninitialized values only in "
    "global memory. Each argument was copied to its own initialized memory before the "
    "check."
)
_FAULT_PATTERN = re.compile(r"CUDA(Driver|Runtime)Error|cudaError|CUDA_ERROR")
_REFUSAL_PATTERN = re.compile(
    r"^=* ?Error: (.*(not supported|unsupported|incompatible|[Ff]ailed to|[Uu]nable to).*)$", re.M
)


class SanitizerFileError(GpulabError, ValueError):
    """Error for a file that compute-sanitizer did not write, or that exceeds the limits of the reader."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The outcome of running a launch under one tool of compute-sanitizer. The outcome contains the tool's
    findings, an error of the program, or the reason why the tool did not run.
    """

    tool: str
    hazards: tuple[Hazard, ...] = ()
    program_error: str = ""
    skip_reason: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether the error occurred in a kernel. If the value is false, the program could not launch the
        kernel.
        """
        return bool(_FAULT_PATTERN.search(self.program_error))


def find_refusal(text: str) -> str:
    """Return the reason why the tool checked nothing, or an empty string if it checked the launch."""
    match = _REFUSAL_PATTERN.search(text)
    return (
        f"{match[1].rstrip('. ')}; install a CUDA Toolkit that supports this GPU and driver" if match else ""
    )


def add_findings(report: SanitizerReport, tool_runs: Sequence[ToolRun]) -> SanitizerReport:
    """Return a copy of the report with the findings of all tools. If no tool ran, the copy contains the
    reason instead.

    Raises
    ------
    GpulabError
        If the launch did not begin, and so nothing was checked.
    """
    for tool_run in tool_runs:
        if tool_run.program_error and not tool_run.is_fault:
            raise GpulabError(f"The launch did not start under {CHECKER}: {tool_run.program_error}")
    failure_reasons = dict.fromkeys(tool_run.skip_reason for tool_run in tool_runs if tool_run.skip_reason)
    completed_runs = [tool_run for tool_run in tool_runs if not tool_run.skip_reason]
    if not completed_runs:
        return replace(report, tools=(), unavailable="; ".join(failure_reasons))
    return replace(
        report,
        tools=tuple(tool_run.tool for tool_run in completed_runs),
        hazards=tuple(hazard for tool_run in completed_runs for hazard in tool_run.hazards),
        fault=next(
            (
                tool_run.program_error.partition("\n")[0][:120]
                for tool_run in completed_runs
                if tool_run.program_error
            ),
            "",
        ),
        left_out=" ".join(
            [_LIMITS_NOTE, *(f"Not done: {failure_reason}." for failure_reason in failure_reasons)]
        ),
    )


def read_hazards(data: bytes, tool: str, code: str = "", kernel: str = "") -> tuple[Hazard, ...]:
    """Read the findings in an output file of compute-sanitizer. Equal findings are merged and counted.

    Parameters
    ----------
    data
        The contents of the file.
    tool
        The check that wrote it: ``memory``, ``race``, ``init`` or ``sync``.
    code, kernel
        The kernel's source, for the text of lines, and its name, in case the file does not contain it.

    Raises
    ------
    SanitizerFileError
        If it cannot be read.
    """
    code_lines = code.split("\n")
    hazards: dict[tuple[object, ...], Hazard] = {}
    for record_index, record in enumerate(_parse_xml(data).iter("record")):
        if record_index >= MAX_RECORDS:
            break
        hazard = _make_hazard(record, tool, code_lines, kernel)
        if hazard is None:
            continue
        first_line = hazard.first.line if hazard.first else 0
        key = hazard.kind, hazard.space, hazard.second.line, first_line, hazard.severity
        equal_hazard = hazards.get(key)
        hazards[key] = hazard if equal_hazard is None else replace(equal_hazard, count=equal_hazard.count + 1)
    severity_order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(hazards.values(), key=lambda finding: severity_order[finding.severity]))


def _parse_xml(data: bytes) -> Element:
    """Parse a file into elements.

    Raises
    ------
    SanitizerFileError
        If it is too large or too deep, has a document type or entities, or is not such a file.
    """
    if len(data) > MAX_FILE_BYTES:
        raise SanitizerFileError(
            f"The file of {CHECKER} has {len(data):,} bytes, but at most {MAX_FILE_BYTES:,} "
            "can be read. Check a smaller launch, or one tool at a time."
        )
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def refuse_document_type(*_: object) -> None:
        raise SanitizerFileError(
            "The file was not read, because it has a document type or entities, which "
            f"{CHECKER} never writes."
        )

    def begin_element(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_XML_DEPTH or (depth == 1 and tag != _ROOT_TAG):
            raise SanitizerFileError(
                f"This file was not written by {CHECKER}: <{tag[:40]}> is at depth {depth}."
            )
        builder.start(tag, attributes)

    def end_element(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse_document_type
    parser.StartElementHandler = begin_element
    parser.EndElementHandler = end_element
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise SanitizerFileError(
            f"The file of {CHECKER} is incomplete or damaged ({error}). Repeat the check with more time."
        ) from None
    return builder.close()


def _make_hazard(record: Element, tool: str, lines: Sequence[str], kernel: str) -> Hazard | None:
    """Return the hazard of a record, or None for a host error, which is only a consequence of a fault."""
    text_fragments = _collect_texts(record.find("what")) or _collect_texts(record)
    record_text = " ".join(text_fragments)
    known_kind = next(
        (
            hazard_kind
            for pattern, hazard_kind in _KIND_PATTERNS
            if re.search(pattern, record_text, re.IGNORECASE)
        ),
        "",
    )
    code_places = _find_places(record, lines)
    if not known_kind and ((record.findtext("kind") or "").lower().startswith("api") or not code_places):
        return None
    message_places = [
        Place(
            int(line),
            _read_source_line(lines, int(line)),
            code_places[0].block if code_places else (0, 0, 0),
            (int(x or 0), int(y or 0), int(z or 0)),
        )
        for _, x, y, z, line in _SITE_PATTERN.findall(record_text)[:2]
    ]
    if tool == "race" and len(message_places) < 2 and len(code_places) > 1:
        message_places = code_places[:2]
    first_place = message_places[0] if tool == "race" and len(message_places) == 2 else None
    second_place = (
        message_places[1]
        if first_place
        else next(iter((*code_places, *message_places)), Place(0, "", (0, 0, 0), (0, 0, 0)))
    )
    space_match = _SPACE_PATTERN.search(record_text)
    # The tool checks for races in shared memory only, but its records do not name the memory.
    space_name = space_match[1] if space_match else (record.findtext("what/space") or "").strip("_")
    space_name = space_name or ("shared" if tool == "race" else "")
    hazard_message = ": ".join(
        filter(None, (record.findtext(f"what/{tag}") for tag in ("text", "exception", "type")))
    )
    is_warning = "warn" in f"{record.findtext('level') or ''} {record_text[:40]}".lower()
    return Hazard(
        tool=tool,
        kind=known_kind or record_text[:60].strip() or "unknown",
        severity="warning" if is_warning else "error",
        space=space_name.lower()[:20],
        kernel=(record.findtext("where/func") or kernel)[:200],
        first=first_place,
        second=second_place,
        address=_read_address(record),
        array="",
        count=1,
        message=(hazard_message or record_text)[:_MAX_MESSAGE_LENGTH],
    )


def _collect_texts(element: Element | None) -> list[str]:
    return [] if element is None else [text.strip() for text in element.itertext() if text.strip()]


def _find_places(record: Element, lines: Sequence[str]) -> list[Place]:
    """Return the lines of device code in a record, each with its thread and block."""
    threads, blocks = (list(_read_indices(record, tag)) for tag in ("threadIdx", "blockIdx"))
    device_elements = [child for child in record if child.tag != "hostStack"]
    thread_places = []
    for line_index, line_element in enumerate(
        line for device_element in device_elements for line in device_element.iter("line")
    ):
        line = _parse_integer(line_element.text)
        thread, block = (
            indices[min(line_index, len(indices) - 1)] if indices else (0, 0, 0)
            for indices in (threads, blocks)
        )
        thread_places.append(Place(line, _read_source_line(lines, line), block, thread))
    if not thread_places and threads:
        thread_places.append(Place(0, "", blocks[0] if blocks else (0, 0, 0), threads[0]))
    return thread_places


def _read_indices(record: Element, tag: str) -> Iterator[Dim3]:
    for element in record.iter(tag):
        x, y, z = (_parse_integer(element.findtext(axis)) for axis in "xyz")
        yield x, y, z


def _read_address(record: Element) -> int | None:
    for tag in ("accessAddress", "address", "errorAddress"):
        for element in record.iter(tag):
            return _parse_integer(element.text)
    return None


def _parse_integer(text: str | None) -> int:
    """Return the decimal or hexadecimal integer in a text, of at most 64 bits, or 0 for other text."""
    match = re.fullmatch(r"\s*(0x[0-9a-fA-F]{1,16}|\d{1,19})\s*", text or "")
    return int(match[1], 0 if match[1].startswith("0x") else 10) if match else 0


def _read_source_line(lines: Sequence[str], line: int) -> str:
    return lines[line - 1].strip() if 1 <= line <= len(lines) else ""
