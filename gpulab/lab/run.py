"""``gl.launch``'s result: a picture of a launch that can be asked further questions about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from gpulab import session, views
from gpulab.lab import kernels
from gpulab.lab.access import access
from gpulab.lab.why.diagnose import diagnose
from gpulab.lab.why.roofline import roofline
from gpulab.views.launch.chart import LaunchChart
from gpulab.views.tables.as_run import AsRunTable
from gpulab.views.tables.count import CounterTable
from gpulab.views.tables.diagnosis import DiagnosisTable
from gpulab.views.tables.sanitizer import SanitizerTable
from virtualgpu.protocol import TOOLS, Shape
from virtualgpu.records import LaunchTrace

T = TypeVar("T")


class Run(LaunchChart):
    """Where and when every block of a launch ran, and the answers to further questions about the launch.

    Each question runs the kernel again from its arrays as they were before the launch, and leaves the arrays
    as it finds them. See `gpulab.launch` for the memory that this takes.

    Parameters
    ----------
    trace
        What was observed of the launch.
    kept
        The launch, with the contents that its arrays had before it.
    beside
        A launch to show next to it, such as one that was recorded on another GPU.
    """

    def __init__(
        self, trace: LaunchTrace, kept: session.KeptLaunch, beside: LaunchTrace | None = None
    ) -> None:
        super().__init__(trace, at_block_size=session.at_block_size(kept), beside=beside)
        self.view_name = "launch-chart"
        self.kept = kept

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
        """Step through one of the warps; the options are those of `gpulab.warps`."""
        return self._ask(
            kernels.warps,
            block_index=block_index,
            warp=warp,
            max_steps=max_steps,
            whole_block=whole_block,
            watch=watch,
            stop=stop,
        )

    def count(self, *, caches: Literal["cold", "warm"] = "cold") -> CounterTable:
        """Count instructions, memory requests, sectors, conflicts, branches, cache hits: `gpulab.count`."""
        return self._ask(kernels.count, caches=caches)

    def access(
        self,
        *,
        line: int | None = None,
        warp: int = 0,
        block_index: Shape = (0, 0, 0),
        space: str = "both",
    ) -> views.AccessMicroscope:
        """Show how the lanes of each access fall into sectors and banks: `gpulab.access`."""
        return self._ask(access, line=line, warp=warp, block_index=block_index, space=space)

    def machine_code(self) -> AsRunTable:
        """Compare the counts in PTX with those in machine code: `gpulab.machine_code`."""
        return self._ask(kernels.machine_code)

    def sanitize(
        self,
        *,
        tools: Sequence[str] = TOOLS,
        block_order: str = "in order",
        seed: int = 0,
        nan: bool = False,
        tool: str = "",
    ) -> SanitizerTable:
        """Check for mistakes that a plain launch may hide: `gpulab.sanitize`."""
        return self._ask(
            kernels.sanitize, tools=tools, block_order=block_order, seed=seed, nan=nan, tool=tool
        )

    def diagnose(self, *, caches: Literal["cold", "warm"] = "cold", baseline: Any = None) -> DiagnosisTable:
        """Explain why the launch is as slow as it is; `baseline` is another run: `gpulab.diagnose`."""
        return self._ask(diagnose, caches=caches, baseline=baseline)

    def roofline(self, *, caches: Literal["cold", "warm"] = "cold") -> views.RooflineChart:
        """Show the launch under the ceilings of the device; ``gl.roofline(run, other)`` shows several."""
        return roofline(self, caches=caches)

    def close(self) -> None:
        """End the live view, and free the copies of the arrays' contents."""
        super().close()
        self.kept.drop()

    def _ask(self, question: Callable[..., T], **options: Any) -> T:
        """Ask a question about the launch, over its arrays as they were before it."""
        with self.kept.again() as launch:
            return question(
                launch.kernel,
                launch.grid,
                launch.block,
                launch.args,
                shared_mem=launch.shared_bytes,
                stream=launch.stream,
                **options,
            )
