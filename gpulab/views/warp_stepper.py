"""Warp stepper: one warp through its kernel, source line beside 32 lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import traitlets
from matplotlib.figure import Figure

from gpulab.views import _warp_columns, _warp_figure
from gpulab.views._base import View
from gpulab.views._columns import pack
from gpulab.views._text import count, number
from gpulab.views._warp_steps import WarpSteps, confirm, lane_bits
from virtualgpu.records import BlockTrace, WarpTrace
from virtualgpu.records.state import shared_at, shared_changes

MAX_STEPS = 20_000


class WarpStepper(View, module="static/warp_stepper"):
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

    data = traitlets.Bytes(b"").tag(sync=True)
    layout_of_data = traitlets.Dict().tag(sync=True)
    facts = traitlets.Dict().tag(sync=True)
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
        self._warps = {t.warp_index: WarpSteps(_warp_columns.bounded(t, MAX_STEPS)) for t in traces}
        self.block_steps = trace.steps if isinstance(trace, BlockTrace) else 0
        self.measured = measured
        first = traces[0]
        shown = warp if warp in self._warps else first.warp_index
        compared = measured.warp_index if measured is not None else shown
        self.confirmation = ""
        if measured is not None and compared in self._warps:
            self.confirmation = confirm(self._warps[compared].trace, measured)
            if len(self._warps) > 1:
                self.confirmation = f"Warp {compared}: {self.confirmation}"
        data, layout, texts = self._packed()
        sources = [trace.provenance.label] + ([measured.provenance.label] if measured else [])
        what = f"Warp {shown}" if len(traces) == 1 else count(len(traces), "warp")
        seen = "Masks, addresses and values" if first.detail is not None else "Masks and addresses"
        super().__init__(
            title=f"{what} of block {_at(trace)} in {trace.kernel_name}",
            caption=f"{seen} {'; masks also '.join(sources)}.",
            source=trace.provenance.source,
            data=data,
            layout_of_data=layout,
            facts=self._facts(first, texts),
            warp=shown,
        )

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
        self.step = self.steps.next_line(self.step) if self.by_line else self.step + 1
        return self.step

    def previous(self) -> int:
        """Go one step back (one source line where `by_line`); returns the step."""
        self.step = self.steps.previous_line(self.step) if self.by_line else self.step - 1
        return self.step

    def next_line(self) -> int:
        """Go to where the next source line begins."""
        self.step = self.steps.next_line(self.step)
        return self.step

    def next_access(self) -> int:
        """Go to the next memory access."""
        self.step = self.steps.next_access(self.step)
        return self.step

    def next_iteration(self) -> int:
        """Go to the next iteration of the innermost loop."""
        self.step = self.steps.next_iteration(self.step)
        return self.step

    def past_loop(self) -> int:
        """Go to the first step after the innermost loop."""
        self.step = self.steps.past_loop(self.step)
        return self.step

    def sentence(self) -> str:
        masks = self.trace.active_mask
        lanes = lane_bits(masks).sum(axis=1) if len(self.trace) else np.zeros(1)
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
        parts = [self.sentence()]
        if self.confirmation:
            parts.append(self.confirmation)
        if self.trace.truncated:
            parts.append(self._stops())
        if self.trace.note:
            parts.append(self.trace.note)
        if len(self.trace):
            parts.append(self.steps.sentence(self.step))
            parts += self.shared_words()
        return "\n".join(parts)

    def draw(self) -> Figure:
        return _warp_figure.draw(self.steps, self.caption, self.confirmation)

    def shared_words(self) -> list[str]:
        """Shared memory after the current step in words; nothing for a block without."""
        detail = self.trace.detail
        if detail is None or not detail.shared.size_bytes:
            return []
        sequence = int(detail.sequence[self.step])
        _, written = shared_at(detail.shared, sequence)
        changed = shared_changes(detail.shared, sequence).size
        so_far = f"{number(int(written.sum()))} of {number(written.size)} bytes written so far"
        return [f"Shared memory: {so_far}, {number(changed)} in this step."]

    def _among(self) -> str:
        return f" (of {len(self._warps)})" if len(self._warps) > 1 else ""

    def _stops(self) -> str:
        if self.block_steps:
            return f"The trace stops after {number(self.block_steps)} steps of all warps; the block ran on."
        return f"The trace stops after {number(len(self.trace))} steps; the warp ran on."

    def _packed(self) -> tuple[bytes, dict[str, list[str | int]], dict[str, list[str]]]:
        """All columns in one buffer, a warp's named after it, and the texts they number."""
        registers, types = _warp_columns.Names(), _warp_columns.Names()
        columns = {
            f"{warp}/{name}": column
            for warp, steps in self._warps.items()
            for name, column in _warp_columns.of_warp(steps, registers, types).items()
        }
        detail = next(iter(self._warps.values())).trace.detail
        if detail is not None and detail.shared.size_bytes:
            shared = _warp_columns.of_shared(detail.shared, types)
            columns |= {f"shared/{name}": column for name, column in shared.items()}
        data, layout = pack(columns)
        return data, layout, {"registers": registers.texts, "types": types.texts}

    def _facts(self, trace: WarpTrace, texts: dict[str, list[str]]) -> dict[str, Any]:
        notes = [self.confirmation] if self.confirmation else []
        cut = next((s.trace for s in self._warps.values() if s.trace.truncated), None)
        if cut is not None:
            stops = f"The trace stops after {number(len(cut))} steps; the warp ran on."
            notes.append(self._stops() if self.block_steps else stops)
        if trace.note:
            notes.append(trace.note)
        detail = trace.detail
        return texts | {
            "code": trace.code.splitlines(),
            "instructions": [text.strip() for text in trace.instruction],
            "spaces": list(trace.space),
            "warps": [[warp, steps.threads] for warp, steps in self._warps.items()],
            "shared_bytes": detail.shared.size_bytes if detail is not None else 0,
            "granularity": trace.granularity,
            "notes": notes,
        }


def _at(trace: WarpTrace | BlockTrace) -> str:
    return f"({', '.join(str(i) for i in trace.block_index)})"
