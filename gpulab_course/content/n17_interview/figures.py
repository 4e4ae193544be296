"""Figures of notebook 17: resident blocks of an SM, two kernels with one symptom, and costs of bets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpulab import session
from gpulab.lab.kernels import count
from gpulab.lab.run import launch
from gpulab.lab.timeline import timeline
from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.views._saving import Savable, Writers, text_writer
from gpulab.views.tables import Table
from gpulab.views.tables.diagnosis import BOUND, NAMES, DiagnosisTable
from gpulab.words import duration, number, percent, size
from gpulab_course.content.n17_interview.cards.laboratory import Published, info, kernel, on, source
from gpulab_course.teach.interview import again
from gpulab_course.teach.interview.scorecard import CONFIDENCE
from virtualgpu.records import Provenance


@dataclass(frozen=True, slots=True, repr=False)
class Resident:
    """The number of resident blocks of an SM of a device, and the number that each limit allows."""

    device: Published
    blocks: int
    by_limit: dict[str, int]
    provenance: Provenance

    def _table(self) -> Table:
        rows = tuple((name, f"{blocks}") for name, blocks in self.by_limit.items())
        title = f"{self.blocks} blocks an SM of {self.device.name}, {self.provenance.label}"
        return Table(title, ("limit", "blocks that it allows"), rows)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def resident(device: str, threads: int, shared_kib: int) -> Resident:
    """Return the blocks of this many threads and this much dynamic shared memory that fit on an SM."""
    with on(device) as cp:
        seen = session.backend().occupancy(kernel(cp, "resident"), threads, shared_kib << 10)
    return Resident(info(device), seen.blocks_per_sm, dict(seen.blocks_by_limit), seen.provenance)


def card(device: str) -> Published:
    """A device's published data."""
    return info(device)


