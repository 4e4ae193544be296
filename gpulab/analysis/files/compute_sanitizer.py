"""Read reports of NVIDIA's compute-sanitizer (``--xml --save FILE``) as records of `gl.sanitize`.

The file names elements of NVIDIA's choosing, and is read as if anybody had written it: of limited size and
depth, without document types and entities, and with whatever is missing left out.
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
OPTIONS = {
    name: ("--tool", tool, *more, "--print-limit", "10000", "--xml", "--save")
    for name, tool, *more in (
        ("memory", "memcheck", "--report-api-errors", "no"),
        ("race", "racecheck", "--racecheck-report", "hazard"),
        ("init", "initcheck"),
        ("sync", "synccheck"),
    )
}
MOST_BYTES = 16 << 20
MOST_RECORDS = 20_000
_DEPTH = 32
_TEXT = 300  # largest number of characters of a message
_ROOT = "ComputeSanitizerOutput"
# The tool's words, and the hazard of our reports; the first match is used.
_KINDS = (
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
_SITE = re.compile(
    r"(Read|Write|Atomic)\w*(?: Thread \((\d+),(\d+),(\d+)\))?.*?\bin [^\s:]+:(\d+)", re.DOTALL
)
_SPACE = re.compile(r"__(\w+)__")


_LIMITS = (
    "It looks for races in shared memory alone, and for unwritten global memory; arguments lie in memory of "
    "their own, and all of it was written."
)
_FAULT = re.compile(r"CUDA(Driver|Runtime)Error|cudaError|CUDA_ERROR")
_REFUSAL = re.compile(
    r"^=* ?Error: (.*(not supported|unsupported|incompatible|[Ff]ailed to|[Uu]nable to).*)$", re.M
)


class SanitizerFileError(GpulabError, ValueError):
    """Error for a file that is not from compute-sanitizer, or exceeds the limits of the reader."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One tool's run of a launch: its findings, the error of the program, or why it did not run."""

    tool: str
    hazards: tuple[Hazard, ...] = ()
    raised: str = ""
    why_not: str = ""

    @property
    def is_fault(self) -> bool:
        """Return whether the program raised an error that a kernel caused, rather than failed to start."""
        return bool(_FAULT.search(self.raised))


def refusal(text: str) -> str:
    """Return the reason why the tool checked nothing, in its own words; empty if it did check."""
    found = _REFUSAL.search(text)
    return f"{found[1].rstrip('. ')}; install a CUDA Toolkit that knows this GPU and driver" if found else ""


def joined(report: SanitizerReport, runs: Sequence[ToolRun]) -> SanitizerReport:
    """Return a launch's report with the findings of the tools, or with the reason if none of them ran.

    Raises
    ------
    GpulabError
        If the launch did not begin, and so nothing was checked.
    """
    for each in runs:
        if each.raised and not each.is_fault:
            raise GpulabError(f"Under {CHECKER} the launch did not begin: {each.raised}")
    lost = dict.fromkeys(each.why_not for each in runs if each.why_not)
    done = [each for each in runs if not each.why_not]
    if not done:
        return replace(report, tools=(), unavailable="; ".join(lost))
    return replace(
        report,
        tools=tuple(each.tool for each in done),
        hazards=tuple(hazard for each in done for hazard in each.hazards),
        fault=next((each.raised.partition("\n")[0][:120] for each in done if each.raised), ""),
        left_out=" ".join([_LIMITS, *(f"Not done: {why}." for why in lost)]),
    )


def read(data: bytes, tool: str, code: str = "", kernel: str = "") -> tuple[Hazard, ...]:
    """Return the findings of a file; equal findings are one, with the number of reports.

    Parameters
    ----------
    data
        The file.
    tool
        Which check wrote it, by our name: ``memory``, ``race``, ``init`` or ``sync``.
    code, kernel
        The kernel's source, for the text of lines, and its name where the file has none.

    Raises
    ------
    SanitizerFileError
        If it cannot be read.
    """
    lines = code.split("\n")
    found: dict[tuple[object, ...], Hazard] = {}
    for number, record in enumerate(_parsed(data).iter("record")):
        if number >= MOST_RECORDS:
            break
        hazard = _hazard(record, tool, lines, kernel)
        if hazard is None:
            continue
        first = hazard.first.line if hazard.first else 0
        key = hazard.kind, hazard.space, hazard.second.line, first, hazard.severity
        before = found.get(key)
        found[key] = hazard if before is None else replace(before, count=before.count + 1)
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found.values(), key=lambda each: order[each.severity]))


