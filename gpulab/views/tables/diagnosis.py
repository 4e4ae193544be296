"""The table of ``gl.diagnose``: the causes of a launch's time, with the most profitable remedy first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpulab._deprecated import make_old_method, make_old_property
from gpulab.views.parts.card import make_list, make_paragraph, make_source_lines, place_beside
from gpulab.views.parts.mma_sync import describe_mma_sync
from gpulab.views.tables import SOURCE_COLUMN, Cell, Column, RecordTable, Table, compare_times, locate_line
from gpulab.words import count, duration, listing, noun, number, percent, shape
from virtualgpu.records.launch.causes import Cause, CauseKind, LaunchCosts

MIN_GAIN = 1.25
"""Smallest speedup for which a remedy is worth an hour of work."""

COMMON_CAUSE_GAIN_FACTORS: Mapping[CauseKind, float] = {"tail": 1.025, "in flight": 1.08, "latency": 1.08}
"""Factors on the smallest speedup, for causes that most kernels have to some degree."""
UNEVEN_BLOCKS_FACTOR = 1.5
"""Ratio of the longest block to the mean from which a tail is explained by that block, not by waves."""

NOTEBOOK_OF_CAUSE: Mapping[CauseKind, str] = {
    "launch": "11a",
    "tail": "02",
    "grid": "02",
    "occupancy": "02",
    "divergence": "03",
    "uncoalesced": "05a",
    "re-reading": "05b",
    "bank conflicts": "05b",
    "atomics": "06a",
    "spills": "02",
    "in flight": "02",
    "latency": "02",
    "compute": "01",
}
CAUSE_NAMES: Mapping[CauseKind, str] = {
    "launch": "launch-bound",
    "tail": "tail",
    "grid": "too few blocks",
    "occupancy": "occupancy",
    "divergence": "divergence",
    "uncoalesced": "uncoalesced",
    "re-reading": "re-reading",
    "bank conflicts": "bank conflicts",
    "atomics": "contended atomics",
    "spills": "spills",
    "in flight": "too few bytes in flight",
    "latency": "latency-bound",
    "compute": "compute-bound",
}
BOUND_TEXTS = {
    "DRAM": ("memory-bound", "DRAM transfers its bytes"),
    "L2": ("bound by L2", "L2 returns its sectors"),
    "load/store": ("bound by load/store units", "the SMs' load/store units process its requests"),
    "constant": ("bound by the constant cache", "the constant cache returns its words"),
    "atomics": ("bound by atomics", "atomic units do its operations"),
    "latency": ("latency-bound", "its warps wait for their loads"),
    "start": ("launch-bound", "it starts"),
    "issue": ("compute-bound", "its instructions are issued"),
    "tensor": ("bound by tensor cores", "its tensor cores multiply"),
}
# What the tensor cores of a kernel wait for, by the stage that limits it.
AWAITED_UNITS = {
    "DRAM": "memory",
    "L2": "L2",
    "latency": "the warps' loads and instructions",
    "start": "its start",
}
PIPE_NAMES = {
    "fp64": "FP64",
    "fma": "FP32",
    "xu": "special-function",
    "alu": "integer",
    "imad": "multiply-add",
    "half": "FP16",
    "uniform": "uniform",
}


@dataclass(frozen=True, slots=True, repr=False)
class DiagnosisTable(RecordTable[LaunchCosts], LaunchCosts):
    """A table of the causes that determine the time of a launch, with remedies.

    The attribute ``code`` is the source to which lines refer. The attribute ``baseline`` is another launch
    for comparison, with the source ``baseline_code``, and ``measured_ns`` is the time on a real GPU.
    """

    code: str = ""
    note: str = ""
    measured_ns: float = 0.0
    baseline: LaunchCosts | None = None
    baseline_code: str = ""

    # No fields: they have no annotations.
    beside = make_old_property("beside", "baseline")
    told = make_old_method("told", "explanation")

    @property
    def worth_fixing(self) -> tuple[Cause, ...]:
        """The causes whose remedy makes the launch at least 1.25 times as fast. The cause with the largest
        gain is the first.

        A cause that depends on others (latency) must have this gain even after the other causes are fixed.
        """
        return tuple(
            cause
            for cause in self.causes
            if (cause.gain if cause.kind == "tail" else min(cause.gain, cause.remaining))
            >= MIN_GAIN * COMMON_CAUSE_GAIN_FACTORS.get(cause.kind, 1.0)
        )

    @property
    def main(self) -> Cause | None:
        """The cause with the largest gain, or None if no cause is worth fixing."""
        return next(iter(self.worth_fixing), None)

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the table and the kernel."""
        return f"Diagnosis of {self.kernel_name}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the shape of the launch, and its modelled and measured
        times.
        """
        measured_text = (
            f" on the virtual GPU, {duration(self.measured_ns)} measured" if self.measured_ns else ""
        )
        return f"grid {shape(self.grid)}, block {shape(self.block)}, {duration(self.time_ns)}{measured_text}"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the counts and times, such as ``measured on NVIDIA H200``."""
        return self.provenance.of_results_and_times

    @property
    def remarks(self) -> Sequence[str]:
        """The part of the caption that explains how the counts were obtained."""
        return [f"{self.note.rstrip('.')}."] if self.note else []

    def tables(self) -> tuple[Table, ...]:
        """Return a table of the causes that are worth fixing, with their source lines and gains."""
        cause_rows = tuple(
            (
                CAUSE_NAMES[cause.kind],
                *self._find_source_line(cause),
                cause.gain,
                cause.after_ns,
                NOTEBOOK_OF_CAUSE[cause.kind],
            )
            for cause in self.worth_fixing
        )
        columns = (
            "cause",
            "line",
            SOURCE_COLUMN,
            Column("gain, modelled", "gain", _format_factor),
            Column("time after", "after_ns", duration),
            "notebook",
        )
        return (Table("", columns, cause_rows),) if cause_rows else ()

    def sentences(self) -> list[str]:
        """Return the explanation of each cause with its remedy, and the changes compared with another
        launch.
        """
        return [
            *map(self.explanation, self.worth_fixing),
            *self._describe_spills(),
            *self._describe_changes(),
        ]

    @property
    def verdict(self) -> str:
        """A sentence with the main cause of the launch's time and the limit of the launch."""
        share_text = percent(min(1.0, self.stages[self.bound] / self.time_ns))
        bound_name, limit_text = _describe_limiting_stage(self.bound)
        bound_text = f"{bound_name}: {share_text} of its time {limit_text}{self._describe_tensor_wait()}"
        if self.main is not None:
            lesser_cause_count = len(self.worth_fixing) - 1
            lesser_causes_text = (
                f", and {count(lesser_cause_count, 'lesser cause')}" if lesser_cause_count else ""
            )
            return (
                f"Main cause: {CAUSE_NAMES[self.main.kind]}{lesser_causes_text}. The kernel is {bound_text}."
            )
        hint_by_bound = {
            "DRAM": " Only moving fewer bytes would help: use narrower types, or fuse the kernel with the "
            "one before or after it.",
            "tensor": f" {describe_mma_sync(self.mma_sync_shares)}".rstrip(),
        }
        return f"No cause is worth fixing. The kernel is {bound_text}.{hint_by_bound.get(self.bound, '')}"

    def _describe_tensor_wait(self) -> str:
        """Return a sentence that names the unit for which the tensor cores wait. If the kernel does not use
        them, or if they are its limit, return an empty string.
        """
        tensor_ns = self.stages.get("tensor", 0.0)
        if not tensor_ns or self.bound == "tensor":
            return ""
        awaited_unit = AWAITED_UNITS.get(self.bound, "CUDA cores")
        if self.bound == "load/store":
            awaited_unit = "shared memory" if self.shared_share >= 0.5 else "the load/store units"
        tensor_share = percent(min(1.0, tensor_ns / self.time_ns))
        return f". Its tensor cores wait for {awaited_unit}: they multiply for {tensor_share} of its time"

    def explanation(self, cause: Cause) -> str:
        """Return the explanation of a cause with its location, counts, ceiling, remedy and gain."""
        line, source_line = self._find_source_line(cause)
        location_text = f"Line {line}, {source_line.text}: " if line else ""
        count_text, remedy = _EXPLANATIONS[cause.kind](cause, self)
        share_text = percent(min(1.0, self.stages[self.bound] / self.time_ns))
        ceiling_text = f"Ceiling: {share_text} of the time {_describe_limiting_stage(self.bound)[1]}."
        gain_text = (
            f"{number(cause.gain)} × as fast, {duration(cause.before_ns)} → {duration(cause.after_ns)}"
        )
        explanation_text = (
            f"{count_text}. {ceiling_text} {remedy}: {gain_text}, modelled. Notebook "
            f"{NOTEBOOK_OF_CAUSE[cause.kind]} shows how."
        )
        return location_text + explanation_text if location_text else _capitalize_sentence(explanation_text)

    def _make_body(self) -> str:
        findings_html = "".join(
            self._make_finding(index, cause) for index, cause in enumerate(self.worth_fixing, 1)
        )
        return self._make_baseline_bars() + findings_html + make_list(self._describe_spills())

    def _make_baseline_bars(self) -> str:
        """Return the HTML of bars that compare this launch's time with the baseline's, if there is one."""
        if self.baseline is None:
            return ""
        colour = "good" if self.time_ns <= self.baseline.time_ns else "tail"
        source_html = make_source_lines(self.baseline_code, _group_names_by_line(self.baseline))
        before_bar = f"before: {self.baseline.kernel_name}", self.baseline.time_ns
        after_bar = f"after: {self.kernel_name}", self.time_ns
        return place_beside(
            make_paragraph(f"{self.baseline.kernel_name}, before", "heading") + source_html
            if source_html
            else "",
            compare_times(before_bar, after_bar, colour)
            + "".join(map(make_paragraph, self._describe_changes())),
        )

    def _make_finding(self, index: int, cause: Cause) -> str:
        """Return a cause as HTML: its line in the source, the times with and without it, and the remedy."""
        count_text, remedy = _EXPLANATIONS[cause.kind](cause, self)
        gain_text = f"{index}. {CAUSE_NAMES[cause.kind]}: {number(cause.gain)} × as fast without it, modelled"
        return place_beside(
            make_source_lines(self.code, {cause.line: ""}, {cause.line: cause.text}) if cause.line else "",
            make_paragraph(gain_text, "strong")
            + compare_times(("now", cause.before_ns), ("without it", cause.after_ns), "good")
            + make_paragraph(f"{_capitalize_sentence(count_text)}.")
            + make_paragraph(f"{remedy}. Notebook {NOTEBOOK_OF_CAUSE[cause.kind]} shows how."),
        )

    def _describe_spills(self) -> list[str]:
        if not self.spilled_bytes:
            return []
        spill_sentence = (
            f"ptxas keeps {count(self.spilled_bytes, 'byte')} of a thread's registers in local memory "
            "(spills), whose time the model does not include. Give each thread less work, or allow it more "
            f"registers. Notebook {NOTEBOOK_OF_CAUSE['spills']} shows how."
        )
        return [spill_sentence]

    def _find_source_line(self, cause: Cause) -> tuple[int | None, Cell]:
        return locate_line(self.code, cause.line, cause.text, cause.column, is_access=bool(cause.text))

    def _describe_changes(self) -> list[str]:
        baseline = self.baseline
        if baseline is None:
            return []
        speedup = baseline.time_ns / self.time_ns
        change_sentence = (
            f"Compared with {baseline.kernel_name} ({duration(baseline.time_ns)}), this launch is "
        )
        change_sentence += (
            f"{number(speedup)} × as fast" if speedup >= 1 else f"{number(1 / speedup)} × as slow"
        )
        causes_before, causes_after = (
            [CAUSE_NAMES[cause.kind] for cause in diagnosis.causes if cause.gain >= MIN_GAIN]
            for diagnosis in (baseline, self)
        )
        change_sentence += f" ({duration(self.time_ns)}). "
        for change_kind, cause_names in (
            ("Fixed", [name for name in causes_before if name not in causes_after]),
            ("Left", [name for name in causes_after if name in causes_before]),
            ("New", [name for name in causes_after if name not in causes_before]),
        ):
            change_sentence += (
                f"{change_kind}: {listing(list(dict.fromkeys(cause_names)))}. " if cause_names else ""
            )
        saved_ns = {stage: baseline.stages[stage] - stage_ns for stage, stage_ns in self.stages.items()}
        improved_stage = max(saved_ns, key=lambda stage: saved_ns[stage])
        if saved_ns[improved_stage] > 0.3 * (baseline.time_ns - self.time_ns) > 0.0:
            change_text = (
                f"{duration(baseline.stages[improved_stage])} → {duration(self.stages[improved_stage])}"
            )
            change_sentence += (
                f"{_capitalize_sentence(_describe_limiting_stage(improved_stage)[1])}: {change_text}."
            )
        return [change_sentence.rstrip()]


