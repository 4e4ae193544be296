"""The device in use by this process: a real one through CuPy, or a virtual one.

Only this module of the package has global state. The device is chosen at first use, by ``use_device`` or by
the environment variable ``GPULAB_DEVICE``.
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

from gpulab._waiting import KernelProgressLine
from gpulab.session.arguments import StoredArguments, make_recent_arrays
from gpulab.session.choose import (
    DEVICE_VARIABLE,
    DeviceChoice,
    DeviceKind,
    check_count,
    check_watchdog,
    import_array_module,
    parse_device,
    read_initial_watchdog,
)
from gpulab.session.cuda import CudaUnavailableError, open_cuda_device
from virtualgpu.errors import GpulabError, NotSupportedError, UnknownDeviceError
from virtualgpu.model import cost, devices
from virtualgpu.model import machine as slot
from virtualgpu.model.caches.geometry import compute_cache_sizes
from virtualgpu.model.choice import DEFAULT_DEVICE
from virtualgpu.model.cost import StepPrices
from virtualgpu.model.cost import links as link_cost
from virtualgpu.model.cost.ceilings import compute_ceilings as ceilings_of
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
_VIRTUAL_ONLY_MESSAGE = (
    "`count` and `links` can be used only with virtual devices. All CUDA devices of the "
    "computer are always available."
)


@dataclass(slots=True)
class _Session:
    """The chosen device with the objects that belong to it, such as its backend."""

    choice: DeviceChoice
    device_request: tuple[DeviceKind, str, int, str | None]
    virtual_backend: VirtualBackend | None = None
    real_backends: dict[int, Backend] = field(default_factory=dict)
    twin: VirtualBackend | None = None
    watchdog_s: float | None = None
    recent_arrays: deque[list[Any]] = field(default_factory=make_recent_arrays)
    kept_contents: list[weakref.ref[Any]] = field(default_factory=list)


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
        The number of virtual devices of that name (1 by default).
    links
        The links between several virtual devices: ``"nvswitch"`` (NVLink between all), ``"pairs"`` (0 with 1,
        2 with 3, ...) or ``"host"`` (through the host only). By default, the usual links of such GPUs.
    watchdog_s
        Seconds after which a kernel on the virtual GPU is stopped. The environment variable
        ``GPULAB_WATCHDOG_S`` sets it at start.

    Returns
    -------
    DeviceChoice
        The choice. Its text is one sentence, and ``.cp`` is the array module. All virtual devices use the
        same module. After a change between a virtual and a real device, write ``cp =
        gl.use_device("cuda").cp``, or run ``from gpulab import cp`` again. Arrays stay on the device on which
        they were created.

    Raises
    ------
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest.
    CudaUnavailableError
        If a CUDA device is requested, but CuPy cannot use one.
    ValueError
        If `links` requests NVLink for GPUs without NVLink, or is passed for real GPUs.

    Examples
    --------
    >>> gl.use_device("virtual:T4")
    >>> gl.use_device("virtual:H200", count=8, links="pairs")
    >>> gl.use_device(watchdog_s=60)
    """
    global _session
    with _lock:
        if device is None:
            current_session = _find_session()
            if count in (None, current_session.choice.count) and links in (
                None,
                current_session.choice.links,
            ):
                _set_watchdog(current_session, check_watchdog(watchdog_s))
                return current_session.choice
            if current_session.choice.kind == "cuda":
                raise ValueError(_VIRTUAL_ONLY_MESSAGE)
            device = f"virtual:{current_session.choice.device}"
            count = count or current_session.choice.count
        request = (*parse_device(device), check_count(1 if count is None else count), links)
        if _session is None or _session.device_request != request or request[0] != "virtual":
            watchdog_s = read_initial_watchdog() if watchdog_s is None else watchdog_s
            _session = _open_session(*request)
        _set_watchdog(_session, check_watchdog(watchdog_s))
        return _session.choice


@contextmanager
def on_device(device: str, count: int = 1, links: str | None = None) -> Iterator[Any]:
    """Use another device within a ``with`` block. Afterwards, use the previous device and its arrays again.

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
        previous_session = _find_session()
    try:
        use_device(device, count, links=links)
        yield cp()
    finally:
        with _lock:
            _session = previous_session
            _make_current(previous_session)


def which_device() -> DeviceChoice:
    """Return the current device. The text of the result says whether times on this device are measured or
    modelled.

    Examples
    --------
    >>> print(gl.which_device())
    """
    with _lock:
        return _find_session().choice


def cp() -> Any:
    """Return the array module, which is ``cupy`` on a real device and ``virtualgpu.cp`` on a virtual
    device.
    """
    return import_array_module(which_device().kind)


def cupyx() -> Any:
    """Return CuPy's package ``cupyx`` (pinned arrays, profiler), or the corresponding package of the virtual
    GPU.
    """
    return import_array_module(which_device().kind, "cupyx")


def backend() -> Backend:
    """Return the backend, which performs all queries and recordings on the device in use.

    With several CUDA devices, the device in use is CuPy's current device, which ``cp.cuda.Device(1).use()``
    sets.
    """
    with _lock:
        session = _find_session()
        if session.virtual_backend is not None:
            return session.virtual_backend
        device_index = int(cp().cuda.Device().id)
        if device_index not in session.real_backends:
            from gpulab.real.backend import CudaBackend

            session.real_backends[device_index] = CudaBackend(device_index)
        return session.real_backends[device_index]


def make_program_lines() -> lines.ProgramLines:
    """Return an object that distinguishes lines of the learner's program from lines of libraries."""
    return lines.ProgramLines()


