"""Cards with a kernel that is not shown: its launch and its counters tell what it suffers from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from gpulab.lab.kernels import count
from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.views.tables import Table
from gpulab.views.tables.diagnosis import BOUND, NAMES, DiagnosisTable
from gpulab.words import duration, number, percent, shape, size
from gpulab_course.content.n17_interview.cards.hidden import laid_out
from gpulab_course.content.n17_interview.cards.hidden.flawed import FAMILIES, Case, draw
from gpulab_course.content.n17_interview.cards.laboratory import info, on
from gpulab_course.teach.interview import Card, Drawn, Found, Part
from virtualgpu.records import KernelCounters, Provenance

SOUND = "sound"
NOTHING = "nothing worth mending"
CAUSES = tuple(cause for cause in FAMILIES if cause != SOUND)
LEAST_GAIN = 1.4
NEARLY = 0.6
"""A cause whose remedy gains so much of what the first one's does is a right answer, too."""
HARDLY = 1.15
SURELY = 1.35
"""Around what is worth fixing (1.25), where either answer is right."""
_TRIES = 12
_MODULES = (laid_out,)  # its families are listed once it is imported


@dataclass(frozen=True)
class Hidden:
    """A kernel that was drawn, run and diagnosed."""

    case: Case
    counters: KernelCounters
    found: DiagnosisTable

    @property
    def cause(self) -> str:
        """The name of the first cause that the diagnosis finds."""
        main = self.found.main
        return NAMES[main.kind] if main else NOTHING

    @property
    def shown(self) -> Table:
        """The launch and its counters as a profiler would show them, without the source."""
        of = info(self.case.device)
        found = self.found
        seen = self.counters
        held = found.occupancy
        blocks = found.grid[0] * found.grid[1] * found.grid[2]
        caches = seen.caches
        assert caches is not None
        moved = caches.dram_read_bytes + caches.dram_write_bytes
        reached = moved / found.time_ns / of.memory_bandwidth_gbps

        def shared(counter: str, kind: str | None = None) -> int:
            return seen.total(counter, "shared", kind)

        rows = [
            ("device", f"{of.name}, {of.sm_count} SMs, {of.memory_bandwidth_gbps:,} GB/s"),
            (
                "launch",
                f"{blocks:,} blocks of {shape(found.block)} threads, {size(found.shared_bytes)} shared",
            ),
            (
                "resident",
                f"{held.blocks_per_sm} blocks, {held.warps_per_sm} of {held.max_warps_per_sm} warps an SM",
            ),
            ("time of the kernel", f"{duration(found.time_ns)}; the host's launch {duration(found.host_ns)}"),
            ("DRAM", f"{size(moved)}, {percent(reached)} of its bandwidth"),
            ("L1, L2 hits", f"{_share(caches.l1_hit_rate)}, {_share(caches.l2_hit_rate)}"),
            ("L2 sectors", f"{caches.l2_sectors:,}"),
            ("global loads", _per_request(seen, "load")),
            ("global stores", _per_request(seen, "store")),
            ("shared memory", f"{shared('requests'):,} requests, {shared('wavefronts'):,} wavefronts"),
            (
                "atomics",
                f"{seen.total('requests', 'global', 'atomic'):,} requests, {shared('requests', 'atomic'):,} shared",
            ),
            ("local memory", f"{seen.total('requests', 'local'):,} requests"),
            (
                "warp instructions",
                f"{seen.warp_instructions:,}, the longest warp {seen.longest_warp_instructions:,}",
            ),
            ("active lanes", percent(seen.lane_efficiency)),
            ("divergent branches", f"{seen.divergent_branches:,}"),
            (
                "operations",
                ", ".join(f"{kind} {number(count)}" for kind, count in seen.flops.items()) or "none",
            ),
        ]
        title = f"A kernel that is not shown, from cold caches; counters and times {seen.provenance.label}"
        return Table(title, ("counter", "value"), tuple(rows))


def _share(rate: float | None) -> str:
    return "–" if rate is None else percent(rate)


def _per_request(seen: KernelCounters, kind: str) -> str:
    requests = seen.total("requests", "global", kind)
    sectors = seen.total("sectors", "global", kind)
    return f"{requests:,} requests of {number(sectors / requests)} sectors" if requests else "none"


