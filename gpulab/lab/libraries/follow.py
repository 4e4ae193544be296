"""``gl.follow``: one call through framework, library, runtime and driver, down to the kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

from gpulab import session
from gpulab.lab._base import Pictured
from gpulab.lab.libraries.calls import calls
from gpulab.lab.timeline import timeline
from virtualgpu.records.libraries.layers import Followed, kind_of, known_layers, named, stack

if TYPE_CHECKING:
    from gpulab.views.layers.view import LayersView

RECORD = "h200_layers.json"


def follow(function: Callable[..., Any] | str, *args: Any) -> FollowReport:
    """Follow one call through the layers: framework, library, CUDA runtime, driver, device.

    Parameters
    ----------
    function
        What is followed. It is called three times, so that it should not mind: the first call loads and
        compiles, and is not shown. Or the name of a call that was recorded, such as ``"x @ w"``.
    args
        Its arguments.

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
    routines of libraries from `gpulab.calls`. A virtual GPU shows what it did itself, under CUDA's names.

    Examples
    --------
    >>> x = cp.ones((64, 64), cp.float32)
    >>> gl.follow(lambda: x @ x)
    >>> gl.follow("sort")
    """
    known = recorded()
    if isinstance(function, str):
        return FollowReport(named(known, function))
    ended = calls(function, *args).record
    with timeline() as seen:  # which waits at its end
        function(*args)
    here = session.backend().provenance
    below = session.driver_calls(function, args) if here.source == "measured" else None
    own = stack(here, function, seen.record, ended, below)
    return FollowReport((own, *(each for each in known if each.call == kind_of(seen.record))))


class FollowReport(Pictured):
    """What a call went through. It displays as a picture."""

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
