"""The virtual machine: a host with one or more virtual GPUs, and which of them is current.

Everything that changes while a program runs (memory, pools, streams, random state) hangs on a
`Machine`, so that switching to another device starts afresh and tests stay independent.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import cost
from virtualgpu.model.caches.l2 import L2Contents
from virtualgpu.model.choice import initial_watchdog_s
from virtualgpu.model.clock import HostClock, Schedule
from virtualgpu.model.links.ports import Links
from virtualgpu.model.links.topology import check_links
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.model.orders.deferral import Deferral
from virtualgpu.model.queue import WorkQueue
from virtualgpu.records import DeviceInfo
from virtualgpu.records.launch.whereabouts import Onlooker
from virtualgpu.records.libraries import LibraryCall
from virtualgpu.records.traffic.ports import LinkKind

T = TypeVar("T")
# Typical of what a CUDA context takes before the first allocation on data-centre GPUs.
CONTEXT_BYTES = 512 << 20


def _print(text: str) -> None:
    sys.stdout.write(text)


class VirtualDevice:
    """One virtual GPU: its specification, memory, pool and modelled time.

    Attributes
    ----------
    id : int
        Its number in the machine.
    info : DeviceInfo
        Capability and limits.
    memory : DeviceMemory
        Address space and live allocations.
    l2 : L2Contents
        What of its arrays is in its L2 cache.
    work : WorkQueue
        Its streams: what they are given, and when it runs on the modelled clock.
    watchdog_s : float
        Seconds of computing, on the host, after which a kernel counts as hung; with the default it goes on
        as long as threads or blocks of it still end.
    idle_s : float, optional
        The same of a kernel that neither stores nor prints anything new meanwhile, and of which nothing ends.
    independent_threads : bool
        Whether diverged lanes that wait for each other take turns, as on GPUs since Volta.
    block_order : callable, optional
        Gives, for a number of blocks, the order in which kernels run them.
    turns_seed : int, optional
        From which it is drawn whose turn is next at a barrier; None: blocks take no turns.
    """

    def __init__(self, machine: Machine, device_id: int, info: DeviceInfo) -> None:
        self.machine = machine
        self.id = device_id
        self.info = info
        context_bytes = min(CONTEXT_BYTES, info.memory_bytes // 16)
        self.memory = DeviceMemory(info.memory_bytes, context_bytes=context_bytes)
        self.work = WorkQueue(
            device_id,
            machine.clock,
            2 if info.copy_engines is None else info.copy_engines,
            machine.next_operation,
        )
        self.l2 = L2Contents(cost.L2_USABLE_SHARE * info.l2_bytes)
        self.watchdog_s = initial_watchdog_s()
        self.idle_s: float | None = None
        self.independent_threads = True
        self.block_order: Callable[[int], npt.NDArray[np.int64]] | None = None
        self.turns_seed: int | None = None

    def set_block_order(self, order: str, seed: int = 0) -> None:
        """Let kernels run their blocks ``"in order"``, ``"reversed"``, at ``"random"`` or ``"in turns"``.

        Raises
        ------
        ValueError
            For any other name.
        """
        from virtualgpu.sanitizer.block_orders import IN_ORDER, block_sequence, turns_seed

        block_sequence(order, 1, seed)
        self.block_order = None if order == IN_ORDER else lambda blocks: block_sequence(order, blocks, seed)
        self.turns_seed = turns_seed(order, seed)

    @property
    def clock(self) -> HostClock:
        return self.machine.clock

    @property
    def schedule(self) -> Schedule:
        """When its work runs."""
        return self.work.schedule

    def kernel_ns(self, bytes_moved: float, flop: float = 0.0) -> float:
        """Modelled duration of a library kernel: the slower of its traffic and its arithmetic."""
        memory = float(cost.memory_bound_ns(self.info, bytes_moved))
        if not flop or not self.info.fp32_tflops:
            return memory
        return max(memory, flop / (self.info.fp32_tflops * 1e3))

    def memset_ns(self, size_bytes: int) -> float:
        """Modelled duration of a memory set."""
        return float(cost.memset_ns(self.info, size_bytes))


class Machine:
    """A host and its virtual GPUs.

    Parameters
    ----------
    infos : sequence of DeviceInfo
        One entry a device.
    stdout : callable
        Receives what kernels ``printf``.
    onlooker : callable, optional
        Makes who is told, while a launch runs, where it is.
    links : str, optional
        How the devices are joined (`virtualgpu.model.links.topology`); as such GPUs are sold, by default.
    """

    def __init__(
        self,
        infos: Sequence[DeviceInfo],
        stdout: Callable[[str], None] = _print,
        onlooker: Callable[[], Onlooker] | None = None,
        links: LinkKind | None = None,
    ) -> None:
        if not infos:
            raise ValueError("A machine needs at least one device; pass at least one DeviceInfo.")
        self.clock = HostClock()
        self.stdout = stdout
        self.onlooker = onlooker
        self.kernel_launches = 0
        # While somebody wants to know them: name, what it reads, what it writes.
        self.library_calls: list[LibraryCall] | None = None
        self._operations = count(1)
        self._graphs = count(1)
        self.graphs: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by both their handles
        self.devices = [VirtualDevice(self, i, info) for i, info in enumerate(infos)]
        self.links = Links(self.devices, links)
        for device in self.devices:
            device.memory.whose = self.device_at
        self.allocator: Callable[[int], Any] | None = None
        self.pinned_allocator: Callable[[int], Any] | None = None
        self.pinned_ranges: dict[int, int] = {}
        self.registered: set[int] = set()  # those of them that hostRegister locked
        self.random_states: dict[int, Any] = {}
        self.handles: dict[int, Any] = {}  # streams and events that the runtime's functions made
        self.events: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by the `ptr` somebody asked for
        self._owned: dict[type, Any] = {}
        self._lock = threading.RLock()
        self.thread = threading.local()
        # As CuPy reads it.
        self.per_thread_default = os.environ.get("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in ("", "0")

    @property
    def current_device_id(self) -> int:
        """Device of the calling thread, as in CUDA."""
        return int(getattr(self.thread, "device_id", 0))

    @current_device_id.setter
    def current_device_id(self, device_id: int) -> None:
        self.device(device_id)
        self.thread.device_id = device_id

    @property
    def current_device(self) -> VirtualDevice:
        return self.devices[self.current_device_id]

    def device(self, device_id: int) -> VirtualDevice:
        """The device with a number.

        Raises
        ------
        CUDARuntimeError
            Status 101, ``cudaErrorInvalidDevice``.
        """
        if not 0 <= device_id < len(self.devices):
            count = len(self.devices)
            raise CUDARuntimeError(
                101,
                "cudaErrorInvalidDevice",
                f"invalid device ordinal: {device_id} is not below the device count {count}; "
                f"gl.use_device(name, count={device_id + 1}) gives the virtual machine more GPUs.",
            )
        return self.devices[device_id]

    def device_at(self, address: int) -> VirtualDevice | None:
        """The device in whose memory an address lies; None for host memory."""
        for device in self.devices:
            base = device.memory.base_address
            if base <= address < base + device.memory.arena_bytes:
                return device
        return None

    @contextmanager
    def keeping(self, *settings: str) -> Iterator[None]:
        """Give every device back at the end what it has now of some settings, such as ``"watchdog_s"``."""
        before = [(device, name, getattr(device, name)) for device in self.devices for name in settings]
        try:
            yield
        finally:
            for device, name, value in before:
                setattr(device, name, value)

    @contextmanager
    def stream_order(self, order: str, seed: int = 0) -> Iterator[None]:
        """Hold the work of streams back until something waits for it, and run it in another lawful order.

        A program that lacks a wait then gets other results. Times are not modelled meanwhile. After an error
        in the block, work that nothing has waited for does not run any more.

        Parameters
        ----------
        order, seed
            See `virtualgpu.model.orders.deferral.Deferral`.
        """
        deferral = self.clock.deferral = Deferral(order, seed)
        for device in self.devices:
            device.memory.watched = lambda _address, _size, taken: None if taken else deferral.require()
        try:
            yield
            deferral.require()
        finally:
            self.clock.deferral = None
            for device in self.devices:
                device.memory.watched = None

    def own(self, kind: type[T], **arguments: Any) -> T:
        """What the machine owns one of, such as its memory pool; made when first asked for."""
        with self._lock:
            if kind not in self._owned:
                self._owned[kind] = kind(**arguments)
            owned: T = self._owned[kind]
            return owned

    def next_operation(self) -> int:
        """Number of a new operation, CUPTI's correlation id."""
        return next(self._operations)

    def next_graph(self) -> int:
        """Number of a new graph."""
        return next(self._graphs)

    @property
    def in_use(self) -> bool:
        """Whether anything was done on a device: allocated, copied or launched."""
        return self.clock.now_ns > 0 or any(
            d.memory.used_bytes > d.memory.context_bytes for d in self.devices
        )

    def count_launch(self) -> int:
        """Count one kernel launch and return the number of launches so far."""
        with self._lock:
            self.kernel_launches += 1
            return self.kernel_launches


