"""The steps of a warp trace in words."""

from __future__ import annotations

import numpy as np

from gpulab.views.warp import step_text
from virtualgpu.records import WarpTrace
from virtualgpu.records.warp.steps import TraceSteps, kinds
from virtualgpu.words import number


class WarpSteps(TraceSteps):
    """A warp's steps with words for each kind of site, of masks and of access (``access_kinds``)."""

    def __init__(self, trace: WarpTrace) -> None:
        super().__init__(trace)
        at = self.sites.first
        self.place_words = [step_text.place(line) for line in self.line[at].tolist()]
        self.site_words = [step_text.bare_text(trace.instruction[t]) for t in trace.text_index[at].tolist()]
        pairs = np.stack([trace.active_mask, trace.executed_mask], axis=1)[self.masks.first].tolist()
        self.lanes_words = [step_text.lanes_words(active, ran, self.threads) for active, ran in pairs]
        visited = zip(self.visits.active.tolist(), self.visits.lanes.tolist(), strict=True)
        self.visit_words = [
            step_text.lanes_words(active, ran, self.threads, "taking part") for active, ran in visited
        ]
        spaces = np.array(trace.space or [""])[self.space]
        shared = spaces == "shared"
        spent = np.where(shared, self.wavefronts, self.sectors)
        ideal = np.where(shared, self.ideal_wavefronts, self.ideal_sectors)
        executed, text = trace.executed_mask[self.accesses], trace.text_index[self.accesses]
        rest = (self.store, self.size_bytes, spent, ideal, np.bitwise_count(executed))
        self.access_kinds = kinds(text, self.space, *rest)
        rows = (column[self.access_kinds.first].tolist() for column in (text, spaces, *rest))
        self.access_words = [
            step_text.access(trace.instruction[index], *row, drawn=trace.address is not None)
            for index, *row in zip(*rows, strict=True)
        ]

    def sentence(self, step: int, by_line: bool = False) -> str:
        """One step in words, or the visit of a source line that it belongs to."""
        visit = int(self.visits.of[step])
        first, last = (
            (int(self.visits.begin[visit]), int(self.visits.end[visit])) if by_line else (step, step)
        )
        here = slice(*np.searchsorted(self.accesses, (first, last + 1)))
        accesses = [self.access_words[kind] for kind in self.access_kinds.of[here].tolist()]
        site, turn = int(self.sites.of[step]), int(self.loops.turn[last])
        place, lanes = self.place_words[site], self.lanes_words[int(self.masks.of[step])]
        if by_line:
            place, lanes = step_text.place(int(self.visits.line[visit])), self.visit_words[visit]
        said: str = (step_text.LINE_SENTENCE if by_line else step_text.SENTENCE).format(
            step=number((visit if by_line else step) + 1),
            steps=number(len(self.visits) if by_line else len(self)), place=place, lanes=lanes,
            turn=f", {self.loops.words[turn]}" if turn >= 0 else "", text=self.site_words[site],
            access=step_text.briefly(access.brief for access in accesses)
            if by_line
            else "".join(f" {access.sentence}" for access in accesses),
            moved=step_text.moved_words(self.visits.moved[visit]),
        )  # fmt: skip
        return said