@dataclass(frozen=True, slots=True, repr=False)
class Pair:
    """Two kernels with the same unit busy."""

    shares: tuple[float, float]
    found: tuple[DiagnosisTable, DiagnosisTable]

    @property
    def provenance(self) -> Provenance:
        """The provenance of the two diagnoses."""
        return self.found[0].provenance

    @property
    def alike(self) -> bool:
        """Return whether the symptom of both kernels is the same, but the cause differs."""
        one, other = self.found
        return one.bound == other.bound and (one.main is None) != (other.main is None)

    def _table(self) -> Table:
        rows = []
        for name, share, found in zip(("kernel A", "kernel B"), self.shares, self.found, strict=True):
            main = found.main
            cause = (
                f"{NAMES[main.kind]}: {number(main.gain)} × without it" if main else "nothing worth mending"
            )
            rows.append((name, BOUND[found.bound][0], percent(share), duration(found.time_ns), cause))
        headings = ("", "symptom", "time that DRAM takes alone", "time", "cause")
        return Table(f"Two hidden kernels, {self.provenance.label}", headings, tuple(rows))

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def same_symptom() -> Pair:
    """Compare a strided read and a plain one, both limited by DRAM."""
    found = []
    n = 1 << 20
    with on("T4") as cp:
        for stride in (8, 1):
            x = cp.zeros(n * stride, "float32")
            y = cp.zeros(n, "float32")
            found.append(
                diagnosis(kernel(cp, "strided"), n // 256, 256, (x, y, np.int32(stride), np.int32(n)))
            )
    one, other = found
    shares = one.stages["DRAM"] / one.time_ns, other.stages["DRAM"] / other.time_ns
    return Pair(shares, (one, other))


def bets(sure: Sequence[bool], right: int = 7) -> float:
    """Return the calibration of answers, the first `right` of which are right, each a sure one or a guess."""
    wrong = [(CONFIDENCE[bet] - (at < right)) ** 2 for at, bet in enumerate(sure)]
    return 1 - sum(wrong) / len(wrong)


@dataclass(frozen=True, slots=True, repr=False)
class Sheet(Savable):
    """One page of numbers to know: measured on a device, and from the learner's own answers."""

    tables: tuple[Table, ...]

    def __repr__(self) -> str:
        return "\n\n".join(table.text() for table in self.tables)

    def _repr_html_(self) -> str:
        return "<br>".join(table.html() for table in self.tables)

    def _writers(self) -> Writers:
        page = '<!doctype html><meta charset="utf-8"><title>gpulab: a sheet</title>'
        return {
            ".html": text_writer(lambda: f"{page}{self._repr_html_()}\n"),
            ".txt": text_writer(lambda: f"{self}\n"),
        }


def sheet() -> Sheet:
    """Return a page of numbers: of the device in use, each with its origin, and the learner's answers."""
    backend = session.backend()
    cp = session.cp()
    of = backend.device_info()
    name = of.name
    label = of.provenance.label
    rows = [
        ("SMs", f"{of.sm_count}", label),
        ("warps an SM holds", f"{of.max_warps_per_sm}", label),
        ("registers an SM", f"{of.registers_per_sm:,}, {size(4 * of.registers_per_sm)}", label),
        ("shared memory an SM", size(of.shared_per_sm_bytes), label),
        ("L2", size(of.l2_bytes), label),
    ]
    if of.memory_bandwidth_gbps:
        rows.append(("bandwidth", f"{of.memory_bandwidth_gbps:,} GB/s", label))
        if of.fp32_tflops:
            ridge = of.fp32_tflops * 1000 / of.memory_bandwidth_gbps
            rows.append(("ridge of the roofline, FP32", f"{number(ridge)} operations a byte", label))
        if of.fp16_tensor_tflops:
            ridge = of.fp16_tensor_tflops * 1000 / of.memory_bandwidth_gbps
            rows.append(("the same, FP16 on tensor cores", f"{number(ridge)} operations a byte", label))
    n = 1 << 22
    x = cp.zeros(n, "float32")
    y = cp.empty(n, "float32")
    made = kernel(cp, "scaled")
    ran = launch(made, n // 256, 256, (x, y, np.int32(n))).trace
    rate = f"{number(8 * n / ran.span_ns)} GB/s: {size(8 * n)} in {duration(ran.span_ns)}"
    rows.append(("y = 2 * x reaches", rate, ran.provenance.label))
    held = backend.occupancy(kernel(cp, "resident"), 32, 12 << 10)
    rows.append(("blocks of 32 threads and 12 KiB", f"{held.blocks_per_sm} an SM", held.provenance.label))
    here = np.zeros(4 * n, np.uint8)
    with timeline() as seen:
        x.view("uint8").set(here)
    took = sum(each.end_ns - each.start_ns for each in seen.record.activities if each.copy_kind is not None)
    if took:
        to = f"{number(4 * n / took)} GB/s: {size(4 * n)} in {duration(took)}"
        rows.append(("from pageable memory", to, seen.record.provenance.label))
    answered = tuple(
        (part[0], part[4], part[5], {True: "right", False: "missed"}[bool(part[3])])
        for card in again.all_cards().values()
        for part in (card.last or {}).get("parts", ())
    )
    tables = [Table(f"Numbers of {name}", ("what", "figure", "origin"), tuple(rows))]
    if answered:
        tables.append(Table("What you were asked", ("question", "found", "origin", "you"), answered))
    return Sheet(tuple(tables))


@dataclass(frozen=True, slots=True, repr=False)
class Costs:
    """The costs of kernels for 17-capstone, by name."""

    table: Table
    loads: dict[str, int]
    provenance: Provenance

    def __repr__(self) -> str:
        return self.table.text()

    def _repr_html_(self) -> str:
        return self.table.html()


def attend(file: str) -> str:
    """Return the text of one of the interview notebook's kernels."""
    return source(file)


_FIXED = ("grid", "launch")


def scored(code: str, heads: int = 32, tokens: int = 128, device: str = "H100") -> Costs:
    """Compare the costs of a kernel for 17-capstone with a naive and a good one: modelled time, and counters.

    The last column leaves out what the contract fixes: the grid of one block per head, and the launch.
    """
    rows = []
    loads = {}
    rng = np.random.default_rng(17)
    with on(device) as cp:
        query, keys, values = (
            cp.asarray(rng.standard_normal(shape), dtype="float32")
            for shape in ((heads, 32), (heads, tokens, 32), (heads, tokens, 32))
        )
        out = cp.empty((heads, 32), "float32")
        args = (query, keys, values, out, np.float32(32**-0.5), np.int32(heads), np.int32(tokens))
        kernels = (("naive", source("attend_naive.cu")), ("good", source("attend.cu")), ("yours", code))
        for name, text in kernels:
            made = cp.RawKernel(text, "attend")
            found = diagnosis(made, heads, 256, args)
            seen = count(made, heads, 256, args)
            loads[name] = seen.total("sectors", "global", "load")
            main = next((cause for cause in found.worth_mending if cause.kind not in _FIXED), None)
            rows.append(
                (
                    name,
                    duration(found.time_ns),
                    f"{loads[name]:,}",
                    f"{seen.warp_instructions:,}",
                    NAMES[main.kind] if main else "nothing worth mending",
                )
            )
    headings = ("kernel", "time", "sectors loaded", "warp instructions", "what limits it, besides the grid")
    sms = info(device).sm_count
    title = f"{heads} heads, {tokens} tokens: {heads} blocks on {sms} SMs, {found.provenance.label}"
    return Costs(Table(title, headings, tuple(rows)), loads, found.provenance)
