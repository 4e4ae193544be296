"""Search for unrolled loops: how many source iterations one iteration of the optimised code executes.

The debug build runs the same launch with every iteration of the source. A loop counts as unrolled by k if
every thread made k times as many iterations in the debug build, and the loop's code repeats an operation of
the source k times. Everything else is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.observe.variables import TracedRun

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TracedLoop:
    """A loop that a traced run of a kernel executed, with its lines and iterations.

    The field ``max_operation_copies`` is the maximum number of copies of a source operation in the loop.
    """

    lines: frozenset[int]
    iterations: Ints
    instruction_count: int
    max_operation_copies: int


def find_unroll_factors(optimized_run: TracedRun, debug_run: TracedRun) -> tuple[int, ...]:
    """Return the number of source iterations that one iteration of each optimized loop executes.

    Parameters
    ----------
    optimized_run, debug_run
        The optimised code and the debug build, on one launch and for the same warps.

    Returns
    -------
    tuple of int
        One number per row of `StepDetail.loops`; 0 if it is not known, or if the loop is not unrolled.
    """
    loops = list(_find_traced_loops(optimized_run))
    unroll_factors = [0] * len(loops)
    if not (optimized_run.is_complete and debug_run.is_complete):
        return tuple(unroll_factors)
    loops_by_source: dict[int, list[int]] = {}
    source_loops = sorted(_find_traced_loops(debug_run), key=lambda loop: -len(loop.lines))
    for loop_index, loop in enumerate(loops):
        matching_loops = [
            n for n, source_loop in enumerate(source_loops) if min(source_loop.lines, default=0) in loop.lines
        ]
        if matching_loops:  # the outermost loop of the source that is in this one
            loops_by_source.setdefault(matching_loops[0], []).append(loop_index)
    for source_number, loop_indices in loops_by_source.items():
        # Iterations that do not fill an unrolled one run in a second loop, with one source iteration each.
        main_loop, *other_loops = sorted(loop_indices, key=lambda number: -loops[number].instruction_count)
        remaining_count = source_loops[source_number].iterations - sum(
            loops[other_loop].iterations for other_loop in other_loops
        )
        iterations = loops[main_loop].iterations
        unroll_factor = int(remaining_count.max(initial=0) // max(1, iterations.max(initial=0)))
        if 2 <= unroll_factor <= loops[main_loop].max_operation_copies and np.array_equal(
            remaining_count, unroll_factor * iterations
        ):
            unroll_factors[main_loop] = unroll_factor
    return tuple(unroll_factors)


def _find_traced_loops(traced_run: TracedRun) -> Iterator[TracedLoop]:
    """Yield the loops of a run's code, in the order of `StepDetail.loops`."""
    first_position = 0
    for plan in traced_run.kernel.plans:
        blocks = plan.control_flow.blocks
        latches_by_head: dict[int, list[int]] = {}
        for block in blocks:
            for successor in block.successors:
                if successor <= block.number:
                    latches_by_head.setdefault(successor, []).append(block.number)
        for head_block, last_blocks in sorted(latches_by_head.items()):
            loop_positions = [
                first_position + index
                for block in blocks[head_block : max(last_blocks) + 1]
                for index in range(block.first, block.end)
            ]
            instructions = [traced_run.code[position][1] for position in loop_positions]
            operation_counts = Counter(
                (i.line, i.column, i.opcode) for i in instructions if i.line and i.root != "bra"
            )
            yield TracedLoop(
                frozenset(instruction.line for instruction in instructions if instruction.line),
                traced_run.count_active_executions(
                    [first_position + blocks[block_index].end - 1 for block_index in last_blocks]
                ),
                len(instructions),
                max(operation_counts.values(), default=0),
            )
        first_position += len(plan.function.instructions)
