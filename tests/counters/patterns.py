"""Single accesses of a single warp with an address for each lane, to which the rules are fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.counters.cases import words

MASKS = """
55555555 AAAAAAAA 66666666 33333333 CCCCCCCC 0F0F0F0F 55553333 33335555 11111111 00005555 3333FFFF
FFFF5555 55FF55FF 00330033 80000000 00010100
"""
FILE = "patterns.cu"
ALL = 0xFFFFFFFF
# Places lie below this, in units of the access; kernels keep results from 1024 on.
ROOM = 512
SHARED_BYTES = 16 * ROOM


@dataclass(frozen=True, slots=True)
class Pattern:
    """The unit that each lane accesses, and the lanes that take part."""

    name: str
    places: tuple[int, ...]
    mask: int = ALL


def _random(seed: int, count: int, limit: int = ROOM) -> tuple[int, ...]:
    return tuple(int(v) for v in words(seed, count) % np.uint32(limit))


def _patterns() -> tuple[Pattern, ...]:
    lanes = range(32)
    patterns = [
        Pattern(f"stride {s}", tuple(lane * s % ROOM for lane in lanes))
        for s in (1, 2, 3, 4, 5, 6, 8, 9, 16, 17, 32, 33)
    ]
    patterns += [
        Pattern("all the same", (5,) * 32),
        Pattern("shifted by one", tuple(lane + 1 for lane in lanes)),
        Pattern("shifted by three", tuple(lane + 3 for lane in lanes)),
        Pattern("reversed", tuple(31 - lane for lane in lanes)),
        Pattern("in pairs", tuple(lane // 2 for lane in lanes)),
        Pattern("in fours", tuple(lane // 4 for lane in lanes)),
        Pattern("in eights", tuple(lane // 8 for lane in lanes)),
        Pattern("in halves", tuple(lane // 16 for lane in lanes)),
        Pattern("halves alike", tuple(lane % 16 for lane in lanes)),
        Pattern("quarters alike", tuple(lane % 8 for lane in lanes)),
        Pattern("eighths alike", tuple(lane % 4 for lane in lanes)),
        Pattern("even and odd alike", tuple(lane % 2 for lane in lanes)),
        Pattern("first and last half swapped", tuple(lane ^ 16 for lane in lanes)),
        Pattern("halves interleaved", tuple(lane % 16 * 2 + lane // 16 for lane in lanes)),
        Pattern("quarters interleaved", tuple(lane % 8 * 4 + lane // 8 for lane in lanes)),
        Pattern("halves a row apart", tuple(lane % 16 + 32 * (lane // 16) for lane in lanes)),
        Pattern("pairs a row apart", tuple(lane // 2 + 32 * (lane % 2) for lane in lanes)),
        Pattern(
            "second half scattered", tuple(lane if lane < 16 else 32 * (lane - 15) % ROOM for lane in lanes)
        ),
        Pattern("a column of eight", tuple(lane % 8 * 32 + lane // 8 for lane in lanes)),
        Pattern("a column of sixteen", tuple(lane % 16 * 16 + lane // 16 for lane in lanes)),
    ]
    for name, mask in (
        ("lane 0", 1),
        ("lane 31", 1 << 31),
        ("first 3", 7),
        ("first 8", 0xFF),
        ("first 16", 0xFFFF),
        ("last 16", 0xFFFF0000),
        ("last 8", 0xFF000000),
        ("even lanes", 0x55555555),
        ("odd lanes", 0xAAAAAAAA),
        ("every fourth", 0x11111111),
        ("middle", 0x00FFFF00),
        ("first and last", 0x80000001),
        ("some", 0x9D2C5680),
    ):
        patterns.append(Pattern(f"{name}, stride 1", tuple(lanes), mask))
        if mask.bit_count() == 16:
            patterns.append(Pattern(f"{name}, stride 4", tuple(lane * 4 for lane in lanes), mask))
    patterns += [Pattern(f"random {k}", _random(100 + k, 32)) for k in range(8)]
    patterns += [Pattern(f"one of {count}", _random(200 + count, 32, count)) for count in (2, 5, 9, 20, 40)]
    patterns += [
        Pattern(f"random under mask {k}", _random(300 + k, 32), int(words(400 + k, 1)[0])) for k in range(5)
    ]
    patterns += [
        Pattern(f"one of {count} under mask", _random(500 + count, 32, count), int(words(600 + count, 1)[0]))
        for count in (2, 8, 24)
    ]
    return tuple(patterns)


def _merging() -> tuple[Pattern, ...]:
    """Return patterns in which neighbours agree or not, which decides how wide loads are split."""
    lanes = range(32)
    pairs = [lane // 2 for lane in lanes]
    second = [lane % 2 + lane // 4 * 2 for lane in lanes]
    fourth = [lane % 4 + lane // 8 * 4 for lane in lanes]
    scattered = _random(700, 32)
    halves = (range(16), range(16, 32))
    quarters = [range(8 * q, 8 * q + 8) for q in range(4)]

    def mixed(*parts: tuple[range, list[int]]) -> tuple[int, ...]:
        chosen = {lane: places[lane] for part, places in parts for lane in part}
        return tuple(chosen[lane] for lane in lanes)

    plain = list(lanes)
    patterns = [
        Pattern("second neighbours alike", tuple(second)),
        Pattern("fourth neighbours alike", tuple(fourth)),
        Pattern("first half in pairs", mixed((halves[0], pairs), (halves[1], plain))),
        Pattern("last half in pairs", mixed((halves[0], plain), (halves[1], pairs))),
        Pattern("pairs, then second neighbours", mixed((halves[0], pairs), (halves[1], second))),
        Pattern("second neighbours, then pairs", mixed((halves[0], second), (halves[1], pairs))),
        Pattern("one quarter in pairs", mixed((quarters[0], pairs), *((q, plain) for q in quarters[1:]))),
        Pattern("three quarters in pairs", mixed(*((q, pairs) for q in quarters[:3]), (quarters[3], plain))),
        Pattern("quarters by turns", mixed(*((q, (pairs, second)[k % 2]) for k, q in enumerate(quarters)))),
        Pattern("pairs but for the last", (*pairs[:31], 77)),
        Pattern("pairs but for the first", (99, *pairs[1:])),
        Pattern("scattered pairs", tuple(scattered[lane // 2] for lane in lanes)),
        Pattern("scattered second neighbours", tuple(scattered[second[lane]] for lane in lanes)),
        Pattern("scattered fours", tuple(scattered[lane // 4] for lane in lanes)),
    ]
    patterns += [
        Pattern(f"scattered under {mask:#010x}", _random(800 + k, 32), mask)
        for k, mask in enumerate(int(mask, 16) for mask in MASKS.split())
    ]
    return tuple(patterns)


PATTERNS = _patterns()
MERGING = _merging()
# Enough where a rule has less to say.
_FEW = tuple(p for k, p in enumerate(PATTERNS) if k % 4 == 0 or "same" in p.name or "one of" in p.name)


def groups() -> dict[str, tuple[Pattern, ...]]:
    """Return the patterns of each kernel of ``patterns.cu``, the most informative first."""
    patterns = {
        f"shared_{kind}_{size}": PATTERNS + MERGING for size in (8, 16, 4) for kind in ("load", "store")
    }
    for name in ("red_4", "atom_4", "count_4", "ticket_4", "max_4", "exch_4", "cas_4", "cas_8", "exch_8"):
        patterns[f"shared_{name}"] = _FEW
    for kind, sizes in (("load", (4, 8, 16)), ("store", (4, 8, 16)), ("red", (4, 8)), ("atom", (4, 8))):
        for size in sizes:
            patterns[f"global_{kind}_{size}"] = _FEW
    for name in ("max_4", "float_4", "float_8", "exch_4", "cas_4", "cas_8"):
        patterns[f"global_{name}"] = _FEW
    for kind in ("load", "store"):
        for size in (1, 2):
            patterns[f"shared_{kind}_{size}"] = _FEW
    return patterns


def unit_bytes(group: str) -> int:
    """Return the bytes of one access of a group's kernel."""
    return int(group.rsplit("_", 1)[1])
