"""Figures of notebook 17: resident blocks, the loads of a warp, kernels with equal symptoms, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpulab import session
from gpulab.lab.kernels import count
from gpulab.lab.run import launch
from gpulab.lab.timeline import timeline
from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.views._saving import Savable, Writers, make_text_writer
from gpulab.views.parts.palette import find_hex
from gpulab.views.tables import Table
from gpulab.views.tables.diagnosis import BOUND_TEXTS, CAUSE_NAMES, DiagnosisTable
from gpulab.words import duration, number, percent, size
from gpulab_course.content.n17_interview.cards.laboratory import (
    PublishedData,
    compile_kernel,
    read_kernel_source,
    read_published_info,
    use_device,
)
from gpulab_course.content.n17_interview.exercises import read_split_count
from gpulab_course.teach.interview import again
from gpulab_course.teach.interview.scorecard import CONFIDENCE_BY_CERTAINTY
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Provenance


@dataclass(frozen=True, slots=True, repr=False)
class Resident:
    """The number of blocks that fit on an SM at the same time, and the number that each limit alone
    allows.
    """

    device: PublishedData
    blocks: int
    blocks_by_limit: dict[str, int]
    provenance: Provenance

    def _make_table(self) -> Table:
        limit_rows = tuple((limit_name, f"{blocks}") for limit_name, blocks in self.blocks_by_limit.items())
        title = f"{self.blocks} blocks per SM of {self.device.name}, {self.provenance.label}"
        return Table(title, ("limit", "blocks that it allows"), limit_rows)

    def __repr__(self) -> str:
        return self._make_table().text()

    def _repr_html_(self) -> str:
        return self._make_table().card()


def resident(device: str, threads: int, shared_kib: int) -> Resident:
    """Return how many blocks of this size fit on an SM of a device, overall and under each limit alone."""
    with use_device(device) as cp:
        occupancy = session.backend().occupancy(compile_kernel(cp, "resident"), threads, shared_kib << 10)
    return Resident(
        read_published_info(device),
        occupancy.blocks_per_sm,
        dict(occupancy.blocks_by_limit),
        occupancy.provenance,
    )


_FLOATS_PER_SECTOR = 8
_SHOWN_SIDE = 20


def warp_of_sgemm(row: Any, col: Any, k: int) -> Picture:
    """Draw the elements of A, B and C that a warp accesses in one iteration of a matrix multiplication.

    Parameters
    ----------
    row, col
        The row and the column of the result that each thread of the warp computes.
    k
        The iteration of the inner loop.
    """
    figure = Figure(figsize=(7.6, 3.0), dpi=100)
    matrix_panels = (
        ("A[row, k]", row, np.full_like(row, k), "accent"),
        ("B[k, col]", np.full_like(col, k), col, "good"),
        ("result[row, col]", row, col, "tail"),
    )
    count_texts = []
    for panel_index, (panel_title, element_rows, element_columns, colour_name) in enumerate(matrix_panels):
        axes = figure.add_axes((0.02 + 0.33 * panel_index, 0.03, 0.3, 0.74))
        elements = {(int(r), int(c)) for r, c in zip(element_rows, element_columns, strict=True)}
        sectors = {(r, c // _FLOATS_PER_SECTOR) for r, c in elements}
        for r in range(_SHOWN_SIDE):
            for c in range(_SHOWN_SIDE):
                axes.add_patch(
                    Rectangle(
                        (c, r),
                        1,
                        1,
                        facecolor=find_hex(colour_name) if (r, c) in elements else "white",
                        edgecolor=find_hex("rule"),
                        linewidth=0.5,
                    )
                )
        axes.set(xlim=(0, _SHOWN_SIDE), ylim=(_SHOWN_SIDE, 0), aspect="equal")
        axes.axis("off")
        count_text = f"{len(elements)} elements in {len(sectors)} sectors"
        axes.set_title(f"{panel_title}\n{count_text}", fontsize=10)
        count_texts.append(f"{panel_title}: {count_text}")
    return Picture.of(
        figure,
        f"The elements that a warp of {len(row)} threads accesses, for k = {k}. {'; '.join(count_texts)}.",
    )


def card(device: str) -> PublishedData:
    """Return the published data of a device."""
    return read_published_info(device)


@dataclass(frozen=True, slots=True, repr=False)
class Pair:
    """Two kernels that keep the same hardware unit busy, with the diagnosis of each."""

    dram_shares: tuple[float, float]
    diagnoses: tuple[DiagnosisTable, DiagnosisTable]

    @property
    def provenance(self) -> Provenance:
        """The provenance of the diagnoses of both kernels."""
        return self.diagnoses[0].provenance

    @property
    def alike(self) -> bool:
        """Return whether the diagnoses show the same symptom, but name a cause for only one kernel."""
        first_table, second_table = self.diagnoses
        return first_table.bound == second_table.bound and (first_table.main is None) != (
            second_table.main is None
        )

    def _make_table(self) -> Table:
        kernel_rows = []
        for kernel_name, dram_share, diagnosis_table in zip(
            ("kernel A", "kernel B"), self.dram_shares, self.diagnoses, strict=True
        ):
            main_cause = diagnosis_table.main
            cause = (
                f"{CAUSE_NAMES[main_cause.kind]}: {number(main_cause.gain)} × without it"
                if main_cause
                else "nothing worth fixing"
            )
            kernel_rows.append(
                (
                    kernel_name,
                    BOUND_TEXTS[diagnosis_table.bound][0],
                    percent(dram_share),
                    duration(diagnosis_table.time_ns),
                    cause,
                )
            )
        headings = ("", "symptom", "DRAM is busy (share of the time)", "time", "cause")
        return Table(f"Two hidden kernels, {self.provenance.label}", headings, tuple(kernel_rows))

    def __repr__(self) -> str:
        return self._make_table().text()

    def _repr_html_(self) -> str:
        return self._make_table().card()


def same_symptom() -> Pair:
    """Diagnose two kernels that DRAM limits, one with strided reads and one with contiguous reads."""
    diagnosis_tables = []
    n = 1 << 20
    with use_device("T4") as cp:
        for stride in (8, 1):
            x = cp.zeros(n * stride, "float32")
            y = cp.zeros(n, "float32")
            diagnosis_tables.append(
                diagnosis(compile_kernel(cp, "strided"), n // 256, 256, (x, y, np.int32(stride), np.int32(n)))
            )
    strided_table, unit_stride = diagnosis_tables
    dram_shares = (
        strided_table.stages["DRAM"] / strided_table.time_ns,
        unit_stride.stages["DRAM"] / unit_stride.time_ns,
    )
    return Pair(dram_shares, (strided_table, unit_stride))


def bets(is_sure: Sequence[bool], right: int = 7) -> float:
    """Return the calibration of a series of answers, of which the first `right` ones are right."""
    squared_errors = [
        (CONFIDENCE_BY_CERTAINTY[answer_is_sure] - (answer_index < right)) ** 2
        for answer_index, answer_is_sure in enumerate(is_sure)
    ]
    return 1 - sum(squared_errors) / len(squared_errors)


@dataclass(frozen=True, slots=True, repr=False)
class Sheet(Savable):
    """A page of numbers to remember, which come from measurements and from the learner's own answers."""

    tables: tuple[Table, ...]

    def __repr__(self) -> str:
        return "\n\n".join(table.text() for table in self.tables)

    def _repr_html_(self) -> str:
        return "".join(table.card() for table in self.tables)

    def _make_writers(self) -> Writers:
        page_head = '<!doctype html><meta charset="utf-8"><title>gpulab: a sheet</title>'
        return {
            ".html": make_text_writer(lambda: f"{page_head}{self._repr_html_()}\n"),
            ".txt": make_text_writer(lambda: f"{self}\n"),
        }


