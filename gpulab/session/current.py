"""The device in use of this process: a real one through CuPy, or a virtual one.

The only module of the course's package that holds state. The choice is made on first use, from
``use_device`` or else from the environment variable ``GPULAB_DEVICE``.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpulab._waiting import KernelLine
from gpulab.session.arguments import Arguments, recent_arrays
from gpulab.session.choose import (
    DEVICE_VARIABLE,
    DeviceChoice,
    Kind,
    array_module,
    check_count,
    check_watchdog,
    initial_watchdog,
    parse_device,
)
from gpulab.session.cuda import CudaUnavailableError, open_cuda_device
from virtualgpu.errors import GpulabError, NotSupportedError, UnknownDeviceError
from virtualgpu.model import cost, devices
from virtualgpu.model import machine as slot
from virtualgpu.model.caches.geometry import cache_sizes
from virtualgpu.model.choice import DEFAULT_DEVICE
from virtualgpu.model.cost import StepPrices
from virtualgpu.model.cost import links as link_cost
from virtualgpu.model.cost.ceilings import ceilings as ceilings_of
from virtualgpu.model.links.topology import check_links
from virtualgpu.model.occupancy import occupancy as occupancy_of
from virtualgpu.model.orders import late_faults as orders
from virtualgpu.model.recording import program_lines as lines
from virtualgpu.model.recording.program_names import ProgramNames
from virtualgpu.protocol import Backend, Launch
from virtualgpu.records import DeviceInfo, Occupancy
from virtualgpu.records.launch.roofline import Ceilings

if TYPE_CHECKING:
    from virtualgpu.backend import VirtualBackend

_log = logging.getLogger(__name__)
TWIN_WATCHDOG_S = 5.0
_ALL_THERE = "`count` and `links` are for virtual devices; CUDA devices are all there already, as they are."


@dataclass(slots=True)
class _Session:
    """The chosen device, with its objects."""

    choice: DeviceChoice
    request: tuple[Kind, str, int, str | None]
    virtual: VirtualBackend | None = None
    real: dict[int, Backend] = field(default_factory=dict)
    twin: VirtualBackend | None = None
    watchdog_s: float | None = None
    recent: deque[list[Any]] = field(default_factory=recent_arrays)
    contents: list[weakref.ref[Any]] = field(default_factory=list)


_lock = threading.RLock()
_session: _Session | None = None


def use_device(
    device: str | None = None,
    count: int | None = None,
    *,
    links: str | None = None,
    watchdog_s: float | None = None,
) -> DeviceChoice:
    """Choose the device that ``cp`` and gpulab's views use from now on.

    Parameters
    ----------
    device
        ``"auto"`` (a CUDA device if CuPy can use one, else a virtual A100), ``"cuda"`` or
        ``"cuda:1"``, ``"virtual"`` or ``"virtual:T4"``, or a GPU's name alone, which means a
        virtual one. None keeps the device and changes only the other settings.
    count
        How many virtual devices of that name there shall be (1).
    links
        How several virtual devices are joined: ``"nvswitch"`` (NVLink between all), ``"pairs"`` (0 with 1, 2
        with 3, ...) or ``"host"`` (through the host only). By default as such GPUs are sold.
    watchdog_s
        Seconds after which a kernel on the virtual GPU is stopped. The environment variable
        ``GPULAB_WATCHDOG_S`` sets it at start.

    Returns
    -------
    DeviceChoice
        One sentence as its text, and the array module as ``.cp``. Between two virtual devices
        ``cp`` stays the same module. Between a virtual and a real one it does not: take
        ``cp = gl.use_device("cuda").cp``, or run ``from gpulab import cp`` again. Arrays stay on
        the device they were made on.

    Raises
    ------
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest.
    CudaUnavailableError
        If a CUDA device is asked for where CuPy can use none.
    ValueError
        For NVLink between GPUs that have none, or links of real ones.

    Examples
    --------
    >>> gl.use_device("virtual:T4")
    >>> gl.use_device("virtual:H200", count=8, links="pairs")
    >>> gl.use_device(watchdog_s=60)
    """
    global _session
    with _lock:
        if device is None:
            current = _current()
            if count in (None, current.choice.count) and links in (None, current.choice.links):
                _set_watchdog(current, check_watchdog(watchdog_s))
                return current.choice
            if current.choice.kind == "cuda":
                raise ValueError(_ALL_THERE)
            device = f"virtual:{current.choice.device}"
            count = count or current.choice.count
        request = (*parse_device(device), check_count(1 if count is None else count), links)
        if _session is None or _session.request != request or request[0] != "virtual":
            watchdog_s = initial_watchdog() if watchdog_s is None else watchdog_s
            _session = _open(*request)
        _set_watchdog(_session, check_watchdog(watchdog_s))
        return _session.choice


@contextmanager
def on_device(device: str, count: int = 1, links: str | None = None) -> Iterator[Any]:
    """Use another device for a moment, then the one before, with its arrays, again.

    Parameters
    ----------
    device, count, links
        As for `use_device`.

    Yields
    ------
    module
        The array module of that device.
    """
    global _session
    with _lock:
        previous = _current()
    try:
        use_device(device, count, links=links)
        yield cp()
    finally:
        with _lock:
            _session = previous
            _make_current(previous)


def which_device() -> DeviceChoice:
    """Return the current device; its text states whether times are measured or modelled.

    Examples
    --------
    >>> print(gl.which_device())
    """
    with _lock:
        return _current().choice


def cp() -> Any:
    """The array module: ``cupy`` on a real device, ``virtualgpu.cp`` on a virtual one."""
    return array_module(which_device().kind)


def cupyx() -> Any:
    """CuPy's second package, with pinned arrays and the profiler: its own, or the virtual GPU's."""
    return array_module(which_device().kind, "cupyx")


def backend() -> Backend:
    """The object that performs all queries and recordings on the device in use.

    With several CUDA devices it is CuPy's current one, as ``cp.cuda.Device(1).use()`` sets it.
    """
    with _lock:
        session = _current()
        if session.virtual is not None:
            return session.virtual
        index = int(cp().cuda.Device().id)
        if index not in session.real:
            from gpulab.real.backend import CudaBackend

            session.real[index] = CudaBackend(index)
        return session.real[index]


def program_lines() -> lines.ProgramLines:
    """Return an object that distinguishes lines of the learner's program from those of libraries."""
    return lines.ProgramLines()


