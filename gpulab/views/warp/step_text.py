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

SENTENCE = "Step {step} of {steps}, {place}{turn}: {lanes}.{stop} {text}.{access}"
LINE_SENTENCE = "Step {step} of {steps}, {place}{turn}: {lanes}.{stop}{access}{moved}"
# Of different kinds of access; the view lists all.
MOST_BRIEFS = 3
EMPTY = "The warp ran no instruction."
LOCAL_NOTE = "Local memory is each lane's own and interleaved: equal offsets of the lanes lie side by side."
WIDE_NOTE = "Accesses wider than 4 bytes a lane are served in parts: half or a quarter of the warp at a time."

# Many texts are needed repeatedly, in all warps of a block.
_kept = lru_cache(4096)
_PREDICATE = re.compile(r"^@!?%?\w+\s+")
_TYPE = re.compile(r"\.([fsu])(?:8|16|32|64)\b")
_SPACE_WORDS = {"const": "constant", "generic": "generic-address"}
_VERBS = {"load": ("loads", "from"), "store": ("stores", "to"), "atomic": ("updates atomically", "in")}
_DRAWN = {"shared": "banks", "global": "sectors", "generic": "sectors"}


class Access(NamedTuple):
    """A memory access in words, and how the view draws it."""

    sentence: str
    brief: str
    heading: str
    verdict: str
    note: str
    picture: str
    over: bool
    reads: bool
    size_bytes: int


@_kept
def bare_text(text: str) -> str:
    """An instruction without its predicate and semicolon."""
    return _PREDICATE.sub("", text.strip().rstrip(";"))


@_kept
def value_type(text: str, declared: str) -> str:
    """Return the type of a result: PTX declares registers by width, and instructions have the type.

    ``mul.wide.s32`` into a ``.b64`` register gives ``s64``: kind of the instruction, width of the
    register. An instruction without a type (``mov.b32``) leaves the declared one.
    """
    declared = declared.lstrip(".")
    if not declared.startswith("b"):
        return declared
    words = bare_text(text).split()
    typed = _TYPE.search(words[0]) if words else None
    return f"{typed.group(1)}{declared[1:]}" if typed else declared


@_kept
def lanes_words(active: int, executed: int, threads: int, ran: str = "not predicated off") -> str:
    """Return the number of active lanes in words, and the number that execute the instruction."""
    words = f"{active.bit_count()} of {threads} lanes active"
    return words if executed == active else f"{words}, {executed.bit_count()} of them {ran}"


def place(line: int) -> str:
    """A source line, 0 for none, in words."""
    return f"line {line}" if line else "no source line"


@_kept
def access(
    text: str, space: str, is_store: int, size_bytes: int, spent: int, ideal: int, lanes: int, *, drawn: bool
) -> Access:
    """A memory access; `spent` and `ideal` are passes in shared memory, sectors elsewhere (0: not known)."""
    picture = _DRAWN.get(space, "")
    atomic = bare_text(text).startswith(("atom", "red."))
    kind = "atomic" if atomic else "store" if is_store else "load"
    verb, where = _VERBS[kind]
    says = f"It {verb} {count(size_bytes, 'byte')} a lane {where} {_SPACE_WORDS.get(space, space)} memory"
    unit = count(spent, "pass", "passes") if space == "shared" else count(spent, "sector")
    verdict = ""
    if picture and spent:
        says += (
            f": {unit} {'over the banks' if space == 'shared' else 'of 32 bytes'}, at best {number(ideal)}"
        )
        over = f"({number(spent / max(1, ideal))}×)" if spent > ideal else "✓"
        verdict = f"{unit}, at best {number(ideal)} {over}"
    note = LOCAL_NOTE if space == "local" else WIDE_NOTE if space == "shared" and size_bytes > 4 else ""
    title = "Banks" if space == "shared" else "Sectors"
    heading = f"{title}: {space} {kind} · {count(size_bytes, 'byte')} a lane × {count(lanes, 'lane')}"
    reads = space == "shared" and kind != "store"
    shown = picture if drawn else ""
    costs = verdict.removesuffix(" ✓") or f"{count(size_bytes, 'byte')} a lane"
    brief = f"{space} {kind}: {costs}"
    return Access(
        f"{says}.",
        f"{brief[0].upper()}{brief[1:]}",
        heading,
        verdict,
        note,
        shown,
        spent > ideal,
        reads,
        size_bytes,
    )


@_kept
def shared_words(written_bytes: int, size_bytes: int) -> str:
    """Return in words how much of shared memory has been written after a step."""
    return f"Shared memory: {number(written_bytes)} of {number(size_bytes)} bytes written so far."


def briefly(accesses: Iterable[str]) -> str:
    """Return the memory accesses of a line, equal ones together."""
    alike = Counter(accesses)
    said = [f"{number(times)} × {brief}" if times > 1 else brief for brief, times in alike.items()]
    more = ["…"] if len(said) > MOST_BRIEFS else []
    return "".join(f" {text}." for text in said[:MOST_BRIEFS]) + "".join(f" {text}" for text in more)


