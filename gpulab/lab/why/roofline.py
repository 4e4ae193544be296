"""``gl.roofline``: launches by what they compute a byte and a second, under what their device can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from gpulab import session, views
from gpulab.lab.why.steps import launch_of
from virtualgpu.protocol import Blocks, Counters, Launch
from virtualgpu.records.launch.roofline import Roofline, RooflinePoint


def roofline(
    *launches: Any, names: Sequence[str] = (), path: bool = False, caches: Literal["cold", "warm"] = "cold"
) -> views.RooflineChart:
    """Run launches and show them under the ceilings of the device: DRAM, L2, shared memory, arithmetic.

    Each runs once. It stands as high as it computes a second, and for every level of memory as far to the
    right as it computes a byte that was moved there: sectors of DRAM and L2, and 128 bytes for each pass of
    shared memory's banks.

    Parameters
    ----------
    *launches
        Each as ``(kernel, grid, block, args)``, with dynamic shared memory in bytes as a fifth part, or a
        mapping with the parameters of ``gl.count`` by name.
    names
        What to call them; their kernels' names if not given.
    path
        Draw an arrow from each to the next: a kernel before and after a change.
    caches
        As for ``gl.count``.

    Returns
    -------
    RooflineChart
        ``.record`` is a `virtualgpu.records.launch.roofline.Roofline`. On a real GPU times are measured, with
        the virtual GPU's beside them where it can replay the launch, and bytes come from its replay; on a
        virtual GPU all is modelled.

    Raises
    ------
    TypeError
        For what is no launch.
    ValueError
        For no launch, or names that are not as many.

    Examples
    --------
    >>> gl.roofline((kernel, 4, 256, (x, y, n)), (kernel, 2, 512, (x, y, n)), path=True)
    """
    if not launches:
        raise ValueError("Pass at least one launch: gl.roofline((kernel, grid, block, args)).")
    if isinstance(names, str) or (names and len(names) != len(launches)):
        raise ValueError(f"`names` are as many as launches, {len(launches)}: {names!r}.")
    asked = [launch_of(f"Launch {at}", each) for at, each in enumerate(launches, 1)]
    seen = [_point(each, name, caches) for each, name in zip(asked, names or _names(asked), strict=True)]
    note = next((note for _, note in seen if note), "")
    points = tuple(point for point, _ in seen)
    return views.RooflineChart(Roofline(ceilings=session.ceilings(), points=points, path=path, note=note))


def _names(asked: Sequence[Launch]) -> list[str]:
    """Kernels' names; those that come twice are numbered."""
    names = [each.source.name for each in asked]
    many = Counter(names)
    before = Counter[str]()
    found = []
    for name in names:
        before[name] += 1
        found.append(f"{name} {before[name]}" if many[name] > 1 else name)
    return found


def _point(asked: Launch, name: str, caches: Literal["cold", "warm"]) -> tuple[RooflinePoint, str]:
    seen, counted = session.observe(asked, Blocks(), Counters(caches))
    trace = seen.record
    predicted = seen.beside() if seen.beside is not None else None
    modelled = predicted.span_ns if predicted is not None else None
    return RooflinePoint.of(name, counted.record, trace.provenance, trace.span_ns, modelled), counted.note
