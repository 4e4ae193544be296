"""``gl.fragments``: which lane and register holds each element of a warp's matrix instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpulab import session, views
from virtualgpu.protocol import Fragments, Launch, Shape


def fragments(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    shared_mem: int = 0,
    stream: Any = None,
    line: int | None = None,
    warp: int = 0,
    block_index: Shape = (0, 0, 0),
    max_steps: int = 20_000,
) -> views.FragmentView:
    """Run a kernel, and show which lane and register holds each matrix element of its matrix instructions.

    The view lists the executions of ``wmma``, ``mma.sync``, ``ldmatrix`` and ``stmatrix`` in one warp, and
    its accesses to shared memory. For one execution it shows the matrices, with the lane, the register, the
    value and the address in shared memory of each element. Below them it shows the lines of shared memory
    that contain the elements, with the bank conflicts of a load or a store.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `gpulab.launch`. The kernel runs.
    line
        The source line whose instruction is shown first; the first multiplication if left out.
    warp, block_index
        The warp that is shown, and its block (a number or a tuple of one to three).
    max_steps
        Maximum number of steps of the warp that are recorded.

    Returns
    -------
    FragmentView
        ``record`` has the executions (`virtualgpu.records.fragments.FragmentTrace`), for example
        ``record.values(record.executions[0], "a")``. Registers and addresses are those of the virtual GPU,
        which on a real GPU replays the launch. PTX defines the layouts of ``mma.sync``, ``ldmatrix`` and
        ``stmatrix``, so they are the same on every GPU. It does not define the layout of ``wmma``: the
        virtual GPU uses the one that was recorded on an H200.

    Raises
    ------
    ValueError
        If the warp executes no matrix instruction, or the line has none and does not access shared memory.

    Examples
    --------
    >>> gl.fragments(product, 4, 128, (a, b, c))
    >>> view = gl.fragments(product, 4, 128, (a, b, c), warp=2)
    >>> view.record.values(view.chosen, "d")  # of the execution that is shown, rows and columns
    """
    launch = Launch.of(kernel, grid, block, args, shared_mem, stream)
    block_index, warp = launch.warp_position(block_index, warp)
    observed_fragments = session.observe(launch, Fragments(block_index, warp, max_steps))
    trace = observed_fragments.record
    if all(trace.of(execution).role == "access" for execution in trace.executions):
        remedy = (
            f"It was recorded for {max_steps:,} steps; a larger `max_steps` records more."
            if trace.truncated
            else "Choose another warp or block with `warp` and `block_index`."
        )
        raise ValueError(
            f"Warp {warp} of block {block_index} executed no matrix instruction (wmma, mma.sync, ldmatrix "
            f"or stmatrix). {remedy}"
        )
    lines = sorted({trace.of(execution).line for execution in trace.executions})
    if line is not None and line not in lines:
        raise ValueError(
            f"On line {line} of the kernel, this warp neither executed a matrix instruction nor accessed "
            f"shared memory. Lines on which it did: {', '.join(map(str, lines))}."
        )
    return views.FragmentView(trace, line=line, note=observed_fragments.note)
