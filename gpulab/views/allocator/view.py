"""Memory map: segments and blocks of a pool at any step, or of two pools on the same requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import traitlets

from gpulab.views._base import View
from gpulab.views._text import count, number, percent, size
from gpulab.views.allocator import columns, picture, words
from gpulab.views.allocator.layout import MOST_ROWS, places
from gpulab.views.parts.boxes import Box
from gpulab.views.parts.pack import pack
from virtualgpu.records.memory import (
    ACTIONS,
    AllocatorHistory,
    BlockMap,
    Fragmentation,
    Request,
    SegmentLives,
)

COLOURINGS = ("line", "stream", "age")
KEYS = (
    "Left and right arrows step, Page Up and Down go to the next event of a segment or refusal, Space plays, "
    "E empties the cache, C changes the colours. In the map the arrows go from block to block."
)


@dataclass(frozen=True, slots=True)
class Panel:
    """One pool's history, and who answers for its steps.

    Parameters
    ----------
    history, name
        What is shown, and what it is called.
    at
        Gives the map after so many events.
    figures
        Gives the fragmentation of a map.
    after
        How many events had happened after so many requests, where panels are stepped by requests.
    """

    history: AllocatorHistory
    name: str
    at: Callable[[int], BlockMap]
    figures: Callable[[BlockMap], Fragmentation]
    after: npt.NDArray[np.int64] | None = None

    @property
    def stops(self) -> npt.NDArray[np.int64]:
        """Steps of what a learner would jump to: refusals, and segments that come and go."""
        actions = self.history.trace.events.actions
        wanted = [ACTIONS.index(name) for name in ACTIONS if name == "oom" or name.startswith("segment")]
        return np.flatnonzero(np.isin(actions, wanted)) + 1

    def step(self, moment: int) -> int:
        """The number of events at a place of the slider."""
        return moment if self.after is None else int(self.after[moment])


class AllocatorView(View, module="allocator/map"):
    """Segments as rows, their blocks by line, stream or age, and what is free; a slider over all steps.

    Parameters
    ----------
    panels
        One pool, or several with the same requests.
    requests
        What the panels were asked for, if there are several.
    step
        Which moment is shown first; None: a refusal, or else the one with the most memory in use.
    """

    contents = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(0).tag(sync=True, echo_update=False)
    colour_by = traitlets.Unicode("line").tag(sync=True, echo_update=False)
    panel = traitlets.Int(-1).tag(sync=True, echo_update=False)
    chosen = traitlets.Int(-1).tag(sync=True, echo_update=False)
    emptied = traitlets.Bool(False).tag(sync=True, echo_update=False)

    def __init__(
        self, panels: Sequence[Panel], requests: Sequence[Request] = (), step: int | None = None
    ) -> None:
        self.panels = tuple(panels)
        self.requests = tuple(requests)
        histories = [panel.history for panel in panels]
        self.places = places(histories, MOST_ROWS + 2 * (len(panels) - 1))
        self.streams = words.stream_names(histories)
        self.owners = columns.Owners(histories)
        first = histories[0].trace
        names = " and ".join(panel.name for panel in panels)
        contents, data = pack(columns.contents(self, KEYS))
        super().__init__(
            title=f"Memory map: {names}",
            caption=_caption(histories),
            source=first.provenance.source,
            contents=contents,
            data=data,
            step=self._telling() if step is None else step,
        )

    @property
    def last(self) -> int:
        """The slider's last place."""
        return len(self.requests) if self.requests else self.panels[0].history.last_step

    @property
    def record(self) -> Any:
        records = tuple(panel.history.trace for panel in self.panels)
        return records[0] if len(records) == 1 else records

    @traitlets.validate("step")
    def _within(self, proposal: Any) -> int:
        return max(0, min(int(proposal["value"]), self.last))

    @traitlets.validate("colour_by")
    def _known(self, proposal: Any) -> str:
        if proposal["value"] not in COLOURINGS:
            raise traitlets.TraitError(
                f"Blocks are coloured by {', '.join(COLOURINGS)}, not {proposal['value']!r}."
            )
        return str(proposal["value"])

    def _telling(self) -> int:
        """A moment worth a picture."""
        refused = [moment for panel in self.panels for moment in columns.refusals(self, panel)[:1]]
        if refused:
            return min(refused)
        used = self.panels[0].history.used_bytes
        if self.panels[0].after is not None:
            used = used[self.panels[0].after]
        best = np.flatnonzero(used == used.max())
        return int(best[0])

    # Words

    def moment(self, at: int | None = None) -> str:
        """What happened last, at a place of the slider."""
        at = self.step if at is None else at
        unit = "request" if self.requests else "event"
        if not self.last:
            return "The pool as it is now."
        if not at:
            return f"Before the first {unit} of {number(self.last)}."
        kind, stated, asked, stream, stack = columns.moment(self, at - 1)
        owner = self.owners.of_stack(0, stack)
        told = words.done(kind, stated, asked, self.streams.get(stream, "another stream"), owner)
        return f"{unit.capitalize()} {number(at)} of {number(self.last)}: {told}."

    def said(self, panel: Panel) -> str:
        """What a panel's pool has now, and why the request was refused if it was."""
        found, step = panel.figures(panel.at(panel.step(self.step))), panel.step(self.step)
        before = panel.step(self.step - 1) if self.step else 0
        events = panel.history.trace.events
        for at in range(before, step):
            if ACTIONS[events.actions[at]] == "oom":
                refused = int(events.requested_bytes[at] or events.size_bytes[at])
                return words.sentence(found, refused, int(events.streams[at]))
        return words.sentence(found)

    def sentence(self) -> str:
        label = self.panels[0].history.trace.provenance.label
        unit = "request" if self.requests else "event"
        when = f"at {unit} {number(self.step)} of {number(self.last)}" if self.last else "now"
        told = [self.said(panel) for panel in self.panels]
        if len(told) > 1:
            told = [f"{panel.name}: {text}" for panel, text in zip(self.panels, told, strict=True)]
        names = " and ".join(panel.name for panel in self.panels)
        return f"Memory map of {names}, {label}, {when}: {'; '.join(text.rstrip('.') for text in told)}."

    def describe(self) -> str:
        lines = [self.sentence(), self.moment()]
        for panel in self.panels:
            now = panel.at(panel.step(self.step))
            lines.append(f"{panel.name}: {self.said(panel)} {words.emptying(panel.figures(now))}")
            for term, value, detail in figures(panel.figures(now)):
                lines.append(f"  {term}: {value} {detail}".rstrip())
            lines += [f"  {text}" for text in _segments(now, panel.history.segments, self.streams)]
        return "\n".join([*lines, self.caption])

    def draw(self) -> Box:
        return picture.draw(self)


