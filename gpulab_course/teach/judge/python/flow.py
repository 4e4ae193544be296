"""Data flow of a program: the operations on which its result depends, directly or through other arrays.

Exercises about streams or graphs count only kernels and graph launches whose results are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpulab.analysis.uses import region_covers, regions_overlap
from virtualgpu.records import Activity
from virtualgpu.records.acts import Act, GraphLaunch, Region, Work


@dataclass(frozen=True, slots=True)
class DataFlow:
    """The correlation ids of the operations on which a result depends, and the number of graph launches among
    them.
    """

    correlation_ids: frozenset[int] = frozenset()
    graph_launches: int = 0

    def select_kernels(self, activities: Iterable[Activity]) -> list[Activity]:
        """Return the kernels among `activities` on which the result depends."""
        return [
            a
            for a in activities
            if a.kind == "CONCURRENT_KERNEL" and a.correlation_id in self.correlation_ids
        ]


def find_data_flow(acts: Sequence[Act], results: Iterable[Region]) -> DataFlow:
    """Return the operations on which the final contents of the memory regions `results` depend."""
    regions = list(results)
    work_numbers = set[int]()
    launch_count = 0
    for act in reversed(acts):
        if isinstance(act, Work):
            regions = _find_inputs(act, regions, work_numbers)
        elif isinstance(act, GraphLaunch):
            earlier_work_count = len(work_numbers)
            for node in reversed(act.nodes):
                regions = _find_inputs(node, regions, work_numbers)
            launch_count += len(work_numbers) > earlier_work_count
    return DataFlow(frozenset(work_numbers), launch_count)


def _find_inputs(work: Work, regions: list[Region], work_numbers: set[int]) -> list[Region]:
    """Return the memory regions on which the contents of `regions` after an operation depend.

    If the operation writes to `regions`, its number is added to `work_numbers`.
    """
    written_regions = (*work.writes, *work.atomics)
    if not any(
        regions_overlap(region, later_region) for region in written_regions for later_region in regions
    ):
        return regions
    work_numbers.add(work.number)
    remaining_regions = [
        later_region
        for later_region in regions
        if not any(region_covers(region, later_region) for region in work.writes)
    ]
    return [
        *remaining_regions,
        *(region for region in (*work.reads, *work.atomics) if region not in remaining_regions),
    ]


def count_concurrent_kernels(kernels: Sequence[Activity], activities: Sequence[Activity]) -> int:
    """Return the number of kernels that can overlap at least one kernel of another stream.

    The parameter `activities` contains all operations in the order in which they were issued.
    """
    activity_bits, ancestor_masks = _compute_ancestor_masks(activities)
    return sum(
        any(
            a.stream_id != b.stream_id
            and not ancestor_masks[a.correlation_id] & activity_bits[b.correlation_id]
            and not ancestor_masks[b.correlation_id] & activity_bits[a.correlation_id]
            for b in kernels
        )
        for a in kernels
    )


def count_waiting_kernels(kernels: Sequence[Activity], activities: Sequence[Activity], stream_id: int) -> int:
    """Return the number of kernels in one stream that must wait for a kernel in another stream."""
    activity_bits, ancestor_masks = _compute_ancestor_masks(activities)
    other_kernels_mask = sum(activity_bits[a.correlation_id] for a in kernels if a.stream_id != stream_id)
    return sum(
        a.stream_id == stream_id and ancestor_masks[a.correlation_id] & other_kernels_mask > 0
        for a in kernels
    )


def _compute_ancestor_masks(activities: Sequence[Activity]) -> tuple[dict[int, int], dict[int, int]]:
    """Return two dictionaries by correlation id. The first contains a bit for each operation. The second
    contains a mask with the bits of the operation and of all operations that it waits for.
    """
    activity_bits: dict[int, int] = {}
    ancestor_masks: dict[int, int] = {}
    for a in activities:
        mask = activity_bits[a.correlation_id] = 1 << len(activity_bits)
        for earlier_id in a.after:
            mask |= ancestor_masks.get(earlier_id, 0)
        ancestor_masks[a.correlation_id] = mask
    return activity_bits, ancestor_masks
