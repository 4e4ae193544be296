"""``gl.pipeline``: which warps fill and use which buffer of shared memory, and where they wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpulab import session, views
from virtualgpu.errors import GpulabError
from virtualgpu.protocol import Block, Launch, Shape
from virtualgpu.records import BlockTrace, WarpTrace

_NOT_REPLAYED_MESSAGE = (
    "The steps of all warps come from a replay on the virtual GPU, and this launch is too large or too slow "
    "for one. Launch fewer blocks, or let each block process less data: a few iterations show the pipeline."
)


def pipeline(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    block_index: Shape = (0, 0, 0),
    shared_mem: int = 0,
    stream: Any = None,
    max_steps: int | None = None,
) -> views.PipelineView:
    """Run a kernel, and show how one block fills and uses its buffers in shared memory.

    A buffer is a part of shared memory that is filled in one step, by stores or by asynchronous copies
    (``__pipeline_memcpy_async``, ``cuda::memcpy_async``, ``cp.async``). The view shows for each buffer when
    its copies are in flight and when it is used, by which warps and at which source lines, and for each warp
    the waits and barriers. A use that does not wait for its data, and a fill that does not wait for the use
    before it, are marked as mistakes.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `gpulab.launch`.
    block_index
        Index of the block: a number or a tuple of one to three.
    max_steps
        Maximum number of recorded steps of all warps together (60,000 by default).

    Returns
    -------
    PipelineView
        The buffers, fills, uses, waits and mistakes (``record``). The steps are those of the virtual GPU, on
        a real GPU those of its replay. The order of warps comes from barriers, mbarriers and the waits for
        copies. The lanes of a warp count as one, and other ways to synchronise, such as flags in memory, are
        not taken into account; `gpulab.sanitize` checks these, too.

    Raises
    ------
    GpulabError
        If the block has no pipeline, or if the launch is too large to replay on the virtual GPU.

    Examples
    --------
    >>> gl.pipeline(stages, 1, 64, (x, y, n))
    >>> gl.pipeline(stages, 1, 64, (x, y, n)).record.mistakes
    ()
    """
    launch = Launch.of(kernel, grid, block, args, shared_mem, stream)
    block_position, warp = launch.warp_position(block_index, 0)
    observation = Block(block_position, warp, with_variables=False)
    if max_steps is not None:
        observation = replace(observation, max_steps=max_steps)
    observed_record: session.ObservedRecord[BlockTrace | WarpTrace] = session.observe(launch, observation)
    if not isinstance(observed_record.record, BlockTrace):
        raise GpulabError(_NOT_REPLAYED_MESSAGE)
    return views.PipelineView(observed_record.record)
