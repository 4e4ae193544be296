"""What a launch shows on the device in use, and what the twin of a real one makes of the same launch.

This is the one place that asks "real, virtual, twin?". On a virtual GPU the device in use answers and that
is all. On a real one:

* Arguments and launch shape are checked on the twin first: CUDA reads as many arguments as the kernel has,
  whatever was passed, and one too few ends the process.
* A *small* launch (`SMALL_THREADS`, `SMALL_BYTES`) is replayed on the twin before the real GPU runs it, for
  at most `FIRST_S`: an illegal access or an assertion would end the CUDA context and every array in it, and
  the twin names its line and thread instead. That replay is the prediction, too.
* A larger launch is measured first. Its arguments are kept in the GPU's own memory, nothing goes to the host,
  and the twin replays them when its answer is asked for, if that takes no longer than the watchdog allows
  (`QUICK_THREADS`, `QUICK_BYTES`).
* What only a virtual GPU can observe (counters, addresses, hazards) comes from the twin, over copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Number
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from gpulab.session import current
from virtualgpu.errors import GpulabError
from virtualgpu.launch.copies import Copies, size_bytes, stand_ins
from virtualgpu.protocol import Accesses, Block, Blocks, Counters, Hazards, Launch, Observation, Warp
from virtualgpu.records import LaunchTrace

if TYPE_CHECKING:
    from virtualgpu.backend import VirtualBackend

SMALL_THREADS, SMALL_BYTES = 1 << 18, 32 << 20
QUICK_THREADS, QUICK_BYTES = 1 << 22, 256 << 20
FIRST_S = 0.5

# cudaErrorIllegalAddress, -MisalignedAddress, -Assert, -LaunchFailure end a real GPU's context.
CONTEXT_ENDING = (700, 716, 710, 719)
# CUDA_ERROR_INVALID_VALUE, -NOT_FOUND, -LAUNCH_OUT_OF_RESOURCES, -COOPERATIVE_LAUNCH_TOO_LARGE.
REFUSED = (1, 500, 701, 720)
LAUNCH_TIMEOUT = 702  # cudaErrorLaunchTimeout

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Observed(Generic[R]):
    """What was observed of a launch.

    ``record`` is the answer. ``beside`` gives the other side's answer to lay beside it, when a real GPU has
    a twin: the twin's prediction beside a measured placement, measured masks beside a replayed warp. It may
    take as long as the watchdog allows, gives None where the twin cannot replay the launch, and raises a
    `KernelFault` that the replay finds. ``note`` says where the record comes from, if not from the device.
    """

    record: R
    beside: Callable[[], Any] | None = None
    note: str = ""


def observe(launch: Launch, what: Observation[R]) -> Observed[R]:
    """Run a launch and observe it, on the device in use and where need be on its twin.

    Raises
    ------
    TypeError, CUDADriverError
        For arguments that do not fit the kernel, or a launch over the device's limits.
    KernelFault
        If the kernel does something illegal, on a virtual GPU or in the replay of a small launch.
    GpulabError
        If the twin does not finish counting in time.
    """
    twin = current.twin()
    if twin is None:
        return Observed(current.backend().observe(launch, what))
    replay = _Replay(launch, what, twin)
    replay.check()
    if isinstance(what, Hazards):
        return Observed(replay.run(), note="Run on the virtual GPU over copies of the arrays.")
    if isinstance(what, (Counters, Accesses)):
        try:
            counters = replay.run()
        except RuntimeError as error:
            if getattr(error, "status", None) != LAUNCH_TIMEOUT:
                raise
            raise GpulabError(
                "The virtual GPU did not finish its replay of this launch in time. Count a smaller grid, or "
                "give it longer with gl.use_device(watchdog_s=60)."
            ) from error
        launch.run()
        return Observed(counters, note="Counted in a replay on the virtual GPU")
    replay.begin()
    if isinstance(what, Blocks):
        return Observed(cast(R, current.backend().observe(launch, what)), replay.answer)
    seen = Warp(what.block_index, what.warp, what.max_steps) if isinstance(what, Block) else what
    measured = current.backend().observe(launch, seen)
    replayed = replay.answer()
    if replayed is None:
        return Observed(cast(R, measured))  # its basic blocks stand alone
    return Observed(replayed, lambda: measured)


def at_block_size(launch: Launch) -> Callable[[int], LaunchTrace] | None:
    """What a block-size slider calls: the same work in blocks of another size, arrays restored.

    None for a launch of two or three dimensions, where a change of block size has no one meaning. A kernel
    without a tail check, or with shared memory for one block size, runs out of bounds at another, and a
    slider may not end the CUDA context: every launch that the twin can replay is tried there first, and
    one too large for that may only shrink its blocks evenly.
    """
    if not launch.is_one_dimensional:
        return None
    here, backend, twin = current.here(), current.backend(), current.twin()

    def trace(threads: int) -> LaunchTrace:
        with here():
            other = launch.resized(threads)
            if twin is not None and other.block != launch.block:
                replay = _Replay(other, Blocks(), twin)
                if replay.quick:
                    replay.attempt(Copies(other.args, current.cp()))
                elif other.block[0] > launch.block[0] or other.threads != launch.threads:
                    raise GpulabError(
                        "This launch is too large to be tried on the virtual GPU first, so the real one runs "
                        f"only smaller block sizes that divide its {launch.threads:,} threads evenly."
                    )
            return backend.observe(other, Blocks(restore=True))

    return trace


class _Replay(Generic[R]):
    """One launch on the twin of the real GPU in use, over copies of its arrays."""

    def __init__(self, launch: Launch, what: Observation[R], twin: VirtualBackend) -> None:
        self.launch, self.what, self.twin = launch, what, twin
        self.here, self.cp = current.here(), current.cp()
        # The twin takes numbers and device arrays. CuPy refuses other kinds, but for a few, such as textures.
        self.plain = all(isinstance(argument, (Number, self.cp.ndarray)) for argument in launch.args)
        self.size_bytes = size_bytes(launch.args, self.cp) if self.plain else math.inf
        self.kept: Copies | None = None
        self.found: R | None = None

    @property
    def quick(self) -> bool:
        """Whether a replay takes moments."""
        return self.launch.threads <= QUICK_THREADS and self.size_bytes <= QUICK_BYTES

    def check(self) -> None:
        """Raise what the launch would raise before its first thread."""
        if not self.plain:
            return
        try:
            self.twin.prepared(self._on_twin(stand_ins(self.launch.args, self.cp, self.twin.cp)))
        except Exception as error:
            if isinstance(error, TypeError) or getattr(error, "status", None) in REFUSED:
                raise

    def begin(self) -> None:
        """Before the real GPU runs a launch: replay a small one, keep the arguments of a larger one."""
        if self.launch.threads <= SMALL_THREADS and self.size_bytes <= SMALL_BYTES:
            with self.twin.machine.keeping("watchdog_s"):
                for device in self.twin.machine.devices:
                    device.watchdog_s = min(FIRST_S, device.watchdog_s)
                self.found = self.attempt(Copies(self.launch.args, self.cp))
        if self.found is None and self.quick:
            self.kept = Copies(self.launch.args, self.cp, kept=True)

    def answer(self) -> R | None:
        """The twin's record of the launch as `begin` found it."""
        kept, self.kept = self.kept, None
        if kept is not None:
            self.found = self.attempt(kept)
        return self.found

    def attempt(self, copies: Copies) -> R | None:
        """Replay; None where the twin lacks something or takes too long: the measurement stands alone.

        Raises
        ------
        KernelFault
            For what would end the real GPU's context: here it names the line and the thread.
        """
        try:
            return self.run(copies)
        except Exception as error:
            if getattr(error, "status", None) in CONTEXT_ENDING:
                raise
            return None

    def run(self, copies: Copies | None = None) -> R:
        """Replay over copies of the arrays as they are now, or as they were."""
        with self.here():
            args = (copies or Copies(self.launch.args, self.cp)).on(self.twin.cp)
            return self.twin.observe(self._on_twin(args), self.what)

    def _on_twin(self, args: tuple[Any, ...]) -> Launch:
        return replace(self.launch, kernel=self.launch.source, args=args)
