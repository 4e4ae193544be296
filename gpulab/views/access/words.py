"""What an access costs, in words and figures; ``words.js`` says the same while a slider moves."""

from __future__ import annotations

import math
from typing import NamedTuple

from gpulab.views._text import count, number
from virtualgpu.records import SECTOR_BYTES
from virtualgpu.records.access import (
    BANKS,
    WORD_BYTES,
    Access,
    AccessPattern,
)
from virtualgpu.records.kernel import LINE_BYTES

TYPES = {1: "char", 2: "short", 4: "float", 8: "double", 16: "float4"}
ATOMIC_NOTE = "An atomic takes a sector once for each lane that wants the sector's most wanted word."
LOCAL_NOTE = "Local memory is each lane's own and interleaved: equal offsets of the lanes lie side by side."
CONSTANT_NOTE = "Constant memory serves one word at a time: each different word of the warp takes a pass."
PARTS_NOTE = "Accesses wider than 4 bytes a lane go in parts: half or a quarter of the warp at a time."
SWAP_NOTE = "Compare-and-swap reads and writes: two wavefronts a pass."
LANES_NOTE = "An atomic takes a pass for each lane of a bank, also where they want the same word."


def share(fraction: float) -> str:
    """A share to a tenth of a percent, as ``words.js`` writes it: ``12.5 %``."""
    return f"{math.floor(1000 * fraction + 0.5) / 10:g} %"


class Figure(NamedTuple):
    """A figure in large type: ``over`` says that less would do."""

    value: str
    term: str
    detail: str
    over: bool


def memory_figures(access: Access) -> list[Figure]:
    """Sectors, useful bytes and lines of an access to memory; passes of one to constant memory."""
    if access.space == "const":
        passes = access.constant_passes
        return [
            Figure(
                number(passes),
                "pass a request" if passes == 1 else "passes a request",
                "at best 1",
                passes > 1,
            )
        ]
    cost = access.memory()
    sectors = "sector a request" if cost.sectors == 1 else "sectors a request"
    lines = f"{'line' if cost.lines == 1 else 'lines'} of {LINE_BYTES} B"
    moved = f"{number(cost.bytes_useful)} of {number(cost.bytes_fetched)} bytes"
    best = min(cost.lines, max(1, -(-cost.bytes_requested // LINE_BYTES)))
    over = cost.sectors > cost.ideal_sectors
    return [
        Figure(number(cost.sectors), sectors, f"at best {number(cost.ideal_sectors)}", over),
        Figure(share(cost.useful), "bytes useful", moved, over and cost.useful < 1),
        Figure(number(cost.lines), lines, f"at best {number(best)}", cost.lines > best),
    ]


def bank_figures(access: Access) -> list[Figure]:
    """Passes over the banks and conflict ways."""
    cost = access.banks()
    ways = f"{number(cost.ways)}-way" if cost.ways > 1 else "no"
    over = cost.wavefronts > cost.ideal_wavefronts
    passes = "pass a request" if cost.wavefronts == 1 else "passes a request"
    return [
        Figure(number(cost.wavefronts), passes, f"at best {number(cost.ideal_wavefronts)}", over),
        Figure(ways, "bank conflict", "words in the busiest bank" if cost.ways > 1 else "", cost.ways > 1),
    ]


def lane_sentences(access: Access, memory: bool, banks: bool) -> list[str]:
    """For each lane what it asks for, where that lies, and with whom it shares it."""
    low = min((place for place in access.addresses if place >= 0), default=0) // LINE_BYTES * LINE_BYTES
    pieces = {piece.lane: piece for piece in access.pieces()}
    said = []
    for lane, place in enumerate(access.addresses):
        if place < 0:
            said.append(f"Lane {lane} takes no part.")
            continue
        first = place - low
        last = first + access.size_bytes - 1
        where = f"byte {first:,}" if first == last else f"bytes {first:,} to {last:,}"
        parts = [f"Lane {lane} asks for {where}"]
        if memory:
            line, sector = first // LINE_BYTES * LINE_BYTES, first % LINE_BYTES // SECTOR_BYTES
            parts.append(f"sector {sector} of line +{line:,}")
        if banks:
            piece = pieces[lane]
            high = piece.bank + piece.banks - 1
            named = f"banks {piece.bank} to {high}" if high > piece.bank else f"bank {high}"
            parts.append(f"{named} in pass {piece.row + 1}")
        others = [other for other in access.lanes if other != lane and access.addresses[other] == place]
        if others:
            lanes = f"lane {others[0]}" if len(others) == 1 else f"{len(others)} other lanes"
            parts.append(f"as {lanes} {'does' if len(others) == 1 else 'do'}")
        said.append(f"{', '.join(parts)}.")
    return said


def notes(access: Access, memory: bool, banks: bool) -> str:
    """What is special about this kind of access."""
    atomic = access.rule in ("atomic", "count", "swap")
    said = [
        (ATOMIC_NOTE, memory and atomic),
        (LOCAL_NOTE, access.space == "local"),
        (CONSTANT_NOTE, access.space == "const"),
        (PARTS_NOTE, banks and access.size_bytes > WORD_BYTES),
        (SWAP_NOTE, banks and access.rule == "swap"),
        (LANES_NOTE, banks and access.rule == "atomic"),
    ]
    return " ".join(text for text, true in said if true)


def expression(pattern: AccessPattern) -> str:
    """The access as CUDA C++ that asks for these elements."""
    element = " + ".join(
        [*(["lane" if pattern.stride == 1 else f"{pattern.stride} * lane"] if pattern.stride else []),
         *([str(pattern.offset)] if pattern.offset or not pattern.stride else [])]
    )  # fmt: skip
    kind = TYPES[pattern.element_bytes]
    if not pattern.padding and not pattern.swizzle:
        return f"{kind} x[];  x[{element}]"
    wide = f"32 + {pattern.padding}" if pattern.padding else "32"
    column = "e % 32 ^ e / 32 % 32" if pattern.swizzle else "e % 32"
    return f"{kind} tile[][{wide}];  e = {element};  tile[e / 32][{column}]"


def costs(access: Access, memory: bool, banks: bool) -> str:
    """What an access costs, as a part of a sentence."""
    said = []
    if memory and access.space == "const":
        said.append(f"{count(access.constant_passes, 'pass', 'passes')} a request (at best 1)")
    elif memory:
        cost = access.memory()
        said.append(
            f"{count(cost.sectors, 'sector')} a request (at best {number(cost.ideal_sectors)}), "
            f"{share(cost.useful)} of the fetched bytes useful, {count(cost.lines, 'line')}"
        )
    if banks:
        spent = access.banks()
        conflict = f"{spent.ways}-way bank conflict" if spent.ways > 1 else "no bank conflict"
        said.append(
            f"{count(spent.wavefronts, 'pass', 'passes')} over the {BANKS} banks "
            f"(at best {number(spent.ideal_wavefronts)}), {conflict}"
        )
    return "; ".join(said)