def sheet() -> Sheet:
    """Return a page of numbers to remember, from the device in use and the learner's answers."""
    backend = session.backend()
    cp = session.cp()
    device = backend.device_info()
    device_name = device.name
    provenance_label = device.provenance.label
    quantity_rows = [
        ("SMs", f"{device.sm_count}", provenance_label),
        ("warps per SM, at most", f"{device.max_warps_per_sm}", provenance_label),
        (
            "registers per SM",
            f"{device.registers_per_sm:,}, {size(4 * device.registers_per_sm)}",
            provenance_label,
        ),
        ("shared memory per SM", size(device.shared_per_sm_bytes), provenance_label),
        ("L2", size(device.l2_bytes), provenance_label),
    ]
    if device.memory_bandwidth_gbps:
        quantity_rows.append(("bandwidth", f"{device.memory_bandwidth_gbps:,} GB/s", provenance_label))
        if device.fp32_tflops:
            ridge_intensity = device.fp32_tflops * 1000 / device.memory_bandwidth_gbps
            quantity_rows.append(
                (
                    "ridge of the roofline, FP32",
                    f"{number(ridge_intensity)} operations per byte",
                    provenance_label,
                )
            )
        if device.fp16_tensor_tflops:
            ridge_intensity = device.fp16_tensor_tflops * 1000 / device.memory_bandwidth_gbps
            quantity_rows.append(
                (
                    "ridge, FP16 on tensor cores",
                    f"{number(ridge_intensity)} operations per byte",
                    provenance_label,
                )
            )
    element_count = 1 << 22
    x = cp.zeros(element_count, "float32")
    y = cp.empty(element_count, "float32")
    scale_kernel = compile_kernel(cp, "scaled")
    launch_trace = launch(scale_kernel, element_count // 256, 256, (x, y, np.int32(element_count))).trace
    kernel_rate_text = (
        f"{number(8 * element_count / launch_trace.span_ns)} GB/s: {size(8 * element_count)} in "
        f"{duration(launch_trace.span_ns)}"
    )
    quantity_rows.append(("y = 2 * x", kernel_rate_text, launch_trace.provenance.label))
    occupancy = backend.occupancy(compile_kernel(cp, "resident"), 32, 12 << 10)
    quantity_rows.append(
        ("blocks of 32 threads and 12 KiB", f"{occupancy.blocks_per_sm} per SM", occupancy.provenance.label)
    )
    host_array = np.zeros(4 * element_count, np.uint8)
    with timeline() as copy_timeline:
        x.view("uint8").set(host_array)
    copy_ns = sum(
        activity.end_ns - activity.start_ns
        for activity in copy_timeline.record.activities
        if activity.copy_kind is not None
    )
    if copy_ns:
        copy_rate_text = (
            f"{number(4 * element_count / copy_ns)} GB/s: {size(4 * element_count)} in {duration(copy_ns)}"
        )
        quantity_rows.append(
            ("copy from pageable memory", copy_rate_text, copy_timeline.record.provenance.label)
        )
    answer_rows = tuple(
        (answered_part[0], answered_part[4], answered_part[5], "right" if answered_part[3] else "missed")
        for card_history in again.load_histories().values()
        for answered_part in (card_history.last_answers or {}).get("parts", ())
    )
    tables = [Table(f"Numbers of {device_name}", ("quantity", "value", "origin"), tuple(quantity_rows))]
    if answer_rows:
        tables.append(
            Table("Your interview questions", ("question", "answer", "origin", "yours"), answer_rows)
        )
    return Sheet(tuple(tables))


@dataclass(frozen=True, slots=True, repr=False)
class Costs:
    """The modelled costs of several kernels for the exercise 17-capstone, with a table for display."""

    table: Table
    loads: dict[str, int]
    provenance: Provenance

    def __repr__(self) -> str:
        return self.table.text()

    def _repr_html_(self) -> str:
        return self.table.card()


def attend(file: str) -> str:
    """Return the source text of one of the interview notebook's kernels."""
    return read_kernel_source(file)


def scored(code: str, heads: int = 32, tokens: int = 1024, device: str = "H100") -> Costs:
    """Compare the modelled costs of a kernel for the exercise 17-capstone with those of a naive and a good
    kernel.

    The macro ``SPLITS`` in the text of a kernel sets the number of blocks per head.
    """
    kernel_rows = []
    loaded_sectors = {}
    rng = np.random.default_rng(17)
    with use_device(device) as cp:
        query, keys, values = (
            cp.asarray(rng.standard_normal(shape), dtype="float32")
            for shape in ((heads, 32), (heads, tokens, 32), (heads, tokens, 32))
        )
        output = cp.empty((heads, 32), "float32")
        scalar_arguments = np.float32(32**-0.5), np.int32(heads), np.int32(tokens)
        kernels = (
            ("naive", read_kernel_source("attend_naive.cu")),
            ("good", read_kernel_source("attend.cu")),
            ("yours", code),
        )
        for name, kernel_code in kernels:
            split_count = read_split_count(kernel_code)
            compiled_kernel = cp.RawKernel(kernel_code, "attend")
            # diagnose and count start from the arrays as they were, so `done` is 0 for both.
            scratch_arrays = cp.zeros((heads, split_count, 34), "float32"), cp.zeros(heads, "uint32")
            launch = (
                compiled_kernel,
                (split_count, heads),
                256,
                (query, keys, values, *scratch_arrays, output, *scalar_arguments),
            )
            diagnosis_table = diagnosis(*launch)
            counters = count(*launch)
            loaded_sectors[name] = counters.total("sectors", "global", "load")
            main_cause = next(
                (cause for cause in diagnosis_table.worth_fixing if cause.kind != "launch"), None
            )
            kernel_rows.append(
                (
                    name,
                    f"{split_count * heads}",
                    duration(diagnosis_table.time_ns),
                    f"{loaded_sectors[name]:,}",
                    f"{counters.warp_instructions:,}",
                    CAUSE_NAMES[main_cause.kind] if main_cause else "nothing worth fixing",
                )
            )
    headings = ("kernel", "blocks", "time", "sectors loaded", "warp instructions", "main limit")
    sm_count = read_published_info(device).sm_count
    title = f"{heads} heads, {tokens} tokens, {sm_count} SMs, {diagnosis_table.origin}"
    return Costs(Table(title, headings, tuple(kernel_rows)), loaded_sectors, diagnosis_table.provenance)
