"""``gl.access``: the sectors and shared-memory banks that each access of a warp uses, lane by lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpulab import session, views
from gpulab._deprecated import accept_old_parameters
from virtualgpu.protocol import Accesses, Launch, Shape
from virtualgpu.records.access import AccessPattern

SIDES = ("both", "global", "shared")


@accept_old_parameters
def access(
    kernel: Any = None,
    grid: Shape = 1,
    block: Shape = 32,
    args: Sequence[Any] = (),
    *,
    shared_mem: int = 0,
    stream: Any = None,
    line: int | None = None,
    warp: int = 0,
    block_index: Shape = (0, 0, 0),
    stride: int = 1,
    offset: int = 0,
    element_bytes: int = 4,
    padding: int = 0,
    swizzle: bool = False,
    space: str = "both",
) -> views.AccessMicroscope:
    """Show the memory sectors and shared-memory banks that the 32 lanes of a warp use in an access.

    Without a kernel, sliders set the pattern in which lane l accesses element ``offset + stride * l`` of a
    tile with rows of 32 elements. With a kernel, a table lists its memory accesses by source line, worst
    first. The chosen access is shown with the addresses of one warp, and can then be edited.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `gl.launch`. The kernel runs.
    line
        The source line whose worst access is shown first.
    warp, block_index
        The warp whose addresses are shown, and its block (a number or a tuple of one to three). The table
        counts all warps of the launch.
    stride, offset
        Of the pattern, in elements (0 to 4,096).
    element_bytes
        1, 2, 4, 8 or 16 bytes per lane.
    padding
        Unused elements at the end of each row of the tile (0 to 32).
    swizzle
        Whether the element of column c is stored in column ``c ^ row`` of its row.
    space
        ``"both"`` shows memory and banks, ``"global"`` or ``"shared"`` one of them.

    Returns
    -------
    AccessMicroscope
        ``access`` is the access shown, with its counts (``access.memory()``, ``access.banks()``); ``record``
        is the kernel's trace (`virtualgpu.records.access.AccessTrace`) or the pattern. Counts follow the
        rules of the virtual GPU's counters, which agree with Nsight Compute on an H200.

    Raises
    ------
    ValueError
        For an impossible pattern, or a line of the kernel that accesses no memory.

    Examples
    --------
    >>> gl.access(stride=32, padding=1)
    >>> gl.access(kernel, 4, 256, (x, y, n), line=4)
    >>> gl.access(stride=2).access.memory().sectors
    8
    """
    if space not in SIDES:
        raise ValueError(f"`space` must be one of {', '.join(map(repr, SIDES))}, not {space!r}.")
    if kernel is None:
        return views.AccessMicroscope(
            AccessPattern(stride, offset, element_bytes, padding, bool(swizzle)), space
        )
    launch = Launch.of(kernel, grid, block, args, shared_mem, stream)
    observed_accesses = session.observe(launch, Accesses(*launch.warp_position(block_index, warp)))
    lines = sorted({access.line for access in observed_accesses.record.counters.accesses if access.requests})
    if line is not None and line not in lines:
        line_texts = ", ".join(map(str, lines)) or "none does"
        raise ValueError(
            f"Line {line} of the kernel accesses no memory in this launch. Lines with "
            f"memory accesses: {line_texts}."
        )
    return views.AccessMicroscope(observed_accesses.record, line=line, note=observed_accesses.note)
