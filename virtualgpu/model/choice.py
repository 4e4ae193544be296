"""Choice of the GPUs of a virtual machine, by name and count or from environment variables."""

from __future__ import annotations

import os

from virtualgpu.model.devices import device_info
from virtualgpu.records import DeviceInfo

DEVICE_VARIABLE = "VIRTUALGPU_DEVICE"
COUNT_VARIABLE = "VIRTUALGPU_COUNT"
WATCHDOG_VARIABLE = "VIRTUALGPU_WATCHDOG_S"
DEFAULT_WATCHDOG_S = 20.0
DEFAULT_DEVICE = "A100"


def find_device_infos(name: str | None = None, count: int | None = None) -> list[DeviceInfo]:
    """Return the properties of the GPUs of a new virtual machine.

    Parameters
    ----------
    name
        A GPU of the device table, such as ``"T4"``; by default ``VIRTUALGPU_DEVICE``, else an A100.
    count
        Number of GPUs; by default ``VIRTUALGPU_COUNT``, else one.

    Raises
    ------
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest.
    ValueError
        If the number is not an integer above 0.
    """
    if name is None:
        name = os.environ.get(DEVICE_VARIABLE, "").strip() or DEFAULT_DEVICE
    count_text = os.environ.get(COUNT_VARIABLE, "").strip() or "1" if count is None else str(count)
    if not count_text.isdecimal() or int(count_text) < 1:
        raise ValueError(
            f"The number of virtual GPUs ({COUNT_VARIABLE}) must be an integer above 0, not {count_text}."
        )
    return [device_info(name)] * int(count_text)


def read_initial_watchdog_s() -> float:
    """Return the initial time limit of a kernel in seconds. The limit is the value of
    ``VIRTUALGPU_WATCHDOG_S``, or 20 by default.

    Raises
    ------
    ValueError
        If the variable is not a number above 0.
    """
    limit_text = os.environ.get(WATCHDOG_VARIABLE, "").strip()
    try:
        seconds = float(limit_text or DEFAULT_WATCHDOG_S)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"{WATCHDOG_VARIABLE} must be a number of seconds above 0, not {limit_text}.")
    return seconds