@_kept
def moved_words(lines: tuple[int, ...]) -> str:
    """Return the lines whose instructions run within a visit of another line."""
    named = listing([number(line) for line in lines])
    return f" Part of {noun(len(lines), 'line')} {named} runs here: moved by the compiler." if lines else ""


def lanes_named(mask: int) -> str:
    """Return the lanes of a mask, neighbours together: ``lanes 0 to 3 and 8``."""
    lanes = [lane for lane in range(WARP_SIZE) if mask >> lane & 1]
    runs = [lane for lane in lanes if lane - 1 not in lanes]
    ends = [lane for lane in lanes if lane + 1 not in lanes]
    named = [f"{a} to {b}" if b > a else str(a) for a, b in zip(runs, ends, strict=True)]
    more = (
        [*named[:MOST_BRIEFS], f"{len(named) - MOST_BRIEFS} more"] if len(named) > MOST_BRIEFS + 1 else named
    )
    return f"{noun(len(lanes), 'lane')} {listing(more)}"


@_kept
def stop_words(text: str, kind: str, mask: int, at: int, of: int) -> str:
    """Return the reason why a step stops, and its number among the stops of its kind."""
    why = {
        "line": "",
        "write": f" by {lanes_named(mask)}",
        "any": f": true in {lanes_named(mask)}",
        "all": ": true in all lanes that have values",
    }[kind]
    return f"Stop {number(at)} of {number(of)}, {text}{why}."


def some(words: list[str]) -> str:
    """Return a few sentences, each after a space, and a sign if there are more."""
    return "".join(f" {each}" for each in words[:MOST_BRIEFS]) + (" …" if len(words) > MOST_BRIEFS else "")


def stops_note(text: str, note: str, times: int, first: str) -> str:
    """Return a note: how often a block's warps stop for one reason, and where first."""
    if not times:
        return f"Stop at {text}: never{f' ({note})' if note else ''}."
    return f"Stop at {text}: {count(times, 'time')}, first at {first}."


def watched_words(trace: WarpTrace, step: int, lane: int) -> list[str]:
    """The watch expressions of a lane after a step, one sentence each."""
    values = []
    for each in trace.watched:
        row = int(np.searchsorted(each.step, step, side="right")) - 1
        if row >= 0 and each.known[row] >> lane & 1:
            words = read_bits(int(each.value[row, lane]), each.kind)
        else:
            outside = row >= 0 and each.outside[row] >> lane & 1
            words = each.note if outside or row < 0 else "not known here"
        values.append(f"{each.text} in lane {lane}: {words}")
    return values


def read_bits(bits: int, kind: str) -> str:
    """Return the number that bits represent."""
    if kind == "pred":
        return "true" if bits & 1 else "false"
    letter = {"s": "i", "u": "u", "f": "f"}[kind[0]]
    size = int(kind[1:]) // 8
    value = np.array([bits & ((1 << 8 * size) - 1)], f"u{size}").view(f"{letter}{size}")[0]
    return f"{value:.9g}" if letter == "f" else str(value)


def keys(looping: bool, values: bool, several: bool, stopping: bool = False) -> str:
    """Return the keys that step through a trace; they depend on loops, values, warps and stops."""
    text = "Keys: ← → step, ↑ ↓ source line, Page Up and Page Down memory access, Home, End, space plays"
    text += ", i and I iteration, o out of the loop" if looping else ""
    text += ", s and S next and previous stop" if stopping else ""
    return f"{text}{', comma and full stop lane' if values else ''}{', [ and ] warp' if several else ''}."


def confirm(predicted: WarpTrace, measured: WarpTrace) -> str:
    """Return a sentence on how far a trace of basic blocks from a GPU agrees with one of instructions.

    A measured step is a basic block, known by the number (`pc`) of its first instruction. The
    prediction's visits of those instructions, with their masks, must be the same. Divergent paths
    may run in either order, so equal visits in another order count as equal and are said to be so.
    """
    known = np.isin(predicted.pc, measured.pc)
    told = list(zip(predicted.pc[known].tolist(), predicted.active_mask[known].tolist(), strict=True))
    seen = list(zip(measured.pc.tolist(), measured.active_mask.tolist(), strict=True))
    if measured.truncated or predicted.truncated:
        shorter = min(len(told), len(seen))
        told = told[:shorter]
        seen = seen[:shorter]
    device = measured.provenance.device
    total = number(max(len(told), len(seen)))
    confirmed = f"Masks confirmed by {device}: {total} of {total} basic blocks equal"
    if told == seen:
        return f"{confirmed}."
    if sorted(told) == sorted(seen):
        return f"{confirmed}, but the hardware ran divergent paths in another order."
    same = [a == b for a, b in zip(told, seen, strict=False)]
    at = same.index(False) if False in same else len(same)
    masks = [f"mask {rows[at][1]:#010x}" if at < len(rows) else "nothing more" for rows in (told, seen)]
    line = int(measured.line[min(at, len(seen) - 1)]) if seen else 0
    return (
        f"{device} differs: {number(sum(same))} of {total} basic blocks equal. First difference at "
        f"block visit {number(at + 1)} (line {line}): predicted {masks[0]}, measured {masks[1]}."
    )
