"""Search for the registers of optimized code that contain the variables of the source.

Only code compiled for debugging contains the locations of variables. The debug build and the optimised code
run the same launch. Optimised instructions of a source line count as writing a variable if, in each lane,
they wrote the same values in the same order as the debug build wrote to the variable in that line. Everything
else is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.dwarf import DeclaredVariable
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.inline import strip_copy_mark
from virtualgpu.engine.lower.codegen import GeneratedKernel
from virtualgpu.records import WARP_SIZE, WarpTrace
from virtualgpu.records.warp.columns import Variable, expand_lane_masks

Values = list[npt.NDArray[np.uint64]]
Ints = npt.NDArray[np.int64]


_NO_POSITIONS = np.zeros(0, np.int64)
_NO_EXECUTIONS = np.zeros(WARP_SIZE, np.int64)


class RegisterDefinition(NamedTuple):
    """An executed instruction that writes a register. The field ``function`` is the name of the function that
    originally contained the instruction.
    """

    position: int
    function: str
    instruction: ir.Instruction
    register: str
    type: str


# A fused multiply-add rounds once, the debug build's multiply and add round twice; sums accumulate the
# difference.
_RELATIVE_TOLERANCE = 1e-4
# Number of writes that count as a loop, in a trace that was cut before its end.
_MAX_LOOP_WRITES = 4


@dataclass(frozen=True)
class TracedRun:
    """The traced warps of a launch, and the code that they executed."""

    traces: tuple[WarpTrace, ...]
    kernel: GeneratedKernel

    @cached_property
    def code(self) -> tuple[tuple[str, ir.Instruction], ...]:
        """The instructions of the trace, each with the name of the function that originally contained it."""
        return tuple(
            (instruction.origin[0] if instruction.origin else plan.function.name, instruction)
            for plan in self.kernel.plans
            for instruction in plan.function.instructions
        )

    @property
    def is_complete(self) -> bool:
        return not any(trace.truncated for trace in self.traces)

    @cached_property
    def _steps(self) -> list[dict[int, npt.NDArray[np.int64]]]:
        """Steps of each warp at every position of the trace's list of instructions."""
        steps_by_warp = []
        for trace in self.traces:
            order = np.argsort(trace.text_index, kind="stable")
            positions, starts = np.unique(trace.text_index[order], return_index=True)
            position_steps = np.split(order, starts[1:]) if order.size else []
            steps_by_warp.append(dict(zip(positions.tolist(), position_steps, strict=True)))
        return steps_by_warp

    def count_executions(self, positions: Iterable[int]) -> Ints:
        """Return the number of times that each thread executed the instructions at the given indices."""
        uncounted_positions = [position for position in positions if position not in self._execution_counts]
        for position in uncounted_positions:
            self._execution_counts[position] = np.concatenate(
                [
                    expand_lane_masks(trace.executed_mask[warp_steps[position]]).sum(axis=0)
                    if position in warp_steps
                    else _NO_EXECUTIONS
                    for trace, warp_steps in zip(self.traces, self._steps, strict=True)
                ]
            )
        thread_counts: Ints = np.sum([self._execution_counts[position] for position in positions], axis=0)
        return thread_counts

    def count_active_executions(self, positions: Iterable[int]) -> Ints:
        """Return how often each thread was active at the given instructions, including predicated-off
        executions.
        """
        warp_counts = [
            expand_lane_masks(trace.active_mask[warp_steps[position]]).sum(axis=0)
            if position in warp_steps
            else _NO_EXECUTIONS
            for position in positions
            for trace, warp_steps in zip(self.traces, self._steps, strict=True)
        ]
        thread_counts: Ints = (
            np.concatenate(warp_counts).reshape(-1, len(self.traces) * WARP_SIZE).sum(axis=0)
        )
        return thread_counts

    @cached_property
    def _execution_counts(self) -> dict[int, Ints]:
        return {}

    def repeats_to_end(self, positions: Iterable[int]) -> bool:
        """Return whether the trace ended while warps were still repeating the given instructions."""
        for trace, warp_steps in zip(self.traces, self._steps, strict=True):
            sorted_steps = np.sort(
                np.concatenate(
                    [
                        _NO_POSITIONS,
                        *(warp_steps[position] for position in positions if position in warp_steps),
                    ]
                )
            )
            if sorted_steps.size and (
                sorted_steps.size < _MAX_LOOP_WRITES
                or len(trace) - sorted_steps[-1] > 2 * np.diff(sorted_steps).max()
            ):
                return False
        return True

    def find_written_values(self, positions: Iterable[int]) -> Values:
        """Return the values that each thread wrote with the given instructions, in the order of the steps."""
        values_by_thread: Values = []
        for trace, warp_steps in zip(self.traces, self._steps, strict=True):
            assert trace.value is not None
            sorted_steps = np.sort(
                np.concatenate(
                    [
                        _NO_POSITIONS,
                        *(warp_steps[position] for position in positions if position in warp_steps),
                    ]
                )
            )
            lanes = expand_lane_masks(trace.executed_mask[sorted_steps])
            values = trace.value[sorted_steps]
            values_by_thread += [values[lanes[:, lane], lane] for lane in range(WARP_SIZE)]
        return values_by_thread

    def find_definitions(self) -> Iterator[RegisterDefinition]:
        """Yield the executed instructions that wrote a register."""
        first_trace = self.traces[0]
        executed_positions = {
            position for trace in self.traces for position in np.unique(trace.text_index).tolist()
        }
        for position in sorted(executed_positions):
            if first_trace.value_register[position]:
                function, instruction = self.code[position]
                yield RegisterDefinition(
                    position,
                    function,
                    instruction,
                    first_trace.value_register[position],
                    first_trace.value_type[position],
                )


