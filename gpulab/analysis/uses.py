"""Uses of memory regions, and containers that find uses that share bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from gpulab.analysis.order import Clock, Moment, StreamKey
from virtualgpu.records import SourceLine
from virtualgpu.records.acts import Region

# Limit on NumPy's steps when it decides whether two strided regions overlap; beyond it, they do.
_MAX_WORK: Any = 20_000  # NumPy's stubs know only its two special values
_MAX_ITEM_BYTES = 2**31 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Use:
    """An access of an operation to a memory region, with the operation's vector clock, stream and source
    line.

    For nodes of graphs, ``launch_index`` is the number of the launch, and ``capture_stream`` is the stream in
    which the node was captured.
    """

    region: Region
    is_write: bool
    moment: Moment
    act_index: int  # of its act in the program
    name: str
    stream: StreamKey | None  # None: the host
    source: SourceLine | None
    launch_index: int = 0
    capture_stream: StreamKey | None = None
    is_atomic: bool = False  # an atomic use is also a write

    def conflicts_with(self, other_use: Use) -> bool:
        """Return whether two uses of the same byte conflict. Two uses conflict if at least one of them is a
        write and not both are atomic.
        """
        return (self.is_write or other_use.is_write) and not (self.is_atomic and other_use.is_atomic)

    def makes_redundant(self, other_use: Use) -> bool:
        """Return whether this use conflicts with every later use that conflicts with the earlier use
        `other_use`.
        """
        if self.is_atomic:
            return other_use.is_atomic
        return self.is_write or not other_use.is_write


class _AddressedArray:
    """A stand-in for an array at an address, for NumPy's overlap test. Its memory is never read."""

    def __init__(self, region: Region) -> None:
        item_bytes = region.item_bytes
        shape = region.shape
        strides = region.strides
        if item_bytes > _MAX_ITEM_BYTES or not shape:
            shape = (*shape, item_bytes)
            strides = (*strides, 1)
            item_bytes = 1
        self.__array_interface__ = {
            "data": (region.address, False),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{item_bytes}",
            "version": 3,
        }

    def make_array(self) -> npt.NDArray[np.void]:
        return np.asarray(self)


def regions_overlap(first_region: Region, second_region: Region) -> bool:
    """Return whether two memory regions share a byte. The result is also True if the layouts are too complex
    for a decision.
    """
    if (
        first_region.memory != second_region.memory
        or first_region.start >= second_region.end
        or second_region.start >= first_region.end
    ):
        return False
    if not first_region.shape and not second_region.shape:
        return True
    try:
        return np.shares_memory(
            _AddressedArray(first_region).make_array(),
            _AddressedArray(second_region).make_array(),
            max_work=_MAX_WORK,
        )
    except np.exceptions.TooHardError:
        return True


def region_covers(outer_region: Region, inner_region: Region) -> bool:
    """Return whether a memory region certainly contains every byte of another memory region."""
    if not outer_region.shape:
        return outer_region.start <= inner_region.start and inner_region.end <= outer_region.end
    return (outer_region.address, outer_region.item_bytes, outer_region.shape, outer_region.strides) == (
        inner_region.address,
        inner_region.item_bytes,
        inner_region.shape,
        inner_region.strides,
    )


class RegionMap(Generic[T]):
    """A collection of items, each of which belongs to a memory region. The collection quickly finds the items
    that may overlap a given region.

    The items are grouped by the size of their regions, rounded up to a power of two: an item that overlaps a
    range begins less than that size before it.
    """

    def __init__(self) -> None:
        self._items_by_size: dict[
            int, tuple[list[int], dict[int, list[T]]]
        ] = {}  # starts, and items by start

    def find_overlapping(self, region: Region) -> list[list[T]]:
        """Return the lists of items that may overlap a memory region. The lists are not copies, so changes to
        them also change the collection.
        """
        region_start = region.start
        region_end = region.end
        matching_lists = []
        for size_bit_length, (region_starts, items_by_start) in self._items_by_size.items():
            first_index = bisect_right(region_starts, region_start - (1 << size_bit_length))
            last_index = bisect_left(region_starts, region_end)
            for item_start in region_starts[first_index:last_index]:
                region_items = items_by_start[item_start]
                if region_items:
                    matching_lists.append(region_items)
                else:
                    del items_by_start[item_start], region_starts[bisect_left(region_starts, item_start)]
        return matching_lists

    def add_item(self, region: Region, item: T) -> None:
        """Add an item for a memory region."""
        region_start = region.start
        region_starts, items_by_start = self._items_by_size.setdefault(
            (region.end - region_start).bit_length(), ([], {})
        )
        if region_start not in items_by_start:
            items_by_start[region_start] = []
            insort(region_starts, region_start)
        items_by_start[region_start].append(item)


@dataclass(slots=True)
class Block:
    """A block of memory, with the index of the action that allocated or freed it.

    After a free, ``clock`` is the vector clock that operations of the next owner must follow.
    """

    region: Region
    act_index: int
    source: SourceLine | None
    clock: Clock = field(default_factory=dict)
    is_private: bool = False


class Blocks:
    """A collection of memory blocks that do not overlap, sorted by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: dict[int, Block] = {}

    def find_overlapping(self, region: Region) -> list[Block]:
        """Return the memory blocks that overlap a region."""
        first_index, end_index = self._find_index_range(region)
        return [self._blocks[start] for start in self._starts[first_index:end_index]]

    def remove_overlapping(self, region: Region) -> list[Block]:
        """Remove the memory blocks that overlap a region, and return them."""
        first_index, end_index = self._find_index_range(region)
        removed_blocks = [self._blocks.pop(start) for start in self._starts[first_index:end_index]]
        del self._starts[first_index:end_index]
        return removed_blocks

    def add_block(self, block: Block) -> None:
        """Add a memory block, and remove the blocks that it overlaps."""
        self.remove_overlapping(block.region)
        insort(self._starts, block.region.start)
        self._blocks[block.region.start] = block

    def _find_index_range(self, region: Region) -> tuple[int, int]:
        """Return the range of indices of the blocks that overlap a region."""
        first_index = max(bisect_right(self._starts, region.start) - 1, 0)
        if (
            first_index < len(self._starts)
            and self._blocks[self._starts[first_index]].region.end <= region.start
        ):
            first_index += 1
        return first_index, bisect_left(self._starts, region.end)
