"""``gl.call_layers``: one call on its way through framework, library, runtime and driver to the kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

from gpulab import session
from gpulab._deprecated import accept_old_parameters
from gpulab.lab._base import PicturedResult
from gpulab.lab.libraries.calls import library_calls
from gpulab.lab.timeline import timeline
from virtualgpu.records.libraries.layers import (
    CallLayers,
    find_recorded_call,
    find_similar_call,
    make_call_layers,
    read_known_layers,
)

if TYPE_CHECKING:
    from gpulab.views.layers.view import LayersView

RECORD_FILE = "h200_layers.json"


@accept_old_parameters
def call_layers(fn: Callable[..., Any] | str, *args: Any) -> FollowReport:
    """Show the functions that one call uses in each software layer, from the framework to the device.

    Parameters
    ----------
    fn
        A function, which is called three times. The first call loads and compiles, and is not shown. Or the
        name of a recorded call, such as ``"x @ w"``.
    args
        The arguments of the function.

    Returns
    -------
    FollowReport
        A picture of the layers with their symbols, next to recordings of the same kind of call with CuPy and
        PyTorch. ``.record`` holds all of them, the call on this device first
        (`virtualgpu.records.libraries.layers.CallLayers`).

    Raises
    ------
    GpulabError
        For a name that was not recorded, or if a timeline is being recorded.

    Notes
    -----
    On a real GPU, the calls of the runtime and of the driver come from CUPTI's callbacks, which report all
    calls. The routines of libraries come from `gpulab.library_calls`. A virtual GPU shows its own operations
    under CUDA's names.

    Examples
    --------
    >>> x = cp.ones((64, 64), cp.float32)
    >>> gl.call_layers(lambda: x @ x)
    >>> gl.call_layers("sort")
    """
    known_calls = read_recorded_layers()
    if isinstance(fn, str):
        return FollowReport(find_recorded_call(known_calls, fn))
    library_record = library_calls(fn, *args).record
    with timeline() as recorded_timeline:  # which waits at its end
        fn(*args)
    provenance = session.backend().provenance
    driver_calls = session.count_driver_calls(fn, args) if provenance.source == "measured" else None
    layers = make_call_layers(provenance, fn, recorded_timeline.record, library_record, driver_calls)
    similar_calls = [
        record for record in known_calls if record.call == find_similar_call(recorded_timeline.record)
    ]
    return FollowReport((layers, *similar_calls))


class FollowReport(PicturedResult):
    """The software layers that a call used, displayed as a picture."""

    def __init__(self, record: tuple[CallLayers, ...]) -> None:
        self.record = record

    def _make_picture(self) -> LayersView:
        from gpulab.views.layers.view import LayersView

        return LayersView(self.record)

    def __repr__(self) -> str:
        layers: Any = self._picture()
        return str(layers.sentence())


def read_recorded_layers() -> tuple[CallLayers, ...]:
    """Return the recorded calls through the software layers. The recording is part of gpulab."""
    file = resources.files("gpulab") / "data" / "recordings" / RECORD_FILE
    return read_known_layers(json.loads(file.read_text(encoding="utf-8")))
