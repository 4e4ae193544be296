"""``gl.memory_hierarchy``: the memory hierarchy of the device in use, or of one that was recorded."""

from __future__ import annotations

from importlib import resources
from typing import Any

from gpulab import session, views
from gpulab.lab.memory import hierarchy
from gpulab.lab.recorded import NotRecordedError
from virtualgpu.records import io
from virtualgpu.records.memory import MemoryLadder

_ENDING = ".npz"


def memory_hierarchy(device: str | None = None, *, beside: str | None = None) -> views.LadderChart:
    """Show the latency of the memory hierarchy over the working set, and the bandwidth of each level.

    Parameters
    ----------
    device
        A GPU whose ladder was recorded and ships with gpulab, such as ``"H200"``. None: the device in use,
        measured on a real GPU (in a few seconds) and modelled on a virtual one.
    beside
        A recorded GPU to lay beside it. The ladder of a virtual GPU comes with all of them.

    Returns
    -------
    LadderChart
        Two charts with logarithmic axes, what documents say as dashed lines; ``.record`` holds the data
        (`virtualgpu.records.memory.MemoryLadder`), ``.beside("H100")`` lays a recorded one beside it.

    Raises
    ------
    NotRecordedError
        If no such GPU was recorded; the message says which were.
    GpulabError
        If the GPU has next to no memory free.

    Examples
    --------
    >>> gl.memory_hierarchy("H200")
    >>> gl.memory_hierarchy("H200").record.latency_at(16 << 10)  # ns
    """
    ladders = [recorded_ladder(device) if device is not None else hierarchy.measure()]
    if beside is not None:
        ladders.append(recorded_ladder(beside))
    elif device is None and session.which_device().kind == "virtual":
        ladders += [recorded_ladder(name) for name in recorded_names()]
    return views.LadderChart(ladders, find=recorded_ladder)


def recorded_names() -> list[str]:
    """Return the GPUs whose recorded memory hierarchies ship, as `memory_hierarchy` takes them."""
    names = (file.name for file in _folder().iterdir() if file.name.endswith(_ENDING))
    return sorted((name.removesuffix(_ENDING).upper() for name in names), reverse=True)


def recorded_ladder(device: str) -> MemoryLadder:
    """Return the memory hierarchy that was recorded on `device`.

    Raises
    ------
    NotRecordedError
        If there is none.
    """
    name = device.strip().upper().removeprefix("NVIDIA ")
    if name not in recorded_names():
        recorded_list = ", ".join(recorded_names()) or "no GPU yet"
        raise NotRecordedError(f"No ladder of {device!r} was recorded; there is one of {recorded_list}.")
    ladder: MemoryLadder = io.read((_folder() / f"{name.lower()}{_ENDING}").read_bytes(), name)
    return ladder


def _folder() -> Any:
    return resources.files("gpulab") / "data" / "recordings" / "ladders"
