"""The virtual machine: a host with one or more virtual GPUs. It also keeps the process's current machine.

Everything that changes while a program runs (memory, pools, streams, random state) belongs to a
`Machine`, so that switching to another device starts from a clean state and tests stay independent.
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
from virtualgpu.model.choice import read_initial_watchdog_s
from virtualgpu.model.clock import HostClock, Schedule
from virtualgpu.model.links.ports import Links
from virtualgpu.model.links.topology import check_links
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.model.orders.deferral import StreamDeferral
from virtualgpu.model.queue import WorkQueue
from virtualgpu.records import DeviceInfo
from virtualgpu.records.launch.whereabouts import LaunchObserver
from virtualgpu.records.libraries import LibraryCall
from virtualgpu.records.traffic.ports import LinkTopology

T = TypeVar("T")
# Typical memory of a CUDA context before the first allocation on data-centre GPUs.
CONTEXT_BYTES = 512 << 20


def _print_output(text: str) -> None:
    sys.stdout.write(text)


class VirtualDevice:
    """A virtual GPU with its specification, memory, memory pool and modelled time.

    Attributes
    ----------
    id : int
        Its number in the machine.
    info : DeviceInfo
        Capability and limits.
    memory : DeviceMemory
        Address space and live allocations.
    l2 : L2Contents
        The arrays in its L2 cache.
    work_queue : WorkQueue
        Its streams, and the times of their work on the modelled clock.
    watchdog_s : float
        Seconds of computing on the host after which a kernel counts as hung; with the default it continues
        as long as threads or blocks of it still end.
    idle_s : float, optional
        The same limit for a kernel that makes no progress: no new stores or output, and no thread ends.
    has_independent_threads : bool
        Whether diverged lanes that wait for each other can take turns, as on GPUs since Volta.
    block_order : callable, optional
        Returns, for a number of blocks, the order in which kernels run them.
    turns_seed : int, optional
        Seed of the random turns of blocks at barriers; None: blocks take no turns.
    """

    def __init__(self, machine: Machine, device_id: int, info: DeviceInfo) -> None:
        self.machine = machine
        self.id = device_id
        self.info = info
        context_bytes = min(CONTEXT_BYTES, info.memory_bytes // 16)
        self.memory = DeviceMemory(info.memory_bytes, context_bytes=context_bytes)
        self.work_queue = WorkQueue(
            device_id,
            machine.clock,
            2 if info.copy_engines is None else info.copy_engines,
            machine.next_operation_number,
        )
        self.l2 = L2Contents(cost.L2_USABLE_SHARE * info.l2_bytes)
        self.watchdog_s = read_initial_watchdog_s()
        self.idle_s: float | None = None
        self.has_independent_threads = True
        self.block_order: Callable[[int], npt.NDArray[np.int64]] | None = None
        self.turns_seed: int | None = None

    def set_block_order(self, order: str, seed: int = 0) -> None:
        """Set the order in which kernels run their blocks. The order is ``"in order"``, ``"reversed"``,
        ``"random"`` or ``"in turns"``.

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
        """The modelled clock of the host."""
        return self.machine.clock

    @property
    def schedule(self) -> Schedule:
        """The start and end times of the device's operations."""
        return self.work_queue.schedule

    def kernel_ns(self, bytes_moved: float, flop: float = 0.0) -> float:
        """Return the modelled duration of a library kernel in ns. The duration is the longer of the memory
        time and the arithmetic time.
        """
        memory_ns = float(cost.memory_bound_ns(self.info, bytes_moved))
        if not flop or not self.info.fp32_tflops:
            return memory_ns
        return max(memory_ns, flop / (self.info.fp32_tflops * 1e3))

    def memset_ns(self, size_bytes: int) -> float:
        """Return the modelled duration of a memset in ns."""
        return float(cost.memset_ns(self.info, size_bytes))


