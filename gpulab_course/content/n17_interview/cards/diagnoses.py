"""Interview cards with a hidden kernel, whose bottleneck must be found from its counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from gpulab.lab.kernels import count
from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.views.tables import Table
from gpulab.views.tables.diagnosis import BOUND_TEXTS, CAUSE_NAMES, DiagnosisTable
from gpulab.words import duration, number, percent, shape, size
from gpulab_course.content.n17_interview.cards.hidden import laid_out
from gpulab_course.content.n17_interview.cards.hidden.flawed import FAMILIES, FlawedKernel, draw_flawed_kernel
from gpulab_course.content.n17_interview.cards.laboratory import read_published_info, use_device
from gpulab_course.teach.interview import Card, CardQuestion, DrawnCard, TrueValue
from virtualgpu.records import KernelCounters, Provenance

NO_FLAW = "sound"
NOTHING_WORTH_FIXING = "nothing worth fixing"
CAUSES = tuple(cause for cause in FAMILIES if cause != NO_FLAW)
MIN_MAIN_GAIN = 1.4
OTHER_CAUSE_GAIN_SHARE = 0.6
"""The share of the main cause's gain from which another cause is a right answer, too."""
MIN_DOUBTFUL_GAIN = 1.15
MAX_DOUBTFUL_GAIN = 1.35
"""Gains between these limits are near the limit for worth fixing (1.25), so both answers are right."""
_MAX_TRIES = 12
_FAMILY_MODULES = (laid_out,)  # importing it registers its families


@dataclass(frozen=True)
class HiddenKernel:
    """A randomly chosen kernel for a diagnosis question, with its counters and its diagnosis."""

    flawed_kernel: FlawedKernel
    counters: KernelCounters
    diagnosis_table: DiagnosisTable

    @property
    def cause(self) -> str:
        """The name of the main cause in the diagnosis."""
        main_cause = self.diagnosis_table.main
        return CAUSE_NAMES[main_cause.kind] if main_cause else NOTHING_WORTH_FIXING

    @property
    def profile_table(self) -> Table:
        """A table of the kernel's launch configuration and counters, without its source."""
        device = read_published_info(self.flawed_kernel.device)
        diagnosis_table = self.diagnosis_table
        counters = self.counters
        occupancy = diagnosis_table.occupancy
        blocks = diagnosis_table.grid[0] * diagnosis_table.grid[1] * diagnosis_table.grid[2]
        caches = counters.caches
        assert caches is not None
        moved_bytes = caches.dram_read_bytes + caches.dram_write_bytes
        bandwidth_share = moved_bytes / diagnosis_table.time_ns / device.memory_bandwidth_gbps

        def sum_shared_counter(counter_name: str, access_kind: str | None = None) -> int:
            return counters.total(counter_name, "shared", access_kind)

        profile_rows = [
            ("device", f"{device.name}, {device.sm_count} SMs, {device.memory_bandwidth_gbps:,} GB/s"),
            (
                "launch",
                (
                    f"{blocks:,} blocks of {shape(diagnosis_table.block)} threads, "
                    f"{size(diagnosis_table.shared_bytes)} shared"
                ),
            ),
            (
                "resident",
                (
                    f"{occupancy.blocks_per_sm} blocks, {occupancy.warps_per_sm} of "
                    f"{occupancy.max_warps_per_sm} warps per SM"
                ),
            ),
            (
                "time of the kernel",
                f"{duration(diagnosis_table.time_ns)}; the host's launch {duration(diagnosis_table.host_ns)}",
            ),
            ("DRAM", f"{size(moved_bytes)}, {percent(bandwidth_share)} of its bandwidth"),
            (
                "L1, L2 hits",
                f"{_make_share_text(caches.l1_hit_rate)}, {_make_share_text(caches.l2_hit_rate)}",
            ),
            ("L2 sectors", f"{caches.l2_sectors:,}"),
            ("global loads", _compute_sectors_per_request(counters, "load")),
            ("global stores", _compute_sectors_per_request(counters, "store")),
            (
                "shared memory",
                f"{sum_shared_counter('requests'):,} requests, {sum_shared_counter('wavefronts'):,} wavefronts",
            ),
            (
                "atomics",
                (
                    f"{counters.total('requests', 'global', 'atomic'):,} requests, "
                    f"{sum_shared_counter('requests', 'atomic'):,} shared"
                ),
            ),
            ("local memory", f"{counters.total('requests', 'local'):,} requests"),
            (
                "warp instructions",
                f"{counters.warp_instructions:,}, the longest warp {counters.longest_warp_instructions:,}",
            ),
            ("active lanes", percent(counters.lane_efficiency)),
            ("divergent branches", f"{counters.divergent_branches:,}"),
            (
                "operations",
                ", ".join(
                    f"{operation_kind} {number(operation_count)}"
                    for operation_kind, operation_count in counters.flops.items()
                )
                or "none",
            ),
        ]
        origin = counters.provenance.of_results_and_times
        title = f"A kernel that is not shown, from cold caches; {origin}"
        return Table(title, ("counter", "value"), tuple(profile_rows))


