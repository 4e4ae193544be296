"""Interview cards about a series of kernels: after each version, what should be improved next?"""

from __future__ import annotations

import itertools
from functools import partial
from random import Random

from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.views.tables import Table
from gpulab.views.tables.diagnosis import CAUSE_NAMES, MIN_GAIN, DiagnosisTable
from gpulab.words import duration, listing, number, shape
from gpulab_course.content import kernels
from gpulab_course.content.n17_interview.cards.diagnoses import NOTHING_WORTH_FIXING, find_other_causes
from gpulab_course.content.n17_interview.cards.laboratory import DEVICES, read_published_info, use_device
from gpulab_course.teach.interview import Card, CardQuestion, DrawnCard, TrueValue
from virtualgpu.records import Provenance
from virtualgpu.records.launch.causes import CauseKind

# Large enough that the launch is not most of the time.
_PROBLEM_SIZES = {
    "transpose": (2048, 2048),
    "reduction": (1 << 22,),
    "softmax": (4096, 1024),
    "histogram": (1 << 22,),
    "stencil": (1024, 2048),
}
_SHOWN_VERSIONS = {"reduction": ("sum_interleaved", "sum_halves", "sum_shuffled", "sum_one_pass")}
_COMMON_CHOICES = (
    "uncoalesced",
    "bank conflicts",
    "re-reading",
    "contended atomics",
    "too few blocks",
    "latency-bound",
)


def diagnose_version(series_name: str, version_name: str, device: str) -> DiagnosisTable:
    """Return the diagnosis of one version of a kernel on a device."""
    with use_device(device):
        kernel_launch = kernels.launch(
            version_name, *kernels.example(series_name, _PROBLEM_SIZES[series_name]).arrays
        )
        return diagnosis(**kernel_launch.step)


def find_main_limit(diagnosis_table: DiagnosisTable) -> str:
    """Return what mainly limits a kernel's speed, apart from the launch overhead."""
    causes = [cause for cause in diagnosis_table.worth_fixing if cause.kind != "launch"]
    return CAUSE_NAMES[causes[0].kind] if causes else NOTHING_WORTH_FIXING


def is_refuted(diagnosis_table: DiagnosisTable, later_tables: list[DiagnosisTable]) -> bool:
    """Return whether the diagnosis found nothing to improve, but a later kernel version is faster."""
    return find_main_limit(diagnosis_table) == NOTHING_WORTH_FIXING and any(
        diagnosis_table.time_ns >= MIN_GAIN * later_table.time_ns for later_table in later_tables
    )


# The cause that the next kernel has improved if it shortens a stage, by stage.
_CAUSE_OF_STAGE: dict[str, CauseKind] = {"atomics": "atomics", "latency": "latency", "issue": "compute"}


def find_other_right_answers(
    diagnosis_table: DiagnosisTable, later_tables: list[DiagnosisTable]
) -> tuple[str, ...]:
    """Return all other right answers, for example causes whose gain is nearly that of the main cause."""
    right_names = set(find_other_causes(diagnosis_table))
    if any(diagnosis_table.time_ns >= MIN_GAIN * later_table.time_ns for later_table in later_tables):
        right_names.discard(NOTHING_WORTH_FIXING)
    limiting_stage = diagnosis_table.bound
    if (
        later_tables
        and limiting_stage in _CAUSE_OF_STAGE
        and diagnosis_table.stages[limiting_stage]
        >= MIN_GAIN * later_tables[0].stages.get(limiting_stage, 0.0)
    ):
        right_names.add(CAUSE_NAMES[_CAUSE_OF_STAGE[limiting_stage]])
    return tuple(sorted(right_names - {find_main_limit(diagnosis_table)}))


