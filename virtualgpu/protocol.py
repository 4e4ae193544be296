"""Interface that real and virtual devices implement: launches, their observations, and device queries.

``gpulab.real`` and `virtualgpu.backend` implement it; this module does not depend on either of them.
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
from virtualgpu.records.fragments import FragmentTrace
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
    "Fragments",
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
    """Base class of the observations of a launch. Each subclass produces one type of record."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Blocks(Observation[LaunchTrace]):
    """Observation of the SM, the start time and the end time of each block.

    If ``restore`` is true, the contents of all array arguments are restored after the launch. If ``caches``
    is ``"cold"``, L2 is empty at the start; otherwise it keeps its contents.
    """

    restore: bool = False
    caches: Caches = ""


@dataclass(frozen=True, slots=True)
class Warp(Observation[WarpTrace]):
    """Observation of every step of one warp, with at most ``max_steps`` steps.

    On a real GPU, each step is a basic block with its mask instead of a single instruction.

    Only a virtual GPU evaluates ``watch`` expressions (``"x[i] * 2"``) at every step, and records the steps
    of a ``stop``: ``"line 12"``, ``"any(i >= n)"``, ``"all(...)"``, ``"write y[3]"``.
    """

    block_index: Dim3 = (0, 0, 0)
    warp: int = 0
    max_steps: int = 20_000
    watch: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Block(Observation[BlockTrace]):
    """Observation of every step of all warps of a block, with at most ``max_steps`` steps in total.

    Only a virtual GPU supports this observation. ``watch`` and ``stop`` apply to each of the warps, as for
    `Warp`. Without ``with_variables`` there are no watched and stopped variables, and the record does not
    name variables; this saves the time of a debug build.
    """

    block_index: Dim3 = (0, 0, 0)
    warp: int = 0
    max_steps: int = 60_000
    watch: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    with_variables: bool = True


@dataclass(frozen=True, slots=True)
class Counters(Observation[KernelCounters]):
    """Observation of counters such as instructions, memory requests, sectors, bank conflicts and branches.

    Only a virtual GPU supports this observation.

    With ``caches`` also counters of a model of L1, L2 and constant cache: with empty caches at the start
    (``"cold"``, the default of Nsight Compute), or with L2 after earlier launches (``"warm"``).
    """

    caches: Caches = ""


@dataclass(frozen=True, slots=True)
class Costs(Observation[LaunchCosts]):
    """Observation of the causes of a launch's modelled time. The record states for each cause how long the
    launch would take without it.

    Only a virtual GPU supports it.

    ``caches`` has the same meaning as for `Blocks`.
    """

    caches: Caches = ""


@dataclass(frozen=True, slots=True)
class Accesses(Observation[AccessTrace]):
    """Observation of the counters of a launch and of the addresses that one warp accesses.

    Only a virtual GPU supports this observation.
    """

    block_index: Dim3 = (0, 0, 0)
    warp: int = 0
    max_steps: int = 20_000


@dataclass(frozen=True, slots=True)
class Fragments(Observation[FragmentTrace]):
    """Observation of the matrix instructions of one warp, and of its accesses to shared memory.

    Only a virtual GPU supports this observation.
    """

    block_index: Dim3 = (0, 0, 0)
    warp: int = 0
    max_steps: int = 20_000


@dataclass(frozen=True, slots=True)
class Hazards(Observation[SanitizerReport]):
    """Observation of the hazards that the checks of a launch find.

    Only a virtual GPU supports this observation.

    Parameters
    ----------
    tools
        Checks to run: out-of-bounds and misaligned accesses (``memory``), races in shared and global memory
        (``race``), reads of uninitialized memory (``init``), barriers and masks (``sync``).
    block_order, seed
        The order of blocks, see `virtualgpu.sanitizer.block_sequence`.
    stops_at_nan
        Whether to stop at the first NaN that arithmetic produces from operands that are not NaN.
    restore
        Whether to restore the contents of array arguments. Otherwise they contain the results of undefined
        values: those that a shuffle reads from an inactive lane differ from those of a plain launch.

    Raises
    ------
    ValueError
        For an unknown tool.
    """

    tools: tuple[str, ...] = TOOLS
    block_order: str = "in order"
    seed: int = 0
    stops_at_nan: bool = False
    restore: bool = True

    def __post_init__(self) -> None:
        for name in self.tools:
            if name not in TOOLS:
                raise ValueError(f"`tools` must be among {', '.join(map(repr, TOOLS))}, not {name!r}.")