def find_variables(
    optimized_run: TracedRun, debug_run: TracedRun, declarations: Sequence[DeclaredVariable], ptx: ir.Module
) -> tuple[Variable, ...]:
    """Return the scalar variables of the source, and the optimized instructions that write each of them.

    Parameters
    ----------
    optimized_run, debug_run
        The optimised code and the debug build, on one launch.
    declarations
        The debug build's variables.
    ptx
        The debug build.
    """
    function_of_label = {label: function for function in ptx.functions.values() for label in function.labels}
    debug_definitions = list(debug_run.find_definitions())
    optimized_definitions = list(optimized_run.find_definitions())
    variables = []
    for variable in sorted(declarations, key=lambda declared_variable: declared_variable.parameter >= 0):
        function = function_of_label.get(variable.function)
        if function is None:
            continue
        own_definitions = [
            d for d in debug_definitions if d.function == function.name and d.register in variable.registers
        ]
        variable_writes = [d for d in own_definitions if not _is_copy(d.instruction, variable)]
        writers = (
            _find_writers(optimized_run, debug_run, variable, variable_writes, optimized_definitions)
            if variable_writes
            else ()
        )
        # The value of a parameter is known from the call; a parameter without a register is left out.
        if writers or (variable_writes and variable.parameter < 0):
            last_line = _find_last_line(function, variable)
            variables.append(
                Variable(
                    name=variable.name,
                    type=variable.type,
                    kind=variable.kind,
                    first_line=variable.line,
                    last_line=last_line,
                    written_by=writers,
                    function=function.name,
                )
            )
    return tuple(variables)


def _is_copy(instruction: ir.Instruction, variable: DeclaredVariable) -> bool:
    """Return whether an instruction only moves the variable from one of its registers to another."""
    source_operand = (
        instruction.operands[1] if instruction.root == "mov" and len(instruction.operands) > 1 else None
    )
    return (
        isinstance(source_operand, ir.Register) and strip_copy_mark(source_operand.name) in variable.registers
    )


def _find_last_line(function: ir.Function, variable: DeclaredVariable) -> int:
    begin, end = (function.labels.get(label, 0) for label in variable.scope)
    return max([instruction.line for instruction in function.instructions[begin:end]] + [variable.line])