def hidden(rng: Random, cause: str) -> Hidden:
    """Draw kernels of a cause until one suffers from it on its device."""
    made: Hidden | None = None
    for _ in range(_TRIES):
        case = draw(rng.randrange(10**6), cause, rng.randrange(len(FAMILIES[cause])))
        made = look(case)
        main = made.found.main
        if (main.kind if main else SOUND) == cause and (main is None or main.gain >= LEAST_GAIN):
            break
    assert made is not None
    return made


def also_right(found: DiagnosisTable) -> tuple[str, ...]:
    """Return other causes of nearly the same gain, and "nothing" if even the first has hardly any."""
    main = found.main
    causes = [cause for cause in found.causes if cause.kind != "launch"]
    if main is None:
        return tuple(NAMES[cause.kind] for cause in causes if min(cause.gain, cause.remaining) >= HARDLY)
    near = {NAMES[cause.kind] for cause in found.worth_mending if cause.gain >= NEARLY * main.gain}
    return (*sorted(near - {NAMES[main.kind]}), *([NOTHING] if main.gain < SURELY else []))


def look(case: Case) -> Hidden:
    """Run a kernel and find what it suffers from."""
    with on(case.device) as cp:
        kernel, grid, block, args, shared_bytes = case.launch(cp, "flawed")
        counters = count(kernel, grid, block, args, shared_mem=shared_bytes)
        found = diagnosis(kernel, grid, block, args, shared_mem=shared_bytes)
    return Hidden(case, counters, found)


def only(code: str, name: str) -> str:
    """Return the source of one kernel of the pair, without the other kernel."""
    head, _, rest = code.partition(f'extern "C" __global__ void {name}')
    return f'{head}extern "C" __global__ void {name}' + rest.partition('extern "C"')[0]


def diagnose(rng: Random, cause: str) -> Drawn:
    """A hidden kernel of a cause."""
    seen = hidden(rng, cause)
    names = [name for name in NAMES.values() if name != seen.cause]
    symptom = BOUND.get(seen.found.bound, ("compute-bound", ""))[0]
    others = rng.sample([name for name in names if name != symptom], 3)
    choices = {seen.cause, *others, *([symptom] if symptom not in NAMES.values() else [])}
    if seen.cause != NOTHING:
        choices.add(NOTHING)
    listed = sorted(choices)
    rng.shuffle(listed)
    origin = Provenance("modelled", seen.found.provenance.device, "priced again without each cause")
    main = seen.found.main
    told = seen.found.explanation(main) if main else seen.found.verdict

    def truth() -> Found:
        where = (
            "" if symptom in NAMES.values() or symptom == seen.cause else f" ({symptom} is where it shows.)"
        )
        return Found(
            seen.cause,
            origin,
            f"{told}{where}",
            code=only(seen.case.code, "flawed"),
            also=also_right(seen.found),
        )

    def gain() -> Found:
        assert main is not None
        return Found(round(main.gain, 2), origin, f"{duration(main.before_ns)} → {duration(main.after_ns)}.")

    parts = [
        Part(
            question="What is the main cause of its time: what would you mend first?",
            measure=truth,
            choices=tuple(listed),
            table=seen.shown,
        )
    ]
    if main is not None:
        parts.append(
            Part(
                question="Without that cause, all else as it is: how many times as fast would it be?",
                measure=gain,
                unit="times",
                near=1.6,
            )
        )
    return Drawn(
        parts=tuple(parts),
        points=(
            "Named the counter that gives it away, with its figure and what it should be.",
            "Ruled out at least one other cause by its counter.",
            "Told the cause from the symptom: which unit is busy is not yet why.",
            "Said what the remedy would gain, and what holds the kernel then.",
        ),
        sentence=told,
        parameters={"device": seen.case.device, "family": seen.case.family},
    )


def _card(at: int, cause: str) -> Card:
    # The key must not tell the cause.
    draws: Callable[[Random], Any] = partial(diagnose, cause=cause)
    level = "L5" if cause in ("in flight", "latency", "grid", SOUND) else "L4"
    return Card(f"diagnose-{at:02}", "diagnose", level, "A hidden kernel", draws, ("09",))


CARDS = tuple(_card(at, cause) for at, cause in enumerate((*CAUSES, SOUND), start=1))
