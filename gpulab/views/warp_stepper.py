"""Warp stepper: one warp through its kernel, source line beside 32 lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets
from matplotlib.figure import Figure

from gpulab.records import WARP_SIZE, WarpTrace
from gpulab.views import _warp_figure
from gpulab.views._base import View
from gpulab.views._columns import pack
from gpulab.views._text import count, number
from gpulab.views._warp_steps import WarpSteps, confirm, lane_bits, value_type

MAX_STEPS = 20_000


class WarpStepper(View, module="warp_stepper"):
    """Step through one warp: which source line runs, which lanes take part, what memory they touch.

    Parameters
    ----------
    trace
        The warp's steps. At most `MAX_STEPS` are shown.
    measured
        The same warp's basic blocks as a real GPU reported them; the view says whether the
        masks agree.

    Notes
    -----
    Keys: left and right arrow = one step back or on, up and down arrow = source line, Page Up and
    Page Down = memory access, Home and End, space = play.
    """

    data = traitlets.Bytes(b"").tag(sync=True)
    layout_of_data = traitlets.Dict().tag(sync=True)
    facts = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(0).tag(sync=True, echo_update=False)
    by_line = traitlets.Bool(False).tag(sync=True, echo_update=False)
    show_ptx = traitlets.Bool(False).tag(sync=True, echo_update=False)

    def __init__(self, trace: WarpTrace, measured: WarpTrace | None = None) -> None:
        self.trace = _bounded(trace)
        self.measured = measured
        self.steps = WarpSteps(self.trace)
        self.confirmation = confirm(self.trace, measured) if measured is not None else ""
        data, layout = pack(_columns_of(self.steps))
        sources = [trace.provenance.label] + ([measured.provenance.label] if measured else [])
        super().__init__(
            title=f"Warp {trace.warp_index} of block {_at(trace)} in {trace.kernel_name}",
            caption=f"Masks and addresses {'; masks also '.join(sources)}.",
            source=trace.provenance.source,
            data=data,
            layout_of_data=layout,
            facts=self._facts(),
        )

    @traitlets.validate("step")
    def _within(self, proposal: Any) -> int:
        return self.steps.clamp(int(proposal["value"]))

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
            f"Warp {self.trace.warp_index} of block {_at(self.trace)} in kernel {self.trace.kernel_name}: "
            f"{count(len(self.trace), unit)}, {spread}, "
            f"{count(self.steps.accesses.size, 'memory access').replace('accesss', 'accesses')}; "
            f"{self.trace.provenance.label}."
        )

    def describe(self) -> str:
        parts = [self.sentence()]
        if self.confirmation:
            parts.append(self.confirmation)
        if self.trace.truncated:
            parts.append(f"The trace stops after {number(len(self.trace))} steps; the warp ran on.")
        if self.trace.note:
            parts.append(self.trace.note)
        if len(self.trace):
            parts.append(self.steps.sentence(self.step))
        return "\n".join(parts)

    def draw(self) -> Figure:
        return _warp_figure.draw(self.steps, self.caption, self.confirmation)

    def _facts(self) -> dict[str, Any]:
        trace = self.trace
        notes = [self.confirmation] if self.confirmation else []
        if trace.truncated:
            notes.append(f"The trace stops after {number(len(trace))} steps; the warp ran on.")
        if trace.note:
            notes.append(trace.note)
        return {
            "code": trace.code.splitlines(),
            "instructions": [text.strip() for text in trace.instruction],
            "spaces": list(trace.space),
            "value_types": [
                value_type(text, declared)
                for text, declared in zip(trace.instruction, trace.value_type, strict=False)
            ],
            "value_registers": list(trace.value_register),
            "threads": self.steps.threads,
            "granularity": trace.granularity,
            "notes": notes,
        }


def _at(trace: WarpTrace) -> str:
    return f"({', '.join(str(i) for i in trace.block_index)})"


def _bounded(trace: WarpTrace) -> WarpTrace:
    if len(trace) <= MAX_STEPS:
        return trace
    fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            fields[name] = value[:MAX_STEPS]
    return WarpTrace(**{**fields, "truncated": True})


def _columns_of(steps: WarpSteps) -> dict[str, np.ndarray[Any, Any]]:
    """What the browser needs; addresses and values only of the steps that have them."""
    trace, accesses = steps.trace, steps.accesses
    columns: dict[str, np.ndarray[Any, Any]] = {
        "pc": trace.pc.astype(np.int32),
        "line": steps.line,
        "active": trace.active_mask.astype(np.uint32),
        "executed": trace.executed_mask.astype(np.uint32),
        "text": trace.text_index.astype(np.int32),
        "line_starts": steps.line_starts,
        "accesses": accesses,
    }
    if accesses.size and trace.access_space is not None:
        columns["space"] = trace.access_space[accesses].astype(np.int8)
        columns["sectors"], columns["ideal_sectors"] = steps.sectors, steps.ideal_sectors
        columns["wavefronts"], columns["ideal_wavefronts"] = steps.wavefronts, steps.ideal_wavefronts
        if trace.access_is_store is not None:
            columns["is_store"] = trace.access_is_store[accesses].astype(np.uint8)
        if trace.access_size_bytes is not None:
            columns["size_bytes"] = trace.access_size_bytes[accesses].astype(np.int16)
        if trace.address is not None:
            columns["address"] = trace.address[accesses].astype(np.int64).reshape(-1)
    if trace.value is not None and trace.value_register:
        named = np.array([bool(register) for register in trace.value_register], np.bool_)
        rows = np.flatnonzero(named[trace.text_index]).astype(np.int32)
        columns["value_steps"] = rows
        columns["value"] = trace.value[rows].astype(np.uint64).reshape(-1, WARP_SIZE).reshape(-1)
    return columns
