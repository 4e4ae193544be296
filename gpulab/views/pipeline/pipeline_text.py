"""Sentences about a pipeline: its fills, uses, waits and mistakes, with their source lines."""

from __future__ import annotations

from collections.abc import Sequence

from gpulab.analysis.pipeline.record import Fill, Mark, Mistake, Pipeline, Use
from gpulab.words import count, listing

_MAX_SOURCE_LENGTH = 90


def format_warps(warps: Sequence[int]) -> str:
    """Return a phrase with the numbers of warps, such as ``warp 3``, ``warps 0–3`` or ``warps 0, 2 and
    5``.
    """
    if len(warps) > 2 and warps[-1] - warps[0] == len(warps) - 1:
        return f"warps {warps[0]}–{warps[-1]}"
    return f"warp{'s' if len(warps) > 1 else ''} {listing([str(warp) for warp in warps])}"


def format_lines(lines: Sequence[int]) -> str:
    """Return a phrase with the numbers of source lines, such as ``line 3`` or ``lines 3 and 5``."""
    return f"line{'s' if len(lines) > 1 else ''} {listing([str(line) for line in lines])}"


class PipelineText:
    """The sentences that describe one pipeline of shared-memory buffers."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._source = pipeline.trace.warps[0].code.split("\n")

    def find_source_line(self, line: int) -> str:
        """Return the text of a source line, or an empty string if it is not known. Long lines are
        shortened.
        """
        line_text = self._source[line - 1].strip() if 0 < line <= len(self._source) else ""
        return line_text if len(line_text) <= _MAX_SOURCE_LENGTH else f"{line_text[:_MAX_SOURCE_LENGTH]}…"

    def name_iteration(self, position: int) -> str:
        """Return the loop iteration of a position as text, such as `` (iteration 2)``. If the pipeline has no
        loop, return an empty string.
        """
        if not self.pipeline.iterations:
            return ""
        started_count = sum(iteration.position <= position for iteration in self.pipeline.iterations)
        return f" (iteration {started_count - 1})" if started_count else " (before the loop)"

    def describe_fill(self, fill: Fill) -> str:
        """Describe a fill of a buffer with the warps and lines that start it, and those that wait for it."""
        fill_verb = "start to copy" if fill.asynchronous else "store"
        fill_verb = (
            fill_verb
            if len(fill.warps) > 1
            else fill_verb.replace("start", "starts").replace("store", "stores")
        )
        fill_text = (
            f"Buffer {fill.buffer}, fill {fill.number}: {format_warps(fill.warps)} {fill_verb} it at "
            f"{format_lines(fill.lines)}{self.name_iteration(fill.start)}"
        )
        if not fill.asynchronous:
            return f"{fill_text}."
        if fill.landed is None:
            return f"{fill_text}; the block does not wait for all of these copies."
        wait_text = f"{format_lines(fill.wait_lines)}{self.name_iteration(fill.landed)}"
        return f"{fill_text}; the wait for it is at {wait_text}."

    def describe_use(self, use: Use) -> str:
        """Describe a use of a buffer with the warps and lines that read it."""
        use_verb = "read" if len(use.warps) > 1 else "reads"
        return (
            f"Buffer {use.buffer}, use of fill {use.fill}: {format_warps(use.warps)} {use_verb} it at "
            f"{format_lines(use.lines)}{self.name_iteration(use.start)}."
        )

    def describe_mark(self, mark: Mark) -> str:
        """Describe a wait, a barrier or another point at which warps synchronise."""
        mark_meaning = {
            "commit": "close a group of copies",
            "wait": f"wait until at most {count(mark.pending, 'group')} of each thread's copies "
            f"{'is' if mark.pending == 1 else 'are'} in flight"
            if mark.pending
            else "wait for all of their copies",
            "barrier": "wait for each other at a barrier",
            "arrival": "arrive at an mbarrier",
            "wait for arrivals": "have waited for an mbarrier",
        }[mark.kind]
        position_text = f"Line {mark.line}{self.name_iteration(mark.position)}"
        return f"{position_text}: {format_warps(mark.warps)} {mark_meaning}."

    def describe_mistake(self, mistake: Mistake) -> str:
        """Describe a synchronisation mistake with its two source lines, and name the remedy."""
        use, fill = mistake.use, mistake.fill
        first_buffer_number, first_fill_number = mistake.fills[0]
        is_copy = any(
            buffer_fill.asynchronous
            for buffer_fill in self.pipeline.fills
            if (buffer_fill.buffer, buffer_fill.number) == (first_buffer_number, first_fill_number)
        )
        fill_noun = "copy" if is_copy else "store"
        owner_text = "its own" if (use.warp, mistake.kind) == (fill.warp, "early") else f"warp {fill.warp}'s"
        use_text = f"line {use.line}{self.name_iteration(use.position)}"
        if mistake.kind == "early":
            mistake_text = (
                f"Used too early: warp {use.warp} reads buffer {first_buffer_number} at {use_text} "
                f"without waiting for {owner_text} {fill_noun} of line {fill.line}."
            )
            if use.warp == fill.warp:
                remedy = f"Wait for the {fill_noun} between lines {fill.line} and {use.line}."
            elif is_copy:
                remedy = (
                    f"Warp {fill.warp} must wait for its copy, and then a barrier must come before line "
                    f"{use.line}."
                )
            else:
                remedy = f"A barrier must come between lines {fill.line} and {use.line}."
        else:
            mistake_text = (
                f"Overwritten while in use: {owner_text} {fill_noun} of line {fill.line} fills buffer "
                f"{first_buffer_number} without waiting until warp {use.warp} has read it at {use_text}."
            )
            remedy = f"A barrier must come after line {use.line} and before line {fill.line}."
        buffer_numbers = sorted({buffer_number for buffer_number, _ in mistake.fills})
        buffers_text = (
            f"buffer{'s' if len(buffer_numbers) > 1 else ''} "
            f"{listing([str(buffer_number) for buffer_number in buffer_numbers])}"
        )
        return f"{mistake_text} {remedy} {count(mistake.count, 'read')} of {buffers_text} in total."
