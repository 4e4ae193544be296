"""Functions of ``cupyx`` on device arrays, and version information."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from virtualgpu import cp


def rsqrt(x: Any, out: Any = None) -> Any:
    """Return the reciprocal square root of each element."""
    return cp.reciprocal(cp.sqrt(x), out=out)


def scatter_add(a: Any, slices: Any, value: Any) -> None:
    """Add `value` to ``a[slices]``. If an index occurs several times, all of the corresponding values are
    added.
    """
    a.scatter_add(slices, value)


def scatter_max(a: Any, slices: Any, value: Any) -> None:
    """Set ``a[slices]`` to the maximum of itself and `value`."""
    a.scatter_max(slices, value)


def scatter_min(a: Any, slices: Any, value: Any) -> None:
    """Set ``a[slices]`` to the minimum of itself and `value`."""
    a.scatter_min(slices, value)


@dataclass(frozen=True)
class RuntimeInfo:
    """A report on the device and the versions of CuPy, NumPy and CUDA."""

    cupy_version: str
    numpy_version: str
    device_name: str
    device_compute_capability: str
    cuda_runtime_version: int
    cuda_driver_version: int
    nvrtc_version: tuple[int, int] | None

    def __str__(self) -> str:
        return "\n".join(f"{field.name:26}: {getattr(self, field.name)}" for field in fields(self))


def get_runtime_info(*, full: bool = True) -> RuntimeInfo:
    """Return the versions of ``cp`` and its device. The argument `full` has no effect."""
    from virtualgpu.compile import nvrtc

    runtime = cp.cuda.runtime
    device = cp.cuda.Device()
    return RuntimeInfo(
        cupy_version=cp.__version__,
        numpy_version=np.__version__,
        device_name=runtime.getDeviceProperties(device.id)["name"].decode(),
        device_compute_capability=device.compute_capability,
        cuda_runtime_version=runtime.runtimeGetVersion(),
        cuda_driver_version=runtime.driverGetVersion(),
        nvrtc_version=nvrtc.read_version() if nvrtc.is_available() else None,
    )
