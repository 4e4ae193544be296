"""Figures of notebooks 06a and 06b: bandwidths of the versions of a kernel, and attention in tiles."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.kernels import block_order, count
from gpulab.lab.run import launch
from gpulab.lab.timeline import timeline
from gpulab.views._base import Bundle, View, make_picture_bundle
from gpulab.views.parts.boxes import Box, bars, column, words
from gpulab.views.parts.picture import draw_png
from gpulab.views.tables import Table
from gpulab.words import duration, number, size
from gpulab_course.content import kernels, story
from gpulab_course.content.ranges import among as among
from virtualgpu.records import KernelCounters, Provenance
from virtualgpu.records.kernel import SECTOR_BYTES

ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class KernelRate:
    """The result of one kernel in a `BandwidthRace`: its GPU time, its bandwidth and its limiting counter."""

    name: str
    description: str
    limiter: str
    busy_ns: int
    gbps: float


def lap(work: Callable[[], Any]) -> tuple[int, Provenance]:
    """Run a call after a warm-up, and return its total GPU time in ns with the provenance of the time.

    A virtual GPU needs no warm-up, because its clock rate is fixed and new arrays count as cached in L2.
    """
    if session.which_device().kind != "virtual":
        work()
    with timeline() as report:
        work()
        session.cp().cuda.Device().synchronize()
    return sum(
        activity.end_ns - activity.start_ns for activity in report.record.activities
    ), report.record.provenance


class BandwidthRace(View):
    """A bar chart of the bandwidth of each kernel in a series, and of a copy of the same number of bytes."""

    def __init__(
        self, kernel_rates: tuple[KernelRate, ...], copy_rate: KernelRate, provenance: Provenance, title: str
    ) -> None:
        self.kernel_rates = kernel_rates
        self.copy_rate = copy_rate
        self.provenance = provenance
        super().__init__(title=title, caption=f"Times {provenance.label}.", source=provenance.source)
        self.redraw()

    @property
    def record(self) -> tuple[KernelRate, ...]:
        """The measured results of the kernels in the series, in order."""
        return self.kernel_rates

    def of_the_copy(self, rung: int) -> float:
        """Return a kernel's bandwidth as a fraction of the bandwidth of a copy."""
        return self.kernel_rates[rung].gbps / self.copy_rate.gbps

    def sentence(self) -> str:
        first_rate = self.kernel_rates[0]
        last_rate = self.kernel_rates[-1]
        return (
            f"From {number(first_rate.gbps)} to {number(last_rate.gbps)} GB/s in "
            f"{len(self.kernel_rates)} versions, "
            f"{self.of_the_copy(-1):.0%} of a copy's {number(self.copy_rate.gbps)}; {self.provenance.label}."
        )

    def describe(self) -> str:
        description_lines = [
            f"{kernel_rate.name}: {kernel_rate.description}. {_format_rate(kernel_rate)}; "
            f"limited by {kernel_rate.limiter}."
            for kernel_rate in self.kernel_rates
        ]
        return "\n".join(
            [self.sentence(), *description_lines, f"{self.copy_rate.name}: {_format_rate(self.copy_rate)}."]
        )

    def draw(self) -> Box:
        return _draw_rate_bars(self.kernel_rates, self.copy_rate, len(self.kernel_rates))


def _draw_rate_bars(kernel_rates: Sequence[KernelRate], copy_rate: KernelRate, kernel_count: int) -> Box:
    """Draw bandwidths as bars. The last of all `kernel_count` kernels has its own colour."""
    max_gbps = max(kernel_rate.gbps for kernel_rate in (*kernel_rates, copy_rate))
    bar_rows = [
        {
            "label": f"{kernel_number} {kernel_rate.name}",
            "share": kernel_rate.gbps / max_gbps,
            "value": _format_rate(kernel_rate),
            "mark": f"limited by {kernel_rate.limiter}",
            "title": kernel_rate.description,
            "colour": "good" if kernel_number == kernel_count else "accent",
        }
        for kernel_number, kernel_rate in enumerate(kernel_rates, 1)
    ]
    copy_bar_row = {
        "label": copy_rate.name,
        "share": copy_rate.gbps / max_gbps,
        "value": _format_rate(copy_rate),
        "mark": "the goal",
        "strong": True,
        "colour": "muted",
    }
    return column(
        bars([*bar_rows, copy_bar_row], label=0.24),
        words("GB/s of the bytes that must move: a sum reads each byte, a copy reads and writes it.", "note"),
    )


def _format_rate(kernel_rate: KernelRate) -> str:
    return f"{number(kernel_rate.gbps)} GB/s, {duration(kernel_rate.busy_ns)}"


