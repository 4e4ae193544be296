"""A GPU in software that compiles CUDA C++ with NVRTC and runs it warp by warp, with CuPy's interface.

``import virtualgpu.cp as cp`` imports the replacement of CuPy. `as_cupy`, ``python -m virtualgpu`` and the
pytest plugin ``virtualgpu.pytest_plugin`` let unchanged CuPy programs import it under CuPy's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virtualgpu.aliases import AsCupy

__all__ = ["as_cupy", "use_device"]


def use_device(name: str | None = None, count: int | None = None, links: str | None = None) -> None:
    """Select the virtual GPUs that ``cp`` uses. Existing arrays on the previous GPUs stay readable.

    Parameters
    ----------
    name
        A GPU of the device table, such as ``"T4"`` or ``"H200"``; by default the value of the environment
        variable ``VIRTUALGPU_DEVICE``, or else an A100.
    count
        Number of GPUs; by default ``VIRTUALGPU_COUNT``, or else one.
    links
        Links between the GPUs: ``"nvswitch"`` (all pairs), ``"pairs"`` or ``"host"`` (none); by default the
        links of such a system.

    Raises
    ------
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest name.
    ValueError
        For NVLink between GPUs without NVLink.
    """
    from virtualgpu.model import machine

    machine.use_device(name, count, links)


def as_cupy(device: str | None = None, count: int | None = None) -> AsCupy:
    """Make ``import cupy`` and ``import cupyx`` load the modules of the virtual GPU. Imports of submodules
    such as ``cupy.cuda`` also load modules of the virtual GPU.

    Call it before CuPy is imported. A second call only changes the device.

    Parameters
    ----------
    device, count
        As for `use_device`. If neither is given, the present machine stays in use.

    Returns
    -------
    AsCupy
        Object that restores the names at the end of ``with virtualgpu.as_cupy() as cupy:``.

    Raises
    ------
    RuntimeError
        If the real CuPy is imported already.
    """
    from virtualgpu.aliases import AsCupy

    return AsCupy(device, count)
