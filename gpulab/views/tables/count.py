"""The tables of ``gl.count``: totals, and memory accesses and branches by source line."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gpulab.views.parts.card import make_legend
from gpulab.views.tables import (
    NO_VALUE_MARK,
    SOURCE_COLUMN,
    Cell,
    Column,
    RecordTable,
    Table,
    format_counted_name,
    locate_line,
)
from gpulab.words import count, number, shape
from virtualgpu.records import (
    SECTOR_BYTES,
    WARP_SIZE,
    AccessCounters,
    BranchCounters,
    CacheCounters,
    KernelCounters,
)


def _format_percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def _format_two_digits(value: float) -> str:
    return f"{value:.2f}"


_ACCESS_COLUMNS = (
    "line",
    SOURCE_COLUMN,
    "access",
    Column("requests", format_value=number),
    Column("sectors", format_value=number),
    Column("at best", "ideal_sectors", number),
    Column("per request", "sectors_per_request", _format_two_digits),
    Column("L1 hits", "l1_hit_rate", _format_percent),
    Column("conflicts", "bank_conflicts", number),
)
_BRANCH_COLUMNS = (
    "line",
    SOURCE_COLUMN,
    Column("executed", format_value=number),
    Column("divergent", format_value=number),
)

_BAR_LEGEND = make_legend(
    [
        ("accent", "actual sectors or wavefronts"),
        ("tail", "actual, where fewer would be enough"),
        ("good", "fewest possible"),
    ]
)

SiteCounters = TypeVar("SiteCounters", AccessCounters, BranchCounters)


@dataclass(frozen=True, slots=True, repr=False)
class CounterTable(RecordTable[KernelCounters], KernelCounters):
    """The tables that show the counters of one kernel launch. Line numbers refer to the source in the
    attribute ``code``.
    """

    code: str = ""
    note: str = ""

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the tables and the kernel."""
        return f"Counters of {self.kernel_name}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the shape of the launch."""
        shared_bytes = count(self.shared_bytes, "byte")
        shared_text = f", {shared_bytes} of shared memory per block" if self.shared_bytes else ""
        return f"grid {shape(self.grid)}, block {shape(self.block)}{shared_text}"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the counters and of the cache hit rates, such as ``measured on
        NVIDIA H200``.
        """
        hit_rates_text = "; hit rates modelled" if self.caches is not None else ""
        return f"{self.provenance.of_results}{hit_rates_text}"

    @property
    def remarks(self) -> Sequence[str]:
        """The part of the caption that explains how the counters were obtained."""
        return [f"{self.note.rstrip('.')}."] if self.note else []

    def tables(self) -> tuple[Table, ...]:
        """Return a table of the totals, and tables of memory accesses and branches by line if there are any.

        The compiler can copy a loop body several times. Copies that never ran are left out; the others are in
        an inner table.
        """
        access_lines = _group_by_line(
            self.accesses,
            lambda access: (access.line, access.space, access.kind),
            lambda access: access.requests,
            self._make_access_row,
        )
        branch_lines = _group_by_line(
            self.branches, lambda branch: branch.line, lambda branch: branch.executed, self._make_branch_row
        )
        tables_by_line = (
            _make_table("Memory accesses", _ACCESS_COLUMNS, access_lines, "accesses"),
            _make_table("Conditional branches", _BRANCH_COLUMNS, branch_lines, "branches"),
        )
        return self._make_totals_table(), *(table for table in tables_by_line if table.rows)

    def _make_totals_table(self) -> Table:
        lane_efficiency = self.lane_efficiency
        total_rows: list[tuple[Any, ...]] = [
            ("warp instructions", self.warp_instructions, "issued, summed over all warps"),
            ("thread instructions", self.thread_instructions, "one per active lane"),
            (
                "lane efficiency",
                _make_percent_cell(lane_efficiency),
                f"{lane_efficiency * WARP_SIZE:.1f} of {WARP_SIZE} lanes active on average",
            ),
        ]
        for operation_kind, operations in self.flops.items():
            meaning = "additions, multiplications and functions of CUDA cores; a multiply-add counts as two"
            total_rows.append((f"{operation_kind} operations", operations, meaning))
        for name, operations in self.tensor_operations.items():
            factor_type, accumulator_type = name.split(" to ")
            meaning = (
                f"of tensor cores; {factor_type} factors, {accumulator_type} sums; a multiply-add "
                "counts as two"
            )
            total_rows.append((f"tensor {name} operations", operations, meaning))
        for operation_kind, name in (("load", "loads"), ("store", "stores"), ("atomic", "atomics")):
            request_count = self.total("requests", "global", operation_kind)
            if request_count:
                sectors, ideal_sectors = (
                    self.total(counter_name, "global", operation_kind)
                    for counter_name in ("sectors", "ideal_sectors")
                )
                request_size_text = (
                    f"{sectors / request_count:.2f} per request, at best {ideal_sectors / request_count:.2f}"
                )
                meaning = f"requests, {count(sectors, 'sector')} of {SECTOR_BYTES} bytes, {request_size_text}"
                total_rows.append((f"global {name}", request_count, meaning))
        shared_requests = self.total("requests", "shared")
        if shared_requests:
            wavefronts = self.total("wavefronts", "shared")
            bank_conflicts = self.total("bank_conflicts", "shared")
            meaning = f"requests, {count(wavefronts, 'wavefront')}, {count(bank_conflicts, 'bank conflict')}"
            total_rows.append(("shared accesses", shared_requests, meaning))
        if self.caches is not None:
            total_rows += _make_cache_rows(self.caches)
        if self.branches:
            executed_count = sum(branch.executed for branch in self.branches)
            meaning = f"of {number(executed_count)} conditional branches"
            total_rows.append(("divergent branches", self.divergent_branches, meaning))
        return Table("", ("counter", Column("value", format_value=number), "meaning"), tuple(total_rows))

    def _make_access_row(self, accesses: Sequence[AccessCounters]) -> tuple[Any, ...]:
        first_access = accesses[0]
        sizes_text = " and ".join(map(str, sorted({access.size_bytes for access in accesses})))
        counts_sectors = first_access.space not in ("shared", "const")
        request_count, sectors, ideal_sectors, bank_conflicts, wavefronts, ideal_wavefronts = (
            sum(getattr(access, counter_name) for access in accesses)
            for counter_name in (
                "requests",
                "sectors",
                "ideal_sectors",
                "bank_conflicts",
                "wavefronts",
                "ideal_wavefronts",
            )
        )
        access_text = format_counted_name(len(accesses), f"{first_access.space} {first_access.kind}")
        return (
            *locate_line(
                self.code, first_access.line, first_access.text, first_access.column, is_access=True
            ),
            f"{access_text}, {sizes_text} B",
            request_count,
            _make_actual_and_ideal_cell(sectors, ideal_sectors, self._find_largest_count("sectors"))
            if counts_sectors
            else None,
            ideal_sectors if counts_sectors else None,
            sectors / max(1, request_count) if counts_sectors else None,
            self._compute_l1_hit_rate(accesses),
            _make_actual_and_ideal_cell(
                wavefronts, ideal_wavefronts, self._find_largest_count("wavefronts"), bank_conflicts
            )
            if first_access.space == "shared"
            else None,
        )

    def _find_largest_count(self, counter: str) -> int:
        """Return the largest value of a counter among the source lines, which gets the longest bar."""
        total_of_line: dict[Hashable, int] = {}
        for access in self.accesses:
            line_key = access.line, access.space, access.kind
            total_of_line[line_key] = total_of_line.get(line_key, 0) + getattr(access, counter)
        return max(total_of_line.values())

    def _make_body(self) -> str:
        tables = [table.html() for table in self.tables()]
        if self.accesses:
            tables.insert(2, _BAR_LEGEND)
        return "".join(tables)

    def _compute_l1_hit_rate(self, accesses: Sequence[AccessCounters]) -> float | None:
        first_access = accesses[0]
        if self.caches is None or first_access.space in ("shared", "const") or first_access.kind != "load":
            return None
        sectors = sum(access.sectors for access in accesses)
        l1_hits = sum(access.l1_hit_sectors for access in accesses)
        return l1_hits / sectors if sectors else None

    def _make_branch_row(self, branches: Sequence[BranchCounters]) -> tuple[Any, ...]:
        first_branch = branches[0]
        source_location = locate_line(self.code, first_branch.line, first_branch.text, first_branch.column)
        return (
            *source_location,
            sum(branch.executed for branch in branches),
            sum(branch.divergent for branch in branches),
        )


def _make_percent_cell(fraction: float) -> Cell:
    return Cell(fraction, f"{100 * fraction:.1f} %", ((fraction, "accent"),))


def _make_actual_and_ideal_cell(
    actual_count: int, ideal_count: int, largest_count: int, shown_count: int | None = None
) -> Cell:
    """Return a count as a cell whose bars compare the actual number with the ideal one."""
    cell_value = actual_count if shown_count is None else shown_count
    colour = "tail" if actual_count > ideal_count else "accent"
    return Cell(
        cell_value,
        number(cell_value),
        ((actual_count / largest_count, colour), (ideal_count / largest_count, "good"))
        if largest_count
        else (),
    )


def _make_cache_rows(caches: CacheCounters) -> list[tuple[Any, ...]]:
    """Return the rows of the cache model, whose numbers are modelled and not counted."""
    start_text = "from empty caches" if caches.start == "cold" else "with data in L2 from earlier launches"
    sample_text = "" if caches.one_in == 1 else f", from one line in {caches.one_in}"
    method_text = f"modelled {start_text}{sample_text}"
    cache_rows: list[tuple[Any, ...]] = []
    for rate_name, hit_rate, hit_count, sector_count, sectors_text in (
        ("L1 hit rate", caches.l1_hit_rate, caches.l1_hit_sectors, caches.l1_sectors, "of loads"),
        ("L2 hit rate", caches.l2_hit_rate, caches.l2_hit_sectors, caches.l2_sectors, "of the SMs"),
    ):
        if hit_rate is not None:
            meaning = f"{number(hit_count)} of {count(sector_count, 'sector')} {sectors_text}; {method_text}"
            cache_rows.append((rate_name, _make_percent_cell(hit_rate), meaning))
    if caches.l2_sectors:
        written_bytes = number(caches.dram_write_bytes)
        meaning = f"bytes, {number(caches.dram_read_bytes)} read, {written_bytes} written; {method_text}"
        cache_rows.append(("memory (DRAM)", caches.dram_read_bytes + caches.dram_write_bytes, meaning))
    if caches.constant_requests:
        passes_text = count(caches.constant_passes, "pass", "passes")
        meaning = f"requests, {passes_text}, one per word that a warp requests"
        cache_rows.append(("constant accesses", caches.constant_requests, meaning))
    return cache_rows


def _group_by_line(
    counters: Iterable[SiteCounters],
    make_key: Callable[[SiteCounters], Hashable],
    count_executions: Callable[[SiteCounters], int],
    make_row: Callable[[Sequence[SiteCounters]], tuple[Any, ...]],
) -> list[tuple[tuple[Any, ...], list[tuple[Any, ...]]]]:
    """Group counters by the key that `make_key` returns. Return a row for each group, with the rows of its
    members.

    Members that never ran are left out, unless no member of the group ran.
    """
    counters_by_key: dict[Hashable, list[SiteCounters]] = {}
    for counter in counters:
        counters_by_key.setdefault(make_key(counter), []).append(counter)
    counter_groups = [
        [counter for counter in counter_group if count_executions(counter)] or counter_group[:1]
        for counter_group in counters_by_key.values()
    ]
    return [
        (make_row(counter_group), [make_row([counter]) for counter in counter_group])
        for counter_group in counter_groups
    ]


def _make_table(
    title: str,
    columns: tuple[Column | str, ...],
    line_groups: list[tuple[tuple[Any, ...], list[tuple[Any, ...]]]],
    member_kind: str,
) -> Table:
    """Return a table with one row per source line. A line with several accesses or branches has an inner
    table with one row for each of them.
    """
    inner_tables = tuple(
        Table(
            f"the {len(member_rows)} {member_kind} of line {row[0] or NO_VALUE_MARK} one by one",
            columns,
            tuple(member_rows),
        )
        if len(member_rows) > 1
        else None
        for row, member_rows in line_groups
    )
    return Table(title, columns, tuple(row for row, _ in line_groups), inner_tables, hide_empty=True)