def _find_writers(
    optimized_run: TracedRun,
    debug_run: TracedRun,
    variable: DeclaredVariable,
    variable_writes: list[RegisterDefinition],
    candidate_definitions: list[RegisterDefinition],
) -> tuple[int, ...]:
    """Return the optimized instructions that write a variable, or none if they do not explain its values."""
    is_complete = optimized_run.is_complete and debug_run.is_complete
    fitting_definitions = [
        definition for definition in candidate_definitions if _fits_type(definition.type, variable.kind)
    ]
    constant_positions = {
        definition.position for definition in fitting_definitions if _sets_constant(definition.instruction)
    }
    writers: set[int] = set()
    unexplained_positions: list[int] = []

    def explain_values(positions: list[int], all_guesses: Iterable[list[int]]) -> bool:
        expected_values = debug_run.find_written_values(positions)
        # A constant in all lanes occurs in many registers by chance: only instructions that set it count, or
        # the result.
        values = {int(expected_value) for lane in expected_values for expected_value in lane}
        is_distinctive = len(values) > 1 or max(lane.size for lane in expected_values) > 1
        guesses = (
            guess
            for guess_index, guess in enumerate(all_guesses)
            if guess
            and writers.isdisjoint(guess)
            and (is_distinctive or not guess_index or constant_positions.issuperset(guess))
        )
        execution_counts = [lane.size for lane in expected_values]
        plausible_guesses = (
            guess
            for guess in guesses
            if not is_complete or np.array_equal(optimized_run.count_executions(guess), execution_counts)
        )
        confirmed_guesses = (
            guess
            for guess in plausible_guesses
            if _values_agree(
                optimized_run.find_written_values(guess), expected_values, variable.kind, is_complete
            )
            and (
                is_complete
                or np.array_equal(optimized_run.count_executions(guess), execution_counts)
                or (optimized_run.repeats_to_end(guess) and debug_run.repeats_to_end(positions))
            )
        )
        confirmed_guess = next(confirmed_guesses, [])
        writers.update(confirmed_guess)
        return bool(confirmed_guess)

    for statement in sorted(
        {(definition.instruction.line, definition.instruction.column) for definition in variable_writes}
    ):
        statement_positions = [
            definition.position
            for definition in variable_writes
            if (definition.instruction.line, definition.instruction.column) == statement
        ]
        unexplained_positions += (
            []
            if explain_values(statement_positions, _guess_writers(fitting_definitions, statement[0]))
            else statement_positions
        )
    # The compiler may have merged two arms of a branch into one instruction, which has the line of the
    # branch.
    if unexplained_positions and explain_values(
        unexplained_positions, ([], *([definition.position] for definition in fitting_definitions))
    ):
        unexplained_positions = []
    if not writers or (unexplained_positions and not is_complete):
        return ()
    all_values = debug_run.find_written_values([definition.position for definition in variable_writes])
    explained_values = optimized_run.find_written_values(writers)
    # If the compiler folded the first value into later instructions, the variable is unknown until then.
    skipped_sizes = [values.size for values in debug_run.find_written_values(unexplained_positions)]
    later_values = [
        values[skipped_size:] for values, skipped_size in zip(all_values, skipped_sizes, strict=True)
    ]
    if max(skipped_sizes, default=0) > 1 or not _values_agree(
        explained_values, later_values, variable.kind, is_complete
    ):
        return ()
    return tuple(sorted(writers))


def _sets_constant(instruction: ir.Instruction) -> bool:
    return (
        instruction.root == "mov" and isinstance(instruction.operands[1], ir.Immediate)
    ) or instruction.opcode.startswith("ld.param")


def _fits_type(register_type: str, variable_type: str) -> bool:
    """Return whether a register of one type may hold a variable of another type.

    Bytes have registers of 16 bits, because PTX has no 8-bit registers.
    """
    has_same_width = register_type[1:] == ("16" if variable_type[1:] == "8" else variable_type[1:])
    return has_same_width and (register_type[0] == "f") == (
        variable_type[0] == "f" and register_type[0] != "b"
    )


def _guess_writers(fitting_definitions: list[RegisterDefinition], line: int) -> Iterator[list[int]]:
    """Yield sets of instructions that possibly write a variable in a line."""
    line_definitions = [
        definition for definition in fitting_definitions if definition.instruction.line == line
    ]
    read_names = {
        name
        for definition in line_definitions
        for name in cfg.find_definitions_and_uses(definition.instruction)[1]
    }
    yield [
        definition.position
        for definition in line_definitions
        if not {*cfg.find_definitions_and_uses(definition.instruction)[0]} & read_names
    ]
    positions_by_opcode: dict[str, list[int]] = {}
    for definition in line_definitions:
        positions_by_opcode.setdefault(definition.instruction.opcode, []).append(definition.position)
    yield from positions_by_opcode.values()
    yield from ([position] for same_opcode in positions_by_opcode.values() for position in same_opcode)
    yield from (
        [definition.position] for definition in fitting_definitions if definition.instruction.line == 0
    )


def _values_agree(
    actual_values: Values, expected_values: Values, variable_type: str, is_complete: bool
) -> bool:
    """Return whether each lane wrote the same values in both runs, except for rounding.

    If a trace ended early, only the values up to the end of the shorter one are compared.
    """
    if not any(a.size and b.size for a, b in zip(actual_values, expected_values, strict=True)):
        return False
    type_mask = np.uint64((1 << int(variable_type[1:])) - 1)
    for a, b in zip(actual_values, expected_values, strict=True):
        if is_complete and a.size != b.size:
            return False
        common_count = min(a.size, b.size)
        x = a[:common_count] & type_mask
        y = b[:common_count] & type_mask
        if variable_type in ("f32", "f64"):
            width_bytes = int(variable_type[1:]) // 8
            float_values = [bits.astype(f"u{width_bytes}").view(f"f{width_bytes}") for bits in (x, y)]
            largest_magnitude = np.nanmax(np.abs(float_values[1]), initial=0.0) if common_count else 0.0
            if not np.allclose(
                float_values[0],
                float_values[1],
                rtol=_RELATIVE_TOLERANCE,
                atol=1e-6 * largest_magnitude,
                equal_nan=True,
            ):
                return False
        elif not np.array_equal(x, y):
            return False
    return True