class Machine:
    """A host computer with one or more virtual GPUs.

    Parameters
    ----------
    infos : sequence of DeviceInfo
        One entry per device.
    stdout : callable
        Receives the output of ``printf`` in kernels.
    make_launch_observer : callable, optional
        Creates an observer of a launch, which can read the position of the launch while it runs.
    links : str, optional
        Topology of the links (`virtualgpu.model.links.topology`); by default that of such GPUs in products.
    """

    def __init__(
        self,
        infos: Sequence[DeviceInfo],
        stdout: Callable[[str], None] = _print_output,
        make_launch_observer: Callable[[], LaunchObserver] | None = None,
        links: LinkTopology | None = None,
    ) -> None:
        if not infos:
            raise ValueError("A machine needs at least one device. Pass at least one DeviceInfo.")
        self.clock = HostClock()
        self.stdout = stdout
        self.make_launch_observer = make_launch_observer
        self.kernel_launches = 0
        # Library calls while they are recorded: name, arrays read, arrays written.
        self.library_calls: list[LibraryCall] | None = None
        self._operation_numbers = count(1)
        self._graph_numbers = count(1)
        self.graphs: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by both their handles
        self.devices = [VirtualDevice(self, i, info) for i, info in enumerate(infos)]
        self.links = Links(self.devices, links)
        for device in self.devices:
            device.memory.find_device = self.device_at
        self.allocator: Callable[[int], Any] | None = None
        self.pinned_allocator: Callable[[int], Any] | None = None
        self.pinned_ranges: dict[int, int] = {}
        self.registered_addresses: set[int] = set()  # pinned ranges that hostRegister locked
        self.random_states: dict[int, Any] = {}
        self.runtime_objects: dict[int, Any] = {}  # streams and events that the runtime's functions created
        self.events: WeakValueDictionary[int, Any] = (
            WeakValueDictionary()
        )  # by `ptr`, for events whose `ptr` was read
        self._components: dict[type, Any] = {}
        self._lock = threading.RLock()
        self.thread_state = threading.local()
        # The environment variable has CuPy's meaning.
        self.has_per_thread_default = os.environ.get("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in (
            "",
            "0",
        )

    @property
    def current_device_id(self) -> int:
        """The number of the device that is current in the calling thread."""
        return int(getattr(self.thread_state, "device_id", 0))

    @current_device_id.setter
    def current_device_id(self, device_id: int) -> None:
        self.device(device_id)
        self.thread_state.device_id = device_id

    @property
    def current_device(self) -> VirtualDevice:
        """The device that is current in the calling thread."""
        return self.devices[self.current_device_id]

    def device(self, device_id: int) -> VirtualDevice:
        """Return the device with the given number.

        Raises
        ------
        CUDARuntimeError
            Status 101, ``cudaErrorInvalidDevice``.
        """
        if not 0 <= device_id < len(self.devices):
            device_count = len(self.devices)
            raise CUDARuntimeError(
                101,
                "cudaErrorInvalidDevice",
                f"invalid device ordinal: {device_id} is not below the device count {device_count}; "
                f"call use_device(name, count={device_id + 1}) for more virtual GPUs.",
            )
        return self.devices[device_id]

    def device_at(self, address: int) -> VirtualDevice | None:
        """Return the device whose memory contains the given address, or None for host memory."""
        for device in self.devices:
            base_address = device.memory.base_address
            if base_address <= address < base_address + device.memory.arena_bytes:
                return device
        return None

    @contextmanager
    def keep_settings(self, *settings: str) -> Iterator[None]:
        """Context manager that saves settings of every device, such as ``"watchdog_s"``, and restores them at
        its end.
        """
        saved_values = [(device, name, getattr(device, name)) for device in self.devices for name in settings]
        try:
            yield
        finally:
            for device, name, saved_value in saved_values:
                setattr(device, name, saved_value)

    @contextmanager
    def use_stream_order(self, order: str, seed: int = 0) -> Iterator[None]:
        """Context manager that delays the operations of streams and runs them in another permitted order.

        If the program lacks a wait, its results can differ in that order. Times are not modelled in the
        block. After an error in the block, work that nothing has waited for does not run any more.

        Parameters
        ----------
        order, seed
            See `virtualgpu.model.orders.deferral.StreamDeferral`.
        """
        deferral = StreamDeferral(order, seed)
        self.clock.deferral = deferral

        def run_before_free(_address: int, _size_bytes: int, is_allocation: bool) -> None:
            if not is_allocation:
                deferral.run_required()

        for device in self.devices:
            device.memory.segment_callback = run_before_free
        try:
            yield
            deferral.run_required()
        finally:
            self.clock.deferral = None
            for device in self.devices:
                device.memory.segment_callback = None

    def get_component(self, component_class: type[T], **arguments: Any) -> T:
        """Return the single instance of a class for this machine, such as the memory pool. The first call
        creates the instance.
        """
        with self._lock:
            if component_class not in self._components:
                self._components[component_class] = component_class(**arguments)
            component: T = self._components[component_class]
            return component

    def next_operation_number(self) -> int:
        """Return an unused number for a new operation. CUPTI calls this number the correlation id."""
        return next(self._operation_numbers)

    def next_graph_number(self) -> int:
        """Return an unused number for a new graph."""
        return next(self._graph_numbers)

    @property
    def in_use(self) -> bool:
        """Return whether any device has been used for an allocation, a copy or a launch."""
        memories = [device.memory for device in self.devices]
        return self.clock.now_ns > 0 or any(memory.used_bytes > memory.context_bytes for memory in memories)

    def count_launch(self) -> int:
        """Count a kernel launch, and return the number of launches so far."""
        with self._lock:
            self.kernel_launches += 1
            return self.kernel_launches


class _CurrentMachine:
    """The current machine of the process, with its lock and the state of each thread."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.lock = threading.Lock()
        self.thread_state = threading.local()
        self.is_forked = False  # from a process that had used its machine


_current_machine = _CurrentMachine()


def _after_fork() -> None:
    _current_machine.is_forked = _current_machine.is_forked or (
        _current_machine.machine is not None and _current_machine.machine.in_use
    )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def current() -> Machine:
    """Return the current virtual machine. If no machine exists, a machine with the default GPUs is created.

    Raises
    ------
    CUDARuntimeError
        Status 3, ``cudaErrorInitializationError``, in a process forked from one that had used its devices,
        as with CUDA: the threads that run kernels, and a GPU's context, are not inherited.
    """
    if _current_machine.is_forked:
        raise CUDARuntimeError(
            3,
            "cudaErrorInitializationError",
            "initialization error: this process was forked from one that had used the GPU already. Start "
            'workers with multiprocessing.get_context("spawn"), or use the GPU in the workers only.',
        )
    machine = _current_machine.machine
    if machine is None:
        with _current_machine.lock:
            if _current_machine.machine is None:
                from virtualgpu.model.choice import find_device_infos

                _current_machine.machine = Machine(find_device_infos())
            machine = _current_machine.machine
    return machine


def use(machine: Machine) -> None:
    """Make the given machine the current one. Arrays of the previous machine remain readable."""
    _current_machine.machine = machine


def use_device(name: str | None = None, count: int | None = None, links: str | None = None) -> None:
    """Create a virtual machine with the requested GPUs, and make it the current one."""
    from virtualgpu.model.choice import find_device_infos

    use(Machine(find_device_infos(name, count), links=check_links(links)))


def get_thread_state() -> dict[str, Any]:
    """Return the state of the calling thread as a dictionary. All machines share this state."""
    return _current_machine.thread_state.__dict__