class _Slot:
    """The one current machine of the process."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.lock = threading.Lock()
        self.thread = threading.local()
        self.forked = False  # from a process that had used its machine


_slot = _Slot()


def _after_fork() -> None:
    _slot.forked = _slot.forked or (_slot.machine is not None and _slot.machine.in_use)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def current() -> Machine:
    """The machine that ``cp`` works on; if none was chosen, one as `choice.device_infos` says.

    Raises
    ------
    CUDARuntimeError
        Status 3, ``cudaErrorInitializationError``, in a process forked from one that had used its devices,
        as with CUDA: the threads that run kernels, and a GPU's context, do not come along.
    """
    if _slot.forked:
        raise CUDARuntimeError(
            3,
            "cudaErrorInitializationError",
            "initialization error: this process was forked from one that had used the GPU already. Start "
            'workers with multiprocessing.get_context("spawn"), or use the GPU in the workers only.',
        )
    machine = _slot.machine
    if machine is None:
        with _slot.lock:
            if _slot.machine is None:
                from virtualgpu.model.choice import device_infos

                _slot.machine = Machine(device_infos())
            machine = _slot.machine
    return machine


def use(machine: Machine) -> None:
    """Make `machine` the current one. Arrays of the previous machine stay readable."""
    _slot.machine = machine


def use_device(name: str | None = None, count: int | None = None, links: str | None = None) -> None:
    """Make a new machine with the GPUs that `choice.device_infos` says the current one."""
    from virtualgpu.model.choice import device_infos

    use(Machine(device_infos(name, count), links=check_links(links)))


def of_thread() -> dict[str, Any]:
    """What the calling thread keeps whichever machine is current, by name."""
    return _slot.thread.__dict__
