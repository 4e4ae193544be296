"""``gl.memory_hierarchy``: the memory hierarchy of the device in use, or of a recorded GPU."""

from __future__ import annotations

from importlib import resources
from typing import Any

from gpulab import session, views
from gpulab.lab.memory import hierarchy
from gpulab.lab.recorded import NotRecordedError
from virtualgpu.records import io
from virtualgpu.records.memory import MemoryLadder

_EXTENSION = ".npz"


def memory_hierarchy(device: str | None = None, *, beside: str | None = None) -> views.LadderChart:
    """Show the memory latency for each size of the working set, and the bandwidth of each memory level.

    Parameters
    ----------
    device
        A GPU whose recording ships with gpulab, such as ``"H200"``. By default, the device in use: measured
        in a few seconds on a real GPU, and modelled on a virtual one.
    beside
        A recorded GPU to show for comparison. For a virtual GPU, all recorded GPUs are shown.

    Returns
    -------
    LadderChart
        Two charts with logarithmic axes, in which published values are dashed lines. ``.record`` holds the
        data (`virtualgpu.records.memory.MemoryLadder`). ``.beside("H100")`` adds a recorded GPU.

    Raises
    ------
    NotRecordedError
        If there is no recording of this GPU; the message lists the recorded GPUs.
    GpulabError
        If the GPU has almost no free memory.

    Examples
    --------
    >>> gl.memory_hierarchy("H200")
    >>> gl.memory_hierarchy("H200").record.latency_at(16 << 10)  # ns
    """
    ladders = [load_recorded_ladder(device) if device is not None else hierarchy.measure_hierarchy()]
    if beside is not None:
        ladders.append(load_recorded_ladder(beside))
    elif device is None and session.which_device().kind == "virtual":
        ladders += [load_recorded_ladder(name) for name in list_recorded_ladders()]
    return views.LadderChart(ladders, find_ladder=load_recorded_ladder)


def list_recorded_ladders() -> list[str]:
    """Return the names of the GPUs whose memory hierarchy was recorded. The function `memory_hierarchy`
    accepts these names.
    """
    names = (file.name for file in _find_recordings_folder().iterdir() if file.name.endswith(_EXTENSION))
    return sorted((name.removesuffix(_EXTENSION).upper() for name in names), reverse=True)


def load_recorded_ladder(device: str) -> MemoryLadder:
    """Return the memory hierarchy that was recorded on the GPU `device`. The recordings ship with gpulab.

    Raises
    ------
    NotRecordedError
        If there is no recording of this GPU.
    """
    name = device.strip().upper().removeprefix("NVIDIA ")
    if name not in list_recorded_ladders():
        recorded_list = ", ".join(list_recorded_ladders()) or "no GPU yet"
        raise NotRecordedError(
            f"There is no recording of the memory hierarchy of {device!r}. There are "
            f"recordings of {recorded_list}."
        )
    ladder: MemoryLadder = io.read(
        (_find_recordings_folder() / f"{name.lower()}{_EXTENSION}").read_bytes(), name
    )
    return ladder


def _find_recordings_folder() -> Any:
    return resources.files("gpulab") / "data" / "recordings" / "ladders"