def counted(counters_by_kernel: Mapping[str, KernelCounters], *counters: str) -> Table:
    """Return a table of counters, with one row per kernel and one column per counter."""
    counter_rows = [
        (name, *(f"{kernels.COUNTERS[counter](kernel_counters):,}" for counter in counters))
        for name, kernel_counters in counters_by_kernel.items()
    ]
    first_counters = next(iter(counters_by_kernel.values()))
    return Table(f"Counted on {first_counters.provenance.device}", ("kernel", *counters), tuple(counter_rows))


@dataclass(frozen=True, slots=True)
class CodeListing:
    """The CUDA C++ source of each kernel in a series, which the reader can unfold in a notebook."""

    parts: tuple[tuple[kernels.KernelVersion, str], ...]
    opened_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n\n".join(f"// {version.name}: {version.says}\n{code}" for version, code in self.parts)

    def _repr_html_(self) -> str:
        return "".join(
            f"<details{' open' if version.name in self.opened_names else ''}><summary>"
            f"<code>{version.name}</code>: {html.escape(version.says)}</summary>"
            f"<pre>{html.escape(kernel_code)}</pre></details>"
            for version, kernel_code in self.parts
        )


def listing(series: str, *opened_names: str) -> CodeListing:
    """Return the source code of the kernels of a series.

    Parameters
    ----------
    series
        The name of the series, which is also the name of its file.
    *opened_names
        The kernels whose code is shown at first; the others are folded.
    """
    versions = kernels.ladder(series).rungs
    series_code = kernels.source(f"{series}.cu")
    kernel_ends = [
        series_code.index("\n}\n", series_code.index(f"{version.name}(")) + 2 for version in versions
    ]
    kernel_ends[-1] = len(series_code)
    kernel_starts = [0, *kernel_ends[:-1]]
    kernel_parts = [
        (version, series_code[kernel_start:kernel_end].strip())
        for version, kernel_start, kernel_end in zip(versions, kernel_starts, kernel_ends, strict=True)
    ]
    return CodeListing(tuple(kernel_parts), opened_names)


def passes(series: str = "softmax", shape: tuple[int, ...] = (512, 1024)) -> Table:
    """Return a table of the sectors, DRAM bytes and times of those kernels of a series that use one warp per
    row.
    """
    arrays = kernels.example(series, shape).arrays
    version_rows = []
    for version in kernels.ladder(series).rungs[1:]:
        kernel_launch = kernels.launch(version.name, *arrays)
        busy_ns, provenance = lap(kernel_launch)
        counters = count(**kernel_launch.step).record
        sectors = kernels.COUNTERS["sectors"](counters)
        dram_bytes = counters.caches.dram_read_bytes if counters.caches else 0
        version_rows.append((version.name, version.says, f"{sectors:,}", size(dram_bytes), duration(busy_ns)))
    title = (
        f"Rows of {shape[1]:,} floats; sectors and bytes counted on the virtual GPU, times {provenance.label}"
    )
    return Table(title, ("kernel", "what is new", "sectors", "read from DRAM", "time"), tuple(version_rows))


WAITING_BLOCKS = 20_000  # more than any GPU runs at once


def try_orders(code: str) -> Table:
    """Run a kernel with waiting blocks in several block orders, and return a table of the results.

    Parameters
    ----------
    code
        The source of ``chain(int* done, int* ticket, int use_ticket)``.
    """
    cp = session.virtual_side().cp
    chain_kernel = cp.RawKernel(code, "chain")

    def run_order(use_ticket: int, order: str) -> str:
        done_flags, ticket_counter = cp.zeros(WAITING_BLOCKS, "int32"), cp.zeros(1, "int32")
        try:
            with block_order(order):
                chain_kernel((WAITING_BLOCKS,), (128,), (done_flags, ticket_counter, np.int32(use_ticket)))
            return "ends" if bool(done_flags.all()) else "ends too early"
        except cp.cuda.runtime.CUDARuntimeError:
            return "hangs"

    session.use_device(watchdog_s=5)  # stops a kernel that hangs; the others take less than a second
    order_rows = [
        (name, *(run_order(use_ticket, order) for order in ("in order", "reversed")))
        for use_ticket, name in enumerate(("block number", "ticket"))
    ]
    session.use_device(watchdog_s=20)
    title = f"{WAITING_BLOCKS:,} blocks that wait for their predecessor, executed on the virtual GPU"
    return Table(title, ("tile number", "blocks start in order", "in reversed order"), tuple(order_rows))


