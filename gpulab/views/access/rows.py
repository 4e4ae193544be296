"""A kernel's memory accesses by source line, worst first, and the requests of one warp for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpulab.views.access.access_text import share
from gpulab.views.tables import NOTHING, place
from gpulab.words import count, number, size
from virtualgpu.records import AccessCounters
from virtualgpu.records.access import AccessTrace, excess_bytes
from virtualgpu.records.kernel import SECTOR_BYTES

MOST_REQUESTS = 256


class Row(NamedTuple):
    """Accesses of one kind on one source line: texts for the table, and the warp's requests."""

    line: int
    cells: tuple[str, ...]
    over: bool
    requests: npt.NDArray[np.int64]


HEADINGS = ("line", "source", "access", "requests", "a request", "at best", "useful", "wasted")


def rows(trace: AccessTrace) -> list[Row]:
    """Return one row for each line, space, kind and size; copies of a loop's body are added up."""
    groups: dict[tuple[int, str, str, int], list[int]] = {}
    accesses = trace.counters.accesses
    for index, a in enumerate(accesses):
        if a.requests:
            groups.setdefault((a.line, a.space, a.kind, a.size_bytes), []).append(index)
    ordered = sorted(groups.items(), key=lambda group: _worst(trace, group[1]))
    return [_row(trace, members) for _, members in ordered]


def _worst(trace: AccessTrace, members: list[int]) -> tuple[int, int, int]:
    accesses = [trace.counters.accesses[index] for index in members]
    moved = sum(a.sectors * SECTOR_BYTES + a.wavefronts * 128 for a in accesses)
    return -sum(map(excess_bytes, accesses)), -moved, members[0]


def _row(trace: AccessTrace, members: list[int]) -> Row:
    accesses = [trace.counters.accesses[index] for index in members]
    first = accesses[0]
    names = ("requests", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "bytes_requested")
    requests, sectors, best, passes, ideal, requested = (sum(getattr(a, n) for a in accesses) for n in names)
    costs = []
    least = []
    if first.space == "const":
        sectors = 0
    if sectors:
        costs.append(count(sectors / requests, "sector", "sectors"))
        least.append(number(best / requests))
    if passes:
        costs.append(count(passes / requests, "pass", "passes"))
        least.append(number(ideal / requests))
    useful = share(min(1, requested / (sectors * SECTOR_BYTES))) if sectors and not passes else NOTHING
    excess = sum(map(excess_bytes, accesses))
    line, source = place(trace.code, first.line, first.text, first.column, access=True)
    cells = (
        str(line or NOTHING),
        source.text,
        f"{_named(first)}, {first.size_bytes} B",
        number(requests),
        ", ".join(costs) or NOTHING,
        ", ".join(least) or NOTHING,
        useful,
        size(excess) if excess else NOTHING,
    )
    return Row(first.line, cells, excess > 0, np.flatnonzero(np.isin(trace.site, members)))


def _named(access: AccessCounters) -> str:
    for opcode, name in (("tex.", "texture fetch"), ("suld.", "surface load"), ("sust.", "surface store")):
        if opcode in access.text:
            return name
    return f"{access.space} {access.kind}"
