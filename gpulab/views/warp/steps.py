"""The steps of a warp trace, with descriptions."""

from __future__ import annotations

import numpy as np

from gpulab.views.warp import step_text
from gpulab.words import number
from virtualgpu.records import WarpTrace
from virtualgpu.records.warp.loops import Ints, find_neighbour_stops
from virtualgpu.records.warp.steps import TraceSteps, group_equal_rows


class WarpSteps(TraceSteps):
    """The steps of a warp, with texts that describe the location, lanes, accesses and stops of each step."""

    def __init__(self, trace: WarpTrace) -> None:
        super().__init__(trace)
        first_steps = self.sites.first
        self.place_texts = [step_text.make_place_text(line) for line in self.line[first_steps].tolist()]
        self.site_texts = [
            step_text.strip_predicate(trace.instruction[text])
            for text in trace.text_index[first_steps].tolist()
        ]
        mask_pairs = np.stack([trace.active_mask, trace.executed_mask], axis=1)[self.masks.first].tolist()
        self.lanes_texts = [
            step_text.make_lanes_text(active_mask, executed_mask, self.threads)
            for active_mask, executed_mask in mask_pairs
        ]
        visit_masks = zip(self.visits.active_mask.tolist(), self.visits.lane_mask.tolist(), strict=True)
        self.visit_texts = [
            step_text.make_lanes_text(active_mask, executed_mask, self.threads, "taking part")
            for active_mask, executed_mask in visit_masks
        ]
        spaces = np.array(trace.space or [""])[self.space]
        is_shared = spaces == "shared"
        access_costs = np.where(is_shared, self.wavefronts, self.sectors)
        ideal_costs = np.where(is_shared, self.ideal_wavefronts, self.ideal_sectors)
        executed_masks = trace.executed_mask[self.accesses]
        text_indices = trace.text_index[self.accesses]
        access_columns = (
            self.store,
            self.size_bytes,
            access_costs,
            ideal_costs,
            np.bitwise_count(executed_masks),
        )
        self.access_kinds = group_equal_rows(text_indices, self.space, *access_columns)
        access_rows = (
            column[self.access_kinds.first].tolist() for column in (text_indices, spaces, *access_columns)
        )
        self.access_texts = [
            step_text.describe_access(
                trace.instruction[text_index], *access_values, has_addresses=trace.address is not None
            )
            for text_index, *access_values in zip(*access_rows, strict=True)
        ]

        self.stop_step, self.stop_texts = self._sort_stops(trace)
        if trace.stops:
            step_numbers = np.arange(len(trace), dtype=np.int32)
            visits = self.visits
            self.moves["next_stop"], self.moves["previous_stop"] = find_neighbour_stops(
                np.unique(self.stop_step), step_numbers
            )
            # In steps by line, the target is the first stop of a visit; stops of the current visit are
            # reached.
            stop_visits = np.unique(visits.visit_of_step[self.stop_step], return_index=True)
            next_index, previous_index = (
                np.searchsorted(stop_visits[0], visits.visit_of_step, side=search_side)
                for search_side in ("right", "left")
            )
            first_steps = np.append(self.stop_step[stop_visits[1]], 0).astype(np.int32)
            self.moves["next_stop_visit"] = np.where(
                next_index < stop_visits[0].size, first_steps[next_index], step_numbers
            )
            self.moves["previous_stop_visit"] = np.where(
                previous_index > 0, first_steps[previous_index - 1], step_numbers
            )

    @staticmethod
    def _sort_stops(trace: WarpTrace) -> tuple[Ints, list[str]]:
        """Return the steps at which a stop condition applies, in order, and the reasons for the stops."""
        stops = sorted(
            (
                stop_step,
                step_text.make_stop_text(
                    stop_condition.text, stop_condition.kind, mask, stop_number, stop_condition.step.size
                ),
            )
            for stop_condition in trace.stops
            for stop_number, (stop_step, mask) in enumerate(
                zip(stop_condition.step.tolist(), stop_condition.lanes.tolist(), strict=True), 1
            )
        )
        return np.array([stop_step for stop_step, _ in stops], np.int32), [reason for _, reason in stops]

    def sentence(self, step: int, by_line: bool = False) -> str:
        """Return a sentence about a step. With `by_line`, the sentence is about all successive steps on the
        same source line.
        """
        visit_index = int(self.visits.visit_of_step[step])
        first_step, last_step = (
            (int(self.visits.begin[visit_index]), int(self.visits.end[visit_index]))
            if by_line
            else (step, step)
        )
        access_range = slice(*np.searchsorted(self.accesses, (first_step, last_step + 1)))
        access_texts = [
            self.access_texts[access_kind] for access_kind in self.access_kinds.of[access_range].tolist()
        ]
        site_index = int(self.sites.of[step])
        iteration = int(self.loops.turn[last_step])
        place_text = self.place_texts[site_index]
        lanes_text = self.lanes_texts[int(self.masks.of[step])]
        if by_line:
            place_text = step_text.make_place_text(int(self.visits.line[visit_index]))
            lanes_text = self.visit_texts[visit_index]
        text: str = (step_text.LINE_VISIT_SENTENCE if by_line else step_text.STEP_SENTENCE).format(
            step=number((visit_index if by_line else step) + 1),
            steps=number(len(self.visits) if by_line else len(self)),
            place=place_text,
            lanes=lanes_text,
            turn=f", {self.loops.words[iteration]}" if iteration >= 0 else "",
            text=self.site_texts[site_index],
            access=step_text.summarize_accesses(access.brief for access in access_texts)
            if by_line
            else "".join(f" {access.sentence}" for access in access_texts),
            moved=step_text.make_moved_sentence(self.visits.moved_lines[visit_index]),
            stop=step_text.join_first_sentences(
                self.stop_texts[slice(*np.searchsorted(self.stop_step, (first_step, last_step + 1)))]
            ),
        )
        return text
