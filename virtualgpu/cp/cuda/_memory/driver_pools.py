"""The driver's memory pools of all devices, and allocation in the order of streams."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from weakref import WeakValueDictionary

from virtualgpu.cp.cuda._memory.copies import device_at
from virtualgpu.cp.cuda.stream import _BaseStream, is_capturing, refuse_unsafe
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.ordered import RELEASE_THRESHOLD, OrderedPool

# the kind of pool that the virtual GPU has
_PINNED = 1
_NO_HANDLE = 0
_ON_DEVICE = 1


class _Pools:
    """The driver's pools of all devices: each one's default pool, its current one, and those made besides.

    ``of_graphs`` has the allocations of graphs that live, by address.
    """

    def __init__(self) -> None:
        self.of_graphs: WeakValueDictionary[int, GraphMemory] = WeakValueDictionary()
        self._graph_pools: dict[VirtualDevice, OrderedPool] = {}
        self._made: dict[int, tuple[OrderedPool, VirtualDevice]] = {}
        self._default: dict[VirtualDevice, OrderedPool] = {}
        self._current: dict[VirtualDevice, OrderedPool] = {}

    def make(self, device: VirtualDevice) -> OrderedPool:
        pool = OrderedPool(device.memory, device.clock)
        self._made[pool.handle] = pool, device
        device.memory.pools.append(pool)
        return pool

    def for_graphs(self, device: VirtualDevice) -> OrderedPool:
        """What the graphs of a device allocate from."""
        if device not in self._graph_pools:
            self._graph_pools[device] = self.make(device)
        return self._graph_pools[device]

    def default(self, device: VirtualDevice) -> OrderedPool:
        with device.clock.lock:
            if device not in self._default:
                self._default[device] = self.make(device)
            return self._default[device]

    def current(self, device: VirtualDevice) -> OrderedPool:
        return self._current.get(device) or self.default(device)

    def choose(self, device: VirtualDevice, handle: int) -> None:
        pool, owner = self._find(handle)
        if owner is not device:
            raise _invalid(f"the memory pool {handle:#x} belongs to device {owner.id}, not {device.id}.")
        self._current[device] = pool

    def get(self, handle: int) -> OrderedPool:
        return self._find(handle)[0]

    def destroy(self, handle: int) -> None:
        pool, device = self._find(handle)
        if pool is self._default.get(device):
            raise _invalid("the default memory pool of a device cannot be destroyed.")
        del self._made[handle]
        if self._current.get(device) is pool:
            del self._current[device]
        # Blocks that live stay usable until they are freed, as CUDA says; then the rest goes back.
        pool.set_attribute(RELEASE_THRESHOLD, 0)

    def _find(self, handle: int) -> tuple[OrderedPool, VirtualDevice]:
        if handle not in self._made:
            raise _invalid(f"{handle:#x} is no memory pool that lives.")
        return self._made[handle]


def driver_pools() -> _Pools:
    """The driver's pools of the current machine."""
    return _machine.current().own(_Pools)


def device_of(device_id: int) -> VirtualDevice:
    """The device of a pool's function, which calls a wrong number an invalid value, as CUDA does."""
    devices = _machine.current().devices
    if not 0 <= device_id < len(devices):
        raise _invalid(f"{device_id} is the number of no device.")
    return devices[device_id]


@dataclass(frozen=True)
class MemPoolProps:
    """Properties of a pool to make, under CuPy's names."""

    allocType: int  # noqa: N815
    handleType: int  # noqa: N815
    locationType: int  # noqa: N815
    devId: int  # noqa: N815


def make_pool(props: MemPoolProps) -> int:
    """Handle of a new pool in the memory of a device.

    Raises
    ------
    CUDARuntimeError
        Status 1 for any other kind; also for those that other processes can open, which a virtual GPU has
        none of.
    """
    if (props.allocType, props.handleType, props.locationType) != (_PINNED, _NO_HANDLE, _ON_DEVICE):
        raise _invalid("the virtual GPU's memory pools have the properties (1, 0, 1, device).")
    return driver_pools().make(device_of(props.devId)).handle


