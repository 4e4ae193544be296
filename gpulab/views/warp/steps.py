"""The steps of a warp trace in words."""

from __future__ import annotations

import numpy as np

from gpulab.views.warp import step_text
from gpulab.words import number
from virtualgpu.records import WarpTrace
from virtualgpu.records.warp.loops import Ints, neighbours
from virtualgpu.records.warp.steps import TraceSteps, kinds


class WarpSteps(TraceSteps):
    """A warp's steps, with words for each site, mask, access (``access_kinds``) and stop."""

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
        executed = trace.executed_mask[self.accesses]
        text = trace.text_index[self.accesses]
        rest = (self.store, self.size_bytes, spent, ideal, np.bitwise_count(executed))
        self.access_kinds = kinds(text, self.space, *rest)
        rows = (column[self.access_kinds.first].tolist() for column in (text, spaces, *rest))
        self.access_words = [
            step_text.access(trace.instruction[index], *row, drawn=trace.address is not None)
            for index, *row in zip(*rows, strict=True)
        ]

        self.stop_step, self.stop_words = self._stops(trace)
        if trace.stops:
            here = np.arange(len(trace), dtype=np.int32)
            visits = self.visits
            self.moves["next_stop"], self.moves["previous_stop"] = neighbours(np.unique(self.stop_step), here)
            # By line, of several stops in one visit the first is gone to, and those of one's own are reached.
            of = np.unique(visits.of[self.stop_step], return_index=True)
            on, back = (np.searchsorted(of[0], visits.of, side=side) for side in ("right", "left"))
            at = np.append(self.stop_step[of[1]], 0).astype(np.int32)
            self.moves["next_stop_visit"] = np.where(on < of[0].size, at[on], here)
            self.moves["previous_stop_visit"] = np.where(back > 0, at[back - 1], here)

    @staticmethod
    def _stops(trace: WarpTrace) -> tuple[Ints, list[str]]:
        """Return steps that stop, in order, with the reasons."""
        found = sorted(
            (step, step_text.stop_words(each.text, each.kind, mask, at, each.step.size))
            for each in trace.stops
            for at, (step, mask) in enumerate(zip(each.step.tolist(), each.lanes.tolist(), strict=True), 1)
        )
        return np.array([step for step, _ in found], np.int32), [words for _, words in found]

    def sentence(self, step: int, by_line: bool = False) -> str:
        """Return a sentence about a step, or about the visit of a source line that contains it."""
        visit = int(self.visits.of[step])
        first, last = (
            (int(self.visits.begin[visit]), int(self.visits.end[visit])) if by_line else (step, step)
        )
        here = slice(*np.searchsorted(self.accesses, (first, last + 1)))
        accesses = [self.access_words[kind] for kind in self.access_kinds.of[here].tolist()]
        site = int(self.sites.of[step])
        turn = int(self.loops.turn[last])
        place = self.place_words[site]
        lanes = self.lanes_words[int(self.masks.of[step])]
        if by_line:
            place = step_text.place(int(self.visits.line[visit]))
            lanes = self.visit_words[visit]
        said: str = (step_text.LINE_SENTENCE if by_line else step_text.SENTENCE).format(
            step=number((visit if by_line else step) + 1),
            steps=number(len(self.visits) if by_line else len(self)),
            place=place,
            lanes=lanes,
            turn=f", {self.loops.words[turn]}" if turn >= 0 else "",
            text=self.site_words[site],
            access=step_text.briefly(access.brief for access in accesses)
            if by_line
            else "".join(f" {access.sentence}" for access in accesses),
            moved=step_text.moved_words(self.visits.moved[visit]),
            stop=step_text.some(self.stop_words[slice(*np.searchsorted(self.stop_step, (first, last + 1)))]),
        )
        return said
