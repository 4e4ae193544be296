"""Managed memory: arrays that host and device access at one address."""

from __future__ import annotations

import sys

from virtualgpu.cp.cuda._memory.addresses import INVALID_DEVICE, allocate_managed, prefetch_managed
from virtualgpu.cp.cuda._memory.addresses import advise_managed as _advise
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, MemoryPointer
from virtualgpu.cp.cuda._memory.sizes import convert_size
from virtualgpu.cp.cuda.device import Device
from virtualgpu.cp.cuda.stream import _BaseStream
from virtualgpu.model import machine as _machine


class ManagedMemory(BaseMemory):
    """Memory from ``cudaMallocManaged``, which the host and the device can access. The memory is freed when
    the object is destroyed.

    Notes
    -----
    The location of its pages is modelled, in pages of 64 KiB. A kernel that accesses pages on the host
    waits for them, in blocks of 2 MiB (`virtualgpu.model.bus`); a prefetch moves them without faults. A
    kernel is assumed to access its arrays evenly. Accesses of the host are seen only in
    ``np.from_dlpack(x)``, which shares the memory and moves the pages of ``x`` to the host; call it again
    after each kernel. The memory counts as used on the device from the beginning (a GPU allocates it when
    pages arrive).
    """

    def __init__(self, size: int) -> None:
        owner = _machine.current().current_device
        size = convert_size(size)
        super().__init__(allocate_managed(size, owner), size, owner)

    def prefetch(self, stream: _BaseStream, *, device_id: int = INVALID_DEVICE) -> None:
        """Move the memory to a device before it is used there. The default is the device that allocated the
        memory.

        Raises
        ------
        CUDARuntimeError
            Status 101 for an invalid device number. With CUDA 13, CuPy does not accept the host (-1) either.
        """
        prefetch_managed(
            self.ptr, self.size, self.device_id if device_id == INVALID_DEVICE else device_id, stream
        )

    def advise(self, advise: int, dev: Device) -> None:
        """Advise the driver about the use of the memory, for example with
        ``runtime.cudaMemAdviseSetReadMostly``.

        Raises
        ------
        CUDARuntimeError
            Status 1 for an unknown advice.
        """
        _advise(self.ptr, self.size, advise, dev.id)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            self.owner.memory.untrack_allocation(self.ptr)
            self.owner.memory.free(self.ptr)
            self.ptr = 0


def malloc_managed(size: int) -> MemoryPointer:
    """Allocate managed memory without a pool. The class `ManagedMemory` documents how managed memory is
    modelled.

    Examples
    --------
    >>> cp.cuda.set_allocator(cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc)
    """
    return MemoryPointer(ManagedMemory(size), 0)
