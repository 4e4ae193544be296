"""Values and sentences about the tail of a launch, for notebook 02."""

from __future__ import annotations

import numpy as np

from virtualgpu.records import LaunchTrace


def told(full_launch: LaunchTrace, overflow_launch: LaunchTrace) -> dict[str, str]:
    """Return the values that are inserted into the explanation of the prediction ``02-tail-factor``.

    Parameters
    ----------
    full_launch
        A launch of exactly one wave.
    overflow_launch
        The same launch with one block more.
    """
    late_block = int(np.argmax(overflow_launch.start_ns))
    late_block_ns = int(overflow_launch.end_ns[late_block] - overflow_launch.start_ns[late_block])
    median_ns = float(np.median(full_launch.end_ns - full_launch.start_ns))
    blocks_per_sm = full_launch.occupancy.blocks_per_sm
    sharing_text = (
        f"before, {blocks_per_sm} blocks shared each SM"
        if blocks_per_sm > 1
        else "before, each block had an SM to itself, too"
    )
    return {
        "more": f"{1 / full_launch.grid[0]:.1%}",
        "share": f"{late_block_ns / median_ns:.0%}",
        "company": sharing_text,
    }


def unequal(trace: LaunchTrace) -> str:
    """Return a sentence with the shortest and the longest duration of a block, and the duration of the
    launch.
    """
    durations_us = (trace.end_ns - trace.start_ns) / 1e3
    return (
        f"{trace.grid[0]} blocks took {durations_us.min():.1f} to {durations_us.max():.1f} µs, "
        f"and the launch took {trace.span_ns / 1e3:.1f} µs; {trace.provenance.label}"
    )
