"""What both sides speak: a launch, what can be observed of it, and the few questions a device answers.

``gpulab.real`` and `virtualgpu.backend` each answer them; nothing here knows which one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

from virtualgpu.launch.launch import Launch, Shape, dims, kernel_source
from virtualgpu.records import (
    BlockTrace,
    DeviceInfo,
    DeviceMetrics,
    Dim3,
    GraphNode,
    GraphRecord,
    KernelCounters,
    KernelStats,
    LaunchTrace,
    Occupancy,
    Provenance,
    SanitizerReport,
    Timeline,
    WarpTrace,
)
from virtualgpu.records.access import AccessTrace
from virtualgpu.records.acts import Act
from virtualgpu.records.launch.causes import LaunchCosts
from virtualgpu.records.memory import MemoryReading

__all__ = [
    "TOOLS",
    "Accesses",
    "Backend",
    "Block",
    "Blocks",
    "Caches",
    "Costs",
    "Counters",
    "Hazards",
    "Launch",
    "Observation",
    "Shape",
    "StreamWatcher",
    "TimelineRecorder",
    "Warp",
    "caches_of",
    "dims",
    "kernel_source",
]

TOOLS = ("memory", "race", "init", "sync")

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
Caches = Literal["", "cold", "warm"]


class Observation(Generic[R_co]):
    """What is to be observed of a launch. Each kind is a value, and gives one kind of record."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Blocks(Observation[LaunchTrace]):
    """Where and when each block ran.

    ``restore`` puts back the contents of every array argument afterwards, so that a view can run the
    launch again. ``caches`` is ``"cold"`` if L2 is to hold nothing before, else it is as it was left.
    """

    restore: bool = False
    caches: Caches = ""


@dataclass(frozen=True, slots=True)
class Warp(Observation[WarpTrace]):
    """Every step of one warp, at most ``max_steps``. A real GPU tells its basic blocks and their masks.

    Only a virtual GPU evaluates ``watch`` expressions (``"x[i] * 2"``) at every step, and tells the steps at
    which it would ``stop``: ``"line 12"``, ``"any(i >= n)"``, ``"all(...)"``, ``"write y[3]"``.
    """

    block_index: Dim3 = (0, 0, 0)
    warp: int = 0
    max_steps: int = 20_000
    watch: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Block(Observation[BlockTrace]):
    """Every step of all warps of one block; ``max_steps`` bounds them all together.

    Only a virtual GPU can; beside it a real one tells the masks of ``warp``. ``watch`` and ``stop`` as for
    `Warp`, for each of the warps.
    """

    block_index: Dim3 = (0, 0, 0)
    warp: int = 0
    max_steps: int = 60_000
    watch: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counters(Observation[KernelCounters]):
    """Instructions, memory requests, sectors, conflicts and branches. Only a virtual GPU can.

    With ``caches`` also what a model of L1, L2 and constant cache makes of the accesses: from empty caches
    (``"cold"``, as Nsight Compute has it by default), or as earlier launches left L2 (``"warm"``).
    """

    caches: Caches = ""


@dataclass(frozen=True, slots=True)
class Costs(Observation[LaunchCosts]):
    """What the modelled time is made of, and what it would be without each cause. Only a virtual GPU can.

    ``caches`` as for `Blocks`.
    """

    caches: Caches = ""


@dataclass(frozen=True, slots=True)
class Accesses(Observation[AccessTrace]):
    """Counters, and the addresses of one warp's memory accesses. Only a virtual GPU can."""

    block_index: Dim3 = (0, 0, 0)
    warp: int = 0
    max_steps: int = 20_000


@dataclass(frozen=True, slots=True)
class Hazards(Observation[SanitizerReport]):
    """What checks of a launch find. Only a virtual GPU can.

    Parameters
    ----------
    tools
        Which checks: out-of-bounds and misaligned accesses (``memory``), races in shared and global
        memory (``race``), reads of what nothing wrote (``init``), barriers and masks (``sync``).
    order, seed
        The order of blocks, see `virtualgpu.sanitizer.block_sequence`.
    nan
        Stop at the first NaN that arithmetic makes of operands that are none.
    restore
        Give array arguments their contents back. If not, they show what comes of undefined values: those
        that a shuffle takes from a lane that is not there differ from a plain launch's.

    Raises
    ------
    ValueError
        For an unknown tool.
    """

    tools: tuple[str, ...] = TOOLS
    order: str = "in order"
    seed: int = 0
    nan: bool = False
    restore: bool = True

    def __post_init__(self) -> None:
        for name in self.tools:
            if name not in TOOLS:
                raise ValueError(f"`tools` are {', '.join(map(repr, TOOLS))}, not {name!r}.")