def _group_names_by_line(costs: LaunchCosts) -> dict[int, str]:
    """Return the names of a launch's causes, grouped by source line."""
    names_by_line: dict[int, list[str]] = {}
    for cause in costs.causes:
        if cause.line and cause.gain >= MIN_GAIN:
            names_by_line.setdefault(cause.line, []).append(CAUSE_NAMES[cause.kind])
    return {line: listing(list(dict.fromkeys(line_names))) for line, line_names in names_by_line.items()}


def _format_factor(value: float) -> str:
    return f"{number(value)} ×"


def _capitalize_sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _describe_limiting_stage(stage: str) -> tuple[str, str]:
    return BOUND_TEXTS.get(stage, ("compute-bound", f"the {PIPE_NAMES.get(stage, stage)} pipe is busy"))


# What was counted, and the remedy.
Explanation = tuple[str, str]


def _explain_uncoalesced(cause: Cause, _: DiagnosisTable) -> Explanation:
    count_text = (
        f"the lanes of a warp touch {number(cause.figures['sectors'])} sectors per request, where "
        f"{number(cause.figures['ideal'])} would be enough"
    )
    return count_text, (
        "Let neighbouring lanes access neighbouring addresses, by another index or layout, or through a tile "
        "in shared memory"
    )


def _explain_rereading(cause: Cause, _: DiagnosisTable) -> Explanation:
    count_text = f"a block loads each byte {number(cause.figures['times'])} times"
    return count_text, "Read it once into shared memory or registers, and use it from there"