def shown_file(name: str) -> str:
    """Return the displayed name of a file of the program: ``cell [12]`` for a notebook's cell."""
    return lines.display_name(name)


def program_names(key: Callable[[Any], int] = id) -> ProgramNames:
    """Return an object that finds the names of arrays in the learner's program; `key` identifies an array."""
    return ProgramNames(program_lines(), key)


def twin() -> VirtualBackend | None:
    """Return a virtual device like the real one in use, for predictions; None if that is virtual.

    While a real device is in use the virtual side is idle, so the twin is its current machine.
    """
    with _lock:
        session = _current()
        if session.virtual is not None:
            return None
        if session.twin is None:
            session.twin = _new_virtual(devices.modelled(backend().device_info()))
            # A replay that comes beside a measurement may not keep the learner waiting.
            _set_watchdog(session, session.watchdog_s or TWIN_WATCHDOG_S)
        slot.use(session.twin.machine)
        return session.twin


def virtual_side() -> VirtualBackend:
    """Return the virtual device in use, or else the twin of the real one."""
    with _lock:
        backend = twin() or _current().virtual
        assert backend is not None
        return backend


def real_cp() -> Any | None:
    """Return CuPy if a real device is in use, else None, for results that are recorded there, too."""
    with _lock:
        return None if _current().virtual is not None else cp()


@contextmanager
def bench(
    info: DeviceInfo | None = None, count: int = 1, links: str | None = None
) -> Iterator[VirtualBackend]:
    """Use a new virtual device temporarily, without the learner's arrays.

    Parameters
    ----------
    info
        What it is; None: like the one in use.
    count, links
        How many of them there are, and how they are joined, as of `use_device`.

    Yields
    ------
    VirtualBackend
        Its machine serves the virtual array module meanwhile.
    """
    previous = slot.current()  # asked first: looking for the twin makes it the current one
    fresh = _new_virtual(virtual_side().device_info() if info is None else info, count, links)
    slot.use(fresh.machine)
    try:
        yield fresh
    finally:
        slot.use(previous)


@contextmanager
def late_faults(blocking: bool = False) -> Iterator[orders.LateFaults | None]:
    """Make the device in use report faults as CUDA does: late, and at every later call.

    Parameters
    ----------
    blocking
        Whether every launch waits for its end. Of a real device ``CUDA_LAUNCH_BLOCKING`` decides that, before
        its context is made.

    Yields
    ------
    LateFaults or None
        What a virtual device knows of the first fault; a real one tells nothing.
    """
    with _lock:
        virtual = _current().virtual
    with nullcontext() if virtual is None else orders.late_faults(virtual.machine, blocking) as late_orders:
        yield late_orders


def table() -> tuple[DeviceInfo, ...]:
    """Return every GPU that the virtual GPU can model, from the device table."""
    return tuple(devices.device_info(name) for name in devices.names())


def table_info(name: str) -> DeviceInfo:
    """Return one GPU of the device table.

    Raises
    ------
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest.
    """
    return devices.device_info(name)


def ceilings() -> Ceilings:
    """Return the peak rates of the device in use."""
    return ceilings_of(backend().device_info())


def l1_bytes(info: DeviceInfo) -> int:
    """Return the size of an SM's L1 cache if no block uses shared memory."""
    return cache_sizes(info, 0, 1).l1_bytes


