"""One launch as a learner asks for it, and its replay on the virtual twin of a real GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any, TypeVar

from gpulab import session
from gpulab.session.arguments import Shape, arguments, byte_count, is_one_dimensional, launch_dims, resized
from gpulab.session.copies import copy_arguments, size_bytes, stand_ins
from virtualgpu.errors import GpulabError
from virtualgpu.protocol import Backend, kernel_source
from virtualgpu.records import BlockTrace, Dim3, KernelCounters, LaunchTrace, WarpTrace

# A launch is replayed beside a measurement only while that takes moments.
QUICK_THREADS = 1 << 22
QUICK_BYTES = 256 << 20
# Faults (cudaErrorIllegalAddress, -MisalignedAddress, -Assert, -LaunchFailure) that end a real
# GPU's context, so that every array in it is lost.
CONTEXT_ENDING = (700, 716, 710, 719)
# CUDA_ERROR_INVALID_VALUE, -NOT_FOUND, -LAUNCH_OUT_OF_RESOURCES, -COOPERATIVE_LAUNCH_TOO_LARGE.
REFUSED = (1, 500, 701, 720)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel with its launch shape and arguments, all of them checked."""

    kernel: Any
    grid: Dim3
    block: Dim3
    args: tuple[Any, ...]
    shared_bytes: int

    @classmethod
    def read(cls, kernel: Any, grid: Shape, block: Shape, args: Sequence[Any], shared_bytes: int) -> Call:
        """Check what was passed to ``gl.launch`` and its kin.

        Raises
        ------
        TypeError, ValueError
            If the kernel carries no source, or a shape or the arguments make no sense.
        """
        kernel_source(kernel)
        call = cls(kernel, *launch_dims(grid, block), arguments(args), byte_count(shared_bytes))
        call.check()
        return call

    def check(self) -> None:
        """Let the twin check launch shape and arguments before a real GPU gets them.

        CUDA reads as many arguments as the kernel has, whatever was passed: one too few ends the
        process. On a virtual GPU the launch itself checks.

        Raises
        ------
        TypeError
            For arguments that do not fit the kernel.
        CUDADriverError
            For a grid, a block or shared memory over the limits, under CUDA's own names.
        """
        twin = session.twin()
        if twin is None or not self._plain:
            return
        args = stand_ins(self.args, session.cp(), twin.cp)
        source = kernel_source(self.kernel)
        try:
            twin.backend.check(source, self.grid, self.block, args, self.shared_bytes)
        except Exception as error:
            if isinstance(error, TypeError) or getattr(error, "status", None) in REFUSED:
                raise

    @property
    def _plain(self) -> bool:
        """Whether all arguments are numbers and device arrays, as the twin takes them.

        CuPy itself refuses other kinds, but for a few, such as textures, that the twin lacks.
        """
        known = (Number, session.cp().ndarray)
        return all(isinstance(argument, known) for argument in self.args)

    @property
    def threads(self) -> int:
        """Threads in the whole grid."""
        return math.prod(self.grid) * math.prod(self.block)

    @property
    def quick(self) -> bool:
        """Whether a replay takes moments."""
        return self.threads <= QUICK_THREADS and size_bytes(self.args, session.cp()) <= QUICK_BYTES

    def run(self) -> None:
        """Launch the kernel as CuPy does, without looking at it."""
        self.kernel(self.grid, self.block, self.args, shared_mem=self.shared_bytes)

    def trace_launch(self, backend: Backend, *, restore: bool = False) -> LaunchTrace:
        """Run it on a backend; see `Backend.trace_launch`."""
        return backend.trace_launch(
            self.kernel, self.grid, self.block, self.args, shared_bytes=self.shared_bytes, restore=restore
        )

    def trace_warp(self, backend: Backend, block_index: Dim3, warp_index: int, max_steps: int) -> WarpTrace:
        """Run it on a backend; see `Backend.trace_warp`."""
        return backend.trace_warp(
            self.kernel,
            self.grid,
            self.block,
            self.args,
            block_index=block_index,
            warp_index=warp_index,
            shared_bytes=self.shared_bytes,
            max_steps=max_steps,
        )

    def trace_block(self, backend: Backend, block_index: Dim3, max_steps: int) -> BlockTrace:
        """Run it on a backend; see `Backend.trace_block`."""
        return backend.trace_block(
            self.kernel,
            self.grid,
            self.block,
            self.args,
            block_index=block_index,
            shared_bytes=self.shared_bytes,
            max_steps=max_steps,
        )

    def count(self, backend: Backend) -> KernelCounters:
        """Run it on a backend; see `Backend.count`."""
        return backend.count(self.kernel, self.grid, self.block, self.args, shared_bytes=self.shared_bytes)

    def on_twin(self, twin: session.Twin) -> Call:
        """The same launch on the twin, over copies of the arrays as they are now."""
        copies = copy_arguments(self.args, session.cp(), twin.cp)
        return replace(self, kernel=kernel_source(self.kernel), args=copies)

    def replay(self, ask: Callable[[Call, Backend], Answer]) -> Answer | None:
        """Let the virtual twin of a real GPU run this launch; None where it cannot.

        On a virtual GPU there is nothing to replay and the answer is None. A fault is raised: on
        the real GPU it would end the CUDA context, and here it names the line and the thread.
        """
        twin = session.twin()
        if twin is None or not self._plain:
            return None
        try:
            return ask(self.on_twin(twin), twin.backend)
        except Exception as error:
            if getattr(error, "status", None) in CONTEXT_ENDING:
                raise
            return None  # the twin lacks something, or took too long: the measurement stands alone


def relauncher(call: Call) -> Callable[[int], LaunchTrace] | None:
    """What a block-size slider calls: the same work in blocks of another size, arrays restored.

    None for a launch of two or three dimensions, where a change of block size has no one meaning.
    """
    if not is_one_dimensional(call.grid, call.block):
        return None
    here = session.here()
    backend = session.backend()
    real = session.which_device().kind == "cuda"

    def at_block_size(threads: int) -> LaunchTrace:
        with here():
            grid, block, shared_bytes = resized(call.grid, call.block, call.shared_bytes, threads)
            other = replace(call, grid=grid, block=block, shared_bytes=shared_bytes)
            if real and threads != call.block[0]:
                _check_first(other, call)
            return other.trace_launch(backend, restore=True)

    return at_block_size


def _check_first(other: Call, call: Call) -> None:
    """Refuse a block size that could crash the real GPU.

    A kernel without a tail check, or with shared memory for one block size, runs out of bounds at
    another. The twin finds that; a launch too large for it may only shrink its blocks evenly.
    """
    if other.quick:
        other.replay(Call.trace_launch)
    elif other.block[0] > call.block[0] or other.threads != call.threads:
        raise GpulabError(
            "This launch is too large to be tried on the virtual GPU first, so the real one runs only "
            f"smaller block sizes that divide its {call.threads:,} threads evenly."
        )