class GraphMemory:
    """What an allocation in a capture becomes: memory that its graph has for itself, at one address.

    It lives from the node that allocates it to one that frees it, or until the program frees it. A graph
    whose last launch left it alive cannot be launched, as on an H200 (CUDA 13.0).
    """

    def __init__(self, address: int, size: int, pool: OrderedPool, device: VirtualDevice) -> None:
        self.address = address
        self._size = size
        self._device = device
        self._lives = False
        self._kept: list[GraphMemory] = []  # itself, while it lives
        driver_pools().of_graphs[address] = self
        weakref.finalize(self, pool.free, address)

    @classmethod
    def allocate(cls, size: int, stream: _BaseStream, device: VirtualDevice) -> GraphMemory:
        """Memory for the graph that a stream captures, and the node that allocates it."""
        pool = driver_pools().for_graphs(device)
        address, _ = pool.malloc(size, stream.ptr)
        memory = cls(address, size, pool, device)
        stream.enqueue(
            "HOST_LAUNCH",
            "Memory allocation",
            memory._begin,
            device=device,
            size_bytes=size,
            node_kind="MEM_ALLOC",
            check=memory._check,
        )
        return memory

    def free_in_graph(self, stream: _BaseStream) -> None:
        """The node that frees it."""
        stream.enqueue("HOST_LAUNCH", "Memory free", self._end, device=self._device, node_kind="MEM_FREE")

    def free(self) -> None:
        """Free what a launch has left.

        Raises
        ------
        CUDARuntimeError
            Status 1, if it does not live.
        """
        if not self._lives:
            raise _invalid(
                f"the graph's allocation at {self.address:#x} does not live: launch its graph first."
            )
        self._end()

    def _check(self) -> None:
        if self._lives:
            raise _invalid(
                f"the allocation at {self.address:#x} of the graph's last launch lives still. Free it with "
                "runtime.freeAsync before the next launch, or within the capture."
            )

    def _begin(self) -> float:
        self._lives = True
        self._kept = [self]
        self._device.memory.track(self.address, self._size, f"{self._size:,}-byte allocation of a graph")
        return 0.0

    def _end(self) -> float:
        self._lives = False
        self._device.memory.untrack(self.address)
        self._kept.clear()
        return 0.0


def take_ordered(size: int, stream: _BaseStream, pool: OrderedPool | None = None) -> int:
    """Address of `size` bytes for a stream, from the current pool by default; 0 for 0 bytes.

    Raises
    ------
    CUDARuntimeError
        Status 2, ``cudaErrorMemoryAllocation``.

    Notes
    -----
    In a stream that captures a graph it becomes a node: the graph has the memory for itself from then on.
    """
    device = _machine.current().current_device
    if not size:
        return 0
    if is_capturing(stream, device):
        return GraphMemory.allocate(size, stream, device).address
    refuse_unsafe()
    pool = pool or driver_pools().current(device)
    address, wait_ns = pool.malloc(size, stream.ptr)
    if wait_ns:
        device.work.schedule.hold_until(stream.ptr, wait_ns)
    device.memory.track(address, size, f"{size:,}-byte allocation")
    if device.clock.watch is not None:
        device.clock.watch.allocated(device.id, address, size, stream.ptr)
    return address


def give_ordered(address: int, stream: _BaseStream, owner: VirtualDevice | None = None) -> None:
    """``cudaFreeAsync``: free in the order of a stream; 0 is ignored.

    Parameters
    ----------
    owner
        The device that gave the memory, which may be of a machine that serves no more; by default the one of
        the current machine that has the address.

    Raises
    ------
    CUDARuntimeError
        Status 1 for what starts no allocation, or was freed already.
    """
    if not address:
        return
    device = owner or device_at(address) or _machine.current().current_device
    of_graph = device.machine.own(_Pools).of_graphs.get(address)
    if is_capturing(stream, device):
        if of_graph is None:
            raise _invalid(f"{address:#x} is no allocation of a graph: free it outside of the capture.")
        of_graph.free_in_graph(stream)
        return
    if of_graph is not None:
        of_graph.free()
        return
    memory = device.memory
    ready_ns = device.work.schedule.ready_ns(stream.ptr)
    pool = next((pool for pool in memory.pools if pool.owns(address)), None)
    if device.clock.watch is not None and pool is not None:
        start, end = memory.segment(address)
        device.clock.watch.released(device.id, start, end - start, stream.ptr)
    if pool is None:
        memory.free(address)
    else:
        pool.free(address, stream.ptr, ready_ns)
    memory.untrack(address)


def _invalid(why: str) -> CUDARuntimeError:
    return CUDARuntimeError(1, "cudaErrorInvalidValue", f"invalid argument: {why}")