def _parsed(data: bytes) -> Element:
    """Parse a file into elements.

    Raises
    ------
    SanitizerFileError
        If it is too large or too deep, has a document type or entities, or is no such file.
    """
    if len(data) > MOST_BYTES:
        raise SanitizerFileError(
            f"The file of {CHECKER} has {len(data):,} bytes, and {MOST_BYTES:,} are read: check a smaller "
            "launch, or one tool at a time."
        )
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def refuse(*_: object) -> None:
        raise SanitizerFileError(
            f"A document type or entities are not what {CHECKER} writes; nothing is read."
        )

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEPTH or (depth == 1 and tag != _ROOT):
            raise SanitizerFileError(f"This is no file of {CHECKER}: <{tag[:40]}> stands at depth {depth}.")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise SanitizerFileError(
            f"The file of {CHECKER} is cut short or damaged ({error}): check again, with more time."
        ) from None
    return builder.close()


def _hazard(record: Element, tool: str, lines: Sequence[str], kernel: str) -> Hazard | None:
    """Return the hazard of a record, or None for a host error, which only follows from a fault."""
    said = _texts(record.find("what")) or _texts(record)
    text = " ".join(said)
    kind = next((ours for words, ours in _KINDS if re.search(words, text, re.IGNORECASE)), "")
    places = _places(record, lines)
    if not kind and ((record.findtext("kind") or "").lower().startswith("api") or not places):
        return None
    sites = [
        Place(
            int(line),
            _line(lines, int(line)),
            places[0].block if places else (0, 0, 0),
            (int(x or 0), int(y or 0), int(z or 0)),
        )
        for _, x, y, z, line in _SITE.findall(text)[:2]
    ]
    if tool == "race" and len(sites) < 2 and len(places) > 1:
        sites = places[:2]
    first = sites[0] if tool == "race" and len(sites) == 2 else None
    second = sites[1] if first else next(iter((*places, *sites)), Place(0, "", (0, 0, 0), (0, 0, 0)))
    space = _SPACE.search(text)
    # The tool checks for races in shared memory only, but its records do not name the memory.
    where = space[1] if space else (record.findtext("what/space") or "").strip("_")
    where = where or ("shared" if tool == "race" else "")
    told = ": ".join(filter(None, (record.findtext(f"what/{tag}") for tag in ("text", "exception", "type"))))
    warns = "warn" in f"{record.findtext('level') or ''} {text[:40]}".lower()
    return Hazard(
        tool=tool,
        kind=kind or text[:60].strip() or "unknown",
        severity="warning" if warns else "error",
        space=where.lower()[:20],
        kernel=(record.findtext("where/func") or kernel)[:200],
        first=first,
        second=second,
        address=_address(record),
        array="",
        count=1,
        message=(told or text)[:_TEXT],
    )


def _texts(element: Element | None) -> list[str]:
    return [] if element is None else [text.strip() for text in element.itertext() if text.strip()]


def _places(record: Element, lines: Sequence[str]) -> list[Place]:
    """Return the lines of device code that a record names, each with its thread and block."""
    threads, blocks = (list(_indices(record, tag)) for tag in ("threadIdx", "blockIdx"))
    inside = [part for part in record if part.tag != "hostStack"]
    found = []
    for number, element in enumerate(line for part in inside for line in part.iter("line")):
        line = _whole(element.text)
        thread, block = (
            each[min(number, len(each) - 1)] if each else (0, 0, 0) for each in (threads, blocks)
        )
        found.append(Place(line, _line(lines, line), block, thread))
    if not found and threads:
        found.append(Place(0, "", blocks[0] if blocks else (0, 0, 0), threads[0]))
    return found


def _indices(record: Element, tag: str) -> Iterator[Dim3]:
    for element in record.iter(tag):
        x, y, z = (_whole(element.findtext(axis)) for axis in "xyz")
        yield x, y, z


def _address(record: Element) -> int | None:
    for tag in ("accessAddress", "address", "errorAddress"):
        for element in record.iter(tag):
            return _whole(element.text)
    return None


def _whole(text: str | None) -> int:
    """Return a number of at most 64 bits, decimal or hexadecimal in the file; 0 for anything else."""
    found = re.fullmatch(r"\s*(0x[0-9a-fA-F]{1,16}|\d{1,19})\s*", text or "")
    return int(found[1], 0 if found[1].startswith("0x") else 10) if found else 0


def _line(lines: Sequence[str], line: int) -> str:
    return lines[line - 1].strip() if 1 <= line <= len(lines) else ""
