"""``gl.call_layers``: one call through framework, library, runtime and driver, down to the kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

from gpulab import session
from gpulab._deprecated import old_parameters
from gpulab.lab._base import Pictured
from gpulab.lab.libraries.calls import library_calls
from gpulab.lab.timeline import timeline
from virtualgpu.records.libraries.layers import Followed, kind_of, known_layers, named, stack

if TYPE_CHECKING:
    from gpulab.views.layers.view import LayersView

RECORD = "h200_layers.json"


@old_parameters
def call_layers(fn: Callable[..., Any] | str, *args: Any) -> FollowReport:
    """Follow one call through the layers: framework, library, CUDA runtime, driver, device.

    Parameters
    ----------
    fn
        A function. It is called three times; the first call loads and compiles, and is not shown. Or the name
        of a call that was recorded, such as ``"x @ w"``.
    args
        The arguments of the function.

    Returns
    -------
    FollowReport
        A picture of the layers with their symbols, and beside it what was recorded of the same kind of call
        under CuPy and PyTorch. ``.record`` holds them (`virtualgpu.records.libraries.layers.Followed`), the
        one seen here first.

    Raises
    ------
    GpulabError
        For a name that was not recorded, or while a timeline is being recorded.

    Notes
    -----
    On a real GPU calls of the runtime and of the driver come from CUPTI's callbacks, which see all of them;
    routines of libraries from `gpulab.library_calls`. A virtual GPU shows its own work, under CUDA's names.

    Examples
    --------
    >>> x = cp.ones((64, 64), cp.float32)
    >>> gl.call_layers(lambda: x @ x)
    >>> gl.call_layers("sort")
    """
    known_calls = recorded()
    if isinstance(fn, str):
        return FollowReport(named(known_calls, fn))
    libraries = library_calls(fn, *args).record
    with timeline() as line:  # which waits at its end
        fn(*args)
    provenance = session.backend().provenance
    driver_calls = session.driver_calls(fn, args) if provenance.source == "measured" else None
    layers = stack(provenance, fn, line.record, libraries, driver_calls)
    same_kind = [record for record in known_calls if record.call == kind_of(line.record)]
    return FollowReport((layers, *same_kind))


class FollowReport(Pictured):
    """Layers that a call passed through, displayed as a picture."""

    def __init__(self, record: tuple[Followed, ...]) -> None:
        self.record = record

    def _make_picture(self) -> LayersView:
        from gpulab.views.layers.view import LayersView

        return LayersView(self.record)

    def __repr__(self) -> str:
        layers: Any = self._picture()
        return str(layers.sentence())


def recorded() -> tuple[Followed, ...]:
    """The shipped record of calls."""
    file = resources.files("gpulab") / "data" / "recordings" / RECORD
    return known_layers(json.loads(file.read_text(encoding="utf-8")))
