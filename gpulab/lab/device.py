"""``gl.device`` and ``gl.compare``: the capabilities of GPUs, next to each other."""

from __future__ import annotations

from contextlib import suppress

from gpulab import session, views
from virtualgpu.errors import UnknownDeviceError
from virtualgpu.records import DeviceInfo


def device(name: str | None = None) -> views.DeviceCard:
    """Show the compute capability, limits and live readings of a GPU, next to those of other GPUs.

    Parameters
    ----------
    name
        A GPU of the table, such as ``"T4"``. None: the device in use, whose readings are live if
        it is a real one.

    Raises
    ------
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest.

    Examples
    --------
    >>> gl.device()
    >>> gl.device("H200").info.sm_count
    132
    """
    if name is not None:
        info = session.find_table_info(name)
        return views.DeviceCard(info, other_devices=_find_other_devices(info))
    backend = session.backend()
    info = backend.device_info()
    read_metrics = backend.metrics if session.which_device().kind == "cuda" else None
    return views.DeviceCard(
        info, other_devices=_find_other_devices(info), read_metrics=read_metrics, setup=backend.setup()
    )


def compare(*names: str) -> views.DeviceComparison:
    """Show a table with one column per GPU, and mark the differences.

    Parameters
    ----------
    names
        GPUs of the table, such as ``"T4", "H200"``. One alone is compared with the device in use.

    Raises
    ------
    TypeError
        If no GPU is named.
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest.

    Examples
    --------
    >>> gl.compare("T4", "A100", "H200")
    """
    if not names:
        raise TypeError('Pass the names of GPUs: gl.compare("T4", "H200").')
    infos = [session.find_table_info(name) for name in names]
    if len(infos) == 1:
        infos.insert(0, session.backend().device_info())
    return views.DeviceComparison(infos)


def _find_other_devices(info: DeviceInfo) -> tuple[DeviceInfo, ...]:
    """Return all GPUs of the device table except the shown one. Its driver name may differ slightly."""
    name = info.name
    with suppress(UnknownDeviceError):
        name = session.find_table_info(name).name
    return tuple(other_device for other_device in session.list_table_devices() if other_device.name != name)
