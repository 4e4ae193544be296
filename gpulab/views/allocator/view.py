"""The memory map: segments and blocks of a pool at any step, or of two pools with the same requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traitlets

from gpulab.views._base import View
from gpulab.views.allocator import columns, picture, pool_text
from gpulab.views.allocator.maps import PoolMaps, PoolPanel
from gpulab.views.parts.boxes import Box
from gpulab.views.parts.pack import pack
from gpulab.words import count, size
from virtualgpu.records.memory import (
    AllocatorHistory,
    BlockMap,
)

COLOUR_CRITERIA = ("line", "stream", "age")
KEYS_TEXT = (
    "Left and right arrows step, Page Up and Down go to the next event of a segment or refusal, Space plays, "
    "E empties the cache, C changes the colours. In the map the arrows go from block to block."
)


class AllocatorView(View, module="allocator/map"):
    """A view of a pool's segments as rows of memory blocks at any step. Blocks are coloured by line, stream
    or age.

    Parameters
    ----------
    maps
        The maps of one pool, or of several pools with the same requests.
    step
        The position that is shown first; by default a refusal, or the position with the most memory in use.
    """

    contents = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(0).tag(sync=True, echo_update=False)
    colour_by = traitlets.Unicode("line").tag(sync=True, echo_update=False)
    panel = traitlets.Int(-1).tag(sync=True, echo_update=False)
    chosen = traitlets.Int(-1).tag(sync=True, echo_update=False)
    emptied = traitlets.Bool(False).tag(sync=True, echo_update=False)

    def __init__(self, maps: PoolMaps, step: int | None = None) -> None:
        self.maps = maps
        histories = [panel.history for panel in maps.panels]
        page_data, packed_data = pack(columns.make_contents(maps, KEYS_TEXT))
        super().__init__(
            title=f"Memory map: {maps.names}",
            caption=_make_caption(histories),
            source=histories[0].trace.provenance.source,
            contents=page_data,
            data=packed_data,
            step=maps.default_position if step is None else step,
        )

    @property
    def panels(self) -> tuple[PoolPanel, ...]:
        return self.maps.panels

    @property
    def record(self) -> Any:
        records = tuple(panel.history.trace for panel in self.panels)
        return records[0] if len(records) == 1 else records

    @traitlets.validate("step")
    def _valid_step(self, proposal: Any) -> int:
        return max(0, min(int(proposal["value"]), self.maps.last_position))

    @traitlets.validate("colour_by")
    def _valid_colouring(self, proposal: Any) -> str:
        if proposal["value"] not in COLOUR_CRITERIA:
            raise traitlets.TraitError(
                f"Blocks can be coloured by {', '.join(COLOUR_CRITERIA)}, not by {proposal['value']!r}."
            )
        return str(proposal["value"])

    def sentence(self) -> str:
        return self.maps.sentence(self.step)

    def describe(self) -> str:
        lines = [self.sentence(), self.maps.describe_position(self.step)]
        for panel in self.panels:
            block_map, fragmentation = self.maps.find_map(panel, self.step)
            lines.append(
                f"{panel.name}: {self.maps.describe_status(panel, self.step)} "
                f"{pool_text.describe_emptying(fragmentation)}"
            )
            for term, value, detail in pool_text.make_figures(fragmentation):
                lines.append(f"  {term}: {value} {detail}".rstrip())
            lines += [f"  {text}" for text in _describe_segments(block_map, self.maps.streams)]
        return "\n".join([*lines, self.caption])

    def draw(self) -> Box:
        return picture.draw(self.maps, self.step, self.colour_by)


def _describe_segments(block_map: BlockMap, streams: dict[int, str]) -> list[str]:
    segment_sentences = []
    for segment in block_map.segments[:40]:
        states = [block.state for block in segment.blocks]
        state_counts = [
            f"{states.count(state)} {name}" for state, name in picture.STATE_NAMES.items() if state in states
        ]
        pool_suffix = f", {segment.pool} pool" if segment.pool else ""
        segment_sentences.append(
            f"Segment of {size(segment.size_bytes)}, {streams[segment.stream]}{pool_suffix}: "
            f"{', '.join(state_counts)}."
        )
    omitted_count = len(block_map.segments) - len(segment_sentences)
    return (
        [*segment_sentences, f"And {count(omitted_count, 'more segment')}."]
        if omitted_count
        else segment_sentences
    )


def _make_caption(histories: Sequence[AllocatorHistory]) -> str:
    caption_sentences = []
    for history in histories:
        trace = history.trace
        allocator_text = f"{trace.allocator}{f' ({trace.settings})' if trace.settings else ''}"
        caption_sentences.append(
            f"{allocator_text}: {trace.provenance.label}.{f' {trace.note}' if trace.note else ''}"
        )
    return " ".join(dict.fromkeys(caption_sentences))
