"""The counters that budgets can limit, and the comparison of an answer's counts with a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpulab.words import fill_template
from gpulab_course.teach.judge.exercise import Budget
from virtualgpu.protocol import Counters
from virtualgpu.records import KernelCounters, KernelStats


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a kernel launch, with its counters and the compiler's statistics."""

    counters: KernelCounters
    stats: KernelStats


CostReader = Callable[[Costs], int]


def _count_opcodes(*roots: str) -> CostReader:
    return lambda costs: sum(costs.counters.opcode_warp_instructions.get(root, 0) for root in roots)


def _count_accesses(field: str, space: str | None = None, access_kind: str | None = None) -> CostReader:
    return lambda costs: costs.counters.total(field, space, access_kind)


def _read_field(field: str) -> CostReader:
    return lambda costs: int(getattr(costs.counters, field))


def _count_atomic_lanes(space: str | None = None) -> CostReader:
    return lambda costs: sum(
        a.bytes_requested // a.size_bytes
        for a in costs.counters.accesses
        if a.kind == "atomic" and space in (None, a.space)
    )


def _count_caches(*fields: str) -> CostReader:
    return lambda costs: sum(getattr(costs.counters.caches, field) for field in fields)


def _find_conflict_ways(costs: Costs) -> int:
    # Of the mean over an access's requests, for one in a thousand that lies badly is still a conflict.
    ways_per_access = (
        -(-a.wavefronts // a.ideal_wavefronts)
        for a in costs.counters.accesses
        if a.space == "shared" and a.ideal_wavefronts
    )
    return max(ways_per_access, default=0)


def _compute_pending_percent(costs: Costs) -> int:
    counts_by_opcode = costs.counters.opcode_warp_instructions
    return (
        100
        * counts_by_opcode.get("cp.async.pending", 0)
        // max(1, counts_by_opcode.get("cp.async.commit_group", 0))
    )


# Counters of budgets: the words for n of it, and the function that reads it from the counters of a launch.
# Instructions count once per warp.
COUNTERS: dict[str, tuple[str, CostReader]] = {
    "sectors": ("<n sector|sectors> of global memory", _count_accesses("sectors", "global")),
    "load_sectors": ("<n sector|sectors> loaded", _count_accesses("sectors", "global", "load")),
    "store_sectors": ("<n sector|sectors> stored", _count_accesses("sectors", "global", "store")),
    "requests": ("<n request|requests> to global memory", _count_accesses("requests", "global")),
    "local_requests": ("<n request|requests> to local memory", _count_accesses("requests", "local")),
    "l2_sectors": ("<n sector|sectors> requested from L2", _count_caches("l2_sectors")),
    "dram_bytes": ("<n byte|bytes> of device memory", _count_caches("dram_read_bytes", "dram_write_bytes")),
    "shared_bytes": ("<n byte|bytes> of shared memory per block", _read_field("shared_bytes")),
    "shared_wavefronts": (
        "<n wavefront|wavefronts> of shared memory",
        _count_accesses("wavefronts", "shared"),
    ),
    "conflict_ways": ("<n way|ways> in the worst bank conflict", _find_conflict_ways),
    "local_bytes": ("<n byte|bytes> of local memory per thread", lambda costs: costs.stats.local_bytes),
    "bank_conflicts": ("bank <n conflict|conflicts>", _count_accesses("bank_conflicts", "shared")),
    "atomics": ("atomic <n request|requests>", _count_accesses("requests", None, "atomic")),
    "atomic_lanes": ("<n lane|lanes> with atomic operations", _count_atomic_lanes()),
    "global_atomic_lanes": (
        "<n lane|lanes> with atomic operations in global memory",
        _count_atomic_lanes("global"),
    ),
    "divergent_branches": ("divergent <n branch|branches>", _read_field("divergent_branches")),
    "warp_instructions": ("warp <n instruction|instructions>", _read_field("warp_instructions")),
    "longest_warp": (
        "<n instruction|instructions> of the busiest warp",
        _read_field("longest_warp_instructions"),
    ),
    "shuffles": ("<n shuffle|shuffles>", _count_opcodes("shfl")),
    "votes": ("<n vote|votes>", _count_opcodes("vote", "activemask")),
    "matches": ("<n match|matches>", _count_opcodes("match")),
    "warp_reductions": ("warp-wide <n reduction|reductions>", _count_opcodes("redux")),
    "warp_exchanges": (
        "shuffles, votes, matches and warp-wide reductions",
        _count_opcodes("shfl", "vote", "activemask", "match", "redux"),
    ),
    "tensor_operations": (
        "<n operation|operations> of tensor cores",
        lambda costs: sum(costs.counters.tensor_operations.values()),
    ),
    "async_copies": ("<n instruction|instructions> of asynchronous copies", _count_opcodes("cp")),
    "full_waits": ("<n wait|waits> for all pending copies", _count_opcodes("cp.async.wait_all")),
    "pending_groups": ("% of the groups of copies still pending after a wait", _compute_pending_percent),
    "barriers": ("<n barrier|barriers>", _count_opcodes("bar", "barrier")),
}

# Counters that need the cache model, with caches that are empty before the launch.
_CACHE_COUNTERS = ("l2_sectors", "dram_bytes")


def choose_counters(budgets: tuple[Budget, ...]) -> Counters:
    """Return the options for counting the costs of a launch. The options enable the cache model if a budget
    needs it.
    """
    return Counters("cold" if any(budget.counter in _CACHE_COUNTERS for budget in budgets) else "")


@dataclass(frozen=True, slots=True)
class Score:
    """The values of one counter for the learner's answer, the reference and the naive version, with the
    learner's best value.

    The attribute ``golf`` is true if a lower count is better; only then is the best count stored.
    """

    counter: str
    words: str
    yours: int
    reference: int
    naive: int | None = None
    best: int | None = None
    golf: bool = True

    @property
    def count_text(self) -> str:
        """The learner's count as text, such as ``2,048 sectors of global memory``."""
        return f"{self.yours:,} {fill_template(self.words, {'n': self.yours})}"

    @property
    def comparison_text(self) -> str:
        """All counts as text, such as ``2,048 sectors loaded; naive 4,096, reference 512; your best 563``."""
        count_texts = [f"naive {self.naive:,}"] if self.naive is not None else []
        count_texts.append(f"reference {self.reference:,}")
        best_text = f"; your best {self.best:,}" if self.best is not None else ""
        return f"{self.count_text}; {', '.join(count_texts)}{best_text}"


def make_score(
    budget: Budget, answer_costs: Costs, reference_costs: Costs, naive_costs: Costs | None
) -> Score:
    """Return the score for one budget, computed from the costs of the answer, the reference and the naive
    version.
    """
    description, read_count = COUNTERS[budget.counter]
    naive_count = None if naive_costs is None else read_count(naive_costs)
    is_golf = budget.max_count is None and budget.min_count is None
    return Score(
        budget.counter,
        description,
        read_count(answer_costs),
        read_count(reference_costs),
        naive_count,
        golf=is_golf,
    )


def is_within_budget(budget: Budget, score: Score) -> bool:
    """Return whether the learner's count is within the limits of the budget."""
    max_count = budget.find_max_count(score.reference)
    min_count = budget.find_min_count(score.reference)
    return (max_count is None or score.yours <= max_count) and (min_count is None or score.yours >= min_count)


def make_complaint(budget: Budget, score: Score) -> str:
    """Return the message for a count that is outside the limits of the budget."""
    max_count = budget.find_max_count(score.reference)
    if max_count is not None and score.yours > max_count:
        limit_text = {0: "none is allowed", 1: "1 is allowed"}.get(max_count, f"{max_count:,} are allowed")
        message = f"the results are right, but it takes {score.count_text}, and {limit_text}"
    else:
        min_count = budget.find_min_count(score.reference)
        message = f"the results are right, but it has {score.count_text}, not {min_count:,} or more"
    return f"{message} (reference {score.reference:,}). {budget.advice}".rstrip()