def _explain_conflicts(cause: Cause, _: DiagnosisTable) -> Explanation:
    wavefronts_text = number(cause.figures["wavefronts"])
    ideal_text = number(cause.figures["ideal"])
    moves_matrices = cause.text.startswith(("ldmatrix", "stmatrix"))
    count_text = (
        f"a request takes {wavefronts_text} wavefronts where {ideal_text} would be enough, "
        f"because {'rows' if moves_matrices else 'lanes'} use different words of a bank"
    )
    padding_text = "16 bytes" if moves_matrices else "a word"
    return count_text, f"Pad the rows by {padding_text}, or swizzle the index"


def _explain_atomics(cause: Cause, _: DiagnosisTable) -> Explanation:
    word_text = count(cause.figures["words"], "word")
    update_count = number(cause.figures["after"])
    count_text = (
        f"{count(cause.figures['lanes'], 'lane')} change {word_text} of global memory, one after another"
    )
    return count_text, (
        "Sum in the warp by shuffles, or in the block's shared memory, and update global memory "
        f"only {update_count} times"
    )


def _explain_spills(cause: Cause, _: DiagnosisTable) -> Explanation:
    requests_text = count(cause.figures["requests"], "request")
    return f"an array of each thread is in local memory, which takes {requests_text}", (
        "Unroll the loops that index it, so that it fits in registers, or give each thread a column of "
        "shared memory"
    )


