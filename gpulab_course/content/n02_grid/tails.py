"""Text for notebook 02 about the blocks of a launch: how they wait, and how they share an SM."""

from __future__ import annotations

import numpy as np

from virtualgpu.records import LaunchTrace


def told(full: LaunchTrace, spill: LaunchTrace) -> dict[str, str]:
    """Return values for the explanation of ``02-tail-factor``: the effect of one block more than a wave.

    Parameters
    ----------
    full
        A launch of exactly one wave.
    spill
        The same with one block more.
    """
    late = int(np.argmax(spill.start_ns))
    alone_ns = int(spill.end_ns[late] - spill.start_ns[late])
    usual_ns = float(np.median(full.end_ns - full.start_ns))
    shared = full.occupancy.blocks_per_sm
    company = f"{shared} of them shared an SM" if shared > 1 else "each of them had an SM to itself, too"
    return {
        "more": f"{1 / full.grid[0]:.1%}",
        "share": f"{alone_ns / usual_ns:.0%}",
        "company": company,
    }


def unequal(trace: LaunchTrace) -> str:
    """Describe how much the times of a launch's blocks differ, though their work is the same."""
    took_us = (trace.end_ns - trace.start_ns) / 1e3
    return (
        f"{trace.grid[0]} blocks took {took_us.min():.1f} to {took_us.max():.1f} µs, "
        f"the launch {trace.span_ns / 1e3:.1f} µs; {trace.provenance.label}"
    )