def occupancy_on(name: str, point: Occupancy) -> Occupancy:
    """Return the occupancy of the same block with the same resources on another GPU of the table."""
    return occupancy_of(table_info(name), point.block_threads, point.registers_per_thread, point.shared_bytes)


def peer_gbps(direct: bool) -> float:
    """Modelled rate of large copies between two GPUs like the one in use: over their link, or by the host."""
    info = backend().device_info()
    return link_cost.peer_gbps(info, info, direct)


def step_prices() -> StepPrices:
    """Return the modelled costs of a step of a schedule on GPUs like the one in use."""
    return cost.step_prices(backend().device_info())


def step_ns(
    name: str, gpus: int, messages: Sequence[tuple[int, int, int, bool]], sums: Sequence[tuple[int, int]]
) -> float:
    """Return the modelled duration of a step between GPUs; see `virtualgpu.model.cost.step_ns`."""
    return cost.step_ns([table_info(name)] * gpus, messages, sums)[1]


def check_not_capturing(launch: Launch) -> None:
    """Raise NotSupportedError if the stream of a launch captures a graph, in which no kernel runs."""
    with launch.on_stream():
        if cp().cuda.get_current_stream().is_capturing():
            raise NotSupportedError(
                "The current stream is capturing a graph, so the kernel does not run and "
                "cannot be observed. Call the kernel itself, or end the capture first "
                "with end_capture()."
            )


def arguments_of(args: Sequence[Any]) -> Arguments:
    """Arguments of a launch on the device in use, kept without keeping a learner's arrays alive."""
    with _lock:
        return Arguments(args, lambda argument: isinstance(argument, cp().ndarray), _current().recent)


def kept_contents() -> list[weakref.ref[Any]]:
    """Return the list in which the session has the kept contents of its launches, the oldest first."""
    with _lock:
        return _current().contents


def virtual_machine() -> slot.Machine | None:
    """Return the machine of the virtual device in use; None if the device in use is a real one."""
    with _lock:
        virtual = _current().virtual
        return None if virtual is None else virtual.machine


def here() -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes the device in use now current again, for a widget's callback.

    Returns
    -------
    callable
        Gives a context in which that device is current. CuPy's and the virtual GPU's current
        device belong to a thread, and callbacks run on several.
    """
    with _lock:
        session = _current()
        device = cp().cuda.Device()

    @contextmanager
    def context() -> Iterator[None]:
        if _session is not session:
            raise GpulabError(
                f"This was created on the {session.choice.device}, but the session has "
                "moved to another device; run its cell again."
            )
        with device:
            yield

    return context


def _current() -> _Session:
    global _session
    if _session is None:
        text = os.environ.get(DEVICE_VARIABLE, "").strip() or "auto"
        try:
            _session = _open(*parse_device(text), 1, None)
        except (UnknownDeviceError, CudaUnavailableError) as error:
            raise type(error)(f"{DEVICE_VARIABLE}={text}: {error}") from error
        _set_watchdog(_session, initial_watchdog())
    return _session


def _open(kind: Kind, name: str, count: int, links: str | None) -> _Session:
    request = (kind, name, count, links)
    reason = ""
    if kind != "virtual":
        try:
            choice = open_cuda_device(int(name or "0"))
        except CudaUnavailableError as error:
            if kind == "cuda":
                raise CudaUnavailableError(
                    f'No CUDA device can be used: {error}. Use gl.use_device("virtual") '
                    "to continue without one; `gpulab doctor` checks each part."
                ) from error
            reason = str(error)
            _log.info("No CUDA device can be used, a virtual one is: %s", reason)
        else:
            if count != 1 or links is not None:
                raise ValueError(_ALL_THERE)
            return _Session(choice, request)
    info = table_info(name or DEFAULT_DEVICE)
    virtual = _new_virtual(info, count, links)
    link_kind = virtual.machine.links.kind if count > 1 else ""
    choice = DeviceChoice(
        "virtual", info.name, info.compute_capability, count=count, links=link_kind, reason=reason
    )
    session = _Session(choice, request, virtual)
    _make_current(session)
    return session


def _make_current(session: _Session) -> None:
    """Make the array module use the device of a session."""
    if session.virtual is None:
        import cupy

        cupy.cuda.Device(session.choice.index).use()
        return
    slot.use(session.virtual.machine)


def _new_virtual(info: DeviceInfo, count: int = 1, links: str | None = None) -> VirtualBackend:
    from virtualgpu.backend import VirtualBackend

    return VirtualBackend(slot.Machine([info] * count, onlooker=KernelLine, links=check_links(links)))


def _set_watchdog(session: _Session, seconds: float | None) -> None:
    if seconds is None:
        return
    session.watchdog_s = seconds
    for side in (session.virtual, session.twin):
        for device in side.machine.devices if side else ():
            device.watchdog_s = seconds
