"""``cp.cuda.Device`` and functions for the current device."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda import runtime
from virtualgpu.cp.cuda._runtime.sync_detection import declare_synchronize
from virtualgpu.cp.cuda.stream import refuse_in_host_function
from virtualgpu.model import machine as _machine
from virtualgpu.records.device.attributes import ATTRIBUTES

__all__ = ["Device", "from_pointer", "get_compute_capability", "get_device_id"]
_NO_LIBRARY_REMEDY = (
    "the virtual GPU has none of NVIDIA's libraries; use cp.matmul, cp.linalg, cp.fft or a kernel of your own"
)
__getattr__ = make_module_getattr(
    "cp.cuda.device",
    globals(),
    {f"get_{name}_handle": _NO_LIBRARY_REMEDY for name in ("cublas", "cusolver", "cusolver_sp", "cusparse")},
)


@functools.total_ordering
class Device:
    """A virtual GPU, identified by its number. The block ``with Device(1):`` makes it the current device.

    Parameters
    ----------
    device : int or Device, optional
        The current device by default.
    """

    def __init__(self, device: Any = None) -> None:
        if isinstance(device, str) and not device.isdecimal():
            raise ValueError(
                f"cp.cuda.Device needs the number of a device, as in cp.cuda.Device(0), but got {device!r}."
            )
        self.id = runtime.getDevice() if device is None else int(device)

    @classmethod
    def from_pci_bus_id(cls, pci_bus_id: str) -> Device:
        """Return the device with a PCI address, such as ``"0000:01:00.0"``."""
        return cls(runtime.deviceGetByPCIBusId(pci_bus_id))

    def __int__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            warnings.warn(
                f"A device never equals a str such as {other!r}: all arrays of cp are on "
                "a GPU, and x.device.id is the number of this GPU.",
                stacklevel=2,
            )
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __lt__(self, other: object) -> bool:
        return self.id < other.id if isinstance(other, Device) else NotImplemented

    def __enter__(self) -> Device:
        machine = _machine.current()
        previous_device_id = machine.current_device_id
        machine.current_device_id = self.id
        machine.thread_state.__dict__.setdefault("device_stack", []).append(previous_device_id)
        return self

    def __exit__(self, *_: object) -> None:
        machine = _machine.current()
        device_stack = machine.thread_state.__dict__.get("device_stack")
        if device_stack:  # empty if the machine was replaced within the block
            machine.current_device_id = device_stack.pop()

    def use(self) -> Device:
        """Make this device the current device."""
        runtime.setDevice(self.id)
        return self

    def synchronize(self) -> None:
        """Wait on the host until all work of the device is done."""
        declare_synchronize()
        refuse_in_host_function()
        _machine.current().device(self.id).work_queue.synchronize()

    @property
    def compute_capability(self) -> str:
        """Compute capability without the dot, such as ``"80"`` or ``"120"``. The last digit is the minor
        version number.
        """
        major, minor = _machine.current().device(self.id).info.compute_capability
        return f"{major}{minor}"

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total memory of the device in bytes."""
        device_memory = _machine.current().device(self.id).memory
        return device_memory.free_bytes, device_memory.capacity_bytes

    @property
    def attributes(self) -> dict[str, int]:
        """Dictionary of the modelled device attributes. The keys are CUDA's names without ``cudaDevAttr``."""
        info = _machine.current().device(self.id).info
        return {attribute.name: attribute.find_value(info) for attribute in ATTRIBUTES}

    @property
    def pci_bus_id(self) -> str:
        """PCI address of the device, such as ``"0000:01:00.0"``."""
        return runtime.deviceGetPCIBusId(self.id)


def get_device_id() -> int:
    """Return the number of the current device."""
    return runtime.getDevice()


def from_pointer(ptr: int) -> Device:
    """Return the device whose memory contains an address."""
    return Device(runtime.pointerGetAttributes(ptr).device)


def get_compute_capability() -> str:
    """Return the compute capability of the current device, without the dot."""
    return Device().compute_capability
