"""Who writes one element of the device's memory, seen while kernels run."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.compiled import address_of, call, load64, lowest, struct, struct_at, translate
from virtualgpu.engine.machine import jit
from virtualgpu.engine.observe.results import unlinear
from virtualgpu.errors import GpulabError
from virtualgpu.model.recording.checking import MachineObserver
from virtualgpu.model.recording.program_lines import ProgramLines
from virtualgpu.records.acts import Act, GraphLaunch, Region, Work
from virtualgpu.records.faults.history import Write
from virtualgpu.records.hazards import Place
from virtualgpu.sanitizer.sites import site
from virtualgpu.sanitizer.structures import LOCAL, Context

if TYPE_CHECKING:
    from virtualgpu.launch.prepare import FinishedLaunch, PreparedLaunch
    from virtualgpu.model.machine import VirtualDevice

HIT = -(1 << 28)  # and from there downwards: what the compiled code asks, with the number of the access
_TAG = 56
_OFFSET = (1 << 56) - 1
_MOST_WRITES = 10_000
_MOST_ITEMS = 1 << 20


@struct
class Aim:
    """The element's bytes, and which accesses write how many bytes."""

    start: int
    end: int
    sites: int
    ask: int


def hit(c: Context, number: int, lanes: int, mask: int, values: int) -> None:
    """An access of the lanes of a warp: Python is asked if one of them writes to the element."""
    if number < 0:
        return
    g = struct_at(Aim, c.watched)
    size = load64(g.sites + 8 * number)
    if size == 0:
        return
    rest = mask
    while rest:
        address = load64(lanes + 8 * lowest(rest))
        rest = rest & (rest - 1)
        tag = address >> _TAG
        if tag:
            address = address & _OFFSET
            if tag <= LOCAL:
                address = 0
        if address < g.end and address + size > g.start:
            rest = 0
            call(g.ask, c, HIT - number, lanes, mask, 0)


@functools.cache
def observer() -> jit.Library:
    """The compiled function; the engine is to call the address of ``entry_of``."""
    return jit.Library(translate([hit], "hit", {"Context": layout.CONTEXT}), "entry_of")


class History:
    """Notes the writes to an element of one device; `run_watched` and `see` are for `MachineObserver`.

    Parameters
    ----------
    device
        Where it lies.
    address, dtype
        The element.
    """

    def __init__(self, device: VirtualDevice, address: int, dtype: np.dtype[Any]) -> None:
        self._device = device
        self._dtype = dtype
        self.start = address
        self.end = address + dtype.itemsize
        self._lines = ProgramLines()
        self._open = False  # whether the last write's value is still to be read
        self._through_engine = 0
        self.launches = 0
        self.count = 0
        self.writes: deque[Write] = deque([Write(kind="initial", value=self._now())], _MOST_WRITES)

    def run_watched(
        self, launch: PreparedLaunch, options: Any = None
    ) -> tuple[FinishedLaunch, tuple[tuple[Region, ...], ...]]:
        """Run a launch, and note its writes to the element."""
        self.launches += 1
        self._through_engine += 1
        nothing: tuple[tuple[Region, ...], ...] = ((), (), ())
        taken = options is not None and (options.trace is not None or options.observer is not None)
        before = self._now()
        count = self.count
        try:
            if taken or launch.device is not self._device:
                return launch.run(options), nothing
            looking = _Look(self, launch)
            return launch.run(replace(options or launch.options, observer=looking)), nothing
        finally:
            self.settle()
            if taken and self.count == count and not _same(before, self._now()):
                self.note(
                    Write(
                        kind="operation",
                        name=launch.stats.name,
                        launch=self.launches,
                        source=self._lines.here()[0],
                    )
                )
                self.settle()

    def see(self, act: Act) -> None:
        """Note a copy, a memset or a kernel that the engine does not run, if it writes to the element."""
        if isinstance(act, GraphLaunch):
            for node in act.nodes:
                self.see(node)
        if not isinstance(act, Work):
            return
        if self._through_engine:
            self._through_engine -= 1
            return
        is_kernel = not act.name.startswith(("Memcpy", "Memset"))
        self.launches += is_kernel
        if any(self._meets(region) for region in (*act.writes, *act.atomics)):
            launch = self.launches if is_kernel else 0
            self.note(Write(kind="operation", name=act.name, launch=launch, source=act.source))
            self.settle()

    def note(self, write: Write) -> None:
        """A write that is about to happen, or has happened."""
        self.settle()
        self.writes.append(write)
        self.count += 1
        self._open = True

    def settle(self) -> None:
        """What the element holds now is what the last write left there."""
        if self._open:
            self.writes[-1] = replace(self.writes[-1], value=self._now())
            self._open = False

    def hide(self) -> None:
        """Of the last write nobody sees the value: another lane's comes with it."""
        self._open = False

    def here(self) -> Any:
        """The program's line that is at work."""
        return self._lines.here()[0]

    def _now(self) -> Any:
        held = self._device.memory.view(self.start, self._dtype.itemsize)
        return held.copy().view(self._dtype)[0].item()

    def _meets(self, region: Region) -> bool:
        if region.memory != self._device.id or region.start >= self.end or region.end <= self.start:
            return False
        if not region.shape or np.prod(region.shape) > _MOST_ITEMS:
            return True
        firsts: Any = np.array(region.address)
        for count, step in zip(region.shape, region.strides, strict=True):
            firsts = np.add.outer(firsts, np.arange(count) * step)
        return bool(((firsts < self.end) & (firsts + region.item_bytes > self.start)).any())


