"""The steps of a warp trace in words."""

from __future__ import annotations

import numpy as np

from gpulab.views._text import number
from gpulab.views.warp import words
from virtualgpu.records import WarpTrace
from virtualgpu.records.warp.steps import TraceSteps, kinds


class WarpSteps(TraceSteps):
    """A warp's steps with words for each kind of site, of masks and of access (``access_kinds``)."""

    def __init__(self, trace: WarpTrace) -> None:
        super().__init__(trace)
        at = self.sites.first
        self.place_words = [f"line {line}" if line else "no source line" for line in self.line[at].tolist()]
        self.site_words = [words.bare_text(trace.instruction[t]) for t in trace.text_index[at].tolist()]
        pairs = np.stack([trace.active_mask, trace.executed_mask], axis=1)[self.masks.first].tolist()
        self.lanes_words = [words.lanes_words(active, ran, self.threads) for active, ran in pairs]
        spaces = np.array(trace.space or [""])[self.space]
        shared = spaces == "shared"
        spent = np.where(shared, self.wavefronts, self.sectors)
        ideal = np.where(shared, self.ideal_wavefronts, self.ideal_sectors)
        executed, text = trace.executed_mask[self.accesses], trace.text_index[self.accesses]
        rest = (self.store, self.size_bytes, spent, ideal, np.bitwise_count(executed))
        self.access_kinds = kinds(text, self.space, *rest)
        rows = (column[self.access_kinds.first].tolist() for column in (text, spaces, *rest))
        self.access_words = [
            words.access(trace.instruction[index], *row, drawn=trace.address is not None)
            for index, *row in zip(*rows, strict=True)
        ]

    def sentence(self, step: int) -> str:
        """One step in words."""
        site, turn = int(self.sites.of[step]), int(self.loops.turn[step])
        at = int(np.searchsorted(self.accesses, step))
        access = at < self.accesses.size and self.accesses[at] == step
        said: str = words.SENTENCE.format(
            step=number(step + 1), steps=number(len(self)), place=self.place_words[site],
            turn=f", {self.loops.words[turn]}" if turn >= 0 else "",
            lanes=self.lanes_words[int(self.masks.of[step])],
            text=self.site_words[site],
            access=f" {self.access_words[int(self.access_kinds.of[at])].sentence}" if access else "",
        )  # fmt: skip
        return said
