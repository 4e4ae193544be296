"""Cards that climb a ladder: after each rung, what would you fix next?"""

from __future__ import annotations

import itertools
from functools import partial
from random import Random

from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.views.tables import Table
from gpulab.views.tables.diagnosis import MIN_GAIN, NAMES, DiagnosisTable
from gpulab.words import duration, listing, number, shape
from gpulab_course.content import kernels
from gpulab_course.content.n17_interview.cards.diagnoses import NOTHING, also_right
from gpulab_course.content.n17_interview.cards.laboratory import DEVICES, info, on
from gpulab_course.teach.interview import Card, Drawn, Found, Part
from virtualgpu.records import Provenance
from virtualgpu.records.launch.causes import CauseKind

# Large enough for a launch not to be most of the time.
_SIZES = {
    "transpose": (2048, 2048),
    "reduction": (1 << 22,),
    "softmax": (4096, 1024),
    "histogram": (1 << 22,),
    "stencil": (1024, 2048),
}
_RUNGS = {"reduction": ("sum_interleaved", "sum_halves", "sum_shuffled", "sum_one_pass")}
_ALWAYS = (
    "uncoalesced",
    "bank conflicts",
    "re-reading",
    "contended atomics",
    "too few blocks",
    "latency-bound",
)


def climbed(ladder: str, rung: str, device: str) -> DiagnosisTable:
    """Return the diagnosis of one kernel of a series on a device."""
    with on(device):
        work = kernels.launch(rung, *kernels.example(ladder, _SIZES[ladder]).arrays)
        return diagnosis(**work.step)


def bound(found: DiagnosisTable) -> str:
    """Return the name of the limit of a kernel, except for launches, which a single kernel cannot avoid."""
    worth = [cause for cause in found.worth_mending if cause.kind != "launch"]
    return NAMES[worth[0].kind] if worth else NOTHING


def refuted(found: DiagnosisTable, later: list[DiagnosisTable]) -> bool:
    """Return whether a later version shows a gain that the diagnosis, which names nothing, missed."""
    return bound(found) == NOTHING and any(found.time_ns >= MIN_GAIN * other.time_ns for other in later)


# By stage, the cause that the next kernel has improved if it makes this stage shorter.
_STAGES: dict[str, CauseKind] = {"atomics": "atomics", "latency": "latency", "issue": "compute"}


def also(found: DiagnosisTable, later: list[DiagnosisTable]) -> tuple[str, ...]:
    """Return other right answers: causes of nearly equal weight, and the unit relieved by the next kernel."""
    names = set(also_right(found))
    if any(found.time_ns >= MIN_GAIN * other.time_ns for other in later):
        names.discard(NOTHING)
    stage = found.bound
    if later and stage in _STAGES and found.stages[stage] >= MIN_GAIN * later[0].stages.get(stage, 0.0):
        names.add(NAMES[_STAGES[stage]])
    return tuple(sorted(names - {bound(found)}))


def climb(rng: Random, ladder: str) -> Drawn:
    of = kernels.ladder(ladder)
    device = rng.choice(DEVICES)
    rungs = [rung for rung in of.rungs if rung.name in _RUNGS.get(ladder, (rung.name,))]
    found_of = {rung.name: climbed(ladder, rung.name, device) for rung in rungs}
    seen = list(found_of.values())

    def truth(name: str) -> Found:
        found = found_of[name]
        told = listing([NAMES[cause.kind] for cause in found.worth_mending if cause.kind != "launch"])
        because = f"{found.verdict} {f'Worth fixing: {told}.' if told else ''}".strip()
        origin = Provenance("modelled", found.provenance.device, "priced again without each cause")
        at = seen.index(found)
        return Found(bound(found), origin, because, also=also(found, seen[at + 1 :]))

    def shown(at: int) -> Table:
        rows = []
        for rung in rungs[: at + 1]:
            found = found_of[rung.name]
            rows.append(
                (rung.name, rung.says, f"{shape(found.grid)} × {shape(found.block)}", duration(found.time_ns))
            )
        title = f"{of.title} on {info(device).name}, {' × '.join(f'{n:,}' for n in _SIZES[ladder])}; modelled"
        return Table(title, ("kernel", "what is new", "grid × block", "time"), tuple(rows))

    asked = [at for at in range(len(rungs)) if not refuted(seen[at], seen[at + 1 :])]
    choices = (*sorted({*_ALWAYS, *map(bound, seen)} - {NOTHING}), NOTHING)
    return Drawn(
        parts=tuple(
            Part(
                question=f"`{rungs[at].name}`: what would you fix next?",
                measure=partial(truth, rungs[at].name),
                choices=choices,
                table=shown(at),
            )
            for at in asked
        ),
        points=(
            "Named after each rung the counter that the next one improves.",
            "Said when to stop: the ceiling that is left, and how near the kernel is.",
            "Told what the size of the problem does: with few blocks no rung helps.",
        ),
        sentence=_summary({name: found.time_ns for name, found in found_of.items()}),
        parameters={"device": device, "ladder": ladder},
    )


def _summary(times: dict[str, float]) -> str:
    """Summarize the results of the series from its times."""
    names = list(times)
    steps = list(itertools.pairwise(names))
    gain = times[names[0]] / min(times.values())
    faster = [
        f"`{new}` ({number(times[old] / times[new])} ×)"
        for old, new in steps
        if times[old] >= MIN_GAIN * times[new]
    ]
    slower = [
        f"`{new}` ({number(times[new] / times[old])} ×)"
        for old, new in steps
        if times[new] >= MIN_GAIN * times[old]
    ]
    said = f"The best is {number(gain)} times as fast as the first. Large steps: {listing(faster) or 'none'}."
    if slower:
        said += f" Slower here than the one before: {listing(slower)}."
    return f"{said} I measure after each step, and stop where only fewer bytes would help."


def _card(ladder: str, sections: tuple[str, ...]) -> Card:
    title = f"A ladder: {kernels.ladder(ladder).title[0].lower()}{kernels.ladder(ladder).title[1:]}"
    return Card(f"ladder-{ladder}", "ladder", "L5", title, partial(climb, ladder=ladder), sections)


CARDS = (
    _card("transpose", ("05b",)),
    _card("reduction", ("06",)),
    _card("softmax", ("06",)),
    _card("histogram", ("06",)),
    _card("stencil", ("06",)),
)
