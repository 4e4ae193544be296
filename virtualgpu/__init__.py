"""A GPU in software: it compiles CUDA C++ with NVRTC and runs it warp by warp, behind CuPy's interface.

``import virtualgpu.cp as cp`` is the module to use in CuPy's place. `as_cupy`, ``python -m virtualgpu`` and
the pytest plugin ``virtualgpu.pytest_plugin`` let unchanged CuPy programs find it under CuPy's own name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virtualgpu.aliases import AsCupy

__all__ = ["as_cupy", "use_device"]


def use_device(name: str | None = None, count: int | None = None, links: str | None = None) -> None:
    """Let ``cp`` work on other virtual GPUs from now on. Arrays of those before stay readable.

    Parameters
    ----------
    name
        A GPU of the device table, such as ``"T4"`` or ``"H200"``; by default the environment variable
        ``VIRTUALGPU_DEVICE`` decides, else it is an A100.
    count
        How many of it; by default ``VIRTUALGPU_COUNT``, else one.
    links
        How they are joined: ``"nvswitch"`` (all with each other), ``"pairs"`` or ``"host"`` (by nothing); by
        default as such GPUs are sold.

    Raises
    ------
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest.
    ValueError
        For NVLink between GPUs that have none.
    """
    from virtualgpu.model import machine

    machine.use_device(name, count, links)


def as_cupy(device: str | None = None, count: int | None = None) -> AsCupy:
    """Let ``import cupy`` and ``import cupyx``, with their submodules, mean the virtual GPU's from now on.

    Call it before anything imports CuPy; calling it again changes nothing but the device.

    Parameters
    ----------
    device, count
        As for `use_device`. If neither is given, a machine that is in use already stays.

    Returns
    -------
    AsCupy
        To be used with ``with virtualgpu.as_cupy() as cupy:``, it takes the names back at the end.

    Raises
    ------
    RuntimeError
        If the real CuPy is imported already.
    """
    from virtualgpu.aliases import AsCupy

    return AsCupy(device, count)
