"""The warp stepper: the steps of a warp through its kernel, with source lines next to 32 lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.parts import cuda
from gpulab.views.parts.boxes import Box
from gpulab.views.parts.pack import pack
from gpulab.views.warp import columns, picture, step_text
from gpulab.views.warp.states import LANE_STATES
from gpulab.views.warp.steps import WarpSteps
from gpulab.words import count, number
from virtualgpu.records import BlockTrace, WarpTrace


class WarpStepper(View, module="warp/stepper"):
    """A view of the steps of a warp, with source lines, active lanes, and the contents of registers and
    memory.

    Parameters
    ----------
    trace
        The warp's steps, or those of all warps of a block.
    measured
        The basic blocks of one warp that a real GPU reported; the view reports whether the masks agree.
    warp
        The warp of a block that is shown first; the first one by default.
    """

    contents = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(0).tag(sync=True, echo_update=False)
    warp = traitlets.Int(0).tag(sync=True, echo_update=False)
    lane = traitlets.Int(0, min=0, max=31).tag(sync=True, echo_update=False)
    register = traitlets.Unicode("").tag(sync=True, echo_update=False)
    by_line = traitlets.Bool(True).tag(sync=True, echo_update=False)
    fold = traitlets.Bool(True).tag(sync=True, echo_update=False)
    show_ptx = traitlets.Bool(False).tag(sync=True, echo_update=False)

    def __init__(
        self, trace: WarpTrace | BlockTrace, measured: WarpTrace | None = None, warp: int | None = None
    ) -> None:
        traces = trace.warps if isinstance(trace, BlockTrace) else (trace,)
        self._steps_of_warp = {warp_trace.warp_index: WarpSteps(warp_trace) for warp_trace in traces}
        self._trace = trace
        self.measured = measured
        first_trace = traces[0]
        displayed_warp = warp if warp in self._steps_of_warp else first_trace.warp_index
        first_stops = [
            (warp_trace.detail.sequence[warp_steps.stop_step[0]], warp_index)
            for warp_index, warp_steps in self._steps_of_warp.items()
            if (warp_trace := warp_steps.trace).detail is not None and warp_steps.stop_step.size
        ]
        if first_stops and not self._steps_of_warp[displayed_warp].stop_step.size:
            displayed_warp = min(first_stops)[1]
        first_step = int(self._steps_of_warp[displayed_warp].stop_step[0]) if first_stops else 0
        compared_warp = measured.warp_index if measured is not None else displayed_warp
        self.confirmation = ""
        if measured is not None and compared_warp in self._steps_of_warp:
            self.confirmation = step_text.compare_masks(self._steps_of_warp[compared_warp].trace, measured)
            if len(self._steps_of_warp) > 1:
                self.confirmation = f"Warp {compared_warp}: {self.confirmation}"
        trace_detail = first_trace.detail
        self._shared_states = (
            columns.SharedMemoryStates(trace_detail.shared)
            if trace_detail and trace_detail.shared.size_bytes
            else None
        )
        origin_texts = [trace.provenance.of_results] + ([measured.provenance.label] if measured else [])
        warps_text = f"Warp {displayed_warp}" if len(traces) == 1 else count(len(traces), "warp")
        contents_text = "Masks, addresses and values" if trace_detail is not None else "Masks and addresses"
        page_data, packed_data = pack(self._make_contents(first_trace))
        super().__init__(
            title=f"{warps_text} of block {_make_block_text(trace)} in {trace.kernel_name}",
            caption=f"{contents_text}: {'; masks also '.join(origin_texts)}.",
            source=trace.provenance.of_results.split()[0],
            contents=page_data,
            data=packed_data,
            warp=displayed_warp,
            register=first_trace.watched[0].text if first_trace.watched else "",
        )
        self.step = first_step

    @property
    def record(self) -> WarpTrace | BlockTrace:
        return self._trace

    @property
    def steps(self) -> WarpSteps:
        """The steps of the displayed warp."""
        return self._steps_of_warp[self.warp]

    @property
    def trace(self) -> WarpTrace:
        """The warp trace that the view displays."""
        return self.steps.trace

    @traitlets.validate("step")
    def _valid_step(self, proposal: Any) -> int:
        return max(0, min(int(proposal["value"]), len(self.steps) - 1))

    @traitlets.validate("warp")
    def _valid_warp(self, proposal: Any) -> int:
        if int(proposal["value"]) not in self._steps_of_warp:
            raise traitlets.TraitError(f"This trace has no warp {proposal['value']}.")
        return int(proposal["value"])

    def sentence(self) -> str:
        trace = self.trace
        warp_steps = self.steps
        lanes = np.bitwise_count(trace.active_mask) if len(trace) else np.zeros(1)
        min_lanes = int(lanes.min())
        max_lanes = int(lanes.max())
        constant_text = f"{count(warp_steps.threads, 'lane')} active throughout"
        lanes_text = (
            constant_text
            if min_lanes == max_lanes
            else f"between {min_lanes} and {count(max_lanes, 'lane')} active"
        )
        warps_text = f" (of {len(self._steps_of_warp)})" if len(self._steps_of_warp) > 1 else ""
        measured_text = f", with masks {self.measured.provenance.label}" if self.measured is not None else ""
        accesses_text = count(warp_steps.accesses.size, "memory access", "memory accesses")
        return (
            f"Warp {trace.warp_index}{warps_text} of block {_make_block_text(trace)} "
            f"in kernel {trace.kernel_name}: {count(len(trace), trace.granularity)}, "
            f"{lanes_text}, {accesses_text}; {trace.provenance.of_results}{measured_text}."
            f"{''.join(f' {note}' for note in self._make_stop_notes())}"
        )

    def describe(self) -> str:
        sentences = [self.sentence(), *self._list_notes(self.trace)]
        if len(self.trace):
            sentences.append(self.steps.sentence(self.step, self.by_line))
            sentences += filter(None, [self._make_optimized_out_text()])
            sentences += step_text.list_watch_sentences(self.trace, self._value_step, self.lane)
            if (shared := self._shared_states) is not None and self.trace.detail is not None:
                sentences.append(
                    shared.sentences[int(shared.find_sentence_indices(self.trace.detail.sequence)[self.step])]
                )
        return "\n".join(sentences)

    @property
    def _value_step(self) -> int:
        """The step whose values are shown: the selected step, or the last step of its line."""
        visits = self.steps.visits
        return int(visits.end[visits.visit_of_step[self.step]]) if self.by_line else self.step

    def _make_optimized_out_text(self) -> str:
        """Return a sentence about the variables of the current line that the compiler has optimized out."""
        line = self.steps.visits.line[self.steps.visits.visit_of_step[self.step]]
        return step_text.make_optimized_out_text(self.trace, int(line))

    def _make_stop_notes(self) -> list[str]:
        """Return a note for each stop condition: how often the warps stop, and where the first stop is."""
        all_steps = self._steps_of_warp.values()
        stop_notes = []
        for stop_index, stop_condition in enumerate(next(iter(all_steps)).trace.stops):
            stop_positions = [
                (
                    int(sequence[stop_steps[0]]),
                    warp_steps.trace.warp_index,
                    int(stop_steps[0]),
                    int(warp_steps.line[stop_steps[0]]),
                )
                for warp_steps in all_steps
                if warp_steps.trace.detail is not None
                and (stop_steps := warp_steps.trace.stops[stop_index].step).size
                and (sequence := warp_steps.trace.detail.sequence).size
            ]
            stop_count = sum(warp_steps.trace.stops[stop_index].step.size for warp_steps in all_steps)
            first_stop_text = ""
            if stop_positions:
                _, warp, step_index, line = min(stop_positions)
                warp_text = f" of warp {warp}" if len(self._steps_of_warp) > 1 else ""
                first_stop_text = (
                    f"instruction {number(step_index + 1)}{warp_text} ({step_text.make_place_text(line)})"
                )
            stop_notes.append(
                step_text.make_stops_sentence(
                    stop_condition.text, stop_condition.note, stop_count, first_stop_text
                )
            )
        return stop_notes

    def draw(self) -> Box:
        notes = [self.confirmation, *self._make_stop_notes()]
        if len(self.trace) and (
            value_sentences := step_text.list_watch_sentences(self.trace, self._value_step, self.lane)
        ):
            notes.append(f"At instruction {number(self.step + 1)}: {'; '.join(value_sentences)}.")
        if len(self.trace):
            notes.append(self._make_optimized_out_text())
        return picture.draw_warp(self.steps, " ".join(filter(None, notes)))

    def _list_notes(self, trace: WarpTrace) -> list[str]:
        """Return notes that the learner must read before the trace."""
        truncation_text = f"The trace stops after {count(len(trace), 'step')}; the warp continued."
        if isinstance(self._trace, BlockTrace):
            truncation_text = (
                f"The trace stops after {count(self._trace.steps, 'step')} of all warps; the block continued."
            )
        notes = (
            self.confirmation,
            " ".join(self._make_stop_notes()),
            truncation_text if trace.truncated else "",
            trace.note,
        )
        return [note for note in notes if note]

    def _make_contents(self, first_trace: WarpTrace) -> dict[str, Any]:
        """Return the data for the browser: strings, and columns with indices of strings."""
        text_table = columns.TextTable()
        shared = self._shared_states
        all_steps = list(self._steps_of_warp.values())
        warps = {
            str(warp): columns.make_warp_columns(warp_steps, text_table, shared)
            for warp, warp_steps in self._steps_of_warp.items()
        }
        first_note_trace = next(
            (warp_steps.trace for warp_steps in all_steps if warp_steps.trace.truncated), first_trace
        )
        has_loops = any(len(warp_steps.loops) for warp_steps in all_steps)
        return {
            "columns": warps,
            "warps": [
                [warp, warp_steps.threads, number(len(warp_steps))]
                for warp, warp_steps in self._steps_of_warp.items()
            ],
            "shared": shared and shared.columns(text_table),
            "lane_states": {
                lane_state.key: [lane_state.symbol, lane_state.name, lane_state.meaning]
                for lane_state in LANE_STATES
            },
            "code": cuda.split_tokens(first_trace.code.rstrip("\n")),
            "granularity": first_trace.granularity,
            "sentence": step_text.STEP_SENTENCE,
            "line_sentence": step_text.LINE_VISIT_SENTENCE,
            "empty": step_text.NO_STEPS_SENTENCE,
            "optimized_out": [step_text.OPTIMIZED_OUT, step_text.OPTIMIZED_OUT_HELP],
            "notes": self._list_notes(first_note_trace),
            "most_briefs": step_text.MAX_LISTED_TEXTS,
            "variables": [
                [
                    variable.name,
                    variable.type,
                    variable.kind,
                    variable.first_line,
                    variable.last_line,
                    bool(variable.written_by),
                ]
                for variable in first_trace.variables
            ],
            "watches": [[variable.text, variable.type, variable.kind] for variable in first_trace.watched],
            "stopping": any(warp_steps.stop_texts for warp_steps in all_steps),
            "keys": step_text.describe_keys(
                has_loops,
                first_trace.detail is not None,
                len(warps) > 1,
                any(warp_steps.stop_texts for warp_steps in all_steps),
            ),
            "texts": list(text_table.number_of_text),
        }


def _make_block_text(trace: WarpTrace | BlockTrace) -> str:
    return f"({', '.join(str(coordinate) for coordinate in trace.block_index)})"
