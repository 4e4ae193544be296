"""Single accesses with their own addresses and lanes, against an H200's counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpulab import session
from tests.counters import patterns
from tests.counters.cases import source
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import KernelCounters, KernelSource
from virtualgpu.records.access import Access, Rule

GROUPS = patterns.groups()
OPERATIONS = {"load": ("ld",), "store": ("st",), "atomic": ("red", "atom")}
# The virtual GPU's counter, its space and Nsight Compute's metric.
COUNTERS = (
    ("requests", "global", "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"),
    ("sectors", "global", "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"),
    ("bank_conflicts", "shared", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"),
    ("wavefronts", "shared", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"),
)
# Five atomics on words all over the cache took one sector twice; which, depends on addresses.
MAY_TAKE_ONE_MORE = ("sectors", "atomic", "random 6")


def recorded(recording: dict[str, Any], group: str) -> dict[str, dict[str, int]]:
    """Return the recorded metrics by pattern."""
    table = next(t for t in recording["patterns"].values() if group in t)
    return {name: dict(zip(table["metrics"], row, strict=True)) for name, row in table[group].items()}


def run(group: str, pattern: patterns.Pattern) -> KernelCounters:
    cp = session.cp()
    data = cp.zeros(2048 * 16, np.uint8)
    values = (cp.asarray(pattern.places, np.int32), np.uint32(pattern.mask), data)
    kernel = KernelSource(group, source(patterns.FILE))
    launch = Launch.of(kernel, 1, 32, values, patterns.SHARED_BYTES)
    return session.backend().observe(launch, Counters())


@pytest.mark.parametrize("group", GROUPS)
def test_counters_of_single_accesses_equal_an_h200s(group: str, recording: dict[str, Any]) -> None:
    hardware = recorded(recording, group)
    compared = 0
    for pattern in GROUPS[group]:
        counters = run(group, pattern)
        for counter, space, metric in COUNTERS:
            for kind, operations in OPERATIONS.items():
                names = [
                    metric.format(op) for op in operations if metric.format(op) in hardware[pattern.name]
                ]
                if not names:
                    continue
                expected = sum(hardware[pattern.name][name] for name in names)
                result = counters.total(counter, space, kind)
                loose = (counter, kind, pattern.name) == MAY_TAKE_ONE_MORE
                assert result in {expected, expected - loose}, (pattern, counter, kind)
                compared += 1
    assert compared >= 2 * len(GROUPS[group])


@pytest.mark.parametrize("group", [g for g in GROUPS if g.startswith("shared")])
def test_the_python_access_rule_equals_the_counters(group: str) -> None:
    size = patterns.unit_bytes(group)
    kind = next((k for k in ("load", "store") if k in group), "atomic")
    rule: Rule = "atomic"
    if kind != "atomic":
        rule = "load" if kind == "load" else "store"
    elif "count" in group:
        rule = "count"
    elif "cas" in group:
        rule = "swap"
    for pattern in GROUPS[group]:
        counters = run(group, pattern)
        access = next(a for a in counters.accesses if a.space == "shared" and a.kind == kind)
        places = (size * p if pattern.mask >> lane & 1 else -1 for lane, p in enumerate(pattern.places))
        cost = Access(tuple(places), size, "shared", rule).banks()
        assert (access.wavefronts, access.ideal_wavefronts) == (cost.wavefronts, cost.ideal_wavefronts), (
            pattern
        )
