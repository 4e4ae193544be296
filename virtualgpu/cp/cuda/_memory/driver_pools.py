"""The driver's memory pools of all devices, and stream-ordered allocation."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from weakref import WeakValueDictionary

from virtualgpu.cp.cuda._memory.copies import find_device_at
from virtualgpu.cp.cuda.stream import _BaseStream, is_capturing, refuse_unsafe_in_capture
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.ordered import RELEASE_THRESHOLD, OrderedPool

# Properties of the only kind of pool that the virtual GPU supports.
_PINNED_ALLOCATION_TYPE = 1
_NO_HANDLE_TYPE = 0
_DEVICE_LOCATION_TYPE = 1


class _DriverPools:
    """The driver's memory pools of all devices: default pools, current pools, and those of the program.

    ``graph_memories`` contains the live allocations of graphs, by address.
    """

    def __init__(self) -> None:
        self.graph_memories: WeakValueDictionary[int, GraphMemory] = WeakValueDictionary()
        self._graph_pools: dict[VirtualDevice, OrderedPool] = {}
        self._pools_by_handle: dict[int, tuple[OrderedPool, VirtualDevice]] = {}
        self._default_pools: dict[VirtualDevice, OrderedPool] = {}
        self._current_pools: dict[VirtualDevice, OrderedPool] = {}

    def make_pool(self, device: VirtualDevice) -> OrderedPool:
        pool = OrderedPool(device.memory, device.clock)
        self._pools_by_handle[pool.handle] = pool, device
        device.memory.pools.append(pool)
        return pool

    def get_graph_pool(self, device: VirtualDevice) -> OrderedPool:
        """Return the memory pool from which captured graphs allocate on a device."""
        if device not in self._graph_pools:
            self._graph_pools[device] = self.make_pool(device)
        return self._graph_pools[device]

    def get_default_pool(self, device: VirtualDevice) -> OrderedPool:
        with device.clock.lock:
            if device not in self._default_pools:
                self._default_pools[device] = self.make_pool(device)
            return self._default_pools[device]

    def get_current_pool(self, device: VirtualDevice) -> OrderedPool:
        return self._current_pools.get(device) or self.get_default_pool(device)

    def set_current_pool(self, device: VirtualDevice, handle: int) -> None:
        pool, pool_device = self._find_pool_and_device(handle)
        if pool_device is not device:
            raise _make_invalid_value_error(
                f"the memory pool {handle:#x} belongs to device {pool_device.id}, so device "
                f"{device.id} cannot use it."
            )
        self._current_pools[device] = pool

    def find_pool(self, handle: int) -> OrderedPool:
        return self._find_pool_and_device(handle)[0]

    def destroy_pool(self, handle: int) -> None:
        pool, device = self._find_pool_and_device(handle)
        if pool is self._default_pools.get(device):
            raise _make_invalid_value_error("the default memory pool of a device cannot be destroyed.")
        del self._pools_by_handle[handle]
        if self._current_pools.get(device) is pool:
            del self._current_pools[device]
        # Blocks in use stay usable until they are freed, as documented for CUDA; unused memory is released.
        pool.set_attribute(RELEASE_THRESHOLD, 0)

    def _find_pool_and_device(self, handle: int) -> tuple[OrderedPool, VirtualDevice]:
        if handle not in self._pools_by_handle:
            raise _make_invalid_value_error(f"{handle:#x} is not the handle of a live memory pool.")
        return self._pools_by_handle[handle]


def get_driver_pools() -> _DriverPools:
    """Return the driver's memory pools of the current machine, which ``cudaMallocAsync`` uses."""
    return _machine.current().get_component(_DriverPools)


def get_device_of_id(device_id: int) -> VirtualDevice:
    """Return the device with a given number. A wrong number raises the CUDA error "invalid value"."""
    devices = _machine.current().devices
    if not 0 <= device_id < len(devices):
        raise _make_invalid_value_error(f"there is no device with the number {device_id}.")
    return devices[device_id]


@dataclass(frozen=True)
class MemPoolProps:
    """Properties of a new memory pool, with CuPy's names."""

    allocType: int  # noqa: N815
    handleType: int  # noqa: N815
    locationType: int  # noqa: N815
    devId: int  # noqa: N815


def create_pool(props: MemPoolProps) -> int:
    """Create a pool in the memory of a device, and return its handle.

    Raises
    ------
    CUDARuntimeError
        Status 1 for any other kind of pool, also for pools that other processes can open, which a virtual
        GPU does not support.
    """
    if (props.allocType, props.handleType, props.locationType) != (
        _PINNED_ALLOCATION_TYPE,
        _NO_HANDLE_TYPE,
        _DEVICE_LOCATION_TYPE,
    ):
        raise _make_invalid_value_error(
            "the virtual GPU supports only memory pools with the properties (1, 0, 1, device)."
        )
    return get_driver_pools().make_pool(get_device_of_id(props.devId)).handle