def caches_of(observations: Sequence[Observation[Any]]) -> Caches:
    """Return the state of the caches, ``"cold"`` or ``"warm"``, that the observations require at the start of
    a launch.

    Raises
    ------
    ValueError
        If observations require different states.
    """
    cache_states: set[Caches] = {
        observation.caches
        for observation in observations
        if isinstance(observation, Blocks | Costs | Counters)
    }
    if {"cold", "warm"} <= cache_states:
        raise ValueError(
            "A launch starts with either cold or warm caches. Use the same `caches` for "
            "all observations of one launch."
        )
    return next(iter(cache_states - {""}), "")


class TimelineRecorder(Protocol):
    """Recorder of one timeline. The methods `start` and `stop` are called once each, and `stop` is also
    called after an error.
    """

    @property
    def blind_reason(self) -> str:
        """The reason why individual operations could not be recorded since `start`, or an empty string."""
        ...

    def start(self) -> None:
        """Start the recording.

        Raises
        ------
        GpulabError
            If a recording is in progress, a stream captures a graph, or another tool uses the required
            interface; then the recording does not start.
        """
        ...

    def stop(self) -> Timeline:
        """End the recording and return the timeline. The field `note` of the timeline describes what is
        missing.
        """
        ...


class StreamWatcher(Protocol):
    """Observer of the streams and memory that a program uses. The methods `start` and `stop` are called once
    each.
    """

    def start(self, observer: Callable[[Act], None]) -> None:
        """Begin to call the function `observer` for every use of streams and memory. The argument of
        `observer` is a record from `virtualgpu.records.acts`.

        Earlier work of the devices counts as finished.

        Raises
        ------
        GpulabError
            If another tool uses the required interface.
        """
        ...

    def stop(self) -> str:
        """Stop the observation, and return a description of what was not observed. This method must also be
        called after an error.
        """
        ...


class LoadReader(Protocol):
    """Reader of the load of a device. Each call returns a row with the columns in
    `records.device.load.LOAD_COLUMNS`.

    Values that are not available are None.
    """

    missing: dict[str, str]
    processes: tuple[tuple[int, float | None], ...]

    def facts(self) -> dict[str, Any]:
        """Return the constant properties of the device under the field names of `LoadSamples`."""
        ...

    def __call__(self) -> Sequence[float | None]: ...


class Backend(Protocol):
    """Interface of one real or virtual device. Real and virtual devices return the same types of records."""

    @property
    def provenance(self) -> Provenance: ...

    def device_info(self) -> DeviceInfo: ...

    def metrics(self) -> DeviceMetrics: ...

    def setup(self) -> DeviceMetrics:
        """Return the setup of the device, such as driver limits, MIG partitions and links."""
        ...

    def kernel_stats(self, kernel: Any) -> KernelStats: ...

    def occupancy(self, kernel: Any, block_threads: int, shared_bytes: int = 0) -> Occupancy: ...

    def timeline_recorder(self) -> TimelineRecorder:
        """Return a recorder for the timeline of all real or all virtual devices."""
        ...

    def stream_watcher(self) -> StreamWatcher:
        """Return an observer of the streams and memory of all real or all virtual devices.

        Raises
        ------
        NotSupportedError
            If this kind of device does not support it.
        """
        ...

    @overload
    def observe(self, launch: Launch, observation: Observation[R], /) -> R: ...
    @overload
    def observe(self, launch: Launch, /, *observations: Observation[Any]) -> tuple[Any, ...]: ...
    def observe(self, launch: Launch, /, *observations: Observation[Any]) -> Any:
        """Run a launch once, and return one record for each requested observation.

        If observations cannot share a run, the launch is repeated with the same caches and restored arrays.

        Raises
        ------
        NotSupportedError
            If this kind of device does not support it.
        ValueError
            If two observations declare different caches.
        """
        ...

    def read_graph(self, graph: Any) -> GraphRecord:
        """Return the nodes and edges of a captured ``cupy.cuda.Graph``."""
        ...

    def set_graph_node(self, graph: Any, node: GraphNode, template: Any) -> None:
        """Set the parameters and launch shape of a node of an executable graph.

        The argument `template` is the graph from which parameters were last copied, or the graph itself.

        Raises
        ------
        CUDADriverError
            If CUDA does not accept the parameters.
        """
        ...

    def update_graph(self, graph: Any, other_graph: Any) -> None:
        """Update an executable graph with the parameters of another graph, which must have the same nodes and
        edges.

        Raises
        ------
        CUDADriverError
            Status 910, if the graphs differ in other ways.
        """
        ...

    def memory_reader(self) -> Callable[[], MemoryReading]:
        """Return a function that reads the memory use of the current device. The function can be called in
        any thread.
        """
        ...

    def load_reader(self) -> LoadReader:
        """Return a ``LoadReader`` for the current device. The reader can be called in any thread.

        Raises
        ------
        NotSupportedError
            If this machine has no source of the load.
        """
        ...

    def host_ns(self) -> int:
        """Return the time of the host's clock in ns. For a virtual GPU, this is the time of the modelled
        clock.
        """
        ...
