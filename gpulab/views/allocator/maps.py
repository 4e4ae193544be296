"""What a memory map shows, beside which step: pools' histories, their places, streams and lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.allocator import pool_text
from gpulab.views.allocator.layout import MOST_ROWS, places
from gpulab.words import filled, number
from virtualgpu.records.memory import ACTIONS, AllocatorHistory, BlockMap, Fragmentation, Request

Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
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

    def moments(self, steps: Column) -> Column:
        """The places of the slider by which steps have been reached."""
        return steps if self.after is None else np.unique(np.searchsorted(self.after, steps, "left"))

    def step(self, moment: int) -> int:
        """The number of events at a place of the slider."""
        return moment if self.after is None else int(self.after[moment])


class Owners:
    """Whose each block is: the line that allocated it, or what it is called; in the order of bytes."""

    def __init__(self, histories: Sequence[AllocatorHistory]) -> None:
        self.stack_owner: list[list[str]] = []
        self.of_blocks: list[Column] = []
        weight: dict[str, int] = {}
        named: list[list[str]] = []
        for history in histories:
            texts = [pool_text.owner_of(stack) for stack in history.trace.stacks]
            self.stack_owner.append(texts)
            lives = history.blocks
            mine = [texts[at] if at >= 0 else "" for at in lives.stacks.tolist()]
            for at, begin in enumerate(lives.begins.tolist()):
                mine[at] = mine[at] or lives.labels.get(at, "") or ("" if begin else pool_text.BEFORE)
            for name, bytes_ in zip(mine, lives.size_bytes.tolist(), strict=True):
                weight[name] = weight.get(name, 0) + bytes_
            named.append(mine)
        # Of the first history, whose stacks the slider's words name: each line once.
        self.lines = list(dict.fromkeys(self.stack_owner[0]))
        numbers = {name: at if name else -1 for at, name in enumerate(self.lines)}
        self.stack_line = np.array([*(numbers[name] for name in self.stack_owner[0]), -1], np.int32)
        code = zip(self.stack_owner[0], histories[0].trace.texts, strict=False)
        self.code = {name: text for name, text in code if name}
        self.names = sorted(weight, key=lambda name: (not name, -weight[name]))
        place = {name: at for at, name in enumerate(self.names)}
        self.of_blocks = [np.array([place[name] for name in mine], np.int32) for mine in named]

    def of_stack(self, panel: int, stack: int) -> str:
        """The line of a stack trace, nothing for none."""
        return self.stack_owner[panel][stack] if 0 <= stack < len(self.stack_owner[panel]) else ""


class Maps:
    """Pools that are stepped together: by the events of one, or by the requests that all of them had."""

    def __init__(self, panels: Sequence[Panel], requests: Sequence[Request] = ()) -> None:
        self.panels, self.requests = tuple(panels), tuple(requests)
        histories = [panel.history for panel in panels]
        self.places = places(histories, MOST_ROWS + 2 * (len(panels) - 1))
        self.streams = pool_text.stream_names(histories)
        self.owners = Owners(histories)
        self._now: dict[int, tuple[int, BlockMap, Fragmentation]] = {}
        self.last = len(requests) if requests else histories[0].last_step

    @property
    def unit(self) -> str:
        return "request" if self.requests else "event"

    def happened(self, at: int) -> tuple[str, int, int, int, int]:
        """What came between a place of the slider and the next: kind, bytes, bytes asked, stream, stack."""
        if self.requests:
            request = self.requests[at]
            kind = "ask" if request.kind == "alloc" else request.kind
            return kind, request.size_bytes, 0, request.stream, request.stack
        events = self.panels[0].history.trace.events
        return (
            ACTIONS[events.actions[at]],
            int(events.size_bytes[at]),
            int(events.requested_bytes[at]),
            int(events.streams[at]),
            int(events.stacks[at]),
        )

    def moment(self, at: int) -> str:
        """What happened last, at a place of the slider."""
        if not self.last:
            return pool_text.PAGE["now"]
        said: dict[str, int | str] = {
            "unit": self.unit,
            "Unit": self.unit.capitalize(),
            "at": at,
            "last": self.last,
        }
        if not at:
            return filled(pool_text.PAGE["before"], said)
        kind, stated, asked, stream, stack = self.happened(at - 1)
        name = self.streams.get(stream, pool_text.PAGE["elsewhere"])
        told = pool_text.done(kind, stated, asked, name, self.owners.of_stack(0, stack))
        return filled(pool_text.PAGE["moment"], said | {"told": told})

    def now(self, panel: Panel, at: int) -> tuple[BlockMap, Fragmentation]:
        """A pool's map and figures at a place of the slider; those asked for last are kept."""
        step = panel.step(at)
        kept = self._now.get(id(panel))
        if kept is None or kept[0] != step:
            found = panel.at(step)
            kept = self._now[id(panel)] = step, found, panel.figures(found)
        return kept[1:]

    def said(self, panel: Panel, at: int) -> str:
        """What a panel's pool has, and why the request was refused if it was."""
        step = panel.step(at)
        before = panel.step(at - 1) if at else 0
        (_, found), events = self.now(panel, at), panel.history.trace.events
        for event in range(before, step):
            if ACTIONS[events.actions[event]] == "oom":
                refused = int(events.requested_bytes[event] or events.size_bytes[event])
                return pool_text.sentence(found, refused, int(events.streams[event]))
        return pool_text.sentence(found)

    def refusals(self) -> list[int]:
        """The places of the slider at which a pool refused a request."""
        found: set[int] = set()
        for panel in self.panels:
            actions = panel.history.trace.events.actions
            found.update(map(int, panel.moments(np.flatnonzero(actions == ACTIONS.index("oom")) + 1)))
        return sorted(found)

    @property
    def names(self) -> str:
        return " and ".join(panel.name for panel in self.panels)

    def sentence(self, step: int | None = None) -> str:
        """What is shown and where from; at a moment worth a picture, if none is given."""
        step = self.telling if step is None else step
        label = self.panels[0].history.trace.provenance.label
        when = f"at {self.unit} {number(step)} of {number(self.last)}" if self.last else "now"
        told = [self.said(panel, step) for panel in self.panels]
        if len(told) > 1:
            told = [f"{panel.name}: {text}" for panel, text in zip(self.panels, told, strict=True)]
        return f"Memory map of {self.names}, {label}, {when}: {'; '.join(text.rstrip('.') for text in told)}."

    @cached_property
    def telling(self) -> int:
        """A moment worth a picture: a refusal, or else the one with the most memory in use."""
        refused = self.refusals()
        if refused:
            return refused[0]
        used = self.panels[0].history.used_bytes
        after = self.panels[0].after
        return int(np.argmax(used if after is None else used[after]))
