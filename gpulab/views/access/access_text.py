"""The cost of an access as sentences and numbers.

``access_text.js`` fills the same templates while a slider moves.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import NamedTuple

from gpulab.words import count, fill_template, number
from virtualgpu.records import SECTOR_BYTES
from virtualgpu.records.access import ATOMIC_RULES, BANKS, WORD_BYTES, Access, AccessPattern
from virtualgpu.records.kernel import LINE_BYTES

# Value, term and detail of each figure, and the name of the count that is above 0 if less is possible.
MEMORY_FIGURES = (
    ("{sectors}", "<sectors sector|sectors> per request", "at best {ideal_sectors}", "extra_sectors"),
    ("{useful}", "bytes useful", "{bytes_useful} of {fetched} bytes", "avoidable_bytes"),
    ("{lines}", f"<lines line|lines> of {LINE_BYTES} B", "at best {best_lines}", "extra_lines"),
)
CONSTANT_FIGURES = (("{constant}", "<constant pass|passes> per request", "at best 1", "extra_constant"),)
BANK_FIGURES = (
    ("{wavefronts}", "<wavefronts pass|passes> per request", "at best {ideal_wavefronts}", "extra_passes"),
    ("<calm no|{ways}-way>", "bank conflict", "<calm |words in the busiest bank>", "conflicts"),
)
IDLE_TEXT = "Lane {lane} is inactive."
ACCESS_TEXT = "Lane {lane} accesses <size byte {first}|bytes {first} to {last}>"
SECTOR_TEXT = ", sector {sector} of line +{line}"
BANK_TEXT = ", <banks bank {bank}|banks {bank} to {last_bank}> in pass {pass}"
SHARED_TEXT = ", as <others lane {other} does|{others} other lanes do>"
LOCAL_NOTE = "Each lane has its own local memory. It is interleaved: equal offsets of the lanes are adjacent."
NOTES = (
    ("atomic", "An atomic operation accesses a sector once per lane that uses the sector's most used word."),
    ("local", LOCAL_NOTE),
    ("const", "Constant memory returns one word at a time: each different word takes a pass."),
    ("parts", "Accesses wider than 4 bytes per lane are split into halves or quarters of the warp."),
    ("swap", "Compare-and-swap reads and writes: two wavefronts per pass."),
    ("alone", "An atomic operation takes one pass per lane of a bank, even if the lanes use the same word."),
)
TYPE_NAMES = {1: "char", 2: "short", 4: "float", 8: "double", 16: "float4"}
STRIDE_TEXT = "<stride lane|{stride} * lane>"
TILE_TEXT = "{type} tile[][%s];  e = {element};  tile[e / 32][%s]"
EXPRESSIONS = (  # plain, padded, swizzled, both
    "{type} x[];  x[{element}]",
    TILE_TEXT % ("32 + {padding}", "e % 32"),
    TILE_TEXT % ("32", "e % 32 ^ e / 32 % 32"),
    TILE_TEXT % ("32 + {padding}", "e % 32 ^ e / 32 % 32"),
)
PAGE_TEXTS = {
    "memory": MEMORY_FIGURES,
    "constant": CONSTANT_FIGURES,
    "banks": BANK_FIGURES,
    "idle": IDLE_TEXT,
    "asks": ACCESS_TEXT,
    "in_memory": SECTOR_TEXT,
    "in_banks": BANK_TEXT,
    "shared": SHARED_TEXT,
    "notes": NOTES,
    "types": TYPE_NAMES,
    "stride": STRIDE_TEXT,
    "expressions": EXPRESSIONS,
}
"""Templates that ``access_text.js`` fills."""


def format_share(fraction: float) -> str:
    """Return a fraction as a percentage with one decimal, such as ``12.5 %``. The file ``access_text.js``
    contains the same function.
    """
    return f"{math.floor(1000 * fraction + 0.5) / 10:g} %"


class CostFigure(NamedTuple):
    """A number that is shown in large type. The attribute ``is_excessive`` is true if a smaller number is
    possible.
    """

    value: str
    term: str
    detail: str
    is_excessive: bool


def count_costs(access: Access) -> dict[str, int | str]:
    """Return a dictionary of all counts and costs of a memory access."""
    memory_cost = access.memory()
    bank_cost = access.banks()
    constant_passes = access.constant_passes
    best_lines = min(memory_cost.lines, max(1, -(-memory_cost.bytes_requested // LINE_BYTES)))
    extra_sectors = memory_cost.sectors - memory_cost.ideal_sectors
    return (
        asdict(memory_cost)
        | asdict(bank_cost)
        | {
            "useful": format_share(memory_cost.useful),
            "fetched": memory_cost.bytes_fetched,
            "best_lines": best_lines,
            "constant": constant_passes,
            "extra_constant": constant_passes - 1,
            "extra_sectors": extra_sectors,
            "avoidable_bytes": memory_cost.bytes_fetched - memory_cost.bytes_useful if extra_sectors else 0,
            "extra_lines": memory_cost.lines - best_lines,
            "extra_passes": bank_cost.wavefronts - bank_cost.ideal_wavefronts,
            "conflicts": bank_cost.ways - 1,
            "calm": int(bank_cost.ways < 2),
        }
    )


def _make_figures(access: Access, rows: tuple[tuple[str, str, str, str], ...]) -> list[CostFigure]:
    costs_by_name = count_costs(access)
    return [
        CostFigure(
            fill_template(value, costs_by_name),
            fill_template(term, costs_by_name),
            fill_template(detail, costs_by_name),
            int(costs_by_name[excess_name]) > 0,
        )
        for value, term, detail, excess_name in rows
    ]


def make_memory_figures(access: Access) -> list[CostFigure]:
    """Return the numbers to display for a memory access, such as its sectors."""
    return _make_figures(access, CONSTANT_FIGURES if access.space == "const" else MEMORY_FIGURES)


def make_bank_figures(access: Access) -> list[CostFigure]:
    """Return the numbers to display for a shared-memory access, such as its bank conflict."""
    return _make_figures(access, BANK_FIGURES)


def make_lane_sentences(access: Access, shows_memory: bool, shows_banks: bool) -> list[str]:
    """Return a sentence for each lane with its bytes, their address, and the lanes that access the same
    bytes.
    """
    first_address = (
        min((address for address in access.addresses if address >= 0), default=0) // LINE_BYTES * LINE_BYTES
    )
    piece_of_lane = {lane_piece.lane: lane_piece for lane_piece in access.pieces()}
    sentences = [fill_template(IDLE_TEXT, {"lane": lane}) for lane in range(len(access.addresses))]
    for lane in access.lanes:
        address = access.addresses[lane]
        lane_piece = piece_of_lane[lane]
        offset_bytes = address - first_address
        sharing_lanes = [
            other_lane
            for other_lane in access.lanes
            if other_lane != lane and access.addresses[other_lane] == address
        ]
        sentence_template = (
            ACCESS_TEXT
            + SECTOR_TEXT * shows_memory
            + BANK_TEXT * shows_banks
            + SHARED_TEXT * bool(sharing_lanes)
            + "."
        )
        sentences[lane] = fill_template(
            sentence_template,
            {
                "lane": lane,
                "size": access.size_bytes,
                "first": offset_bytes,
                "last": offset_bytes + access.size_bytes - 1,
                "sector": offset_bytes % LINE_BYTES // SECTOR_BYTES,
                "line": offset_bytes // LINE_BYTES * LINE_BYTES,
                "banks": lane_piece.banks,
                "bank": lane_piece.bank,
                "last_bank": lane_piece.bank + lane_piece.banks - 1,
                "pass": lane_piece.row + 1,
                "others": len(sharing_lanes),
                "other": sharing_lanes[0] if sharing_lanes else -1,
            },
        )
    return sentences


def explain_rules(access: Access, shows_memory: bool, shows_banks: bool) -> str:
    """Return sentences that explain the hardware rules for this kind of memory access."""
    applies_by_note = {
        "atomic": shows_memory and access.rule in ATOMIC_RULES,
        "local": access.space == "local",
        "const": access.space == "const",
        "parts": shows_banks and access.size_bytes > WORD_BYTES,
        "swap": shows_banks and access.rule == "swap",
        "alone": shows_banks and access.rule == "atomic",
    }
    return " ".join(sentence_template for name, sentence_template in NOTES if applies_by_note[name])


def make_expression(pattern: AccessPattern) -> str:
    """Return CUDA C++ code that loads the elements of an access pattern."""
    stride_terms = [fill_template(STRIDE_TEXT, {"stride": pattern.stride})] if pattern.stride else []
    offset_terms = [str(pattern.offset)] if pattern.offset or not pattern.stride else []
    sentence_template = EXPRESSIONS[bool(pattern.padding) + 2 * pattern.swizzle]
    template_values = {
        "type": TYPE_NAMES[pattern.element_bytes],
        "element": " + ".join(stride_terms + offset_terms),
    }
    return fill_template(sentence_template, template_values | {"padding": pattern.padding})


def describe_costs(access: Access, shows_memory: bool, shows_banks: bool) -> str:
    """Return a phrase with the cost of a memory access, such as its sectors per request."""
    cost_texts = []
    if shows_memory and access.space == "const":
        cost_texts.append(f"{count(access.constant_passes, 'pass', 'passes')} per request (at best 1)")
    elif shows_memory:
        memory_cost = access.memory()
        cost_texts.append(
            f"{count(memory_cost.sectors, 'sector')} per request "
            f"(at best {number(memory_cost.ideal_sectors)}), "
            f"{format_share(memory_cost.useful)} of the fetched bytes useful, "
            f"{count(memory_cost.lines, 'line')}"
        )
    if shows_banks:
        bank_cost = access.banks()
        conflict_text = f"{bank_cost.ways}-way bank conflict" if bank_cost.ways > 1 else "no bank conflict"
        cost_texts.append(
            f"{count(bank_cost.wavefronts, 'pass', 'passes')} over the {BANKS} banks "
            f"(at best {number(bank_cost.ideal_wavefronts)}), {conflict_text}"
        )
    return "; ".join(cost_texts)
