"""The memory maps of one or several pools at one position of a slider, with the owners of their blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.allocator import pool_text
from gpulab.views.allocator.layout import MAX_ROWS, compute_layouts
from gpulab.words import fill_template, number
from virtualgpu.records.memory import ACTIONS, AllocatorHistory, BlockMap, Fragmentation, Request

Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class PoolPanel:
    """The history of one memory pool, with functions that compute its state after any step.

    Parameters
    ----------
    history
        The events of the pool and the lives of its blocks.
    name
        The name of the pool in headings.
    map_after
        Returns the map after a number of events.
    fragmentation_of
        Returns the fragmentation of a map.
    events_at_request
        The number of events after each request if the slider selects requests; otherwise None.
    """

    history: AllocatorHistory
    name: str
    map_after: Callable[[int], BlockMap]
    fragmentation_of: Callable[[BlockMap], Fragmentation]
    events_at_request: npt.NDArray[np.int64] | None = None

    @property
    def notable_steps(self) -> npt.NDArray[np.int64]:
        """The steps at which a request fails, or at which a segment is allocated or freed."""
        actions = self.history.trace.events.actions
        notable_actions = [
            ACTIONS.index(name) for name in ACTIONS if name == "oom" or name.startswith("segment")
        ]
        return np.flatnonzero(np.isin(actions, notable_actions)) + 1

    def find_slider_positions(self, steps: Column) -> Column:
        """Return the slider positions at which the memory pool reaches the given steps. Each position is
        listed once.
        """
        return np.unique(self.find_positions(steps))

    def find_positions(self, steps: Column) -> Column:
        """Return the slider position at which the memory pool reaches each of the given steps."""
        if self.events_at_request is None:
            return steps
        return np.searchsorted(self.events_at_request, steps, "left")

    def find_step(self, position: int) -> int:
        """Return the number of pool events at a slider position."""
        return position if self.events_at_request is None else int(self.events_at_request[position])


class BlockOwners:
    """The owners of memory blocks, which are source lines or labels and determine the colours of the blocks.

    Owners are sorted by their bytes in the first history, so that other histories do not change the colours.
    If a request represents a block from before the recording, its block has the owner of that block.
    """

    def __init__(self, panels: Sequence[PoolPanel], requests: Sequence[Request] = ()) -> None:
        histories = [panel.history for panel in panels]
        self.owner_of_stack: list[list[str]] = []
        self.owners_of_blocks: list[Column] = []
        bytes_by_history: list[dict[str, int]] = []
        names_of_blocks: list[list[str]] = []
        earlier_labels = [
            block.label or pool_text.BEFORE_TEXT
            for segment in histories[0].trace.first.segments
            for block in segment.blocks
            if block.state in ("used", "waiting")
        ]
        for panel, history in zip(panels, histories, strict=True):
            stack_names = [pool_text.find_owner(stack) for stack in history.trace.stacks]
            self.owner_of_stack.append(stack_names)
            blocks = history.blocks
            owner_names = [stack_names[stack] if stack >= 0 else "" for stack in blocks.stacks.tolist()]
            begin_positions = panel.find_positions(blocks.begins).tolist()
            for block_index, begin_step in enumerate(blocks.begins.tolist()):
                block_label = blocks.labels.get(block_index, "") or (
                    "" if begin_step else pool_text.BEFORE_TEXT
                )
                if begin_step and requests:
                    request_number = requests[begin_positions[block_index] - 1].number
                    block_label = block_label or (
                        earlier_labels[request_number] if 0 <= request_number < len(earlier_labels) else ""
                    )
                owner_names[block_index] = owner_names[block_index] or block_label
            bytes_by_name: dict[str, int] = {}
            for name, size_bytes in zip(owner_names, blocks.size_bytes.tolist(), strict=True):
                bytes_by_name[name] = bytes_by_name.get(name, 0) + size_bytes
            bytes_by_history.append(bytes_by_name)
            names_of_blocks.append(owner_names)
        # The distinct lines of the first history, for the slider's words.
        self.lines = list(dict.fromkeys(self.owner_of_stack[0]))
        line_index = {name: line_number if name else -1 for line_number, name in enumerate(self.lines)}
        self.line_of_stack = np.array([*(line_index[name] for name in self.owner_of_stack[0]), -1], np.int32)
        owner_lines = zip(self.owner_of_stack[0], histories[0].trace.texts, strict=False)
        self.text_of_line = {name: line_text for name, line_text in owner_lines if name}
        ranked_names = dict.fromkeys(
            name
            for name_bytes in bytes_by_history
            for name in sorted(name_bytes, key=lambda name: -name_bytes[name])
        )
        self.names = sorted(ranked_names, key=lambda name: not name)
        owner_index = {name: owner_number for owner_number, name in enumerate(self.names)}
        self.owners_of_blocks = [
            np.array([owner_index[name] for name in owner_names], np.int32) for owner_names in names_of_blocks
        ]

    def find_owner(self, panel: int, stack: int) -> str:
        """Return the source line that owns the blocks with this stack trace, or an empty string."""
        return self.owner_of_stack[panel][stack] if 0 <= stack < len(self.owner_of_stack[panel]) else ""


class PoolMaps:
    """The memory maps of one or several pools. The slider positions correspond to events or requests."""

    def __init__(self, panels: Sequence[PoolPanel], requests: Sequence[Request] = ()) -> None:
        self.panels = tuple(panels)
        self.requests = tuple(requests)
        histories = [panel.history for panel in panels]
        self.layouts = compute_layouts(histories, MAX_ROWS + 2 * (len(panels) - 1))
        self.streams = pool_text.name_streams(histories)
        self.owners = BlockOwners(panels, requests)
        self._cached_maps: dict[int, tuple[int, BlockMap, Fragmentation]] = {}
        self.last_position = len(requests) if requests else histories[0].last_step

    @property
    def unit(self) -> str:
        """The unit of the slider positions, which is ``request`` or ``event``."""
        return "request" if self.requests else "event"

    def find_operation(self, position: int) -> tuple[str, int, int, int, int]:
        """Return the operation after a slider position, with its kind, bytes, requested bytes, stream and
        stack trace.
        """
        if self.requests:
            request = self.requests[position]
            operation_kind = "ask" if request.kind == "alloc" else request.kind
            return operation_kind, request.size_bytes, 0, request.stream, request.stack
        events = self.panels[0].history.trace.events
        return (
            ACTIONS[events.actions[position]],
            int(events.size_bytes[position]),
            int(events.requested_bytes[position]),
            int(events.streams[position]),
            int(events.stacks[position]),
        )

    def describe_position(self, position: int) -> str:
        """Return a description of the last operation at a slider position."""
        if not self.last_position:
            return pool_text.PAGE_TEXTS["now"]
        template_values: dict[str, int | str] = {
            "unit": self.unit,
            "Unit": self.unit.capitalize(),
            "at": position,
            "last": self.last_position,
        }
        if not position:
            return fill_template(pool_text.PAGE_TEXTS["before"], template_values)
        operation_kind, size_bytes, requested_bytes, stream, stack_index = self.find_operation(position - 1)
        name = self.streams.get(stream, pool_text.PAGE_TEXTS["elsewhere"])
        operation = pool_text.operation_text(
            operation_kind, size_bytes, requested_bytes, name, self.owners.find_owner(0, stack_index)
        )
        return fill_template(pool_text.PAGE_TEXTS["moment"], template_values | {"told": operation})

    def find_map(self, panel: PoolPanel, position: int) -> tuple[BlockMap, Fragmentation]:
        """Return the memory map of a pool and its fragmentation at a slider position. The last result is
        cached.
        """
        event_step = panel.find_step(position)
        cached_map = self._cached_maps.get(id(panel))
        if cached_map is None or cached_map[0] != event_step:
            block_map = panel.map_after(event_step)
            cached_map = self._cached_maps[id(panel)] = (
                event_step,
                block_map,
                panel.fragmentation_of(block_map),
            )
        return cached_map[1:]

    def describe_status(self, panel: PoolPanel, position: int) -> str:
        """Return a sentence about a memory pool at a slider position. If a request failed, the sentence
        contains the reason.
        """
        event_step = panel.find_step(position)
        previous_step = panel.find_step(position - 1) if position else 0
        _, fragmentation = self.find_map(panel, position)
        events = panel.history.trace.events
        for event_index in range(previous_step, event_step):
            if ACTIONS[events.actions[event_index]] == "oom":
                refused_bytes = int(events.requested_bytes[event_index] or events.size_bytes[event_index])
                return pool_text.describe_free_memory(
                    fragmentation, refused_bytes, int(events.streams[event_index])
                )
        return pool_text.describe_free_memory(fragmentation)

    def find_refusals(self) -> list[int]:
        """Return the slider positions at which a memory request failed."""
        refusal_positions: set[int] = set()
        for panel in self.panels:
            refusal_steps = np.flatnonzero(panel.history.trace.events.actions == ACTIONS.index("oom")) + 1
            refusal_positions.update(map(int, panel.find_slider_positions(refusal_steps)))
        return sorted(refusal_positions)

    @property
    def names(self) -> str:
        """The names of all memory pools, joined by "and"."""
        return " and ".join(panel.name for panel in self.panels)

    def sentence(self, position: int | None = None) -> str:
        """Return a sentence about the state of all memory pools at a slider position, and the origin of the
        data.
        """
        position = self.default_position if position is None else position
        provenance_label = self.panels[0].history.trace.provenance.label
        position_text = (
            f"at {self.unit} {number(position)} of {number(self.last_position)}"
            if self.last_position
            else "now"
        )
        status_texts = [self.describe_status(panel, position) for panel in self.panels]
        if len(status_texts) > 1:
            status_texts = [
                f"{panel.name}: {text}" for panel, text in zip(self.panels, status_texts, strict=True)
            ]
        status_list = "; ".join(text.rstrip(".") for text in status_texts)
        return f"Memory map of {self.names}, {provenance_label}, {position_text}: {status_list}."

    @cached_property
    def default_position(self) -> int:
        """The slider position that is shown first. This is the position of the first failed request, or the
        position with the most used memory.
        """
        refusals = self.find_refusals()
        if refusals:
            return refusals[0]
        used_bytes = self.panels[0].history.used_bytes
        events = self.panels[0].events_at_request
        return int(np.argmax(used_bytes if events is None else used_bytes[events]))
