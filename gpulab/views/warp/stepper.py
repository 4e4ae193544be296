"""Warp stepper: one warp through its kernel, source line beside 32 lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views._text import count, number
from gpulab.views.parts import Box, pack
from gpulab.views.warp import columns, picture, words
from gpulab.views.warp.steps import WarpSteps
from virtualgpu.records import BlockTrace, WarpTrace

MAX_STEPS = 20_000


class WarpStepper(View, module="warp/stepper"):
    """Step through one warp: which line runs, which lanes take part, what registers and memory hold.

    Parameters
    ----------
    trace
        The warp's steps, or those of all warps of a block. At most `MAX_STEPS` of a warp are shown.
    measured
        The basic blocks of one warp as a real GPU reported them; the view says whether the
        masks agree.
    warp
        Which warp of a block is shown first; the first one by default.

    Notes
    -----
    Keys: left and right arrow = one step back or on, up and down arrow = source line, Page Up and
    Page Down = memory access, Home and End, space = play; ``i`` and ``I`` = next and previous iteration
    of a loop, ``o`` = out of the loop, ``,`` and ``.`` = lane, ``[`` and ``]`` = warp.
    """

    contents = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(0).tag(sync=True, echo_update=False)
    warp = traitlets.Int(0).tag(sync=True, echo_update=False)
    lane = traitlets.Int(0, min=0, max=31).tag(sync=True, echo_update=False)
    register = traitlets.Unicode("").tag(sync=True, echo_update=False)
    by_line = traitlets.Bool(False).tag(sync=True, echo_update=False)
    fold = traitlets.Bool(True).tag(sync=True, echo_update=False)
    show_ptx = traitlets.Bool(False).tag(sync=True, echo_update=False)

    def __init__(
        self, trace: WarpTrace | BlockTrace, measured: WarpTrace | None = None, warp: int | None = None
    ) -> None:
        traces: Sequence[WarpTrace] = trace.warps if isinstance(trace, BlockTrace) else (trace,)
        self._warps = {t.warp_index: WarpSteps(columns.bounded(t, MAX_STEPS)) for t in traces}
        self.block_steps = trace.steps if isinstance(trace, BlockTrace) else 0
        self._trace, self.measured = trace, measured
        first = traces[0]
        shown = warp if warp in self._warps else first.warp_index
        compared = measured.warp_index if measured is not None else shown
        self.confirmation = ""
        if measured is not None and compared in self._warps:
            self.confirmation = words.confirm(self._warps[compared].trace, measured)
            if len(self._warps) > 1:
                self.confirmation = f"Warp {compared}: {self.confirmation}"
        detail = first.detail
        self._shared = columns.SharedStates(detail.shared) if detail and detail.shared.size_bytes else None
        sources = [trace.provenance.label] + ([measured.provenance.label] if measured else [])
        what = f"Warp {shown}" if len(traces) == 1 else count(len(traces), "warp")
        seen = "Masks, addresses and values" if detail is not None else "Masks and addresses"
        contents, data = pack(self._contents(first))
        super().__init__(
            title=f"{what} of block {_at(trace)} in {trace.kernel_name}",
            caption=f"{seen} {'; masks also '.join(sources)}.",
            source=trace.provenance.source,
            contents=contents,
            data=data,
            warp=shown,
        )

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
        return self.steps.clamp(int(proposal["value"]))

    @traitlets.validate("warp")
    def _known(self, proposal: Any) -> int:
        if int(proposal["value"]) not in self._warps:
            raise traitlets.TraitError(f"This trace has no warp {proposal['value']}.")
        return int(proposal["value"])

    def show_warp(self, warp: int) -> int:
        """Show another warp at the same moment; returns its step."""
        now = self.trace.detail.sequence[self.step] if self.trace.detail is not None else 0
        self.warp = warp
        detail = self.trace.detail
        reached = int(np.searchsorted(detail.sequence, now, side="right")) - 1 if detail is not None else 0
        self.step = reached
        return self.step

    def next(self) -> int:
        """Go one step on (one source line where `by_line`); returns the step."""
        return self.next_line() if self.by_line else self._go(self.step + 1)

    def previous(self) -> int:
        """Go one step back (one source line where `by_line`); returns the step."""
        return self._move("previous_line") if self.by_line else self._go(self.step - 1)

    def next_line(self) -> int:
        """Go to where the next source line begins."""
        return self._move("next_line")

    def next_access(self) -> int:
        """Go to the next memory access."""
        return self._move("next_access")

    def next_iteration(self) -> int:
        """Go to the next iteration of the innermost loop."""
        return self._move("next_iteration")

    def past_loop(self) -> int:
        """Go to the first step after the innermost loop."""
        return self._move("past_loop")

    def _move(self, name: str) -> int:
        return self._go(int(self.steps.moves[name][self.step])) if len(self.steps) else 0

    def _go(self, step: int) -> int:
        self.step = step
        return self.step

    def sentence(self) -> str:
        lanes = np.bitwise_count(self.trace.active_mask) if len(self.trace) else np.zeros(1)
        least = int(lanes.min())
        spread = (
            f"{self.steps.threads} lanes active throughout"
            if least == int(lanes.max())
            else f"between {least} and {count(int(lanes.max()), 'lane')} active"
        )
        unit = "basic block" if self.trace.granularity == "basic block" else "instruction"
        return (
            f"Warp {self.trace.warp_index}{self._among()} of block {_at(self.trace)} in kernel "
            f"{self.trace.kernel_name}: "
            f"{count(len(self.trace), unit)}, {spread}, "
            f"{count(self.steps.accesses.size, 'memory access', 'memory accesses')}; "
            f"{self.trace.provenance.label}{self._masks_from()}."
        )

    def _masks_from(self) -> str:
        """Say whose active masks were set beside the trace's own."""
        if self.measured is None:
            return ""
        return f", its masks beside those {self.measured.provenance.label}"

    def describe(self) -> str:
        parts = [self.sentence(), *self._notes(self.trace)]
        if len(self.trace):
            parts.append(self.steps.sentence(self.step))
            if self._shared is not None and self.trace.detail is not None:
                says, which = self._shared.says(self.trace.detail.sequence[[self.step]])
                parts.append(says[int(which[0])])
        return "\n".join(parts)

    def draw(self) -> Box:
        return picture.draw(self.steps, self.confirmation)

    def _among(self) -> str:
        return f" (of {len(self._warps)})" if len(self._warps) > 1 else ""

    def _notes(self, trace: WarpTrace) -> list[str]:
        """What a learner must know of a trace before reading it."""
        stops = f"The trace stops after {number(len(trace))} steps; the warp ran on."
        if self.block_steps:
            stops = f"The trace stops after {number(self.block_steps)} steps of all warps; the block ran on."
        return [note for note in (self.confirmation, stops if trace.truncated else "", trace.note) if note]

    def _contents(self, first: WarpTrace) -> dict[str, Any]:
        """What the browser shows: texts, and columns that number them."""
        texts = columns.Texts()
        warps: dict[str, Any] = {}
        for warp, steps in self._warps.items():
            warps[str(warp)] = columns.of_warp(steps, texts)
            if self._shared is not None:
                warps[str(warp)] |= self._shared.of_steps(steps, texts)
        cut = next((steps.trace for steps in self._warps.values() if steps.trace.truncated), first)
        looping = any(len(steps.loops) for steps in self._warps.values())
        return {
            "columns": warps,
            "warps": [[warp, steps.threads, number(len(steps))] for warp, steps in self._warps.items()],
            "shared": self._shared and {"size_bytes": self._shared.size_bytes} | self._shared.columns(texts),
            "code": first.code.splitlines(),
            "granularity": first.granularity,
            "sentence": words.SENTENCE,
            "empty": words.EMPTY,
            "notes": self._notes(cut),
            "keys": words.keys(looping, first.detail is not None, len(warps) > 1),
            "texts": texts.all(),
        }


def _at(trace: WarpTrace | BlockTrace) -> str:
    return f"({', '.join(str(i) for i in trace.block_index)})"
