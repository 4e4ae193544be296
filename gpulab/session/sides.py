"""Observation of a launch on the device in use, and of the same launch on the twin of a real device.

Only this module decides between the real, the virtual and the twin device. On a virtual GPU, the device in
use makes all observations. On a real GPU:

* The arguments and the launch shape are checked on the twin first. CUDA reads as many arguments as the kernel
  has parameters, and a missing argument ends the process.
* A *small* launch (`MAX_SMALL_THREADS`, `MAX_SMALL_BYTES`) is replayed on the twin before the real GPU runs
  it, for at most `FIRST_REPLAY_S`. An illegal access or a failed assertion would destroy the CUDA context
  and all its arrays; the twin raises an error with the line and the thread instead. This replay is also the
  prediction.
* A larger launch is measured first. Its arguments are copied within the GPU's memory, not to the host. The
  twin replays the launch when its record is requested, if that takes no longer than the watchdog allows
  (`MAX_QUICK_THREADS`, `MAX_QUICK_BYTES`).
* Counters, addresses and hazards, which only a virtual GPU can observe, come from the twin, with copies of
  the arrays.
* Several observations together need one launch on each device, with the same initial state of the caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from gpulab.session import current
from gpulab.session.kept import KeptLaunch
from virtualgpu.errors import GpulabError, WatchError
from virtualgpu.launch.copies import ArgumentCopies, count_array_bytes, make_placeholders
from virtualgpu.model.occupancy import occupancy
from virtualgpu.protocol import (
    Accesses,
    Block,
    Blocks,
    Costs,
    Counters,
    Fragments,
    Hazards,
    Launch,
    Observation,
    Warp,
    caches_of,
)
from virtualgpu.records import Activity, LaunchTrace

if TYPE_CHECKING:
    from virtualgpu.backend import VirtualBackend

MAX_SMALL_THREADS = 1 << 18
MAX_SMALL_BYTES = 32 << 20
MAX_QUICK_THREADS = 1 << 22
MAX_QUICK_BYTES = 256 << 20
FIRST_REPLAY_S = 0.5

# cudaErrorIllegalAddress, -MisalignedAddress, -Assert, -LaunchFailure end a real GPU's context.
CONTEXT_ENDING_ERRORS = (700, 716, 710, 719)
# CUDA_ERROR_INVALID_VALUE, -NOT_FOUND, -LAUNCH_OUT_OF_RESOURCES, -COOPERATIVE_LAUNCH_TOO_LARGE.
REFUSED_LAUNCH_ERRORS = (1, 500, 701, 720)
LAUNCH_TIMEOUT = 702  # cudaErrorLaunchTimeout

R = TypeVar("R")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ObservedRecord(Generic[R]):
    """The result of one observation of a kernel launch.

    The attribute ``record`` contains the observed data. If a real GPU is in use, ``counterpart`` returns the
    record of the other device: the twin's prediction for a measured placement, or the measured masks for a
    replayed warp. It can run as long as the watchdog allows. It returns None if the twin cannot replay the
    launch, and raises a `KernelFault` if the replay finds a fault. ``note`` states the source of the record
    if it does not come from the device in use.
    """

    record: R
    counterpart: Callable[[], Any] | None = None
    note: str = ""


@overload
def observe(launch: Launch, observations: Observation[R], /) -> ObservedRecord[R]: ...
@overload
def observe(
    launch: Launch, observations: Observation[R], other: Observation[S], /
) -> tuple[ObservedRecord[R], ObservedRecord[S]]: ...
@overload
def observe(launch: Launch, /, *observations: Observation[Any]) -> tuple[ObservedRecord[Any], ...]: ...
def observe(launch: Launch, /, *observations: Observation[Any]) -> Any:
    """Run a launch, and observe it on the device in use. The virtual twin of the device repeats the launch
    for data that the device cannot measure.

    Several observations belong to one launch, so that its time and its counts agree. It starts with the state
    of the caches that one of the observations declares. An observation that needs a separate run repeats the
    launch with restored arrays.

    Returns
    -------
    Observed
        The result of the observation, or a tuple with one result per observation.

    Raises
    ------
    NotSupportedError
        If the stream captures a graph.
    TypeError, CUDADriverError
        If the arguments do not match the kernel's parameters, or the launch exceeds the device's limits.
    ValueError
        For observations that declare different caches.
    KernelFault
        If a virtual GPU finds a fault of the kernel, also in the replay of a small launch.
    GpulabError
        If the twin does not finish counting in time.
    """
    current.check_not_capturing(launch)
    twin = current.find_twin()
    with launch.on_stream():
        if twin is None:
            records = current.backend().observe(launch, *observations)
            return tuple(map(ObservedRecord, records)) if len(observations) > 1 else ObservedRecord(records)
        observed_records = _observe_with_twin(launch, observations, twin)
    return observed_records if len(observations) > 1 else observed_records[0]


def _observe_with_twin(
    launch: Launch, observations: Sequence[Observation[Any]], twin: VirtualBackend
) -> tuple[ObservedRecord[Any], ...]:
    """Observe a launch on the real GPU where this is possible, and otherwise on its virtual twin."""
    has_cold_caches = caches_of(observations) == "cold"
    replay = _Replay(launch, observations, twin)
    replay.check_launch()
    counted_observations = [
        observation
        for observation in observations
        if isinstance(observation, Counters | Costs | Accesses | Fragments)
    ]
    # What the GPU itself is asked, for each of the others that it can tell something of.
    measurements = {
        observation: Warp(observation.block_index, observation.warp, observation.max_steps)
        if isinstance(observation, Block)
        else replace(observation, caches="cold" if has_cold_caches else "")
        if isinstance(observation, Blocks)
        else observation
        for observation in observations
        if isinstance(observation, Blocks | Warp | Block)
    }
    if len(measurements) < len(set(observations)):
        replay.replay_records = replay.replay_counted()
    else:
        replay.prepare()
    record_of_observation: dict[Observation[Any], Any] = {}
    if measurements:
        measured_observations = tuple(measurements)
        records = current.backend().observe(launch, *measurements.values())
        record_of_observation = dict(
            zip(measured_observations, records if len(measured_observations) > 1 else (records,), strict=True)
        )
    elif counted_observations:
        launch.run()

    def make_observed_record(observation: Observation[Any]) -> ObservedRecord[Any]:
        if isinstance(observation, Hazards):
            return ObservedRecord(
                replay.find_record(observation), note="Executed on the virtual GPU with copies of the arrays."
            )
        if observation not in record_of_observation:
            return ObservedRecord(
                replay.find_record(observation), note="Counted in a replay on the virtual GPU"
            )
        if isinstance(observation, Blocks):
            return ObservedRecord(record_of_observation[observation], lambda: replay.find_record(observation))
        replay_result = replay.find_record(observation)
        if replay_result is None:
            return ObservedRecord(record_of_observation[observation])  # its basic blocks stand alone
        return ObservedRecord(replay_result, lambda: record_of_observation[observation])

    return tuple(map(make_observed_record, observations))


def make_block_size_launcher(kept_launch: KeptLaunch) -> Callable[[int], LaunchTrace] | None:
    """Return a function that the slider of the block size calls. The function repeats a launch with another
    block size and the same total work.

    Each launch starts from the present contents of the arrays, and restores them afterwards.

    The result is None for a launch with two or three dimensions, because another block size could have
    several shapes. A kernel without a tail check, or with shared memory for one block size, accesses memory
    out of bounds at another size. A slider must not destroy the CUDA context. Each launch is therefore
    replayed on the twin first, if possible. If a launch is too large for a replay, only smaller sizes that
    divide its blocks evenly are allowed.

    The function does not keep a learner's arrays alive. If they no longer exist, it raises a `GpulabError`.
    """
    if not kept_launch.launch.is_one_dimensional:
        return None
    backend = current.backend()
    twin = current.find_twin()

    def trace_blocks(threads: int) -> LaunchTrace:
        with kept_launch.with_current_contents() as launch, launch.on_stream():
            resized_launch = launch.resized(threads)
            if twin is not None and resized_launch.block != launch.block:
                replay = _Replay(resized_launch, (Blocks(),), twin)
                if replay.is_quick:
                    replay.try_replay(ArgumentCopies(resized_launch.args, current.cp()))
                elif resized_launch.block[0] > launch.block[0] or resized_launch.threads != launch.threads:
                    raise GpulabError(
                        "This launch is too large for a test on the virtual GPU. The "
                        "real GPU therefore runs only smaller block sizes that divide "
                        f"its {launch.threads:,} threads evenly."
                    )
            return backend.observe(resized_launch, Blocks(restore=True))

    return trace_blocks


def make_occupancy_function() -> Callable[[Activity], float | None]:
    """Return a function that computes the theoretical occupancy (0 to 1) of a kernel in a timeline."""
    device = current.backend().device_info()

    def compute_occupancy(kernel: Activity) -> float | None:
        if kernel.block is None or not kernel.registers_per_thread:
            return None
        threads = math.prod(kernel.block)
        return occupancy(device, threads, kernel.registers_per_thread, kernel.shared_bytes).fraction

    return compute_occupancy


class _Replay:
    """The replay of one launch on the twin of the real GPU in use, with copies of its arrays."""

    def __init__(
        self, launch: Launch, observations: Sequence[Observation[Any]], twin: VirtualBackend
    ) -> None:
        self.launch = launch
        self.observations = observations
        self.twin = twin
        self.use_device_again, self.cp = current.bind_current_device(), current.cp()
        # The twin takes numbers and device arrays. CuPy refuses other kinds, but for a few, such as textures.
        self.has_plain_args = all(isinstance(argument, (Number, self.cp.ndarray)) for argument in launch.args)
        self.size_bytes = count_array_bytes(launch.args, self.cp) if self.has_plain_args else math.inf
        self.saved_copies: ArgumentCopies | None = None
        self.replay_records: dict[Observation[Any], Any] | None = None

    @property
    def is_quick(self) -> bool:
        """Return whether a replay of the launch is expected to take at most a few seconds."""
        return self.launch.threads <= MAX_QUICK_THREADS and self.size_bytes <= MAX_QUICK_BYTES

    def check_launch(self) -> None:
        """Raise the errors that the launch would raise before its first thread runs."""
        if not self.has_plain_args:
            return
        try:
            self.twin.prepared(
                self._make_twin_launch(make_placeholders(self.launch.args, self.cp, self.twin.cp))
            )
        except Exception as error:
            if (
                isinstance(error, TypeError | Warning)
                or getattr(error, "status", None) in REFUSED_LAUNCH_ERRORS
            ):
                raise

    def prepare(self) -> None:
        """Prepare the replay before the real launch runs. A small launch is replayed now, and the arguments
        of a large one are copied.
        """
        if self.launch.threads <= MAX_SMALL_THREADS and self.size_bytes <= MAX_SMALL_BYTES:
            with self.twin.machine.keep_settings("watchdog_s"):
                for device in self.twin.machine.devices:
                    device.watchdog_s = min(FIRST_REPLAY_S, device.watchdog_s)
                self.replay_records = self.try_replay(ArgumentCopies(self.launch.args, self.cp))
        if self.replay_records is None and self.is_quick:
            self.saved_copies = ArgumentCopies(self.launch.args, self.cp, keep_contents=True)

    def replay_counted(self) -> dict[Observation[Any], Any]:
        """Replay the launch on the virtual twin, and return its records. The watchdog limits the time of the
        replay.
        """
        try:
            return self.replay_now()
        except RuntimeError as error:
            if getattr(error, "status", None) != LAUNCH_TIMEOUT:
                raise
            raise GpulabError(
                "The virtual GPU did not finish its replay of this launch in time. Use a "
                "smaller grid, or give it more time with gl.use_device(watchdog_s=60)."
            ) from error

    def find_record(self, observation: Observation[Any]) -> Any:
        """Return the record of the virtual twin for an observation, or None. The replay uses the array
        contents from before the launch.
        """
        saved_copies = self.saved_copies
        self.saved_copies = None
        if saved_copies is not None:
            self.replay_records = self.try_replay(saved_copies)
        return self.replay_records[observation] if self.replay_records is not None else None

    def try_replay(self, copies: ArgumentCopies) -> dict[Observation[Any], Any] | None:
        """Try to replay the launch. Return None if the virtual twin lacks a feature or takes too long.

        Raises
        ------
        KernelFault
            If the launch would destroy the real GPU's context; the message names the line and the thread.
        WatchError
            For an invalid watch expression or stop condition.
        ArgumentWarning
            If the learner has turned warnings into errors. The launch has not been checked then.
        """
        try:
            return self.replay_now(copies)
        except Exception as error:
            if (
                isinstance(error, Warning | WatchError)
                or getattr(error, "status", None) in CONTEXT_ENDING_ERRORS
            ):
                raise
            return None

    def replay_now(self, copies: ArgumentCopies | None = None) -> dict[Observation[Any], Any]:
        """Replay the launch with the given copies of its arrays, or with copies of their present contents."""
        with self.use_device_again():
            args = (copies or ArgumentCopies(self.launch.args, self.cp)).copy_to(self.twin.cp)
            records = self.twin.observe(self._make_twin_launch(args), *self.observations)
        return dict(
            zip(self.observations, records if len(self.observations) > 1 else (records,), strict=True)
        )

    def _make_twin_launch(self, args: tuple[Any, ...]) -> Launch:
        return replace(self.launch, kernel=self.launch.source, args=args, stream=None)
