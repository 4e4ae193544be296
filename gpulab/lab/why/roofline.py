"""``gl.roofline``: a chart of launches by operations per byte and per second, with the ceilings of the
device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from gpulab import session, views
from gpulab.lab.why.steps import parse_launch, restore_arrays_of
from virtualgpu.protocol import Blocks, Counters, Launch
from virtualgpu.records.launch.roofline import Roofline, RooflinePoint


def roofline(
    *launches: Any, names: Sequence[str] = (), path: bool = False, caches: Literal["cold", "warm"] = "cold"
) -> views.RooflineChart:
    """Run kernel launches, and show them in a chart below the device's ceilings for DRAM, L2, shared memory
    and arithmetic.

    The chart has one arithmetic ceiling for each type of operation that a launch executes on CUDA cores or
    tensor cores. On Hopper and Blackwell, a note names the share of this ceiling that ``mma.sync`` reached on
    an H200.

    Each launch runs once and has one point per level of memory. The height of a point is the number of
    operations per second, and its position is the number of operations per byte moved at that level. Bytes
    are those of the sectors of DRAM and L2, and 128 bytes per pass of shared memory's banks.

    Parameters
    ----------
    *launches
        Results of ``gl.launch``, which start again from their arrays as they were before the launch. Or
        tuples ``(kernel, grid, block, args)``, with `shared_mem` as a fifth part, or mappings with the
        parameters of ``gl.count`` by name.
    names
        The names of the launches in the chart; the names of their kernels by default.
    path
        Whether to draw an arrow from each launch to the next, for example for a kernel before and after a
        change.
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
        If an argument is not a launch.
    ValueError
        If there is no launch, or the number of names differs from the number of launches.

    Examples
    --------
    >>> gl.roofline((kernel, 4, 256, (x, y, n)), (kernel, 2, 512, (x, y, n)), path=True)
    """
    if not launches:
        raise ValueError("Pass at least one launch: gl.roofline((kernel, grid, block, args)).")
    if isinstance(names, str) or (names and len(names) != len(launches)):
        raise ValueError(f"`names` must have one name per launch ({len(launches)}), not {names!r}.")
    checked_launches = [
        parse_launch(f"Launch {launch_number}", launch) for launch_number, launch in enumerate(launches, 1)
    ]
    launch_points: list[RooflinePoint] = []
    launch_notes: list[str] = []
    for launch, name in zip(checked_launches, names or _make_launch_names(checked_launches), strict=True):
        with restore_arrays_of(launch) as prepared_launch:
            launch_point, first_note = _measure_point(prepared_launch, name, caches)
        launch_points.append(launch_point)
        launch_notes.append(first_note)
    first_note = next(filter(None, launch_notes), "")
    return views.RooflineChart(
        Roofline(ceilings=session.find_ceilings(), points=tuple(launch_points), path=path, note=first_note)
    )


def _make_launch_names(launches: Sequence[Launch | session.KeptLaunch]) -> list[str]:
    """Return the names of the kernels, with numbers to distinguish equal names."""
    kernel_names = [
        (launch.launch if isinstance(launch, session.KeptLaunch) else launch).source.name
        for launch in launches
    ]
    name_counts = Counter(kernel_names)
    use_counts = Counter[str]()
    numbered_names = []
    for kernel_name in kernel_names:
        use_counts[kernel_name] += 1
        numbered_names.append(
            f"{kernel_name} {use_counts[kernel_name]}" if name_counts[kernel_name] > 1 else kernel_name
        )
    return numbered_names


def _measure_point(launch: Launch, name: str, caches: Literal["cold", "warm"]) -> tuple[RooflinePoint, str]:
    """Run a launch, and return its point in the chart and a note about the source of its counts."""
    launch_trace, counters = session.observe(launch, Blocks(), Counters(caches))
    trace = launch_trace.record
    predicted_trace = launch_trace.counterpart() if launch_trace.counterpart is not None else None
    modelled_ns = predicted_trace.span_ns if predicted_trace is not None else None
    roofline_point = RooflinePoint.of(name, counters.record, trace.provenance, trace.span_ns, modelled_ns)
    return roofline_point, counters.note