def format_file_name(name: str) -> str:
    """Return the display name of a file of the program. A notebook cell has a name such as ``cell [12]``."""
    return lines.display_name(name)


def make_program_names(key: Callable[[Any], int] = id) -> ProgramNames:
    """Return an object that finds the variable names of arrays in the program. The function `key` returns a
    number that identifies an array.
    """
    return ProgramNames(make_program_lines(), key)


def find_twin() -> VirtualBackend | None:
    """Return a virtual device with the properties of the real device in use. If a virtual device is in use,
    return None.

    The result is None if the device in use is virtual. While a real device is in use, the virtual array
    module is not used, so the twin is its current machine.
    """
    with _lock:
        session = _find_session()
        if session.virtual_backend is not None:
            return None
        if session.twin is None:
            session.twin = _make_virtual_backend(devices.fill_missing_facts(backend().device_info()))
            # A replay that comes beside a measurement may not keep the learner waiting.
            _set_watchdog(session, session.watchdog_s or TWIN_WATCHDOG_S)
        slot.use(session.twin.machine)
        return session.twin


def virtual_side() -> VirtualBackend:
    """Return the virtual device in use, or the virtual twin of the real device in use."""
    with _lock:
        backend = find_twin() or _find_session().virtual_backend
        assert backend is not None
        return backend


def real_cp() -> Any | None:
    """Return CuPy if a real device is in use, or None otherwise.

    Callers use the result for work that only a real device can do.
    """
    with _lock:
        return None if _find_session().virtual_backend is not None else cp()


@contextmanager
def use_bench_device(
    info: DeviceInfo | None = None, count: int = 1, links: str | None = None
) -> Iterator[VirtualBackend]:
    """Use a new virtual device within a ``with`` block. The new device does not contain the learner's arrays.

    Parameters
    ----------
    info
        The device information; by default, that of the device in use.
    count, links
        The number of devices and the links between them, as for `use_device`.

    Yields
    ------
    VirtualBackend
        The new device, which the virtual array module uses within the block.
    """
    previous_machine = slot.current()  # asked first: looking for the twin makes it the current one
    new_device = _make_virtual_backend(virtual_side().device_info() if info is None else info, count, links)
    slot.use(new_device.machine)
    try:
        yield new_device
    finally:
        slot.use(previous_machine)


@contextmanager
def report_late_faults(is_blocking: bool = False) -> Iterator[orders.LateFaults | None]:
    """Make the device in use report faults as CUDA does. The error appears after a delay, and again in every
    later call.

    Parameters
    ----------
    is_blocking
        Whether every launch waits until its kernel has finished. On a real device, the environment variable
        ``CUDA_LAUNCH_BLOCKING`` decides this before the context is created.

    Yields
    ------
    LateFaults or None
        The information that a virtual device has about the first fault; None for a real device.
    """
    with _lock:
        virtual_backend = _find_session().virtual_backend
    with (
        nullcontext()
        if virtual_backend is None
        else orders.delay_faults(virtual_backend.machine, is_blocking) as late_faults
    ):
        yield late_faults


def list_table_devices() -> tuple[DeviceInfo, ...]:
    """Return all GPUs that the virtual GPU can model, from the device table."""
    return tuple(devices.device_info(name) for name in devices.list_device_names())


def find_table_info(name: str) -> DeviceInfo:
    """Return the entry of one GPU in the device table.

    Raises
    ------
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest.
    """
    return devices.device_info(name)


def find_ceilings() -> Ceilings:
    """Return the peak arithmetic and memory rates of the device in use."""
    return ceilings_of(backend().device_info())


def compute_l1_bytes(info: DeviceInfo) -> int:
    """Return the size in bytes of the L1 cache of an SM if no block uses shared memory."""
    return compute_cache_sizes(info, 0, 1).l1_bytes


def compute_occupancy_on(name: str, known_occupancy: Occupancy) -> Occupancy:
    """Return the occupancy of the same block, with the same resources, on another GPU of the device table."""
    return occupancy_of(
        find_table_info(name),
        known_occupancy.block_threads,
        known_occupancy.registers_per_thread,
        known_occupancy.shared_bytes,
    )


def compute_peer_gbps(is_direct: bool) -> float:
    """Return the modelled bandwidth in GB/s of large copies between two GPUs of the model in use.

    If `is_direct` is true, the copies use the link between the GPUs; otherwise, they pass through the host.
    """
    device_info = backend().device_info()
    return link_cost.peer_gbps(device_info, device_info, is_direct)