def figures(found: Fragmentation) -> list[tuple[str, str, str]]:
    """Term, value and detail of each number beside the map; ``state.js`` says the same."""
    most = found.largest_request_bytes
    return [
        ("In use, of reserved", size(found.used_bytes), f"/ {size(found.reserved_bytes)}"),
        ("Free", size(found.free_bytes), f"largest {size(found.largest_free_bytes)}"),
        ("Fragmentation", percent(found.external), ""),
        ("Rounding", size(found.rounding_bytes), ""),
        ("Refused above", "not known" if most is None else size(most), ""),
    ]


def _segments(now: BlockMap, kinds: SegmentLives, streams: dict[int, str]) -> list[str]:
    told = []
    for segment in now.segments[:40]:
        states = [block.state for block in segment.blocks]
        parts = [f"{states.count(state)} {name}" for state, name in picture.STATES.items() if state in states]
        pool = f", {segment.pool} pool" if segment.pool else ""
        told.append(
            f"Segment of {size(segment.size_bytes)}, {streams[segment.stream]}{pool}: {', '.join(parts)}."
        )
    more = len(now.segments) - len(told)
    return [*told, f"And {count(more, 'more segment')}."] if more else told


def _caption(histories: Sequence[AllocatorHistory]) -> str:
    said = []
    for history in histories:
        trace = history.trace
        what = f"{trace.allocator}{f' ({trace.settings})' if trace.settings else ''}"
        said.append(f"{what}: {trace.provenance.label}.{f' {trace.note}' if trace.note else ''}")
    return " ".join(dict.fromkeys(said))
