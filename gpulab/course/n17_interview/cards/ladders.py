"""Cards that climb a ladder: after each rung, what holds the kernel now?"""

from __future__ import annotations

from functools import partial
from random import Random

from gpulab.course import kernels
from gpulab.course.n17_interview.cards.diagnoses import NOTHING
from gpulab.course.n17_interview.cards.laboratory import DEVICES, info, on
from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.teach.interview import Card, Drawn, Found, Part
from gpulab.views.tables import Table
from gpulab.views.tables.diagnosis import NAMES, DiagnosisTable
from virtualgpu.records import Provenance
from virtualgpu.words import duration, listing, shape

_SIZES = {
    "transpose": (1024, 1024),
    "reduction": (1 << 20,),
    "softmax": (1024, 512),
    "histogram": (1 << 20,),
    "stencil": (512, 512),
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
    """One rung's diagnosis on a device."""
    with on(device):
        work = kernels.launch(rung, *kernels.example(ladder, _SIZES[ladder]).arrays)
        return diagnosis(**work.step)


def bound(found: DiagnosisTable) -> str:
    """What holds it, by name; launches are left out, since a single kernel cannot mend them."""
    mended = [cause for cause in found.worth_mending if cause.kind != "launch"]
    return NAMES[mended[0].kind] if mended else NOTHING


def climb(rng: Random, ladder: str) -> Drawn:
    of, device = kernels.ladder(ladder), rng.choice(DEVICES)
    rungs = [rung for rung in of.rungs if rung.name in _RUNGS.get(ladder, (rung.name,))]

    found_of = {rung.name: climbed(ladder, rung.name, device) for rung in rungs}

    def truth(name: str) -> Found:
        found = found_of[name]
        told = listing([NAMES[cause.kind] for cause in found.worth_mending if cause.kind != "launch"])
        because = f"{found.verdict} {f'Worth mending: {told}.' if told else ''}".strip()
        origin = Provenance("modelled", found.provenance.device, "priced again without each cause")
        return Found(bound(found), origin, because)

    def shown(at: int) -> Table:
        rows = []
        for rung in rungs[: at + 1]:
            found = found_of[rung.name]
            rows.append(
                (rung.name, rung.says, f"{shape(found.grid)} × {shape(found.block)}", duration(found.time_ns))
            )
        title = f"{of.title} on {info(device).name}, {' × '.join(f'{n:,}' for n in _SIZES[ladder])}; modelled"
        return Table(title, ("kernel", "what is new", "grid × block", "time"), tuple(rows))

    truths = set(map(bound, found_of.values()))
    choices = (*sorted({*_ALWAYS, *truths} - {NOTHING}), NOTHING)
    return Drawn(
        parts=tuple(
            Part(question=f"`{rung.name}`: what bounds it now?", measure=partial(truth, rung.name), choices=choices,
                 table=shown(at))
            for at, rung in enumerate(rungs)
        ),
        points=(
            "Named after each rung the counter that the next one mends.",
            "Said when to stop: the roof that is left, and how near the kernel is.",
            "Told what the size of the problem does: with few blocks no rung helps.",
        ),
        sentence="Each rung removes one bound and meets the next; I stop where only fewer bytes would help.",
        parameters={"device": device, "ladder": ladder},
    )  # fmt: skip


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