def caches_of(what: Sequence[Observation[Any]]) -> Caches:
    """The state of the caches that observations of one launch declare.

    Raises
    ------
    ValueError
        If they declare two.
    """
    states: set[Caches] = {each.caches for each in what if isinstance(each, Blocks | Costs | Counters)}
    if {"cold", "warm"} <= states:
        raise ValueError(
            "One launch begins with cold caches or warm ones: observe it with `caches` the same."
        )
    return next(iter(states - {""}), "")


class TimelineRecorder(Protocol):
    """Records one timeline, from `start` to `stop`, each called once; `stop` also after an error."""

    @property
    def blind(self) -> str:
        """Since `start`: why single operations are not seen, in a few words; empty where they are."""
        ...

    def start(self) -> None:
        """Begin.

        Raises
        ------
        GpulabError
            If one is being recorded already, a stream captures a graph, or another tool holds what is needed
            for it; nothing has begun then.
        """
        ...

    def stop(self) -> Timeline:
        """End, and return what was recorded. What could not be seen is said in its `note`."""
        ...


class StreamWatcher(Protocol):
    """Sees what a program does to streams and memory, from `start` to `stop`, each called once."""

    def start(self, see: Callable[[Act], None]) -> None:
        """Begin: give each act, in the order of the program, to `see`.

        What devices were given before has ended, or counts as ended.

        Raises
        ------
        GpulabError
            If another tool holds what is needed for it.
        """
        ...

    def stop(self) -> str:
        """End; in words what could not be seen. Also after an error in the block."""
        ...


class LoadReader(Protocol):
    """Gives a row of `records.device.load.LOAD_COLUMNS` at each call; None is what is not available."""

    missing: dict[str, str]
    processes: tuple[tuple[int, float | None], ...]

    def facts(self) -> dict[str, Any]:
        """What does not change, by its name in `LoadSamples`."""
        ...

    def __call__(self) -> Sequence[float | None]: ...


class Backend(Protocol):
    """One device's answers, all of them records."""

    @property
    def provenance(self) -> Provenance: ...

    def device_info(self) -> DeviceInfo: ...

    def metrics(self) -> DeviceMetrics: ...

    def setup(self) -> DeviceMetrics:
        """How the device is set up: the driver's limits, how it is cut up and linked."""
        ...

    def kernel_stats(self, kernel: Any) -> KernelStats: ...

    def occupancy(self, kernel: Any, block_threads: int, shared_bytes: int = 0) -> Occupancy: ...

    def timeline_recorder(self) -> TimelineRecorder:
        """A recorder of all that runs on this kind of device, whichever device is current."""
        ...

    def stream_watcher(self) -> StreamWatcher:
        """Who sees what a program does to streams and memory of this kind of device.

        Raises
        ------
        NotSupportedError
            If this kind of device cannot.
        """
        ...

    @overload
    def observe(self, launch: Launch, what: Observation[R], /) -> R: ...
    @overload
    def observe(self, launch: Launch, /, *what: Observation[Any]) -> tuple[Any, ...]: ...
    def observe(self, launch: Launch, /, *what: Observation[Any]) -> Any:
        """Run the launch once and tell what was asked: a record, or of several observations one each.

        What cannot be seen in the same run repeats it, from the same caches and with arrays put back.

        Raises
        ------
        NotSupportedError
            If this kind of device cannot.
        ValueError
            If two observations declare different caches.
        """
        ...

    def graph(self, graph: Any) -> GraphRecord:
        """Nodes and edges of a captured graph, a ``cupy.cuda.Graph``."""
        ...

    def set_graph_node(self, graph: Any, node: GraphNode, template: Any) -> None:
        """Give the executable graph's node with this number the record's parameters and launch shape.

        `template` is the graph whose parameters it took over last, or itself.

        Raises
        ------
        CUDADriverError
            As CUDA refuses it.
        """
        ...

    def update_graph(self, graph: Any, other: Any) -> None:
        """Give an executable graph the parameters of another graph with the same nodes and edges.

        Raises
        ------
        CUDADriverError
            Status 910, if they differ in more.
        """
        ...

    def memory_reader(self) -> Callable[[], MemoryReading]:
        """Reads the memory of the device that is current now; may be called on any thread."""
        ...

    def load_reader(self) -> LoadReader:
        """Reads what the device that is current now is doing; may be called on any thread.

        Raises
        ------
        NotSupportedError
            If nothing on this machine tells.
        """
        ...

    def host_ns(self) -> int:
        """The host's clock: of this computer beside a GPU, modelled beside a virtual one."""
        ...
