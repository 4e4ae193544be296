"""The counters that budgets can limit, and the comparison of an answer's counts with a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpulab.words import filled
from gpulab_course.teach.judge.exercise import Budget
from virtualgpu.protocol import Counters
from virtualgpu.records import KernelCounters, KernelStats


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a launch: its counters, and the compiler's statistics such as bytes of local memory."""

    counters: KernelCounters
    stats: KernelStats


Reader = Callable[[Costs], int]


def _opcodes(*roots: str) -> Reader:
    return lambda costs: sum(costs.counters.opcode_warp_instructions.get(root, 0) for root in roots)


def _accesses(field: str, space: str | None = None, kind: str | None = None) -> Reader:
    return lambda costs: costs.counters.total(field, space, kind)


def _field(field: str) -> Reader:
    return lambda costs: int(getattr(costs.counters, field))


def _atomic_lanes(space: str | None = None) -> Reader:
    return lambda costs: sum(
        a.bytes_requested // a.size_bytes
        for a in costs.counters.accesses
        if a.kind == "atomic" and space in (None, a.space)
    )


def _caches(*fields: str) -> Reader:
    return lambda costs: sum(getattr(costs.counters.caches, field) for field in fields)


def _conflict_ways(costs: Costs) -> int:
    # Of the mean over an access's requests, for one in a thousand that lies badly is still a conflict.
    ways = (
        -(-a.wavefronts // a.ideal_wavefronts)
        for a in costs.counters.accesses
        if a.space == "shared" and a.ideal_wavefronts
    )
    return max(ways, default=0)


def _pending_percent(costs: Costs) -> int:
    counts = costs.counters.opcode_warp_instructions
    return 100 * counts.get("cp.async.pending", 0) // max(1, counts.get("cp.async.commit_group", 0))


# Counters of budgets: the words for n of it, and the function that reads it from the counters of a launch.
# Instructions count once per warp.
COUNTERS: dict[str, tuple[str, Reader]] = {
    "sectors": ("<n sector|sectors> of global memory", _accesses("sectors", "global")),
    "load_sectors": ("<n sector|sectors> loaded", _accesses("sectors", "global", "load")),
    "store_sectors": ("<n sector|sectors> stored", _accesses("sectors", "global", "store")),
    "requests": ("<n request|requests> to global memory", _accesses("requests", "global")),
    "local_requests": ("<n request|requests> to local memory", _accesses("requests", "local")),
    "l2_sectors": ("<n sector|sectors> requested from L2", _caches("l2_sectors")),
    "dram_bytes": ("<n byte|bytes> of device memory", _caches("dram_read_bytes", "dram_write_bytes")),
    "shared_bytes": ("<n byte|bytes> of shared memory per block", _field("shared_bytes")),
    "shared_wavefronts": ("<n wavefront|wavefronts> of shared memory", _accesses("wavefronts", "shared")),
    "conflict_ways": ("<n way|ways> in the worst bank conflict", _conflict_ways),
    "local_bytes": ("<n byte|bytes> of local memory per thread", lambda costs: costs.stats.local_bytes),
    "bank_conflicts": ("bank <n conflict|conflicts>", _accesses("bank_conflicts", "shared")),
    "atomics": ("atomic <n request|requests>", _accesses("requests", None, "atomic")),
    "atomic_lanes": ("<n lane|lanes> with atomic operations", _atomic_lanes()),
    "global_atomic_lanes": (
        "<n lane|lanes> with atomic operations in global memory",
        _atomic_lanes("global"),
    ),
    "divergent_branches": ("divergent <n branch|branches>", _field("divergent_branches")),
    "warp_instructions": ("warp <n instruction|instructions>", _field("warp_instructions")),
    "longest_warp": ("<n instruction|instructions> of the busiest warp", _field("longest_warp_instructions")),
    "shuffles": ("<n shuffle|shuffles>", _opcodes("shfl")),
    "votes": ("<n vote|votes>", _opcodes("vote", "activemask")),
    "matches": ("<n match|matches>", _opcodes("match")),
    "warp_reductions": ("warp-wide <n reduction|reductions>", _opcodes("redux")),
    "warp_exchanges": (
        "shuffles, votes, matches and warp-wide reductions",
        _opcodes("shfl", "vote", "activemask", "match", "redux"),
    ),
    "tensor_operations": (
        "<n operation|operations> of tensor cores",
        lambda costs: sum(costs.counters.tensor_operations.values()),
    ),
    "async_copies": ("<n instruction|instructions> of asynchronous copies", _opcodes("cp")),
    "full_waits": ("<n wait|waits> for all pending copies", _opcodes("cp.async.wait_all")),
    "pending_groups": ("<n %|%> of the groups of copies still pending after a wait", _pending_percent),
    "barriers": ("<n barrier|barriers>", _opcodes("bar", "barrier")),
}

# Counters that need the cache model, with caches that are empty before the launch.
_CACHE_COUNTERS = ("l2_sectors", "dram_bytes")


def counting(budgets: tuple[Budget, ...]) -> Counters:
    """Return the options for counting a launch, with the cache model if one of the budgets needs it."""
    return Counters("cold" if any(item.counter in _CACHE_COUNTERS for item in budgets) else "")


@dataclass(frozen=True, slots=True)
class Score:
    """The counts of one counter: the learner's, the reference's, the naive version's, and the learner's best.

    ``golf`` is true if a lower count is a better score, so that the best score is stored.

    ``golf``: fewer are better, so that a best is worth keeping.
    """

    counter: str
    words: str
    yours: int
    reference: int
    naive: int | None = None
    best: int | None = None
    golf: bool = True

    @property
    def figure(self) -> str:
        """The learner's count in words, such as ``2,048 sectors of global memory``."""
        return f"{self.yours:,} {filled(self.words, {'n': self.yours})}"

    @property
    def said(self) -> str:
        """All counts in words: ``2,048 sectors loaded; naive 4,096, reference 512; your best 563``."""
        other_counts = [f"naive {self.naive:,}"] if self.naive is not None else []
        other_counts.append(f"reference {self.reference:,}")
        best = f"; your best {self.best:,}" if self.best is not None else ""
        return f"{self.figure}; {', '.join(other_counts)}{best}"


def score(budget: Budget, answer_costs: Costs, reference_costs: Costs, naive_costs: Costs | None) -> Score:
    """Return the score for one budget from the costs of the answer, the reference and the naive version."""
    words, read_count = COUNTERS[budget.counter]
    naive_count = None if naive_costs is None else read_count(naive_costs)
    golf = budget.most is None and budget.least is None
    return Score(
        budget.counter, words, read_count(answer_costs), read_count(reference_costs), naive_count, golf=golf
    )


def passes(budget: Budget, score: Score) -> bool:
    """Return whether the learner's count is within the budget."""
    limit = budget.limit(score.reference)
    least = budget.floor(score.reference)
    return (limit is None or score.yours <= limit) and (least is None or score.yours >= least)


def complaint(budget: Budget, score: Score) -> str:
    """Return the message for a count that is not within the budget."""
    limit = budget.limit(score.reference)
    if limit is not None and score.yours > limit:
        limit_text = {0: "none is allowed", 1: "1 is allowed"}.get(limit, f"{limit:,} are allowed")
        message = f"the results are right, but it takes {score.figure}, and {limit_text}"
    else:
        least = budget.floor(score.reference)
        message = f"the results are right, but it has {score.figure}, not {least:,} or more"
    return f"{message} (reference {score.reference:,}). {budget.advice}".rstrip()