class GraphMemory:
    """Memory that is allocated while a graph is captured. The memory belongs to the graph and has a fixed
    address.

    It is allocated from the node that allocates it to a node that frees it, or until the program frees it.
    A graph whose last launch did not free it cannot be launched again, as on an H200 (CUDA 13.0).
    """

    def __init__(self, address: int, size: int, pool: OrderedPool, device: VirtualDevice) -> None:
        self.address = address
        self._size = size
        self._device = device
        self._is_allocated = False
        self._self_reference: list[
            GraphMemory
        ] = []  # the object itself while it is allocated, so that it is not collected
        get_driver_pools().graph_memories[address] = self
        weakref.finalize(self, pool.free, address)

    @classmethod
    def allocate(cls, size: int, stream: _BaseStream, device: VirtualDevice) -> GraphMemory:
        """Allocate memory for the graph that a stream captures, and add an allocation node to the graph."""
        pool = get_driver_pools().get_graph_pool(device)
        address, _ = pool.malloc(size, stream.ptr)
        memory = cls(address, size, pool, device)
        stream.enqueue(
            "HOST_LAUNCH",
            "Memory allocation",
            memory._allocate_in_launch,
            device=device,
            size_bytes=size,
            node_kind="MEM_ALLOC",
            check_launch=memory._check_usable,
        )
        return memory

    def free_in_graph(self, stream: _BaseStream) -> None:
        """Add a node to the graph that a stream captures. This node frees the memory."""
        stream.enqueue(
            "HOST_LAUNCH", "Memory free", self._free_in_launch, device=self._device, node_kind="MEM_FREE"
        )

    def free(self) -> None:
        """Free the memory that a launch of the graph has allocated but not freed.

        Raises
        ------
        CUDARuntimeError
            Status 1, if it is not allocated.
        """
        if not self._is_allocated:
            raise _make_invalid_value_error(
                f"the graph's allocation at {self.address:#x} does not exist yet. Launch its graph first."
            )
        self._free_in_launch()

    def _check_usable(self) -> None:
        if self._is_allocated:
            raise _make_invalid_value_error(
                f"the allocation at {self.address:#x} of the graph's last launch still "
                "exists. Free it with runtime.freeAsync before the next launch, or "
                "within the capture."
            )

    def _allocate_in_launch(self) -> float:
        self._is_allocated = True
        self._self_reference = [self]
        self._device.memory.track_allocation(
            self.address, self._size, f"{self._size:,}-byte allocation of a graph"
        )
        return 0.0

    def _free_in_launch(self) -> float:
        self._is_allocated = False
        self._device.memory.untrack_allocation(self.address)
        self._self_reference.clear()
        return 0.0


def allocate_in_stream_order(size: int, stream: _BaseStream, pool: OrderedPool | None = None) -> int:
    """Allocate `size` bytes in stream order, and return their address. The default pool is the current pool
    of the device.

    Returns 0 for 0 bytes.

    Raises
    ------
    CUDARuntimeError
        Status 2, ``cudaErrorMemoryAllocation``.

    Notes
    -----
    In a stream that captures a graph the allocation becomes a node, and the memory belongs to the graph.
    """
    device = _machine.current().current_device
    if not size:
        return 0
    if is_capturing(stream, device):
        return GraphMemory.allocate(size, stream, device).address
    refuse_unsafe_in_capture()
    pool = pool or get_driver_pools().get_current_pool(device)
    address, wait_ns = pool.malloc(size, stream.ptr)
    if wait_ns:
        device.work_queue.schedule.hold_until(stream.ptr, wait_ns)
    device.memory.track_allocation(address, size, f"{size:,}-byte allocation")
    if device.clock.watch is not None:
        device.clock.watch.note_allocation(device.id, address, size, stream.ptr)
    return address


def free_in_stream_order(address: int, stream: _BaseStream, owner: VirtualDevice | None = None) -> None:
    """Free an allocation in stream order, like ``cudaFreeAsync``. Address 0 is ignored.

    Parameters
    ----------
    owner
        The device of the memory, which may belong to an earlier machine; by default the device of the
        current machine that contains the address.

    Raises
    ------
    CUDARuntimeError
        Status 1 if no allocation starts at the address, or it was freed already.
    """
    if not address:
        return
    device = owner or find_device_at(address) or _machine.current().current_device
    graph_memory = device.machine.get_component(_DriverPools).graph_memories.get(address)
    if is_capturing(stream, device):
        if graph_memory is None:
            raise _make_invalid_value_error(
                f"{address:#x} was not allocated in a graph. Free the memory outside of the capture."
            )
        graph_memory.free_in_graph(stream)
        return
    if graph_memory is not None:
        graph_memory.free()
        return
    memory = device.memory
    ready_ns = device.work_queue.schedule.ready_ns(stream.ptr)
    pool = next((pool for pool in memory.pools if pool.owns_block(address)), None)
    if device.clock.watch is not None and pool is not None:
        segment_start, segment_end = memory.find_segment(address)
        device.clock.watch.note_release(device.id, segment_start, segment_end - segment_start, stream.ptr)
    if pool is None:
        memory.free(address)
    else:
        pool.free(address, stream.ptr, ready_ns)
    memory.untrack_allocation(address)


def _make_invalid_value_error(reason: str) -> CUDARuntimeError:
    return CUDARuntimeError(1, "cudaErrorInvalidValue", f"invalid argument: {reason}")