def _explain_divergence(cause: Cause, _: DiagnosisTable) -> Explanation:
    partial_lanes = int(cause.figures["partial"])
    divergent_branches = cause.figures["divergent"]
    if partial_lanes and not divergent_branches:
        count_text = f"the last warp of each block has {count(partial_lanes, 'lane')} of 32"
        return count_text, "Use a block size that is a multiple of 32"
    lanes_text = f"{number(cause.figures['lanes'])} of 32 lanes work on average"
    return f"{lanes_text}; branches divide them {count(divergent_branches, 'time')}", (
        "Let the lanes of a warp take the same path: sort or compact the work, or branch per warp"
    )


def _explain_compute(cause: Cause, _: DiagnosisTable) -> Explanation:
    if cause.detail == "fp64":
        count_text = f"{count(cause.figures['operations'], 'operation')} in double precision"
        rate_text = (
            f", each of which takes {number(cause.figures['rate'])} times as long as in single precision on "
            "this GPU"
        )
        return count_text + rate_text, "Use float, and write constants with an f, as 2.5f"
    if cause.detail == "functions":
        count_text = (
            f"{percent(cause.figures['share'])} of all instructions belong to full-accuracy functions"
        )
        return (
            count_text,
            "For a few correct digits, use intrinsics (__expf, __sinf, __powf) or --use_fast_math",
        )
    return f"{count(cause.figures['operations'], 'division')}, each of about 20 instructions", (
        "Divide by powers of two with shifts and masks, multiply by a reciprocal, or move it out of loops"
    )


