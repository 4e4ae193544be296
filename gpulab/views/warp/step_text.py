"""Sentences that describe the steps of a warp."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpulab.words import count, listing, noun, number
from virtualgpu.records import WARP_SIZE, WarpTrace

STEP_SENTENCE = "Step {step} of {steps}, {place}{turn}: {lanes}.{stop} {text}.{access}"
LINE_VISIT_SENTENCE = "Step {step} of {steps}, {place}{turn}: {lanes}.{stop}{access}{moved}"
# Number of kinds of access in a sentence; the view lists all.
MAX_LISTED_TEXTS = 3
NO_STEPS_SENTENCE = "The warp executed no instruction."
OPTIMIZED_OUT = "optimized out; compile with -G to keep it"
OPTIMIZED_OUT_HELP = (
    "The compiler does not keep this variable in a register of its own. To keep all variables, compile with "
    '-G: cp.RawKernel(code, name, options=("-G",)).'
)
LOCAL_MEMORY_NOTE = (
    "Each lane has its own local memory. It is interleaved: equal offsets of the lanes are adjacent."
)
WIDE_ACCESS_NOTE = "Accesses wider than 4 bytes per lane are split into halves or quarters of the warp."

# Cache of texts, because all warps of a block need the same ones.
_cached = lru_cache(4096)
_PREDICATE_PATTERN = re.compile(r"^@!?%?\w+\s+")
_TYPE_PATTERN = re.compile(r"\.([fsu])(?:8|16|32|64)\b")
_WORD_OF_SPACE = {"const": "constant", "generic": "generic-address"}
_VERB_AND_PREPOSITION = {
    "load": ("loads", "from"),
    "store": ("stores", "to"),
    "atomic": ("updates atomically", "in"),
}
_PICTURE_KIND_OF_SPACE = {"shared": "banks", "global": "sectors", "generic": "sectors"}


class AccessText(NamedTuple):
    """A memory access of a warp, described by sentences and a picture for the view. ``brief`` is the access
    with its cost in a few words, ``verdict`` compares the cost with the ideal cost, ``over`` is true if the
    cost is higher, and ``reads`` is true if the access reads shared memory.
    """

    sentence: str
    brief: str
    heading: str
    verdict: str
    note: str
    picture: str
    over: bool
    reads: bool
    size_bytes: int


@_cached
def strip_predicate(text: str) -> str:
    """Return the text of an instruction without its predicate and semicolon."""
    return _PREDICATE_PATTERN.sub("", text.strip().rstrip(";"))


@_cached
def find_value_type(text: str, declared_type: str) -> str:
    """Return the type of an instruction's result, such as ``s64``.

    PTX declares registers by width only, so the kind of type comes from the instruction: ``mul.wide.s32``
    into a ``.b64`` register has the type ``s64``. An instruction without a type (``mov.b32``) keeps the
    declared one.
    """
    declared_type = declared_type.lstrip(".")
    if not declared_type.startswith("b"):
        return declared_type
    text_parts = strip_predicate(text).split()
    match = _TYPE_PATTERN.search(text_parts[0]) if text_parts else None
    return f"{match.group(1)}{declared_type[1:]}" if match else declared_type


@_cached
def make_lanes_text(
    active_mask: int, executed_mask: int, thread_count: int, executed_text: str = "not predicated off"
) -> str:
    """Return a text with the number of active lanes, and the number of lanes that execute the instruction."""
    active_text = f"{active_mask.bit_count()} of {thread_count} lanes active"
    return (
        active_text
        if executed_mask == active_mask
        else f"{active_text}, {executed_mask.bit_count()} of them {executed_text}"
    )


def make_place_text(line: int) -> str:
    """Return a source line number as text, such as ``line 3``. Line 0 means that there is no source line."""
    return f"line {line}" if line else "no source line"


@_cached
def describe_access(
    text: str,
    space: str,
    is_store: int,
    size_bytes: int,
    cost: int,
    ideal_cost: int,
    lanes: int,
    *,
    has_addresses: bool,
) -> AccessText:
    """Return the sentences and the picture that describe a memory access in the view of a warp.

    The parameters `cost` and `ideal_cost` count passes for shared memory, and sectors for other memory. The
    value 0 means that the cost is not known.
    """
    picture_kind = _PICTURE_KIND_OF_SPACE.get(space, "")
    is_atomic = strip_predicate(text).startswith(("atom", "red."))
    access_kind = "atomic" if is_atomic else "store" if is_store else "load"
    verb, preposition = _VERB_AND_PREPOSITION[access_kind]
    space_word = _WORD_OF_SPACE.get(space, space)
    sentence = f"It {verb} {count(size_bytes, 'byte')} per lane {preposition} {space_word} memory"
    cost_text = count(cost, "pass", "passes") if space == "shared" else count(cost, "sector")
    cost_verdict = ""
    if picture_kind and cost:
        unit_text = "over the banks" if space == "shared" else "of 32 bytes"
        sentence += f": {cost_text} {unit_text}, at best {number(ideal_cost)}"
        excess_text = f"({number(cost / max(1, ideal_cost))}×)" if cost > ideal_cost else "✓"
        cost_verdict = f"{cost_text}, at best {number(ideal_cost)} {excess_text}"
    access_note = ""
    if space == "local":
        access_note = LOCAL_MEMORY_NOTE
    elif space == "shared" and size_bytes > 4:
        access_note = WIDE_ACCESS_NOTE
    unit_title = "Banks" if space == "shared" else "Sectors"
    heading = (
        f"{unit_title}: {space} {access_kind} · {count(size_bytes, 'byte')} per lane × {count(lanes, 'lane')}"
    )
    is_read = space == "shared" and access_kind != "store"
    drawn_picture_kind = picture_kind if has_addresses else ""
    brief_text = cost_verdict.removesuffix(" ✓") or f"{count(size_bytes, 'byte')} per lane"
    brief = f"{space} {access_kind}: {brief_text}"
    return AccessText(
        f"{sentence}.",
        f"{brief[0].upper()}{brief[1:]}",
        heading,
        cost_verdict,
        access_note,
        drawn_picture_kind,
        cost > ideal_cost,
        is_read,
        size_bytes,
    )


@_cached
def make_shared_bytes_text(written_bytes: int, size_bytes: int) -> str:
    """Return a text with the number of bytes of shared memory that have been written so far."""
    return f"Shared memory: {number(written_bytes)} of {number(size_bytes)} bytes written so far."


def summarize_accesses(accesses: Iterable[str]) -> str:
    """Return a short text that lists the memory accesses of a source line. Equal accesses are combined."""
    brief_counts = Counter(accesses)
    brief_texts = [
        f"{number(access_count)} × {brief}" if access_count > 1 else brief
        for brief, access_count in brief_counts.items()
    ]
    ellipsis = ["…"] if len(brief_texts) > MAX_LISTED_TEXTS else []
    return "".join(f" {text}." for text in brief_texts[:MAX_LISTED_TEXTS]) + "".join(
        f" {text}" for text in ellipsis
    )


@_cached
def make_moved_sentence(lines: tuple[int, ...]) -> str:
    """Return a sentence about source lines whose instructions the compiler moved to the current position."""
    line_list = listing([number(line) for line in lines])
    return (
        f" Part of {noun(len(lines), 'line')} {line_list} runs here: the compiler moved it." if lines else ""
    )


def list_lanes(mask: int) -> str:
    """Return the lanes of a mask as text with ranges, such as ``lanes 0 to 3 and 8``."""
    lanes = [lane for lane in range(WARP_SIZE) if mask >> lane & 1]
    first_lanes = [lane for lane in lanes if lane - 1 not in lanes]
    last_lanes = [lane for lane in lanes if lane + 1 not in lanes]
    range_texts = [
        f"{first_lane} to {last_lane}" if last_lane > first_lane else str(first_lane)
        for first_lane, last_lane in zip(first_lanes, last_lanes, strict=True)
    ]
    range_list = (
        [*range_texts[:MAX_LISTED_TEXTS], f"{len(range_texts) - MAX_LISTED_TEXTS} more"]
        if len(range_texts) > MAX_LISTED_TEXTS + 1
        else range_texts
    )
    return f"{noun(len(lanes), 'lane')} {listing(range_list)}"


@_cached
def make_stop_text(text: str, kind: str, mask: int, stop_number: int, stop_count: int) -> str:
    """Return a sentence with the number of a stop, its stop condition, and the reason for the stop."""
    reason_text = {
        "line": "",
        "write": f" by {list_lanes(mask)}",
        "any": f": true in {list_lanes(mask)}",
        "all": ": true in all lanes that have values",
    }[kind]
    return f"Stop {number(stop_number)} of {number(stop_count)}, {text}{reason_text}."


def join_first_sentences(sentences: list[str]) -> str:
    """Return the first few sentences as one text, with a space before each sentence. An ellipsis follows if
    there are more sentences.
    """
    return "".join(f" {sentence}" for sentence in sentences[:MAX_LISTED_TEXTS]) + (
        " …" if len(sentences) > MAX_LISTED_TEXTS else ""
    )


def make_stops_sentence(text: str, note: str, stop_count: int, first_stop_text: str) -> str:
    """Return a sentence that states how often a warp stops at a stop condition, and where it stops first."""
    if not stop_count:
        return f"Stop at {text}: never{f' ({note})' if note else ''}."
    return f"Stop at {text}: {count(stop_count, 'time')}, first at {first_stop_text}."


def list_watch_sentences(trace: WarpTrace, step: int, lane: int) -> list[str]:
    """Return a sentence for each watch expression with its value in a lane after a step."""
    watch_sentences = []
    for watch in trace.watched:
        watch_row = int(np.searchsorted(watch.step, step, side="right")) - 1
        if watch_row >= 0 and watch.known[watch_row] >> lane & 1:
            value_text = format_bits(int(watch.value[watch_row, lane]), watch.kind)
        else:
            is_outside = watch_row >= 0 and watch.outside[watch_row] >> lane & 1
            value_text = watch.note if is_outside or watch_row < 0 else "not known here"
        watch_sentences.append(f"{watch.text} in lane {lane}: {value_text}")
    return watch_sentences


def make_optimized_out_text(trace: WarpTrace, line: int) -> str:
    """Return a sentence about variables of a source line that the compiler has optimized out, or an empty
    string.
    """
    variable_names = dict.fromkeys(
        variable.name
        for variable in trace.variables
        if not variable.written_by and variable.first_line <= line <= variable.last_line
    )
    pronoun = noun(len(variable_names), "it", "them")
    return (
        f'Optimized out: {listing(list(variable_names))}. Compile with options=("-G",) to keep {pronoun}.'
        if variable_names
        else ""
    )


def format_bits(bits: int, kind: str) -> str:
    """Format the number that a bit pattern represents in the given type."""
    if kind == "pred":
        return "true" if bits & 1 else "false"
    dtype_letter = {"s": "i", "u": "u", "f": "f"}[kind[0]]
    size_bytes = int(kind[1:]) // 8
    number_value = np.array([bits & ((1 << 8 * size_bytes) - 1)], f"u{size_bytes}").view(
        f"{dtype_letter}{size_bytes}"
    )[0]
    return f"{number_value:.9g}" if dtype_letter == "f" else str(number_value)


def describe_keys(has_loops: bool, has_values: bool, has_many_warps: bool, has_stops: bool = False) -> str:
    """Return a sentence that explains the keyboard shortcuts of the warp view for the given trace."""
    keys_text = "Keys: ← → step, ↑ ↓ source line, Page Up and Page Down memory access, Home, End, space plays"
    keys_text += ", i and I iteration, o out of the loop" if has_loops else ""
    keys_text += ", s and S next and previous stop" if has_stops else ""
    keys_text += ", comma and full stop lane" if has_values else ""
    keys_text += ", [ and ] warp" if has_many_warps else ""
    return f"{keys_text}."


def compare_masks(predicted: WarpTrace, measured: WarpTrace) -> str:
    """Return a sentence that compares the trace that was measured on a real GPU with a predicted trace.

    Each measured step is one basic block, which is identified by the number (`pc`) of its first instruction.
    The predicted visits of those instructions, with their masks, must be the same. Divergent paths may run in
    either order, so equal visits in another order count as equal, and the sentence mentions that.
    """
    is_comparable = np.isin(predicted.pc, measured.pc)
    predicted_visits = list(
        zip(predicted.pc[is_comparable].tolist(), predicted.active_mask[is_comparable].tolist(), strict=True)
    )
    measured_visits = list(zip(measured.pc.tolist(), measured.active_mask.tolist(), strict=True))
    if measured.truncated or predicted.truncated:
        common_length = min(len(predicted_visits), len(measured_visits))
        predicted_visits = predicted_visits[:common_length]
        measured_visits = measured_visits[:common_length]
    device = measured.provenance.device
    total_text = number(max(len(predicted_visits), len(measured_visits)))
    confirmed_text = f"Masks confirmed by {device}: {total_text} of {total_text} basic blocks equal"
    if predicted_visits == measured_visits:
        return f"{confirmed_text}."
    if sorted(predicted_visits) == sorted(measured_visits):
        return f"{confirmed_text}, but the hardware ran divergent paths in another order."
    visit_matches = [
        predicted_visit == measured_visit
        for predicted_visit, measured_visit in zip(predicted_visits, measured_visits, strict=False)
    ]
    first_difference = visit_matches.index(False) if False in visit_matches else len(visit_matches)
    mask_texts = [
        f"mask {visits[first_difference][1]:#010x}" if first_difference < len(visits) else "nothing more"
        for visits in (predicted_visits, measured_visits)
    ]
    line = int(measured.line[min(first_difference, len(measured_visits) - 1)]) if measured_visits else 0
    return (
        f"{device} differs: {number(sum(visit_matches))} of {total_text} basic blocks equal. "
        f"First difference at block visit {number(first_difference + 1)} (line {line}): "
        f"predicted {mask_texts[0]}, measured {mask_texts[1]}."
    )
