"""``gl.diagnose``: the causes of a launch's time, with a remedy for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from gpulab import session
from gpulab._deprecated import accept_old_parameters
from gpulab.lab.why.steps import parse_launch, restore_arrays_of
from gpulab.views.tables.diagnosis import DiagnosisTable
from virtualgpu.protocol import Blocks, Costs, Launch, Shape


@accept_old_parameters
def diagnose(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    shared_mem: int = 0,
    stream: Any = None,
    caches: Literal["cold", "warm"] = "cold",
    baseline: Any = None,
) -> DiagnosisTable:
    """Run a kernel, and explain what determines its time. Each cause has a source line, a counter and a
    remedy.

    The virtual GPU's time model computes the time of the launch again without each cause. The causes are
    sorted by the gain of their remedies; causes whose remedy gains less than about 1.25 times are left out.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream, caches
        As for ``gl.count``.
    baseline
        Another launch, such as the kernel before a change: the result of ``gl.launch``, or
        ``(kernel, grid, block, args)``. It runs first, and the result shows the changes and their gain.

    Returns
    -------
    DiagnosisTable
        Sentences and a table. ``.main`` is the first cause (None if there is nothing worth improving),
        ``.causes`` all of them, ``.stages`` the time of each stage alone
        (`virtualgpu.records.launch.causes.LaunchCosts`). On a real GPU the table has the measured time, too.

    Raises
    ------
    TypeError
        If `baseline` is not a launch.
    GpulabError
        If the virtual GPU does not finish its replay of the launch in time.

    Examples
    --------
    >>> gl.diagnose(kernel, 4, 256, (x, y, n))
    >>> slow = gl.launch(kernel, 1, 1000, (x, y, n))
    >>> gl.diagnose(kernel, 4, 256, (x, y, n), baseline=slow).main
    """
    launch = Launch.of(kernel, grid, block, args, shared_mem, stream)
    baseline_launch, baseline_code = None, ""
    if baseline is not None:
        with restore_arrays_of(parse_launch("`baseline`", baseline)) as started_launch:
            baseline_launch = session.observe(started_launch, Costs(caches)).record
            baseline_code = started_launch.source.code
    launch_trace, costs = session.observe(launch, Blocks(), Costs(caches))
    trace = launch_trace.record
    measured_ns = float(trace.span_ns) if trace.provenance.source == "measured" else 0.0
    diagnosis_table = DiagnosisTable.of(costs.record, code=launch.source.code, note=costs.note)
    return replace(
        diagnosis_table, measured_ns=measured_ns, baseline=baseline_launch, baseline_code=baseline_code
    )
