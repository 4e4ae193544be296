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
class Rung:
    """One version of a kernel in a series of increasingly optimized versions.

    The field ``mends`` names the counter (one of `COUNTERS`) that this version improves, from ``before`` to
    ``after``. A virtual GPU counted both values at the size of the series. For the first version, ``mends``
    is empty. ``tuned``
    contains values for macros of the source that were the fastest on an H200. A real GPU uses them. A virtual
    GPU uses the defaults in the source, which compile faster.
    """

    name: str
    says: str
    mends: str = ""
    before: int = 0
    after: int = 0
    tuned: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ladder:
    """A series of kernels for one task, from a simple version to the fastest. The series is displayed as a
    table.

    ``size`` is the input size of the counts, as for `gpulab_course.content.kernels.example`.
    """

    name: str
    title: str
    size: tuple[int, ...]
    launches: Launches
    rungs: tuple[Rung, ...]

    @property
    def best(self) -> Rung:
        """The last kernel of the series, which is the fastest."""
        return self.rungs[-1]

    def _make_table(self) -> Table:
        size = " × ".join(f"{n:,}" for n in self.size)
        rung_rows = tuple(
            (
                rung.name,
                rung.says,
                rung.mends,
                f"{rung.before:,}" if rung.mends else "",
                f"{rung.after:,}" if rung.mends else "",
            )
            for rung in self.rungs
        )
        headings = ("kernel", "what is new", "the counter that it improves", "before", "after")
        return Table(f"{self.title}, counted on the virtual GPU for {size}", headings, rung_rows)

    def __repr__(self) -> str:
        return self._make_table().text()

    def _repr_html_(self) -> str:
        return self._make_table().card()


# With 8 x 16 elements per thread, shared memory delivers three quarters of the bytes that 8 x 8 would need.
_SGEMM_TUNING = {"BN": 256, "WN": 64, "TN": 16, "A_WIDTH": 2, "UNROLL": 8}
_HGEMM_TUNING = {"STAGES": 4, "MIN_BLOCKS": 2}