def _explain_occupancy(cause: Cause, _: DiagnosisTable) -> Explanation:
    warp_count_text = number(cause.figures["warps"])
    max_warps_text = number(cause.figures["room"])
    limit_text, remedy = {
        "shared memory": (
            f"shared memory, {count(cause.figures['size_bytes'], 'byte')} per block",
            "Use less shared memory",
        ),
        "registers": (
            f"registers, {number(cause.figures['registers'])} per thread",
            "Give each thread less work, or use __launch_bounds__(threads, blocks)",
        ),
        "blocks": (
            f"the number of blocks, because each has {count(cause.figures['threads'], 'thread')}",
            "Use blocks of 128 to 256 threads",
        ),
        "warps": (
            "the size of a block",
            "Choose a block size that divides the SM's maximum number of threads",
        ),
    }[cause.detail]
    return f"an SM has {warp_count_text} of {max_warps_text} warps; the limit is {limit_text}", remedy


def _explain_grid(cause: Cause, _: DiagnosisTable) -> Explanation:
    count_text = f"{count(cause.figures['blocks'], 'block')} for {number(cause.figures['sms'])} SMs"
    return count_text, "Divide the work into more blocks"


def _explain_tail(cause: Cause, _: DiagnosisTable) -> Explanation:
    if cause.figures["longest"] >= UNEVEN_BLOCKS_FACTOR:
        longest_text = number(cause.figures["longest"])
        count_text = f"the longest block takes {longest_text} times the mean, and the launch waits for it"
        return count_text, "Distribute the work evenly, or start the long blocks first"
    waves_text = f"{count(cause.figures['blocks'], 'block')} make {number(cause.figures['waves'])} waves"
    return f"{waves_text}, and the last wave leaves slots empty", (
        "Fill the waves: a grid-stride loop over as many blocks as fit, or smaller blocks"
    )


def _explain_in_flight(cause: Cause, _: DiagnosisTable) -> Explanation:
    if cause.detail == "narrow":
        count_text = (
            f"a lane transfers {count(cause.figures['size_bytes'], 'byte')} at a time, too few in flight"
        )
        return count_text, "Move 4 to 16 bytes per lane, as uchar4 or int4"
    memory_share_text = percent(cause.figures["memory"])
    warp_count = cause.figures["warps"]
    count_text = (
        f"a warp waits for memory during {memory_share_text} of its own time, and "
        f"{count(warp_count, 'warp')} on an SM "
        f"{noun(warp_count, 'keeps', 'keep')} too few bytes in flight to fill its bandwidth"
    )
    return (
        count_text,
        "Let each thread load several independent values before it uses the first, or use more warps",
    )


def _explain_latency(cause: Cause, _: DiagnosisTable) -> Explanation:
    if cause.detail == "memory":
        return "each load waits for an address that another load returns", (
            "Follow several chains at once in a thread, or lay the data out so that addresses can be computed"
        )
    warps_text = count(cause.figures["warps"], "warp")
    verb = noun(cause.figures["warps"], "does", "do")
    return (
        f"each instruction waits for the one before it, and {warps_text} on an SM {verb} not fill the gaps",
        "Give each thread independent work, such as four accumulators, or use more warps",
    )


def _explain_launch(_: Cause, table: DiagnosisTable) -> Explanation:
    host_time_text, kernel_time_text = duration(table.host_ns), duration(table.time_ns)
    return (
        f"the host takes {host_time_text} to launch a kernel that runs for {kernel_time_text}",
        "Do more work per launch, or launch many kernels at once as a CUDA graph",
    )


_EXPLANATIONS: Mapping[CauseKind, Callable[[Cause, DiagnosisTable], Explanation]] = {
    "launch": _explain_launch,
    "tail": _explain_tail,
    "grid": _explain_grid,
    "occupancy": _explain_occupancy,
    "divergence": _explain_divergence,
    "uncoalesced": _explain_uncoalesced,
    "re-reading": _explain_rereading,
    "bank conflicts": _explain_conflicts,
    "atomics": _explain_atomics,
    "spills": _explain_spills,
    "in flight": _explain_in_flight,
    "latency": _explain_latency,
    "compute": _explain_compute,
}
