"""Launch chart: the blocks of one launch on their SMs over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import traitlets
from matplotlib.figure import Figure

from gpulab.views import _launch_figure
from gpulab.views._base import View
from gpulab.views._columns import Layout, pack
from gpulab.views._text import count, duration, number, percent, product, shape
from gpulab.views._waves import Waves, limit_rows, limit_scale, limiter_words, occupancy_words
from virtualgpu.records import LaunchTrace

BLOCK_SIZES = range(32, 1025, 32)


class LaunchChart(View, module="static/launch_chart"):
    """Where and when every block ran, in how many waves, and what limits the occupancy.

    Parameters
    ----------
    trace
        The launch.
    at_block_size
        Gives the launch for another number of threads a block (32 to 1024); with it the view has
        a slider. An error it raises is shown in the view, which keeps its last picture.
    compare
        Another launch beside it, such as the measured one beside the modelled one.

    Attributes
    ----------
    redraw_ms
        Milliseconds from the last move of the slider to its new picture, as the browser measured.
    """

    data = traitlets.Bytes(b"").tag(sync=True)
    layout_of_data = traitlets.Dict().tag(sync=True)
    facts = traitlets.Dict().tag(sync=True)
    compare_data = traitlets.Bytes(b"").tag(sync=True)
    compare_layout = traitlets.Dict().tag(sync=True)
    compare_facts = traitlets.Dict().tag(sync=True)
    has_slider = traitlets.Bool(False).tag(sync=True)
    block_threads = traitlets.Int(0).tag(sync=True, echo_update=False)
    pictures = traitlets.Int(0).tag(sync=True)
    redraw_ms = traitlets.Float(0.0).tag(sync=True, echo_update=False)

    def __init__(
        self,
        trace: LaunchTrace,
        at_block_size: Callable[[int], LaunchTrace] | None = None,
        compare: LaunchTrace | None = None,
    ) -> None:
        self.trace = trace
        self.compare = compare
        self._at_block_size = at_block_size
        data, layout = _columns_of(trace)
        compare_data, compare_layout = _columns_of(compare) if compare is not None else (b"", {})
        super().__init__(
            title=f"Launch of {trace.kernel_name}: blocks on SMs over time",
            caption=_caption(trace, compare),
            source=trace.provenance.source,
            data=data,
            layout_of_data=layout,
            facts=_facts(trace),
            compare_data=compare_data,
            compare_layout=compare_layout,
            compare_facts=_facts(compare) if compare is not None else {},
            has_slider=at_block_size is not None,
            block_threads=product(trace.block),
        )
        self.observe(self._on_block_threads, "block_threads")

    def _on_block_threads(self, change: Any) -> None:
        with self._lock:
            try:
                with self._reporting(f"The launch with {change['new']} threads a block"):
                    if self._at_block_size is None:
                        raise TypeError("this view was made without at_block_size")
                    self._show(self._at_block_size(int(change["new"])))
            finally:
                # The browser waits for this number before it sends the slider's next place.
                self.pictures += 1

    def _show(self, trace: LaunchTrace) -> None:
        data, layout = _columns_of(trace)
        facts = _facts(trace)
        self.trace = trace
        with self.hold_sync():
            self.data, self.layout_of_data, self.facts = data, layout, facts
            self.caption = _caption(trace, self.compare)

    def sentence(self) -> str:
        trace, waves = self.trace, Waves(self.trace)
        text = (
            f"Launch of kernel {trace.kernel_name}: {count(waves.blocks, 'block')} of "
            f"{count(product(trace.block), 'thread')} on {count(trace.sm_count, 'SM')} in "
            f"{waves.wave_words()}, occupancy {percent(trace.occupancy.fraction)} "
            f"{limiter_words(trace.occupancy)}; {trace.provenance.label}"
        )
        return f"{text}, beside {self.compare.provenance.label}." if self.compare is not None else f"{text}."

    def describe(self) -> str:
        lines = [self.sentence()]
        for trace in (self.trace, self.compare):
            if trace is None:
                continue
            waves, fit = Waves(trace), trace.occupancy
            limits = ", ".join(f"{limit} {blocks}" for limit, blocks in fit.blocks_by_limit.items())
            lines.append(
                f"{trace.provenance.label[0].upper()}{trace.provenance.label[1:]}: grid {shape(trace.grid)}, "
                f"block {shape(trace.block)}, {number(trace.blocks_per_wave)} blocks at once, span "
                f"{duration(trace.span_ns)}, {percent(waves.idle_share)} of the block places idle."
            )
            lines.append(
                f"Theoretical occupancy {percent(fit.fraction)}, {occupancy_words(fit)}; "
                f"blocks per SM by limit: {limits}."
            )
            if trace.note:
                lines.append(trace.note)
        return "\n".join(lines)

    def draw(self) -> Figure:
        return _launch_figure.draw(self.trace, self.compare, self.caption)


def _columns_of(trace: LaunchTrace) -> tuple[bytes, Layout]:
    waves = Waves(trace)
    order = waves.order
    # Four bytes hold times up to 2.1 s exactly, and halve what a slider sends.
    fits = max(trace.span_ns, waves.blocks) < 1 << 31
    kind = np.int32 if fits else np.float64
    return pack(
        {
            "block": trace.block_index[order].astype(kind),
            "sm": trace.sm_id[order].astype(np.int32),
            "start_ns": trace.start_ns[order].astype(kind),
            "end_ns": trace.end_ns[order].astype(kind),
            "wave": waves.wave,
            "tail": waves.in_tail,
        }
    )


def _facts(trace: LaunchTrace) -> dict[str, Any]:
    waves, fit = Waves(trace), trace.occupancy
    return {
        "label": trace.provenance.label,
        "source": trace.provenance.source,
        "sm_count": trace.sm_count,
        "blocks_per_sm": fit.blocks_per_sm,
        "block_threads": product(trace.block),
        "sampled": trace.sampled,
        "span_ns": trace.span_ns,
        "wave_words": waves.wave_words(),
        "numbers": waves.numbers(),
        "occupancy": f"Theoretical occupancy {percent(fit.fraction)} ({occupancy_words(fit)}), "
        f"{limiter_words(fit)}",
        "limits": limit_rows(fit),
        "limit_scale": limit_scale(fit),
        "registers": fit.registers_per_thread,
        "shared_bytes": fit.shared_bytes,
        "note": _sampling(trace),
    }


def _sampling(trace: LaunchTrace) -> str:
    parts = [f"Every {trace.sampled}th block is drawn."] if trace.sampled > 1 else []
    return " ".join([*parts, trace.note]).strip()


def _caption(trace: LaunchTrace, compare: LaunchTrace | None) -> str:
    first = f"Placement and times {trace.provenance.label}"
    step = f"; timer step {trace.timer_step_ns} ns" if trace.timer_step_ns > 1 else ""
    beside = f"; beside it {compare.provenance.label}" if compare is not None else ""
    return f"{first}{step}{beside}. {_sampling(trace)}".strip()