LADDERS = (
    Ladder(
        "copy",
        "A copy of n floats",
        (1 << 16,),
        launches.make_copy_launch,
        (
            Rung("copy_floats", "one float per thread"),
            Rung("copy_vectors", "four floats per load", "requests to memory", 4_096, 1_024),
        ),
    ),
    Ladder(
        "transpose",
        "The transpose of a matrix",
        (256, 256),
        launches.make_transpose_launch,
        (
            Rung("transpose_naive", "reads along rows, writes along columns"),
            Rung(
                "transpose_tiled", "a tile in shared memory, both sides coalesced", "sectors", 73_728, 16_384
            ),
            Rung(
                "transpose_padded",
                "one unused column shifts each row by one bank",
                "bank conflicts",
                63_488,
                0,
            ),
            Rung(
                "transpose_vectors",
                "four floats per load, 4 × 4 transposed in registers",
                "requests to memory",
                4_096,
                1_024,
            ),
        ),
    ),
    Ladder(
        "reduction",
        "The sum of n floats",
        (1 << 20,),
        launches.make_sum_launches,
        (
            Rung("sum_interleaved", "every second thread adds, every fourth, every eighth"),
            Rung("sum_compacted", "neighbouring threads add", "idle lanes", 31_460_401, 5_412_772),
            Rung(
                "sum_halves", "neighbouring threads add neighbouring elements", "bank conflicts", 431_865, 0
            ),
            Rung(
                "sum_on_load",
                "each thread adds two elements as it loads",
                "warp instructions",
                2_718_665,
                1_504_804,
            ),
            Rung("sum_shuffled", "warps add in registers", "barriers", 147_816, 16_424),
            Rung(
                "sum_grid_stride",
                "a fixed number of blocks loops over the array",
                "warp instructions",
                1_131_158,
                643_900,
            ),
            Rung(
                "sum_one_pass",
                "four floats per load; the last block adds the partial sums",
                "requests to memory",
                33_660,
                8_633,
            ),
        ),
    ),
    Ladder(
        "scan",
        "Prefix sums of n integers",
        (1 << 16,),
        launches.make_scan_launches,
        (
            Rung("scan_steps", "log n steps in shared memory, then a second pass"),
            Rung("scan_shuffled", "warps scan in registers", "barriers", 34_952, 2_056),
            Rung(
                "scan_look_back",
                "one pass: tiles look back over their predecessors' sums",
                "sectors",
                35_064,
                17_201,
            ),
        ),
    ),
    Ladder(
        "histogram",
        "A histogram of n bytes",
        (1 << 20,),
        launches.make_histogram_launches,
        (
            Rung("histogram_global", "one atomic addition in memory per byte"),
            Rung(
                "histogram_shared",
                "separate bins per block in shared memory",
                "global atomics",
                32_768,
                6_912,
            ),
            Rung(
                "histogram_private",
                "separate bins per warp, 16 bytes per load",
                "requests to memory",
                39_688,
                4_104,
            ),
        ),
    ),
    Ladder(
        "stencil",
        "The mean of the 5 × 5 cells around each cell",
        (128, 128),
        launches.make_stencil_launch,
        (
            Rung("stencil_naive", "25 loads per cell"),
            Rung(
                "stencil_tiled", "a tile with its halo in shared memory", "requests to memory", 13_192, 1_392
            ),
            Rung(
                "stencil_sliding",
                "each thread moves down and keeps five row sums",
                "shared wavefronts",
                13_696,
                3_796,
            ),
        ),
    ),
    Ladder(
        "softmax",
        "The softmax of each row",
        (256, 512),
        launches.make_row_launch,
        (
            Rung("softmax_naive", "one thread per row"),
            Rung("softmax_three_pass", "one warp per row, coalesced", "sectors", 524_288, 65_536),
            Rung("softmax_online", "maximum and sum in one pass", "sectors", 65_536, 49_152),
            Rung(
                "softmax_registers",
                "the row stays in registers, so it is read only once",
                "sectors",
                49_152,
                32_768,
            ),
        ),
    ),
    Ladder(
        "layer_norm",
        "Layer norm of each row",
        (256, 512),
        launches.make_row_launch,
        (
            Rung("layer_norm_naive", "one thread per row"),
            Rung("layer_norm_three_pass", "one warp per row, coalesced", "sectors", 524_288, 65_536),
            Rung(
                "layer_norm_registers",
                "the row stays in registers, so it is read only once",
                "sectors",
                65_536,
                32_768,
            ),
        ),
    ),
    Ladder(
        "sgemm",
        "A multiplication of float matrices",
        (128, 128, 128),
        launches.make_sgemm_launch,
        (
            Rung("sgemm_naive", "one element per thread"),
            Rung("sgemm_tiled", "tiles of 16 × 16 in shared memory", "sectors", 264_192, 34_816),
            Rung(
                "sgemm_registers",
                "4 × 4 elements in the registers of a thread",
                "shared wavefronts",
                139_264,
                35_840,
            ),
            Rung(
                "sgemm_vectors",
                "larger tiles, and all copies in vectors of four",
                "requests to memory",
                2_560,
                384,
                _SGEMM_TUNING,
            ),
            Rung(
                "sgemm_double",
                "two buffers for each tile, so one barrier per step",
                "barriers",
                128,
                72,
                _SGEMM_TUNING,
            ),
            Rung(
                "sgemm_async",
                "asynchronous copies bypass the registers",
                "loads and stores",
                4_848,
                4_272,
                _SGEMM_TUNING,
            ),
        ),
    ),
    Ladder(
        "tensor_cores",
        "A multiplication of half-precision matrices",
        (128, 128, 128),
        launches.make_hgemm_launch,
        (
            Rung("hgemm_direct", "tensor cores fed from memory"),
            Rung(
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


def ladder(name: str) -> Ladder:
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
    known_ladders = {series.name: series for series in LADDERS}
    if name not in known_ladders:
        raise GpulabError(
            f"There is no series of kernels {name!r}.{did_you_mean(name, known_ladders)} The "
            f"series are {', '.join(known_ladders)}."
        )
    return known_ladders[name]


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
        `Rung.tuned`, and a virtual GPU uses the values in the source.

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
    known_rungs = {rung.name: (series, rung) for series in LADDERS for rung in series.rungs}
    if name not in known_rungs:
        raise GpulabError(f"There is no kernel {name!r}.{did_you_mean(name, known_rungs)}")
    series, rung = known_rungs[name]
    if not tuning and session.which_device().kind == "cuda":
        tuning = dict(rung.tuned)
    return Work(name, series.launches(name, arrays, tuning))


def count(work: Work, counter: str) -> int:
    """Run a function on the virtual GPU, and return the sum of one of the `COUNTERS` over all launches."""
    launch_count = COUNTERS[counter]
    return sum(launch_count(lab.count(**step)) for step in work.steps)
