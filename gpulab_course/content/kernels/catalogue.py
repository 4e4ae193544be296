"""The catalogue of the kernels: their order in each series, and the counter that each version improves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpulab import session
from gpulab.lab import kernels as lab
from gpulab.views.tables import Table
from gpulab_course.content.kernels import launches
from gpulab_course.content.kernels.launches import Launches
from gpulab_course.content.kernels.work import Work
from virtualgpu.errors import GpulabError, did_you_mean
from virtualgpu.records import KernelCounters


def _count_executed(counters: KernelCounters, *opcodes: str) -> int:
    return sum(counters.opcode_warp_instructions.get(opcode, 0) for opcode in opcodes)


COUNTERS: Mapping[str, Callable[[KernelCounters], int]] = {
    "requests to memory": lambda c: c.total("requests", "global"),
    "sectors": lambda c: c.total("sectors", "global"),
    "global atomics": lambda c: c.total("requests", "global", "atomic"),
    "bank conflicts": lambda c: c.total("bank_conflicts", "shared"),
    "shared wavefronts": lambda c: c.total("wavefronts", "shared"),
    "barriers": lambda c: _count_executed(c, "bar", "barrier"),
    "loads and stores": lambda c: _count_executed(c, "ld", "st"),
    "idle lanes": lambda c: 32 * c.warp_instructions - c.thread_instructions,
    "warp instructions": lambda c: c.warp_instructions,
}


@dataclass(frozen=True, slots=True)
class KernelVersion:
    """One version of a kernel in a series of increasingly optimized versions.

    The field ``says`` states what is new in this version. ``improved_counter`` names the counter (one of
    `COUNTERS`) that this version improves, from ``count_before`` to ``count_after``. A virtual GPU counted
    both values at the input size of the series. For the first version, ``improved_counter`` is empty.
    ``tuned_macros`` contains values for macros of the source that were the fastest on an H200. A real GPU
    uses them. A virtual GPU uses the defaults in the source, which compile faster.
    """

    name: str
    says: str
    improved_counter: str = ""
    count_before: int = 0
    count_after: int = 0
    tuned_macros: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelSeries:
    """A series of kernels for one task, from a simple version to the fastest. The series is displayed as a
    table.

    ``input_size`` is the input size of the counts, as for `gpulab_course.content.kernels.example`. ``rungs``
    contains the versions of the kernel.
    """

    name: str
    title: str
    input_size: tuple[int, ...]
    launches: Launches
    rungs: tuple[KernelVersion, ...]

    @property
    def best(self) -> KernelVersion:
        """The last kernel of the series, which is the fastest."""
        return self.rungs[-1]

    def _make_table(self) -> Table:
        size_text = " × ".join(f"{n:,}" for n in self.input_size)
        version_rows = tuple(
            (
                version.name,
                version.says,
                version.improved_counter,
                f"{version.count_before:,}" if version.improved_counter else "",
                f"{version.count_after:,}" if version.improved_counter else "",
            )
            for version in self.rungs
        )
        headings = ("kernel", "what is new", "the counter that it improves", "before", "after")
        return Table(f"{self.title}, counted on the virtual GPU for {size_text}", headings, version_rows)

    def __repr__(self) -> str:
        return self._make_table().text()

    def _repr_html_(self) -> str:
        return self._make_table().card()


# With 8 x 16 elements per thread, shared memory delivers three quarters of the bytes that 8 x 8 would need.
_SGEMM_TUNING = {"BN": 256, "WN": 64, "TN": 16, "A_WIDTH": 2, "UNROLL": 8}
_HGEMM_TUNING = {"STAGES": 4, "MIN_BLOCKS": 2}

KERNEL_SERIES = (
    KernelSeries(
        "copy",
        "A copy of n floats",
        (1 << 16,),
        launches.make_copy_launch,
        (
            KernelVersion("copy_floats", "one float per thread"),
            KernelVersion("copy_vectors", "four floats per load", "requests to memory", 4_096, 1_024),
        ),
    ),
    KernelSeries(
        "transpose",
        "The transpose of a matrix",
        (256, 256),
        launches.make_transpose_launch,
        (
            KernelVersion("transpose_naive", "reads along rows, writes along columns"),
            KernelVersion(
                "transpose_tiled", "a tile in shared memory, both sides coalesced", "sectors", 73_728, 16_384
            ),
            KernelVersion(
                "transpose_padded",
                "one unused column shifts each row by one bank",
                "bank conflicts",
                63_488,
                0,
            ),
            KernelVersion(
                "transpose_vectors",
                "four floats per load, 4 × 4 transposed in registers",
                "requests to memory",
                4_096,
                1_024,
            ),
        ),
    ),
    KernelSeries(
        "reduction",
        "The sum of n floats",
        (1 << 20,),
        launches.make_sum_launches,
        (
            KernelVersion("sum_interleaved", "every second thread adds, every fourth, every eighth"),
            KernelVersion("sum_compacted", "neighbouring threads add", "idle lanes", 31_460_401, 5_412_772),
            KernelVersion(
                "sum_halves", "neighbouring threads add neighbouring elements", "bank conflicts", 431_865, 0
            ),
            KernelVersion(
                "sum_on_load",
                "each thread adds two elements as it loads",
                "warp instructions",
                2_718_665,
                1_504_804,
            ),
            KernelVersion("sum_shuffled", "warps add in registers", "barriers", 147_816, 16_424),
            KernelVersion(
                "sum_grid_stride",
                "a fixed number of blocks loops over the array",
                "warp instructions",
                1_131_158,
                643_900,
            ),
            KernelVersion(
                "sum_one_pass",
                "four floats per load; the last block adds the partial sums",
                "requests to memory",
                33_660,
                8_633,
            ),
        ),
    ),
    KernelSeries(
        "scan",
        "Prefix sums of n integers",
        (1 << 16,),
        launches.make_scan_launches,
        (
            KernelVersion("scan_steps", "log n steps in shared memory, then a second pass"),
            KernelVersion("scan_shuffled", "warps scan in registers", "barriers", 34_952, 2_056),
            KernelVersion(
                "scan_look_back",
                "one pass: tiles look back over their predecessors' sums",
                "sectors",
                35_064,
                17_201,
            ),
        ),
    ),
    KernelSeries(
        "histogram",
        "A histogram of n bytes",
        (1 << 20,),
        launches.make_histogram_launches,
        (
            KernelVersion("histogram_global", "one atomic addition in memory per byte"),
            KernelVersion(
                "histogram_shared",
                "separate bins per block in shared memory",
                "global atomics",
                32_768,
                6_912,
            ),
            KernelVersion(
                "histogram_private",
                "separate bins per warp, 16 bytes per load",
                "requests to memory",
                39_688,
                4_104,
            ),
        ),
    ),
    KernelSeries(
        "stencil",
        "The mean of the 5 × 5 cells around each cell",
        (128, 128),
        launches.make_stencil_launch,
        (
            KernelVersion("stencil_naive", "25 loads per cell"),
            KernelVersion(
                "stencil_tiled", "a tile with its halo in shared memory", "requests to memory", 13_192, 1_392
            ),
            KernelVersion(
                "stencil_sliding",
                "each thread moves down and keeps five row sums",
                "shared wavefronts",
                13_696,
                3_796,
            ),
        ),
    ),
    KernelSeries(
        "softmax",
        "The softmax of each row",
        (256, 512),
        launches.make_row_launch,
        (
            KernelVersion("softmax_naive", "one thread per row"),
            KernelVersion("softmax_three_pass", "one warp per row, coalesced", "sectors", 524_288, 65_536),
            KernelVersion("softmax_online", "maximum and sum in one pass", "sectors", 65_536, 49_152),
            KernelVersion(
                "softmax_registers",
                "the row stays in registers, so it is read only once",
                "sectors",
                49_152,
                32_768,
            ),
        ),
    ),
    KernelSeries(
        "layer_norm",
        "Layer norm of each row",
        (256, 512),
        launches.make_row_launch,
        (
            KernelVersion("layer_norm_naive", "one thread per row"),
            KernelVersion("layer_norm_three_pass", "one warp per row, coalesced", "sectors", 524_288, 65_536),
            KernelVersion(
                "layer_norm_registers",
                "the row stays in registers, so it is read only once",
                "sectors",
                65_536,
                32_768,
            ),
        ),
    ),
    KernelSeries(
        "sgemm",
        "A multiplication of float matrices",
        (128, 128, 128),
        launches.make_sgemm_launch,
        (
            KernelVersion("sgemm_naive", "one element per thread"),
            KernelVersion("sgemm_tiled", "tiles of 16 × 16 in shared memory", "sectors", 264_192, 34_816),
            KernelVersion(
                "sgemm_registers",
                "4 × 4 elements in the registers of a thread",
                "shared wavefronts",
                139_264,
                35_840,
            ),
            KernelVersion(
                "sgemm_vectors",
                "larger tiles, and all copies in vectors of four",
                "requests to memory",
                2_560,
                384,
                _SGEMM_TUNING,
            ),
            KernelVersion(
                "sgemm_double",
                "two buffers for each tile, so one barrier per step",
                "barriers",
                128,
                72,
                _SGEMM_TUNING,
            ),
            KernelVersion(
                "sgemm_async",
                "asynchronous copies bypass the registers",
                "loads and stores",
                4_848,
                4_272,
                _SGEMM_TUNING,
            ),
        ),
    ),
    KernelSeries(
        "tensor_cores",
        "A multiplication of half-precision matrices",
        (128, 128, 128),
        launches.make_hgemm_launch,
        (
            KernelVersion("hgemm_direct", "tensor cores fed from memory"),
            KernelVersion(
                "hgemm_async",
                "tiles in shared memory, filled by asynchronous copies",
                "sectors",
                86_016,
                4_160,
                _HGEMM_TUNING,
            ),
        ),
    ),
)


def ladder(name: str) -> KernelSeries:
    """Return the series of kernels with this name, such as ``"transpose"``.

    Raises
    ------
    GpulabError
        If there is no such series; the message suggests the most similar name.

    Examples
    --------
    >>> kernels.ladder("transpose").best.name
    'transpose_vectors'
    """
    series_by_name = {series.name: series for series in KERNEL_SERIES}
    if name not in series_by_name:
        raise GpulabError(
            f"There is no series of kernels {name!r}.{did_you_mean(name, series_by_name)} The "
            f"series are {', '.join(series_by_name)}."
        )
    return series_by_name[name]


def launch(name: str, *arrays: Any, **tuning: int) -> Work:
    """Return a kernel with its launch configuration for the given arrays, without running it.

    Parameters
    ----------
    name
        The name of a kernel, such as ``"transpose_padded"``.
    *arrays
        The device arrays of the inputs, followed by that of the output. Matrix multiplications have three:
        ``a``, ``b`` and ``c``.
    **tuning
        Values for the macros at the top of the source, such as ``STAGES=4``. By default, a real GPU uses
        `KernelVersion.tuned_macros`, and a virtual GPU uses the values in the source.

    Returns
    -------
    Work
        The launches; a call runs them. ``work.step`` contains the arguments of the main launch for functions
        such as ``gl.count(**work.step)``.

    Raises
    ------
    GpulabError
        If there is no such kernel, or if the kernel does not support arrays of these shapes.

    Examples
    --------
    >>> x, out = cp.ones((64, 32), "f"), cp.empty((32, 64), "f")
    >>> kernels.launch("transpose_padded", x, out)()
    """
    version_by_name = {
        version.name: (series, version) for series in KERNEL_SERIES for version in series.rungs
    }
    if name not in version_by_name:
        raise GpulabError(f"There is no kernel {name!r}.{did_you_mean(name, version_by_name)}")
    series, version = version_by_name[name]
    if not tuning and session.which_device().kind == "cuda":
        tuning = dict(version.tuned_macros)
    return Work(name, series.launches(name, arrays, tuning))


def count(work: Work, counter: str) -> int:
    """Run the launches of a computation on the virtual GPU, and return the sum of one of the `COUNTERS` over
    them.
    """
    read_counter = COUNTERS[counter]
    return sum(read_counter(lab.count(**step)) for step in work.steps)