class _Look:
    """An observer of one launch."""

    def __init__(self, history: History, launch: PreparedLaunch) -> None:
        kernel = launch.module.program(launch.device).generated(launch.packed.name, observe=True)
        self._sites = [site(number, i) for number, (_, i) in enumerate(kernel.tables.accesses)]
        written = [s.size_bytes * (s.writes and s.space in ("global", "generic")) for s in self._sites]
        self._sizes = np.array(written or [0], np.int64)
        self._history, self._launch, self._source = history, launch, history.here()
        self._code = launch.launch.source.code.split("\n")
        self._aim = aim = Aim()
        aim.start = history.start
        aim.end = history.end
        aim.sites = self._sizes.ctypes.data

    def watch(self, ask: int) -> tuple[int, int]:
        self._aim.ask = ask
        return observer().address, address_of(self._aim)

    def custom_event(
        self, block: int, warp: int, what: int, lanes: npt.NDArray[np.int64] | None, mask: int, extra: int
    ) -> None:
        assert lanes is not None
        here = self._sites[HIT - what]
        history = self._history
        text = self._code[here.line - 1].strip() if 0 < here.line <= len(self._code) else ""
        atomic = here.instruction.root in ("atom", "red")
        first = True
        for lane in range(layout.LANES):
            address = int(lanes[lane]) & _OFFSET
            meets = address < history.end and address + here.size_bytes > history.start
            if mask >> lane & 1 and meets:
                if not first:
                    history.hide()
                first = False
                place = Place(
                    here.line,
                    text,
                    unlinear(block, self._launch.grid),
                    unlinear(warp * layout.LANES + lane, self._launch.block),
                )
                history.note(
                    Write(
                        kind="atomic" if atomic else "store",
                        name=self._launch.stats.name,
                        launch=history.launches,
                        place=place,
                        source=self._source,
                    )
                )

    def access(self, *_: Any) -> bool:
        return False

    def shuffle(self, *_: Any) -> None:
        pass

    barrier = wait = arrive = shuffle


def _same(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))


def history_of(
    device: VirtualDevice, address: int, dtype: np.dtype[Any], function: Callable[[], Any]
) -> tuple[History, Exception | None]:
    """Call a function, and note who writes an element meanwhile; with what it raised, if anything.

    Raises
    ------
    GpulabError
        While something else watches the machine.
    """
    if device.machine.clock.watch is not None or device.machine.clock.deferral is not None:
        raise GpulabError(
            "What streams do is being watched already: ask for the history outside of that block."
        )
    history = History(device, address, dtype)
    watching = MachineObserver(device.machine, history.run_watched)
    watching.start(history.see)
    error = None
    try:
        function()
    except Exception as raised:
        error = raised
    finally:
        watching.stop()
        history.settle()
    return history, error
