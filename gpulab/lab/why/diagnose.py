"""``gl.diagnose``: why a launch takes as long as it does, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from gpulab import session
from gpulab.lab.why.steps import launch_of
from gpulab.views.tables.diagnosis import DiagnosisTable
from virtualgpu.protocol import Blocks, Costs, Launch, Shape


def diagnose(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    shared_bytes: int = 0,
    caches: Literal["cold", "warm"] = "cold",
    beside: Any = None,
) -> DiagnosisTable:
    """Run a kernel and say why it is as slow as it is: each cause with its line, counter and remedy.

    Causes are found by pricing the launch again without each of them, in the virtual GPU's time model. They
    come in the order of what their remedies gain; what gains less than some 1.25 times is not told.

    Parameters
    ----------
    kernel, grid, block, args, shared_bytes, caches
        As for ``gl.count``.
    beside
        Another launch, such as the kernel before a change, as ``(kernel, grid, block, args)``: what changed,
        and what it bought. It runs first.

    Returns
    -------
    DiagnosisTable
        Sentences and a table. ``.main`` is the first cause (None: nothing worth mending), ``.causes`` all of
        them, ``.stages`` what each stage would take alone (`virtualgpu.records.launch.causes.LaunchCosts`).
        On a real GPU the launch's measured time stands beside the model's.

    Raises
    ------
    TypeError
        If `beside` is no launch.
    GpulabError
        If the virtual GPU does not finish its replay of the launch in time.

    Examples
    --------
    >>> gl.diagnose(kernel, 4, 256, (x, y, n))
    >>> gl.diagnose(kernel, 4, 256, (x, y, n), beside=(kernel, 1, 1000, (x, y, n))).main
    """
    asked = Launch.of(kernel, grid, block, args, shared_bytes)
    first = launch_of("`beside`", beside) if beside is not None else None
    before = session.observe(first, Costs(caches)).record if first is not None else None
    ran, seen = session.observe(asked, Blocks(), Costs(caches))
    measured_ns = float(ran.record.span_ns) if ran.record.provenance.source == "measured" else 0.0
    found = DiagnosisTable.of(seen.record, code=asked.source.code, note=seen.note)
    return replace(found, measured_ns=measured_ns, beside=before)