def _make_share_text(hit_rate: float | None) -> str:
    return "–" if hit_rate is None else percent(hit_rate)


def _compute_sectors_per_request(counters: KernelCounters, access_kind: str) -> str:
    request_count = counters.total("requests", "global", access_kind)
    sector_count = counters.total("sectors", "global", access_kind)
    return (
        f"{request_count:,} requests of {number(sector_count / request_count)} sectors"
        if request_count
        else "none"
    )


def draw_hidden_kernel(rng: Random, cause: str) -> HiddenKernel:
    """Return a random kernel with this flaw whose diagnosis names the flaw as the main cause.

    After `_MAX_TRIES` kernels with another diagnosis, return the last one.
    """
    candidate: HiddenKernel | None = None
    for _ in range(_MAX_TRIES):
        flawed_kernel = draw_flawed_kernel(rng.randrange(10**6), cause, rng.randrange(len(FAMILIES[cause])))
        candidate = run_flawed_kernel(flawed_kernel)
        main_cause = candidate.diagnosis_table.main
        if (main_cause.kind if main_cause else NO_FLAW) == cause and (
            main_cause is None or main_cause.gain >= MIN_MAIN_GAIN
        ):
            break
    assert candidate is not None
    return candidate


def find_other_causes(diagnosis_table: DiagnosisTable) -> tuple[str, ...]:
    """Return the names of other causes whose gain is nearly that of the main cause. The name "nothing" is
    included if all gains are small.
    """
    main_cause = diagnosis_table.main
    causes = [cause for cause in diagnosis_table.causes if cause.kind != "launch"]
    if main_cause is None:
        return tuple(
            CAUSE_NAMES[cause.kind]
            for cause in causes
            if min(cause.gain, cause.remaining) >= MIN_DOUBTFUL_GAIN
        )
    large_cause_names = {
        CAUSE_NAMES[cause.kind]
        for cause in diagnosis_table.worth_fixing
        if cause.gain >= OTHER_CAUSE_GAIN_SHARE * main_cause.gain
    }
    return (
        *sorted(large_cause_names - {CAUSE_NAMES[main_cause.kind]}),
        *([NOTHING_WORTH_FIXING] if main_cause.gain < MAX_DOUBTFUL_GAIN else []),
    )


def run_flawed_kernel(flawed_kernel: FlawedKernel) -> HiddenKernel:
    """Run a kernel, and return it with its counters and its diagnosis."""
    with use_device(flawed_kernel.device) as cp:
        kernel, grid, block, args, shared_bytes = flawed_kernel.launch(cp, "flawed")
        counters = count(kernel, grid, block, args, shared_mem=shared_bytes)
        diagnosis_table = diagnosis(kernel, grid, block, args, shared_mem=shared_bytes)
    return HiddenKernel(flawed_kernel, counters, diagnosis_table)


