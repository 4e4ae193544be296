"""The matrix instructions of a warp by source line, with the executions that are shown."""

from __future__ import annotations

from typing import NamedTuple

from gpulab.views.tables import NO_VALUE_MARK, locate_line
from gpulab.words import number
from virtualgpu.records.fragments import FragmentTrace, MatrixExecution, MatrixInstruction

MAX_EXECUTIONS = 8
HEADINGS = ("line", "source", "instruction", "executed", "passes each", "at best")
_ROLE_ORDER = ("multiply", "load", "store", "access")


class InstructionRow(NamedTuple):
    """A table row for all executions of one matrix instruction on a source line."""

    line: int
    cells: tuple[str, ...]
    is_wasteful: bool
    executions: list[MatrixExecution]
    instruction: MatrixInstruction

    @property
    def shown(self) -> list[MatrixExecution]:
        """The executions of the matrix instruction that the view can show."""
        return self.executions[:MAX_EXECUTIONS]


def make_rows(trace: FragmentTrace) -> list[InstructionRow]:
    """Return one table row for each source line and kind of instruction. The kinds are multiplications,
    loads, stores and accesses.
    """
    executions_by_key: dict[tuple[int, int, str], list[MatrixExecution]] = {}
    for execution in trace.executions:
        instruction = trace.of(execution)
        row_key = _ROLE_ORDER.index(instruction.role), instruction.line, name_instruction(instruction)
        executions_by_key.setdefault(row_key, []).append(execution)
    return [
        _make_row(trace, executions)
        for _, executions in sorted(executions_by_key.items(), key=lambda group: group[0][0])
    ]


def count_passes(trace: FragmentTrace, execution: MatrixExecution) -> tuple[int, int]:
    """Return the number of passes through the shared-memory banks that an instruction needs, and the lowest
    possible number.
    """
    bank_costs = [access.banks() for access in trace.accesses(execution)]
    return sum(bank_cost.wavefronts for bank_cost in bank_costs), sum(
        bank_cost.ideal_wavefronts for bank_cost in bank_costs
    )


def name_instruction(instruction: MatrixInstruction) -> str:
    """Return a short name of a matrix instruction, such as ``mma m16n8k16, f16 × f16 + f32``."""
    base_opcode, *opcode_parts = instruction.opcode.split(".")
    matrices = instruction.matrices
    if instruction.role == "multiply":
        m, n, k = instruction.shape
        a, b, c, _ = matrices
        return f"{base_opcode} m{m}n{n}k{k}, {a.kind} × {b.kind} + {c.kind}"
    if base_opcode == "wmma":
        return f"wmma {instruction.role} {matrices[0].name}, {matrices[0].kind}"
    if matrices:
        return f"{base_opcode} x{len(matrices)}{' transposed' if 'trans' in opcode_parts else ''}"
    access_kind = {"ld": "shared load", "st": "shared store", "cp": "asynchronous copy"}.get(
        base_opcode, "shared atomic"
    )
    return f"{access_kind}, {instruction.size_bytes} B"


def _make_row(trace: FragmentTrace, executions: list[MatrixExecution]) -> InstructionRow:
    instruction = trace.of(executions[0])
    pass_count_pairs = [count_passes(trace, execution) for execution in executions]
    pass_count, ideal_count = (sum(pass_counts) for pass_counts in zip(*pass_count_pairs, strict=True))
    line, source = locate_line(trace.code, instruction.line, instruction.text, instruction.column)
    cell_texts = (
        str(line or NO_VALUE_MARK),
        source.text,
        name_instruction(instruction),
        number(len(executions)),
        number(pass_count / len(executions)) if pass_count else NO_VALUE_MARK,
        number(ideal_count / len(executions)) if pass_count else NO_VALUE_MARK,
    )
    return InstructionRow(instruction.line, cell_texts, pass_count > ideal_count, executions, instruction)
