"""``gl.launch``: run a kernel, and return a picture of the launch with methods for further analyses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from gpulab import session, views
from gpulab._deprecated import accept_old_parameters
from gpulab.lab import kernels, recorded
from gpulab.lab.access import access
from gpulab.lab.fragments import fragments
from gpulab.lab.pipeline import pipeline
from gpulab.lab.why.diagnose import diagnose
from gpulab.lab.why.roofline import roofline
from gpulab.views.launch.chart import LaunchChart
from gpulab.views.tables.as_run import AsRunTable
from gpulab.views.tables.count import CounterTable
from gpulab.views.tables.diagnosis import DiagnosisTable
from gpulab.views.tables.sanitizer import SanitizerTable
from virtualgpu.protocol import TOOLS, Blocks, Launch, Shape
from virtualgpu.records import LaunchTrace

T = TypeVar("T")


@accept_old_parameters
def launch(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    shared_mem: int = 0,
    stream: Any = None,
    beside: str | None = None,
) -> Run:
    """Run a kernel, and show the SM and the time of each block. The result has methods that analyse the same
    launch in more detail.

    Parameters
    ----------
    kernel
        A ``cp.RawKernel`` or a function of a ``cp.RawModule``.
    grid, block
        Blocks in the grid and threads in a block: a number, or a tuple of one to three numbers.
    args
        The kernel's arguments, a tuple.
    shared_mem
        Dynamic shared memory per block in bytes.
    stream
        The stream that the kernel runs in, such as ``cp.cuda.Stream()``; the current stream if left out.
    beside
        The name of a GPU, such as ``"H200"``, whose recording of the same launch is shown next to the picture
        (`gpulab.lab.recorded`; ``gl.recorded()`` lists the records).

    Returns
    -------
    Run
        A picture of the launch (`gpulab.views.LaunchChart`), measured on a real GPU; the virtual GPU's
        prediction joins it where the launch is small enough to replay. Modelled on a virtual GPU. For a
        one-dimensional launch it has a slider for the block size, which keeps the number of threads and
        restores the arrays.

        Its methods ask further questions about the same launch: ``.warps()``, ``.count()``, ``.access()``,
        ``.fragments()``, ``.pipeline()``, ``.machine_code()``, ``.sanitize()``, ``.diagnose()`` and
        ``.roofline()``, with the options of ``gl.warps`` and so on. Each starts from the arrays as they were
        before the launch, and leaves them as it finds them. For that gpulab copies the arrays' contents to
        the host's memory, 256 MiB at most for all launches together; the oldest copies are dropped first. A
        timeline of a real GPU shows these copies.

    Raises
    ------
    NotRecordedError
        If no record of `beside` fits the launch, which then does not run; the message lists the records.

    Examples
    --------
    >>> run = gl.launch(kernel, 4, 256, (x, y, n))
    >>> run.record.sm_id  # the SM of each block
    >>> run.count()
    >>> run.warps(block_index=3, warp=7)
    """
    launch_description = Launch.of(kernel, grid, block, args, shared_mem, stream)
    recording = recorded.find_same_launch(beside, launch_description) if beside is not None else None
    kept_launch = session.KeptLaunch(launch_description)
    observed = session.observe(launch_description, Blocks())
    run = Run(observed.record, kept_launch, recording)
    predicted_trace = observed.counterpart
    if (
        predicted_trace is not None
        and recording is None
        and not views.call_after_cell(lambda: run.compare(predicted_trace))
    ):
        run.compare(predicted_trace)
    return run


class Run(LaunchChart):
    """The SM and the time of each block of a launch. Its methods analyse the same launch in more detail.

    Each analysis runs the kernel again with the arrays as they were before the launch. Afterwards, the
    present contents of the arrays are restored. See `gpulab.launch` for the memory that this needs.

    Parameters
    ----------
    trace
        The recorded SM and time of each block.
    kept_launch
        The launch, with the contents of its arrays before the launch.
    beside
        A launch to show for comparison, such as a recording from another GPU.
    """

    def __init__(
        self, trace: LaunchTrace, kept_launch: session.KeptLaunch, beside: LaunchTrace | None = None
    ) -> None:
        self.kept_launch = kept_launch
        super().__init__(
            trace, launch_at_block_size=session.make_block_size_launcher(kept_launch), beside=beside
        )
        self.view_name = "launch-chart"

    def warps(
        self,
        *,
        block_index: Shape = (0, 0, 0),
        warp: int = 0,
        max_steps: int | None = None,
        whole_block: bool = False,
        watch: str | Sequence[str] = (),
        stop: str | Sequence[str] = (),
    ) -> views.WarpStepper:
        """Step through one warp of the launch. The options are those of `gpulab.warps`."""
        return self._observe_again(
            kernels.warps,
            block_index=block_index,
            warp=warp,
            max_steps=max_steps,
            whole_block=whole_block,
            watch=watch,
            stop=stop,
        )

    def count(self, *, caches: Literal["cold", "warm"] = "cold") -> CounterTable:
        """Count the launch's instructions, memory requests and conflicts. See `gpulab.count`."""
        return self._observe_again(kernels.count, caches=caches)

    def access(
        self,
        *,
        line: int | None = None,
        warp: int = 0,
        block_index: Shape = (0, 0, 0),
        space: str = "both",
    ) -> views.AccessMicroscope:
        """Show which sectors and banks the lanes of a warp use in each access. See `gpulab.access`."""
        return self._observe_again(access, line=line, warp=warp, block_index=block_index, space=space)

    def fragments(
        self,
        *,
        line: int | None = None,
        warp: int = 0,
        block_index: Shape = (0, 0, 0),
        max_steps: int = 20_000,
    ) -> views.FragmentView:
        """Show which lane and register holds each element of the matrix instructions. See
        `gpulab.fragments`.
        """
        return self._observe_again(
            fragments, line=line, warp=warp, block_index=block_index, max_steps=max_steps
        )

    def pipeline(self, *, block_index: Shape = (0, 0, 0), max_steps: int | None = None) -> views.PipelineView:
        """Show how a block fills and uses its buffers in shared memory. See `gpulab.pipeline`."""
        return self._observe_again(pipeline, block_index=block_index, max_steps=max_steps)

    def machine_code(self) -> AsRunTable:
        """Compare the instruction counts of the PTX with those of the machine code. See
        `gpulab.machine_code`.
        """
        return self._observe_again(kernels.machine_code)

    def sanitize(
        self,
        *,
        tools: Sequence[str] = TOOLS,
        block_order: str = "in order",
        seed: int = 0,
        nan: bool = False,
        tool: str = "",
    ) -> SanitizerTable:
        """Check the launch for errors that an ordinary run may not show. See `gpulab.sanitize`."""
        return self._observe_again(
            kernels.sanitize, tools=tools, block_order=block_order, seed=seed, nan=nan, tool=tool
        )

    def diagnose(self, *, caches: Literal["cold", "warm"] = "cold", baseline: Any = None) -> DiagnosisTable:
        """Explain what determines the time of the launch, or compare it with the run `baseline`. See
        `gpulab.diagnose`.
        """
        return self._observe_again(diagnose, caches=caches, baseline=baseline)

    def roofline(self, *, caches: Literal["cold", "warm"] = "cold") -> views.RooflineChart:
        """Show the launch in a roofline chart. To show several launches, use ``gl.roofline(run, other)``."""
        return roofline(self, caches=caches)

    def close(self) -> None:
        """Close the chart, and free the saved copies of the array contents."""
        super().close()
        self.kept_launch.drop()

    def _observe_again(self, analysis: Callable[..., T], **options: Any) -> T:
        """Run an analysis of the launch with the arrays as they were before the launch."""
        with self.kept_launch.with_initial_contents() as launch:
            return analysis(
                launch.kernel,
                launch.grid,
                launch.block,
                launch.args,
                shared_mem=launch.shared_bytes,
                stream=launch.stream,
                **options,
            )
