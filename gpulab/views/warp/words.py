"""What a warp's steps do, in words."""

from __future__ import annotations

import re
from functools import lru_cache

from gpulab.views._text import count, number
from virtualgpu.records import WarpTrace

SENTENCE = "Step {step} of {steps}, {place}{turn}: {lanes}. {text}.{access}"
EMPTY = "The warp ran no instruction."
LOCAL_NOTE = (
    "Local memory is private to each lane and interleaved, so equal offsets of the lanes lie side by side."
)
WIDE_NOTE = (
    "Accesses wider than 4 bytes a lane are served in parts: a half or a quarter of the warp at a time."
)

# Much is said many times, in all warps of a block.
_kept = lru_cache(4096)
_PREDICATE = re.compile(r"^@!?%?\w+\s+")
_TYPE = re.compile(r"\.([fsu])(?:8|16|32|64)\b")
_SPACE_WORDS = {"const": "constant", "generic": "generic-address"}
_PREPOSITIONS = {"load": "from", "store": "to", "atomic": "in"}
_VERBS = {"load": "loads", "store": "stores", "atomic": "updates atomically"}


@_kept
def bare_text(text: str) -> str:
    """An instruction without its predicate and semicolon."""
    return _PREDICATE.sub("", text.strip().rstrip(";"))


@_kept
def value_type(text: str, declared: str) -> str:
    """The type to read a result as: PTX declares registers by width and types the instruction.

    ``mul.wide.s32`` into a ``.b64`` register gives ``s64``: kind of the instruction, width of the
    register. An instruction without a type (``mov.b32``) leaves the declared one.
    """
    declared = declared.lstrip(".")
    if not declared.startswith("b"):
        return declared
    words = bare_text(text).split()
    typed = _TYPE.search(words[0]) if words else None
    return f"{typed.group(1)}{declared[1:]}" if typed else declared


def lanes_words(active: int, executed: int, threads: int) -> str:
    """How many lanes of a warp an instruction meets, and how many execute it."""
    words = f"{active.bit_count()} of {threads} lanes active"
    return words if executed == active else f"{words}, {executed.bit_count()} of them not predicated off"


@_kept
def access_kind(text: str, is_store: bool) -> str:
    """``load``, ``store`` or ``atomic``."""
    if bare_text(text).startswith(("atom", "red.")):
        return "atomic"
    return "store" if is_store else "load"


@_kept
def access_words(kind: str, space: str, size_bytes: int, spent: int, ideal: int) -> str:
    """A memory access as a sentence; `spent` and `ideal` are passes in shared memory, sectors elsewhere."""
    where = f"{_PREPOSITIONS[kind]} {_SPACE_WORDS.get(space, space)} memory"
    words = f"It {_VERBS[kind]} {count(size_bytes, 'byte')} a lane {where}"
    if space == "shared" and spent:
        return f"{words}: {count(spent, 'pass', 'passes')} over the banks, at best {number(ideal)}."
    if space in ("global", "generic") and spent:
        return f"{words}: {count(spent, 'sector')} of 32 bytes, at best {number(ideal)}."
    return f"{words}."


@_kept
def access_heading(kind: str, space: str, size_bytes: int, lanes: int) -> str:
    """Title of an access's picture."""
    drawn = "Banks" if space == "shared" else "Sectors"
    return f"{drawn}: {space} {kind} · {number(size_bytes)} bytes a lane × {lanes} lanes"


@_kept
def access_verdict(space: str, spent: int, ideal: int) -> str:
    """What an access cost, and what it could have; nothing where that is not known."""
    if not spent or space not in ("shared", "global", "generic"):
        return ""
    unit = count(spent, "pass", "passes") if space == "shared" else count(spent, "sector")
    return (
        f"{unit}, at best {number(ideal)} {f'({number(spent / max(1, ideal))}×)' if spent > ideal else '✓'}"
    )


@_kept
def shared_words(written_bytes: int, size_bytes: int, now_bytes: int) -> str:
    """How much of shared memory is written after a step, and how much the step wrote."""
    so_far = f"{number(written_bytes)} of {number(size_bytes)} bytes written so far"
    return f"Shared memory: {so_far}, {number(now_bytes)} in this step."


def keys(looping: bool, values: bool, several: bool) -> str:
    """Which keys step through a trace with loops, register values and several warps, or without."""
    found = [
        "← → step",
        "↑ ↓ source line",
        "Page Up and Page Down memory access",
        "Home",
        "End",
        "space plays",
    ]
    found += ["i and I iteration", "o out of the loop"] if looping else []
    found += ["comma and full stop lane"] if values else []
    found += ["[ and ] warp"] if several else []
    return f"Keys: {', '.join(found)}."


def confirm(predicted: WarpTrace, measured: WarpTrace) -> str:
    """Say how far a trace of basic blocks, taken on a GPU, agrees with one of instructions.

    A measured step is a basic block, known by the number (`pc`) of its first instruction. The
    prediction's visits of those instructions, with their masks, must be the same. Divergent paths
    may run in either order, so equal visits in another order count as equal and are said to be so.
    """
    blocks = {int(p) for p in measured.pc}
    foretold = [
        (int(p), int(m)) for p, m in zip(predicted.pc, predicted.active_mask, strict=True) if int(p) in blocks
    ]
    seen = [(int(p), int(m)) for p, m in zip(measured.pc, measured.active_mask, strict=True)]
    device = measured.provenance.device
    if measured.truncated or predicted.truncated:
        shorter = min(len(foretold), len(seen))
        foretold, seen = foretold[:shorter], seen[:shorter]
    total = max(len(foretold), len(seen))
    confirmed = f"Masks confirmed by {device}: {number(total)} of {number(total)} basic blocks equal"
    if foretold == seen:
        return f"{confirmed}."
    if sorted(foretold) == sorted(seen):
        return f"{confirmed}, but the hardware ran divergent paths in another order."
    pairs = list(zip(foretold, seen, strict=False))
    equal = sum(a == b for a, b in pairs)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    told = f"mask {foretold[at][1]:#010x}" if at < len(foretold) else "nothing more"
    took = f"mask {seen[at][1]:#010x}" if at < len(seen) else "nothing more"
    line = int(measured.line[min(at, len(seen) - 1)]) if seen else 0
    return (
        f"{device} differs: {number(equal)} of {number(total)} basic blocks equal. First difference at "
        f"block visit {number(at + 1)} (line {line}): predicted {told}, measured {took}."
    )
