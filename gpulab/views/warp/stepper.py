"""Warp stepper: one warp through its kernel, source lines next to 32 lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box
from gpulab.views.parts.pack import pack
from gpulab.views.warp import columns, picture, step_text
from gpulab.views.warp.states import LANE_STATES
from gpulab.views.warp.steps import WarpSteps
from gpulab.words import count, number
from virtualgpu.records import BlockTrace, WarpTrace


class WarpStepper(View, module="warp/stepper"):
    """Step through one warp: its source line, its active lanes, and the contents of registers and memory.

    Parameters
    ----------
    trace
        The warp's steps, or those of all warps of a block.
    measured
        The basic blocks of one warp as a real GPU reported them; the view says whether the
        masks agree.
    warp
        Which warp of a block is shown first; the first one by default. The view names its keys itself.
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
        self._warps = {t.warp_index: WarpSteps(t) for t in traces}
        self._trace = trace
        self.measured = measured
        first = traces[0]
        shown = warp if warp in self._warps else first.warp_index
        stopping = [
            (t.detail.sequence[s.stop_step[0]], w)
            for w, s in self._warps.items()
            if (t := s.trace).detail is not None and s.stop_step.size
        ]
        if stopping and not self._warps[shown].stop_step.size:
            shown = min(stopping)[1]
        begin = int(self._warps[shown].stop_step[0]) if stopping else 0
        compared = measured.warp_index if measured is not None else shown
        self.confirmation = ""
        if measured is not None and compared in self._warps:
            self.confirmation = step_text.confirm(self._warps[compared].trace, measured)
            if len(self._warps) > 1:
                self.confirmation = f"Warp {compared}: {self.confirmation}"
        detail = first.detail
        self._shared = columns.SharedStates(detail.shared) if detail and detail.shared.size_bytes else None
        sources = [trace.provenance.of_results] + ([measured.provenance.label] if measured else [])
        what = f"Warp {shown}" if len(traces) == 1 else count(len(traces), "warp")
        seen = "Masks, addresses and values" if detail is not None else "Masks and addresses"
        contents, data = pack(self._contents(first))
        super().__init__(
            title=f"{what} of block {_at(trace)} in {trace.kernel_name}",
            caption=f"{seen}: {'; masks also '.join(sources)}.",
            source=trace.provenance.of_results.split()[0],
            contents=contents,
            data=data,
            warp=shown,
            register=first.watched[0].text if first.watched else "",
        )
        self.step = begin

    @property
    def record(self) -> WarpTrace | BlockTrace:
        return self._trace

    @property
    def steps(self) -> WarpSteps:
        """The steps of the warp shown."""
        return self._warps[self.warp]

    @property
    def trace(self) -> WarpTrace:
        """The trace of the warp shown."""
        return self.steps.trace

    @traitlets.validate("step")
    def _within(self, proposal: Any) -> int:
        return max(0, min(int(proposal["value"]), len(self.steps) - 1))

    @traitlets.validate("warp")
    def _known(self, proposal: Any) -> int:
        if int(proposal["value"]) not in self._warps:
            raise traitlets.TraitError(f"This trace has no warp {proposal['value']}.")
        return int(proposal["value"])

    def sentence(self) -> str:
        trace = self.trace
        steps = self.steps
        lanes = np.bitwise_count(trace.active_mask) if len(trace) else np.zeros(1)
        least = int(lanes.min())
        most = int(lanes.max())
        throughout = f"{count(steps.threads, 'lane')} active throughout"
        spread = throughout if least == most else f"between {least} and {count(most, 'lane')} active"
        among = f" (of {len(self._warps)})" if len(self._warps) > 1 else ""
        beside = (
            f", its masks beside those {self.measured.provenance.label}" if self.measured is not None else ""
        )
        accesses = count(steps.accesses.size, "memory access", "memory accesses")
        return (
            f"Warp {trace.warp_index}{among} of block {_at(trace)} in kernel {trace.kernel_name}: "
            f"{count(len(trace), trace.granularity)}, {spread}, {accesses}; "
            f"{trace.provenance.of_results}{beside}."
            f"{''.join(f' {note}' for note in self._stop_notes())}"
        )

    def describe(self) -> str:
        parts = [self.sentence(), *self._notes(self.trace)]
        if len(self.trace):
            parts.append(self.steps.sentence(self.step, self.by_line))
            parts += step_text.watched_words(self.trace, self._after, self.lane)
            if (shared := self._shared) is not None and self.trace.detail is not None:
                parts.append(shared.sentences[int(shared.said(self.trace.detail.sequence)[self.step])])
        return "\n".join(parts)

    @property
    def _after(self) -> int:
        """The step whose values are shown: the chosen step, or the last step of its line."""
        visits = self.steps.visits
        return int(visits.end[visits.of[self.step]]) if self.by_line else self.step

    def _stop_notes(self) -> list[str]:
        """Return a note for each stop: how often the warps stop for it, and where first."""
        every = self._warps.values()
        notes = []
        for n, stop in enumerate(next(iter(every)).trace.stops):
            places = [
                (int(sequence[step[0]]), steps.trace.warp_index, int(step[0]), int(steps.line[step[0]]))
                for steps in every
                if steps.trace.detail is not None
                and (step := steps.trace.stops[n].step).size
                and (sequence := steps.trace.detail.sequence).size
            ]
            times = sum(steps.trace.stops[n].step.size for steps in every)
            first = ""
            if places:
                _, warp, step_index, line = min(places)
                among = f" of warp {warp}" if len(self._warps) > 1 else ""
                first = f"instruction {number(step_index + 1)}{among} ({step_text.place(line)})"
            notes.append(step_text.stops_note(stop.text, stop.note, times, first))
        return notes

    def draw(self) -> Box:
        notes = [self.confirmation, *self._stop_notes()]
        if len(self.trace) and (values := step_text.watched_words(self.trace, self._after, self.lane)):
            notes.append(f"At instruction {number(self.step + 1)}: {'; '.join(values)}.")
        return picture.draw(self.steps, " ".join(filter(None, notes)))

    def _notes(self, trace: WarpTrace) -> list[str]:
        """Return notes that a learner must read before the trace."""
        stops = f"The trace stops after {count(len(trace), 'step')}; the warp ran on."
        if isinstance(self._trace, BlockTrace):
            stops = (
                f"The trace stops after {count(self._trace.steps, 'step')} of all warps; the block ran on."
            )
        notes = (
            self.confirmation,
            " ".join(self._stop_notes()),
            stops if trace.truncated else "",
            trace.note,
        )
        return [note for note in notes if note]

    def _contents(self, first: WarpTrace) -> dict[str, Any]:
        """Return the contents for the browser: texts, and columns with their indices."""
        texts = columns.Texts()
        shared = self._shared
        every = list(self._warps.values())
        warps = {str(warp): columns.of_warp(steps, texts, shared) for warp, steps in self._warps.items()}
        cut = next((steps.trace for steps in every if steps.trace.truncated), first)
        looping = any(len(steps.loops) for steps in every)
        return {
            "columns": warps,
            "warps": [[warp, steps.threads, number(len(steps))] for warp, steps in self._warps.items()],
            "shared": shared and shared.columns(texts),
            "lane_states": {state.key: [state.symbol, state.name, state.meaning] for state in LANE_STATES},
            "code": first.code.rstrip("\n").split("\n"),
            "granularity": first.granularity,
            "sentence": step_text.SENTENCE,
            "line_sentence": step_text.LINE_SENTENCE,
            "empty": step_text.EMPTY,
            "notes": self._notes(cut),
            "most_briefs": step_text.MOST_BRIEFS,
            "variables": [
                [
                    variable.name,
                    variable.type,
                    variable.kind,
                    variable.first_line,
                    variable.last_line,
                    bool(variable.written_by),
                ]
                for variable in first.variables
            ],
            "watches": [[variable.text, variable.type, variable.kind] for variable in first.watched],
            "stopping": any(steps.stop_words for steps in every),
            "keys": step_text.keys(
                looping, first.detail is not None, len(warps) > 1, any(steps.stop_words for steps in every)
            ),
            "texts": list(texts.known),
        }


def _at(trace: WarpTrace | BlockTrace) -> str:
    return f"({', '.join(str(i) for i in trace.block_index)})"
