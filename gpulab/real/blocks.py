"""Record the SM and the times of each block with an instrumented kernel (``%smid``, ``%globaltimer``)."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np

from gpulab.real.modules import Probe
from virtualgpu.compile.instrument import find_timer_step_ns, make_block_buffer, read_blocks
from virtualgpu.protocol import Launch
from virtualgpu.records import DeviceInfo, LaunchTrace, Occupancy

# Above this many blocks only one in two, four, ... is recorded (24 bytes each).
MAX_RECORDED_BLOCKS = 1 << 20


def trace_blocks(
    probe: Probe, kernel: Any, launch: Launch, info: DeviceInfo, occupancy: Occupancy, note: str
) -> LaunchTrace:
    """Run the instrumented kernel once, and read the records of its blocks.

    Parameters
    ----------
    probe
        The copy of the kernel, instrumented by `virtualgpu.compile.instrument.instrument_blocks`.
    kernel, launch
        The launch, and its kernel as a CuPy kernel.
    info
        The device.
    occupancy, note
        Values for the record; ``occupancy`` is that of the instrumented copy, which is the kernel that runs.

    Returns
    -------
    LaunchTrace
        A block starts with the first instruction of its first warp and ends with the exit of its last warp,
        both on the GPU's clock. ``timer_step_ns`` is the observed resolution of this clock.
    """
    block_count = math.prod(launch.grid)
    sampling_step = 1
    while -(-block_count // sampling_step) > MAX_RECORDED_BLOCKS:
        sampling_step *= 2
    probe_buffer = cupy.asarray(make_block_buffer(block_count, sampling_step))
    probe.launch(kernel, launch, probe_buffer)
    block_index, start_times, ends_ns, sm_id = read_blocks(probe_buffer.get())
    first_start_time = start_times.min()
    has_ended = ends_ns != 0
    if not has_ended.all():
        note = "; ".join([*([note] if note else []), "the ends of some blocks could not be observed"])
    start_ns = (start_times - first_start_time).astype(np.int64)
    end_ns = np.where(has_ended, (ends_ns - first_start_time).astype(np.int64), start_ns)
    return LaunchTrace(
        provenance=info.provenance,
        kernel_name=kernel.name,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        sm_count=info.sm_count,
        block_index=block_index,
        sm_id=sm_id,
        start_ns=start_ns,
        end_ns=end_ns,
        occupancy=occupancy,
        timer_step_ns=find_timer_step_ns(start_ns, end_ns),
        sampled=sampling_step,
        note=note,
    )
