"""Managed memory: arrays that host and device reach at one address."""

from __future__ import annotations

import sys

from virtualgpu.cp.cuda._memory.places import INVALID_DEVICE, prefetch, take_managed
from virtualgpu.cp.cuda._memory.places import advise as _advise
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, MemoryPointer
from virtualgpu.cp.cuda._memory.sizes import size_t
from virtualgpu.cp.cuda.device import Device
from virtualgpu.cp.cuda.stream import _BaseStream
from virtualgpu.model import machine as _machine


class ManagedMemory(BaseMemory):
    """Memory from ``cudaMallocManaged``, freed with the object; host code may use its address, too.

    Notes
    -----
    Where its pages are is modelled, in pages of 64 KiB: a kernel that touches pages that the host has waits
    for them, in blocks of 2 MiB (`virtualgpu.model.bus`), and a prefetch brings them without faults. A kernel
    is taken to touch the arrays that it is given evenly. What the host does is seen where it asks for the
    memory: ``np.from_dlpack(x)`` shares it, and brings the pages of ``x`` to the host; ask anew after each
    kernel. The memory counts as the device's from the beginning (a GPU takes it when pages come).
    """

    def __init__(self, size: int) -> None:
        owner = _machine.current().current_device
        size = size_t(size)
        super().__init__(take_managed(size, owner), size, owner)

    def prefetch(self, stream: _BaseStream, *, device_id: int = INVALID_DEVICE) -> None:
        """Ask for the pages to be moved to a device (by default this memory's own) before they are used.

        Raises
        ------
        CUDARuntimeError
            Status 101 for a number of no device. With CUDA 13, CuPy refuses the host (-1), too.
        """
        prefetch(self.ptr, self.size, self.device_id if device_id == INVALID_DEVICE else device_id, stream)

    def advise(self, advise: int, dev: Device) -> None:
        """Tell the driver how the memory will be used: ``runtime.cudaMemAdviseSetReadMostly`` and others.

        Raises
        ------
        CUDARuntimeError
            Status 1 for an unknown advice.
        """
        _advise(self.ptr, self.size, advise, dev.id)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            self.owner.memory.untrack(self.ptr)
            self.owner.memory.free(self.ptr)
            self.ptr = 0


def malloc_managed(size: int) -> MemoryPointer:
    """Allocate managed memory without a pool; see `ManagedMemory` for what is modelled.

    Examples
    --------
    >>> cp.cuda.set_allocator(cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc)
    """
    return MemoryPointer(ManagedMemory(size), 0)