def row_times() -> Table:
    """Return the times of layer norm and softmax in the attention layer before and after notebook 06b."""
    cp = session.cp()
    version_rows = []
    for version in ("05", "06"):
        steps, arrays = story.steps(cp, rung=version)
        for step in steps.values():
            step()
        expected = story.reference(cp.asnumpy(arrays["x"]))["out"]
        is_right = np.allclose(cp.asnumpy(arrays["out"]), expected, atol=1e-4)
        traces = [launch(**steps[name]).trace for name in ("layer_norm", "softmax")]
        version_rows.append(
            (version, *(duration(trace.span_ns) for trace in traces), "yes" if is_right else "no")
        )
    title = f"Kernels of the attention layer, times {traces[0].provenance.label}"
    return Table(title, ("after notebook", "layer norm", "softmax", "result is right"), tuple(version_rows))


ROW_FLOATS = 32  # floats of a row of q, k and v


def source(file: str) -> str:
    """Return the CUDA C++ source of one of this notebook's kernels."""
    return (resources.files(__package__) / "kernels" / file).read_text(encoding="utf-8")


def attend(n: int, threads: int) -> tuple[KernelCounters, list[Any]]:
    """Run tiled attention with `threads` rows per tile, and return its counters and its arrays."""
    cp = session.cp()
    rng = np.random.default_rng(6)
    arrays = [cp.asarray(rng.standard_normal((n, ROW_FLOATS), dtype=np.float32)) for _ in range(3)]
    arrays.append(cp.empty_like(arrays[0]))
    kernel = cp.RawKernel(source("attention.cu"), "attention")
    return count(kernel, n // threads, threads, (*arrays, np.int32(n))).record, arrays


def tile_bytes(counters: KernelCounters) -> int:
    """Return the number of bytes of the arrays k and v that the blocks of an attention kernel load."""
    lines = source("attention.cu").splitlines()
    tile_lines = {
        line_number for line_number, line in enumerate(lines, 1) if "= k[" in line or "= v[" in line
    }
    accesses = [
        access for access in counters.accesses if access.space == "global" and access.line in tile_lines
    ]
    return SECTOR_BYTES * sum(access.sectors for access in accesses)


def attention() -> Table:
    """Return a table of the bytes that tiled attention reads, for several sequence lengths and two tile
    heights.
    """
    traffic_rows = []
    for threads in (32, 128):
        for n in (256, 512, 1024):
            counters, _ = attend(n, threads)
            dram_bytes = counters.caches.dram_read_bytes if counters.caches else 0
            traffic_rows.append(
                (f"{threads}", f"{n:,}", size(tile_bytes(counters)), size(dram_bytes), size(4 * n * n))
            )
    title = f"Attention in tiles, rows of {ROW_FLOATS} floats, counted on {counters.provenance.device}"
    headings = "rows in a tile of q", "n", "k and v, read by the SMs", "read from DRAM", "scores, if stored"
    return Table(title, headings, tuple(traffic_rows))


def race(ladder: str = "reduction", elements: int = ELEMENTS) -> BandwidthRace:
    """Measure all kernels of a series after a warm-up, and compare their bandwidths with that of a copy.

    Parameters
    ----------
    ladder
        The name of the series.
    elements
        The number of floats.
    """
    cp = session.cp()
    series = kernels.ladder(ladder)
    example = kernels.example(ladder, (elements,))
    x, result_array = example.arrays
    limiters = [version.improved_counter for version in series.rungs[1:]] + ["memory itself"]
    title = f"{series.title}: n = {elements:,}"
    kernel_rates: list[KernelRate] = []
    kernel_count = len(series.rungs)
    with session.show_steps(kernel_count + 1, "figures.race") as begin_step:
        begin_step()
        copy_target = cp.empty_like(x)
        copy_ns, provenance = lap(lambda: copy_target.data.copy_from_device_async(x.data, x.nbytes))
        copy_rate = KernelRate("cudaMemcpy", "a copy on the device", "", copy_ns, 2 * x.nbytes / copy_ns)

        def draw_measured_rates() -> Bundle:
            caption = f"{len(kernel_rates)} of {kernel_count} kernels. Times {provenance.label}."
            return make_picture_bundle(
                draw_png(_draw_rate_bars(kernel_rates, copy_rate, kernel_count), title, caption), caption
            )

        for version, limiter in zip(series.rungs, limiters, strict=True):
            begin_step(draw_measured_rates)
            busy_ns, _ = lap(kernels.launch(version.name, x, result_array))
            kernel_rates.append(
                KernelRate(version.name, version.says, limiter, busy_ns, example.moved_bytes / busy_ns)
            )
    return BandwidthRace(tuple(kernel_rates), copy_rate, provenance, title)
