"""The memory accesses of a kernel by source line, worst first, with the addresses of one warp."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpulab.views.access.access_text import format_share
from gpulab.views.tables import NO_VALUE_MARK, locate_line
from gpulab.words import count, number, size
from virtualgpu.records import AccessCounters
from virtualgpu.records.access import AccessTrace, excess_bytes
from virtualgpu.records.kernel import SECTOR_BYTES

MAX_REQUESTS = 256


class AccessRow(NamedTuple):
    """A table row for all accesses of one kind on a source line, with the requests of one warp."""

    line: int
    cells: tuple[str, ...]
    is_wasteful: bool
    requests: npt.NDArray[np.int64]


HEADINGS = ("line", "source", "access", "requests", "per request", "at best", "useful", "wasted")


def make_rows(trace: AccessTrace) -> list[AccessRow]:
    """Return one table row per source line, memory space, kind and size of access.

    Accesses in copies of a loop body are added up.
    """
    indices_by_key: dict[tuple[int, str, str, int], list[int]] = {}
    trace_accesses = trace.counters.accesses
    for access_index, access in enumerate(trace_accesses):
        if access.requests:
            indices_by_key.setdefault((access.line, access.space, access.kind, access.size_bytes), []).append(
                access_index
            )
    sorted_groups = sorted(indices_by_key.items(), key=lambda group: _sort_key(trace, group[1]))
    return [_make_row(trace, access_indices) for _, access_indices in sorted_groups]


def _sort_key(trace: AccessTrace, access_indices: list[int]) -> tuple[int, int, int]:
    trace_accesses = [trace.counters.accesses[index] for index in access_indices]
    moved_bytes = sum(access.sectors * SECTOR_BYTES + access.wavefronts * 128 for access in trace_accesses)
    return -sum(map(excess_bytes, trace_accesses)), -moved_bytes, access_indices[0]


def _make_row(trace: AccessTrace, access_indices: list[int]) -> AccessRow:
    trace_accesses = [trace.counters.accesses[index] for index in access_indices]
    first_access = trace_accesses[0]
    counter_names = (
        "requests",
        "sectors",
        "ideal_sectors",
        "wavefronts",
        "ideal_wavefronts",
        "bytes_requested",
    )
    requests, sectors, ideal_sectors, wavefronts, ideal_wavefronts, requested_bytes = (
        sum(getattr(access, name) for access in trace_accesses) for name in counter_names
    )
    request_costs = []
    ideal_request_costs = []
    if first_access.space == "const":
        sectors = 0
    if sectors:
        request_costs.append(count(sectors / requests, "sector", "sectors"))
        ideal_request_costs.append(number(ideal_sectors / requests))
    if wavefronts:
        request_costs.append(count(wavefronts / requests, "pass", "passes"))
        ideal_request_costs.append(number(ideal_wavefronts / requests))
    useful_share = (
        format_share(min(1, requested_bytes / (sectors * SECTOR_BYTES)))
        if sectors and not wavefronts
        else NO_VALUE_MARK
    )
    wasted_bytes = sum(map(excess_bytes, trace_accesses))
    line, place_text = locate_line(
        trace.code, first_access.line, first_access.text, first_access.column, is_access=True
    )
    cell_texts = (
        str(line or NO_VALUE_MARK),
        place_text.text,
        f"{_name_access(first_access)}, {first_access.size_bytes} B",
        number(requests),
        ", ".join(request_costs) or NO_VALUE_MARK,
        ", ".join(ideal_request_costs) or NO_VALUE_MARK,
        useful_share,
        size(wasted_bytes) if wasted_bytes else NO_VALUE_MARK,
    )
    return AccessRow(
        first_access.line, cell_texts, wasted_bytes > 0, np.flatnonzero(np.isin(trace.site, access_indices))
    )


def _name_access(access: AccessCounters) -> str:
    for opcode, name in (("tex.", "texture fetch"), ("suld.", "surface load"), ("sust.", "surface store")):
        if opcode in access.text:
            return name
    return f"{access.space} {access.kind}"
