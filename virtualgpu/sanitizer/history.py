"""History of all writes to one element of device memory, recorded while kernels run."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.compiled import (
    call_function,
    find_lowest_bit,
    get_struct_address,
    load64,
    make_structure,
    translate,
    view_struct,
)
from virtualgpu.engine.machine import jit
from virtualgpu.engine.observe.results import from_linear_index
from virtualgpu.errors import GpulabError
from virtualgpu.model.recording.checking import MachineObserver
from virtualgpu.model.recording.program_lines import ProgramLines
from virtualgpu.records.acts import Act, GraphLaunch, Region, Work
from virtualgpu.records.faults.history import Write
from virtualgpu.records.hazards import Place
from virtualgpu.sanitizer.sites import make_site
from virtualgpu.sanitizer.structures import LOCAL, Context

if TYPE_CHECKING:
    from virtualgpu.launch.prepare import FinishedLaunch, PreparedLaunch
    from virtualgpu.model.machine import VirtualDevice

ELEMENT_WRITE = -(1 << 28)  # sites of callbacks: this number minus the number of the access
_TAG_SHIFT = 56
_OFFSET_MASK = (1 << 56) - 1
_MAX_WRITES = 10_000
_MAX_ITEMS = 1 << 20


@make_structure
class WatchedElement:
    """A description of the watched array element for compiled code, with its byte range and the number of
    bytes that each instruction writes.
    """

    start: int
    end: int
    write_sizes: int
    callback: int


def check_write(context: Context, number: int, lanes: int, mask: int, values: int) -> None:
    """Call Python code if a lane of the access writes to the watched array element."""
    if number < 0:
        return
    element = view_struct(WatchedElement, context.watched)
    write_bytes = load64(element.write_sizes + 8 * number)
    if write_bytes == 0:
        return
    remaining_lanes = mask
    while remaining_lanes:
        address = load64(lanes + 8 * find_lowest_bit(remaining_lanes))
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        tag = address >> _TAG_SHIFT
        if tag:
            address = address & _OFFSET_MASK
            if tag <= LOCAL:
                address = 0
        if address < element.end and address + write_bytes > element.start:
            remaining_lanes = 0
            call_function(element.callback, context, ELEMENT_WRITE - number, lanes, mask, 0)


@functools.cache
def compile_write_observer() -> jit.LibraryCode:
    """Compile the function `check_write` and return its library. The engine calls the exported function
    ``entry_of``.
    """
    return jit.LibraryCode(translate([check_write], "check_write", {"Context": layout.CONTEXT}), "entry_of")


class WriteHistory:
    """A recorder of the writes to one element of device memory. A `MachineObserver` calls the methods of the
    recorder.

    Parameters
    ----------
    device
        The device of the element.
    address, dtype
        Address and dtype of the element.
    """

    def __init__(self, device: VirtualDevice, address: int, dtype: np.dtype[Any]) -> None:
        self._device = device
        self._dtype = dtype
        self.start = address
        self.end = address + dtype.itemsize
        self._program_lines = ProgramLines()
        self._has_pending_value = False  # whether the last write's value is still to be read
        self._engine_launches = 0
        self.launch_count = 0
        self.write_count = 0
        self.writes: deque[Write] = deque(
            [Write(kind="initial", value=self._read_current_value())], _MAX_WRITES
        )

    def run_watched(
        self, launch: PreparedLaunch, options: Any = None
    ) -> tuple[FinishedLaunch, tuple[tuple[Region, ...], ...]]:
        """Run a launch, and record its writes to the watched array element."""
        self.launch_count += 1
        self._engine_launches += 1
        no_regions: tuple[tuple[Region, ...], ...] = ((), (), ())
        is_observed = options is not None and (options.trace is not None or options.observer is not None)
        value_before = self._read_current_value()
        write_count_before = self.write_count
        try:
            if is_observed or launch.device is not self._device:
                return launch.run(options), no_regions
            observer_of_launch = _ElementObserver(self, launch)
            return launch.run(replace(options or launch.options, observer=observer_of_launch)), no_regions
        finally:
            self.read_pending_value()
            if (
                is_observed
                and self.write_count == write_count_before
                and not _is_equal(value_before, self._read_current_value())
            ):
                self.append_write(
                    Write(
                        kind="operation",
                        name=launch.kernel.name,
                        launch=self.launch_count,
                        source=self._program_lines.find_current_line()[0],
                    )
                )
                self.read_pending_value()

    def add_act(self, act: Act) -> None:
        """Record a copy, a memset or a library kernel if it writes to the watched array element."""
        if isinstance(act, GraphLaunch):
            for node in act.nodes:
                self.add_act(node)
        if not isinstance(act, Work):
            return
        if self._engine_launches:
            self._engine_launches -= 1
            return
        is_kernel = not act.name.startswith(("Memcpy", "Memset"))
        self.launch_count += is_kernel
        if any(self._overlaps(region) for region in (*act.writes, *act.atomics)):
            launch_number = self.launch_count if is_kernel else 0
            self.append_write(Write(kind="operation", name=act.name, launch=launch_number, source=act.source))
            self.read_pending_value()

    def append_write(self, write: Write) -> None:
        """Append a write to the history immediately before or after the write takes place."""
        self.read_pending_value()
        self.writes.append(write)
        self.write_count += 1
        self._has_pending_value = True

    def read_pending_value(self) -> None:
        """Read the current value of the element from memory, and store it in the last recorded write."""
        if self._has_pending_value:
            self.writes[-1] = replace(self.writes[-1], value=self._read_current_value())
            self._has_pending_value = False

    def discard_pending_value(self) -> None:
        """Mark the value of the last write as unknown, because another lane writes the element at the same
        time.
        """
        self._has_pending_value = False

    def find_current_line(self) -> Any:
        """Return the source line that the program currently executes."""
        return self._program_lines.find_current_line()[0]

    def _read_current_value(self) -> Any:
        element_bytes = self._device.memory.view(self.start, self._dtype.itemsize)
        return element_bytes.copy().view(self._dtype)[0].item()

    def _overlaps(self, region: Region) -> bool:
        if region.memory != self._device.id or region.start >= self.end or region.end <= self.start:
            return False
        if not region.shape or np.prod(region.shape) > _MAX_ITEMS:
            return True
        item_addresses: Any = np.array(region.address)
        for extent, stride in zip(region.shape, region.strides, strict=True):
            item_addresses = np.add.outer(item_addresses, np.arange(extent) * stride)
        return bool(((item_addresses < self.end) & (item_addresses + region.item_bytes > self.start)).any())


class _ElementObserver:
    """An observer of one launch that records writes to the element."""

    def __init__(self, history: WriteHistory, launch: PreparedLaunch) -> None:
        kernel = launch.kernel.program.generate_uncounted(launch.packed_launch.name, is_observed=True)
        self._sites = [
            make_site(access_index, i) for access_index, (_, i) in enumerate(kernel.tables.accesses)
        ]
        write_sizes = [
            access_site.size_bytes if access_site.writes and access_site.space in ("global", "generic") else 0
            for access_site in self._sites
        ]
        self._write_sizes = np.array(write_sizes or [0], np.int64)
        self._history = history
        self._launch = launch
        self._source = history.find_current_line()
        self._code_lines = launch.launch.source.code.split("\n")
        self._element = WatchedElement()
        self._element.start = history.start
        self._element.end = history.end
        self._element.write_sizes = self._write_sizes.ctypes.data

    def watch(self, callback_address: int) -> tuple[int, int]:
        self._element.callback = callback_address
        return compile_write_observer().address, get_struct_address(self._element)

    def custom_event(
        self, block: int, warp: int, site: int, lanes: npt.NDArray[np.int64] | None, mask: int, extra: int
    ) -> None:
        assert lanes is not None
        access_site = self._sites[ELEMENT_WRITE - site]
        write_history = self._history
        line_text = (
            self._code_lines[access_site.line - 1].strip()
            if 0 < access_site.line <= len(self._code_lines)
            else ""
        )
        is_atomic = access_site.instruction.root in ("atom", "red")
        is_first_lane = True
        for lane in range(layout.LANES):
            address = int(lanes[lane]) & _OFFSET_MASK
            overlaps_element = (
                address < write_history.end and address + access_site.size_bytes > write_history.start
            )
            if mask >> lane & 1 and overlaps_element:
                if not is_first_lane:
                    write_history.discard_pending_value()
                is_first_lane = False
                place = Place(
                    access_site.line,
                    line_text,
                    from_linear_index(block, self._launch.grid),
                    from_linear_index(warp * layout.LANES + lane, self._launch.block),
                )
                write_history.append_write(
                    Write(
                        kind="atomic" if is_atomic else "store",
                        name=self._launch.kernel.name,
                        launch=write_history.launch_count,
                        place=place,
                        source=self._source,
                    )
                )

    def access(self, *_: Any) -> bool:
        return False

    def shuffle(self, *_: Any) -> None:
        pass

    barrier = wait = arrive = shuffle


def _is_equal(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))


def record_history(
    device: VirtualDevice, address: int, dtype: np.dtype[Any], function: Callable[[], Any]
) -> tuple[WriteHistory, Exception | None]:
    """Call a function. Return all writes to an array element during the call, and the exception if one was
    raised.

    Raises
    ------
    GpulabError
        If the machine is observed already.
    """
    if device.machine.clock.watch is not None or device.machine.clock.deferral is not None:
        raise GpulabError(
            "Streams are already being recorded. Record the history outside of the block "
            "that records the streams."
        )
    history = WriteHistory(device, address, dtype)
    machine_observer = MachineObserver(device.machine, history.run_watched)
    machine_observer.start(history.add_act)
    raised_error = None
    try:
        function()
    except Exception as raised:
        raised_error = raised
    finally:
        machine_observer.stop()
        history.read_pending_value()
    return history, raised_error
