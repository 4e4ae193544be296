"""Costs of an access in words and numbers; ``access_text.js`` fills the templates while a slider moves."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import NamedTuple

from gpulab.words import count, filled, number
from virtualgpu.records import SECTOR_BYTES
from virtualgpu.records.access import ATOMIC_RULES, BANKS, WORD_BYTES, Access, AccessPattern
from virtualgpu.records.kernel import LINE_BYTES

# Value, term and detail of each figure, and the count that is above 0 where less would do.
MEMORY_FIGURES = (
    ("{sectors}", "<sectors sector|sectors> a request", "at best {ideal_sectors}", "extra_sectors"),
    ("{useful}", "bytes useful", "{bytes_useful} of {fetched} bytes", "avoidable_bytes"),
    ("{lines}", f"<lines line|lines> of {LINE_BYTES} B", "at best {best_lines}", "extra_lines"),
)
CONSTANT_FIGURES = (("{constant}", "<constant pass|passes> a request", "at best 1", "extra_constant"),)
BANK_FIGURES = (
    ("{wavefronts}", "<wavefronts pass|passes> a request", "at best {ideal_wavefronts}", "extra_passes"),
    ("<calm no|{ways}-way>", "bank conflict", "<calm |words in the busiest bank>", "conflicts"),
)
IDLE = "Lane {lane} takes no part."
ASKS = "Lane {lane} asks for <size byte {first}|bytes {first} to {last}>"
IN_MEMORY = ", sector {sector} of line +{line}"
IN_BANKS = ", <banks bank {bank}|banks {bank} to {last_bank}> in pass {pass}"
SHARED = ", as <others lane {other} does|{others} other lanes do>"
LOCAL_NOTE = "Local memory is each lane's own and interleaved: equal offsets of the lanes lie side by side."
NOTES = (
    ("atomic", "An atomic takes a sector once for each lane that wants the sector's most wanted word."),
    ("local", LOCAL_NOTE),
    ("const", "Constant memory serves one word at a time: each different word of the warp takes a pass."),
    ("parts", "Accesses wider than 4 bytes a lane go in parts: half or a quarter of the warp at a time."),
    ("swap", "Compare-and-swap reads and writes: two wavefronts a pass."),
    ("alone", "An atomic takes a pass for each lane of a bank, also where they want the same word."),
)
TYPES = {1: "char", 2: "short", 4: "float", 8: "double", 16: "float4"}
STRIDE = "<stride lane|{stride} * lane>"
TILE = "{type} tile[][%s];  e = {element};  tile[e / 32][%s]"
EXPRESSIONS = (  # plain, padded, swizzled, both
    "{type} x[];  x[{element}]",
    TILE % ("32 + {padding}", "e % 32"),
    TILE % ("32", "e % 32 ^ e / 32 % 32"),
    TILE % ("32 + {padding}", "e % 32 ^ e / 32 % 32"),
)
PAGE = {
    "memory": MEMORY_FIGURES,
    "constant": CONSTANT_FIGURES,
    "banks": BANK_FIGURES,
    "idle": IDLE,
    "asks": ASKS,
    "in_memory": IN_MEMORY,
    "in_banks": IN_BANKS,
    "shared": SHARED,
    "notes": NOTES,
    "types": TYPES,
    "stride": STRIDE,
    "expressions": EXPRESSIONS,
}
"""Templates that ``access_text.js`` fills."""


def share(fraction: float) -> str:
    """Return a share to a tenth of a percent, as ``access_text.js`` writes it: ``12.5 %``."""
    return f"{math.floor(1000 * fraction + 0.5) / 10:g} %"


class Figure(NamedTuple):
    """A number in large type; ``over`` means that a smaller number is possible."""

    value: str
    term: str
    detail: str
    over: bool


def counts(access: Access) -> dict[str, int | str]:
    """Return all counts and costs of an access."""
    cost = access.memory()
    spent = access.banks()
    constant = access.constant_passes
    best_lines = min(cost.lines, max(1, -(-cost.bytes_requested // LINE_BYTES)))
    extra_sectors = cost.sectors - cost.ideal_sectors
    return (
        asdict(cost)
        | asdict(spent)
        | {
            "useful": share(cost.useful),
            "fetched": cost.bytes_fetched,
            "best_lines": best_lines,
            "constant": constant,
            "extra_constant": constant - 1,
            "extra_sectors": extra_sectors,
            "avoidable_bytes": cost.bytes_fetched - cost.bytes_useful if extra_sectors else 0,
            "extra_lines": cost.lines - best_lines,
            "extra_passes": spent.wavefronts - spent.ideal_wavefronts,
            "conflicts": spent.ways - 1,
            "calm": int(spent.ways < 2),
        }
    )


def _figures(access: Access, rows: tuple[tuple[str, str, str, str], ...]) -> list[Figure]:
    found = counts(access)
    return [
        Figure(filled(value, found), filled(term, found), filled(detail, found), int(found[over]) > 0)
        for value, term, detail, over in rows
    ]


def memory_figures(access: Access) -> list[Figure]:
    """Return sectors, useful bytes and lines of an access to memory, or passes for constant memory."""
    return _figures(access, CONSTANT_FIGURES if access.space == "const" else MEMORY_FIGURES)


def bank_figures(access: Access) -> list[Figure]:
    """Return the passes over the banks and the degree of the conflict."""
    return _figures(access, BANK_FIGURES)


def lane_sentences(access: Access, memory: bool, banks: bool) -> list[str]:
    """Return a sentence for each lane: its address, its position, and the lanes that share it."""
    low = min((place for place in access.addresses if place >= 0), default=0) // LINE_BYTES * LINE_BYTES
    pieces = {piece.lane: piece for piece in access.pieces()}
    said = [filled(IDLE, {"lane": lane}) for lane in range(len(access.addresses))]
    for lane in access.lanes:
        place = access.addresses[lane]
        piece = pieces[lane]
        first = place - low
        others = [o for o in access.lanes if o != lane and access.addresses[o] == place]
        text = ASKS + IN_MEMORY * memory + IN_BANKS * banks + SHARED * bool(others) + "."
        said[lane] = filled(
            text,
            {
                "lane": lane,
                "size": access.size_bytes,
                "first": first,
                "last": first + access.size_bytes - 1,
                "sector": first % LINE_BYTES // SECTOR_BYTES,
                "line": first // LINE_BYTES * LINE_BYTES,
                "banks": piece.banks,
                "bank": piece.bank,
                "last_bank": piece.bank + piece.banks - 1,
                "pass": piece.row + 1,
                "others": len(others),
                "other": others[0] if others else -1,
            },
        )
    return said


def notes(access: Access, memory: bool, banks: bool) -> str:
    """Return a note on this kind of access."""
    there = {
        "atomic": memory and access.rule in ATOMIC_RULES,
        "local": access.space == "local",
        "const": access.space == "const",
        "parts": banks and access.size_bytes > WORD_BYTES,
        "swap": banks and access.rule == "swap",
        "alone": banks and access.rule == "atomic",
    }
    return " ".join(text for name, text in NOTES if there[name])


def expression(pattern: AccessPattern) -> str:
    """Return the access as CUDA C++ that loads these elements."""
    stride = [filled(STRIDE, {"stride": pattern.stride})] if pattern.stride else []
    offset = [str(pattern.offset)] if pattern.offset or not pattern.stride else []
    text = EXPRESSIONS[bool(pattern.padding) + 2 * pattern.swizzle]
    words = {"type": TYPES[pattern.element_bytes], "element": " + ".join(stride + offset)}
    return filled(text, words | {"padding": pattern.padding})


def costs(access: Access, memory: bool, banks: bool) -> str:
    """Return the cost of an access, as a part of a sentence."""
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