def find_step_prices() -> StepPrices:
    """Return the modelled costs of one step of a collective schedule on GPUs of the same model as the one in
    use.
    """
    return cost.step_prices(backend().device_info())


def compute_step_ns(
    name: str,
    gpus: int,
    messages: Sequence[tuple[int, int, int, bool]],
    sum_bytes_of_gpus: Sequence[tuple[int, int]],
) -> float:
    """Return the modelled duration in ns of one step of a collective schedule. See
    `virtualgpu.model.cost.step_ns`.
    """
    return cost.step_ns([find_table_info(name)] * gpus, messages, sum_bytes_of_gpus)[1]


def check_not_capturing(launch: Launch) -> None:
    """Raise NotSupportedError if the stream of a launch is capturing a graph. Kernels do not run during a
    capture.
    """
    with launch.on_stream():
        if cp().cuda.get_current_stream().is_capturing():
            raise NotSupportedError(
                "The current stream is capturing a graph, so the kernel does not run and cannot be observed. "
                "Call the kernel directly to add it to the graph, or end the capture first with "
                "end_capture()."
            )


def store_arguments(args: Sequence[Any]) -> StoredArguments:
    """Return an object that stores the arguments of a launch without keeping the learner's arrays alive."""
    with _lock:
        return StoredArguments(
            args, lambda argument: isinstance(argument, cp().ndarray), _find_session().recent_arrays
        )


def list_kept_contents() -> list[weakref.ref[Any]]:
    """Return the saved array contents of all launches in this session, with the oldest first."""
    with _lock:
        return _find_session().kept_contents


def find_virtual_machine() -> slot.Machine | None:
    """Return the simulated machine of the virtual device in use, or None if a real device is in use."""
    with _lock:
        virtual_backend = _find_session().virtual_backend
        return None if virtual_backend is None else virtual_backend.machine


def bind_current_device() -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes the present device current again in the thread of a widget callback.

    Returns
    -------
    callable
        Returns a context in which that device is current. CuPy and the virtual GPU have a current device per
        thread, and callbacks run in several threads.
    """
    with _lock:
        session = _find_session()
        device = cp().cuda.Device()

    @contextmanager
    def use_session() -> Iterator[None]:
        if _session is not session:
            raise GpulabError(
                f"This object was created on the {session.choice.device}, but another "
                "device has been selected since then. Run the cell that created the "
                "object again."
            )
        with device:
            yield

    return use_session


def _find_session() -> _Session:
    global _session
    if _session is None:
        device_text = os.environ.get(DEVICE_VARIABLE, "").strip() or "auto"
        try:
            _session = _open_session(*parse_device(device_text), 1, None)
        except (UnknownDeviceError, CudaUnavailableError) as error:
            raise type(error)(f"{DEVICE_VARIABLE}={device_text}: {error}") from error
        _set_watchdog(_session, read_initial_watchdog())
    return _session


def _open_session(device_kind: DeviceKind, name: str, count: int, links: str | None) -> _Session:
    request = (device_kind, name, count, links)
    choice_reason = ""
    if device_kind != "virtual":
        try:
            choice = open_cuda_device(int(name or "0"))
        except CudaUnavailableError as error:
            if device_kind == "cuda":
                raise CudaUnavailableError(
                    f"No CUDA device can be used: {error}. To continue on a virtual GPU, "
                    'call gl.use_device("virtual"). To check each part, run `gpulab '
                    "doctor`."
                ) from error
            choice_reason = str(error)
            _log.info("No CUDA device can be used, so this session uses a virtual GPU: %s", choice_reason)
        else:
            if count != 1 or links is not None:
                raise ValueError(_VIRTUAL_ONLY_MESSAGE)
            return _Session(choice, request)
    device_info = find_table_info(name or DEFAULT_DEVICE)
    virtual_backend = _make_virtual_backend(device_info, count, links)
    link_kind = virtual_backend.machine.links.topology if count > 1 else ""
    choice = DeviceChoice(
        "virtual",
        device_info.name,
        device_info.compute_capability,
        count=count,
        links=link_kind,
        reason=choice_reason,
    )
    session = _Session(choice, request, virtual_backend)
    _make_current(session)
    return session


def _make_current(session: _Session) -> None:
    """Make the array module use the device of the given session."""
    if session.virtual_backend is None:
        import cupy

        cupy.cuda.Device(session.choice.index).use()
        return
    slot.use(session.virtual_backend.machine)


def _make_virtual_backend(info: DeviceInfo, count: int = 1, links: str | None = None) -> VirtualBackend:
    from virtualgpu.backend import VirtualBackend

    return VirtualBackend(
        slot.Machine([info] * count, make_launch_observer=KernelProgressLine, links=check_links(links))
    )


def _set_watchdog(session: _Session, seconds: float | None) -> None:
    if seconds is None:
        return
    session.watchdog_s = seconds
    for virtual_backend in (session.virtual_backend, session.twin):
        for device in virtual_backend.machine.devices if virtual_backend else ():
            device.watchdog_s = seconds