def draw_series_questions(rng: Random, series_name: str) -> DrawnCard:
    """Return the questions about a series of kernels."""
    series = kernels.ladder(series_name)
    device = rng.choice(DEVICES)
    versions = [
        version
        for version in series.rungs
        if version.name in _SHOWN_VERSIONS.get(series_name, (version.name,))
    ]
    tables_by_name = {
        version.name: diagnose_version(series_name, version.name, device) for version in versions
    }
    diagnosis_tables = list(tables_by_name.values())

    def find_limit(name: str) -> TrueValue:
        diagnosis_table = tables_by_name[name]
        cause_text = listing(
            [CAUSE_NAMES[cause.kind] for cause in diagnosis_table.worth_fixing if cause.kind != "launch"]
        )
        explanation = (
            f"{diagnosis_table.verdict} {f'Worth fixing: {cause_text}.' if cause_text else ''}".strip()
        )
        origin = Provenance(
            "modelled", diagnosis_table.provenance.device, "modelled again without each cause"
        )
        version_index = diagnosis_tables.index(diagnosis_table)
        return TrueValue(
            find_main_limit(diagnosis_table),
            origin,
            explanation,
            other_right_choices=find_other_right_answers(
                diagnosis_table, diagnosis_tables[version_index + 1 :]
            ),
        )

    def make_times_table(version_index: int) -> Table:
        version_rows = []
        for version in versions[: version_index + 1]:
            diagnosis_table = tables_by_name[version.name]
            version_rows.append(
                (
                    version.name,
                    version.says,
                    f"{shape(diagnosis_table.grid)} × {shape(diagnosis_table.block)}",
                    duration(diagnosis_table.time_ns),
                )
            )
        title = f"{series.title} on {read_published_info(device).name}, {' × '.join(f'{n:,}' for n in _PROBLEM_SIZES[series_name])}; modelled"
        return Table(title, ("kernel", "what is new", "grid × block", "time"), tuple(version_rows))

    asked_indices = [
        version_index
        for version_index in range(len(versions))
        if not is_refuted(diagnosis_tables[version_index], diagnosis_tables[version_index + 1 :])
    ]
    choices = (
        *sorted({*_COMMON_CHOICES, *map(find_main_limit, diagnosis_tables)} - {NOTHING_WORTH_FIXING}),
        NOTHING_WORTH_FIXING,
    )
    return DrawnCard(
        questions=tuple(
            CardQuestion(
                question=f"`{versions[version_index].name}`: what would you fix next?",
                measure=partial(find_limit, versions[version_index].name),
                choices=choices,
                table=make_times_table(version_index),
            )
            for version_index in asked_indices
        ),
        rubric_points=(
            "After each version, named the counter that the next version improves.",
            "Said when to stop: which ceiling remains, and how close the kernel is to it.",
            "Said how the size of the problem matters: with few blocks, no version helps.",
        ),
        strong_answer=_make_times_text(
            {name: version_table.time_ns for name, version_table in tables_by_name.items()}
        ),
        parameters={"device": device, "ladder": series_name},
    )


def _make_times_text(times_ns: dict[str, float]) -> str:
    """Return a sentence about the speedups of the series."""
    version_names = list(times_ns)
    version_pairs = list(itertools.pairwise(version_names))
    total_speedup = times_ns[version_names[0]] / min(times_ns.values())
    faster_versions = [
        f"`{version}` ({number(times_ns[previous_version] / times_ns[version])} ×)"
        for previous_version, version in version_pairs
        if times_ns[previous_version] >= MIN_GAIN * times_ns[version]
    ]
    slower_versions = [
        f"`{version}` ({number(times_ns[version] / times_ns[previous_version])} ×)"
        for previous_version, version in version_pairs
        if times_ns[version] >= MIN_GAIN * times_ns[previous_version]
    ]
    summary = f"The best is {number(total_speedup)} times as fast as the first. Large steps: {listing(faster_versions) or 'none'}."
    if slower_versions:
        summary += f" Slower here than the one before: {listing(slower_versions)}."
    return f"{summary} I measure after each step, and stop where only fewer bytes would help."


def _make_series_card(series_name: str, sections: tuple[str, ...]) -> Card:
    title = f"A ladder: {kernels.ladder(series_name).title[0].lower()}{kernels.ladder(series_name).title[1:]}"
    return Card(
        f"ladder-{series_name}",
        "ladder",
        "L5",
        title,
        partial(draw_series_questions, series_name=series_name),
        sections,
    )


CARDS = (
    _make_series_card("transpose", ("05b",)),
    _make_series_card("reduction", ("06a",)),
    _make_series_card("softmax", ("06b",)),
    _make_series_card("histogram", ("06b",)),
    _make_series_card("stencil", ("06b",)),
)