def find_kernel_source(code: str, name: str) -> str:
    """Return the source of the kernel `name` without the other kernel in `code`."""
    preamble, _, following_code = code.partition(f'extern "C" __global__ void {name}')
    return f'{preamble}extern "C" __global__ void {name}' + following_code.partition('extern "C"')[0]


def draw_diagnosis_questions(rng: Random, cause: str) -> DrawnCard:
    """Return the questions about a hidden kernel with this flaw."""
    hidden_kernel = draw_hidden_kernel(rng, cause)
    other_names = [name for name in CAUSE_NAMES.values() if name != hidden_kernel.cause]
    symptom_name = BOUND_TEXTS.get(hidden_kernel.diagnosis_table.bound, ("compute-bound", ""))[0]
    wrong_names = rng.sample([name for name in other_names if name != symptom_name], 3)
    choice_set = {
        hidden_kernel.cause,
        *wrong_names,
        *([symptom_name] if symptom_name not in CAUSE_NAMES.values() else []),
    }
    if hidden_kernel.cause != NOTHING_WORTH_FIXING:
        choice_set.add(NOTHING_WORTH_FIXING)
    choice_list = sorted(choice_set)
    rng.shuffle(choice_list)
    origin = Provenance(
        "modelled", hidden_kernel.diagnosis_table.provenance.device, "modelled again without each cause"
    )
    main_cause = hidden_kernel.diagnosis_table.main
    explanation = (
        hidden_kernel.diagnosis_table.explanation(main_cause)
        if main_cause
        else hidden_kernel.diagnosis_table.verdict
    )

    def find_cause() -> TrueValue:
        symptom_text = (
            ""
            if symptom_name in CAUSE_NAMES.values() or symptom_name == hidden_kernel.cause
            else f"(The visible symptom is “{symptom_name}”.)"
        )
        return TrueValue(
            hidden_kernel.cause,
            origin,
            f"{explanation}{symptom_text}",
            code=find_kernel_source(hidden_kernel.flawed_kernel.code, "flawed"),
            other_right_choices=find_other_causes(hidden_kernel.diagnosis_table),
        )

    def find_gain() -> TrueValue:
        assert main_cause is not None
        return TrueValue(
            round(main_cause.gain, 2),
            origin,
            f"{duration(main_cause.before_ns)} → {duration(main_cause.after_ns)}.",
        )

    questions = [
        CardQuestion(
            question="What is the main cause of the kernel's time, that is, what would you fix first?",
            measure=find_cause,
            choices=tuple(choice_list),
            table=hidden_kernel.profile_table,
        )
    ]
    if main_cause is not None:
        questions.append(
            CardQuestion(
                question="How many times as fast would the kernel be without this cause, if nothing else "
                "changed?",
                measure=find_gain,
                unit="times",
                max_error_factor=1.6,
            )
        )
    return DrawnCard(
        questions=tuple(questions),
        rubric_points=(
            "Named the counter that shows the cause, with its value and its best value.",
            "Ruled out at least one other cause by its counter.",
            "Distinguished the cause from the symptom: a busy unit does not show why it is busy.",
            "Said what the fix would gain, and what would limit the kernel afterwards.",
        ),
        strong_answer=explanation,
        parameters={
            "device": hidden_kernel.flawed_kernel.device,
            "family": hidden_kernel.flawed_kernel.family,
        },
    )


def _make_hidden_card(card_number: int, cause: str) -> Card:
    # The key must not reveal the cause.
    draw_questions: Callable[[Random], Any] = partial(draw_diagnosis_questions, cause=cause)
    level = "L5" if cause in ("in flight", "latency", "grid", NO_FLAW) else "L4"
    return Card(f"diagnose-{card_number:02}", "diagnose", level, "A hidden kernel", draw_questions, ("09",))


CARDS = tuple(
    _make_hidden_card(card_index, cause) for card_index, cause in enumerate((*CAUSES, NO_FLAW), start=1)
)
