"""Conversion of a traced block's raw data to the matrix instructions of one warp.

The trace contains every register that a step wrote. Replaying these writes gives the registers that a matrix
instruction reads, and for each byte of them the address in shared memory that it was loaded from.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.inline import strip_copy_mark
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.fragments import list_registers
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.ops.matrices import tensor
from virtualgpu.engine.observe.accesses import AccessRequest, read_requests
from virtualgpu.engine.observe.trace_buffers import TraceRequest
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.records import Provenance
from virtualgpu.records.access import Rule
from virtualgpu.records.fragments import (
    KIND_BITS,
    FragmentTrace,
    Matrix,
    MatrixExecution,
    MatrixInstruction,
    Role,
)

LaneAddresses = npt.NDArray[np.int64]
AccessSite = tuple[int, int, int]  # function, pc, number of the access
_REGISTER_BYTES = 4
_ROW_BYTES = 16  # of a matrix of ldmatrix
_ELEMENT_BYTES = 2
_NO_ADDRESSES = np.full((_REGISTER_BYTES, layout.LANES), -1, np.int64)


def make_fragment_trace(
    launch: RunningLaunch, provenance: Provenance, request: TraceRequest
) -> FragmentTrace:
    """Return the matrix instructions of the traced warp, and its accesses to shared memory."""
    raw_trace = launch.trace
    assert raw_trace is not None
    replay = _WarpReplay(launch, request.warp_index)
    replay.run()
    return FragmentTrace(
        provenance=provenance,
        kernel_name=launch.packed_launch.title,
        code=launch.source,
        grid=launch.packed_launch.grid,
        block=launch.packed_launch.block,
        block_index=request.block_index,
        warp_index=request.warp_index,
        instructions=tuple(replay.describe_instructions()),
        executions=tuple(replay.executions),
        truncated=raw_trace.truncated,
    )


@dataclass(frozen=True, slots=True)
class _RegisterContent:
    """The contents of a register in each lane.

    ``address`` is the offset in shared memory that each of the first 4 bytes was loaded from, or -1.
    ``loader_site`` is the ``ldmatrix`` that loaded the register.
    """

    bits: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(layout.LANES, np.uint64))
    address: LaneAddresses = field(default_factory=lambda: _NO_ADDRESSES)
    loader_site: AccessSite | None = None


@dataclass(frozen=True, slots=True)
class _ReplayStep:
    """One step of the warp: its position, its instruction, and its requests to shared memory."""

    position: int
    function_index: int
    call_depth: int
    instruction: ir.Instruction
    requests: list[AccessRequest]

    @property
    def site(self) -> AccessSite:
        return self.function_index, self.instruction.pc, 0

    @property
    def addresses(self) -> list[LaneAddresses]:
        return [request.address for request in self.requests]


class _WarpReplay:
    """The registers of one warp, step by step, and the matrix instructions that it has executed so far."""

    def __init__(self, launch: RunningLaunch, warp_index: int) -> None:
        assert launch.trace is not None
        self.raw_trace = launch.trace
        self.functions = [plan.function for plan in launch.kernel.plans]
        self.warp_index = warp_index
        self.access_sites = launch.kernel.tables.accesses
        self.requests_by_step: dict[int, list[AccessRequest]] = defaultdict(list)
        for request in read_requests(launch, warp_index):
            if request.space == "shared":
                self.requests_by_step[request.step].append(request)
        self.register_contents: dict[tuple[int, int, str], _RegisterContent] = {}
        self.instruction_index_by_site: dict[AccessSite, int] = {}
        self.instructions: list[MatrixInstruction] = []
        self.executions: list[MatrixExecution] = []
        self.element_types_by_loader: dict[AccessSite, set[str]] = defaultdict(set)

    def run(self) -> None:
        """Replay all steps of the warp."""
        step_records = self.raw_trace.steps
        register_rows = self.raw_trace.rows[self.raw_trace.rows["kind"] >= layout.ROW_REGISTER]
        register_rows = register_rows[np.argsort(register_rows["step"], kind="stable")]
        row_bounds = np.searchsorted(register_rows["step"], np.arange(len(step_records) + 1)).tolist()
        for position, index in enumerate(np.flatnonzero(step_records["warp"] == self.warp_index).tolist()):
            if not step_records["executed"][index]:
                continue
            function_index = int(step_records["function"][index])
            step = _ReplayStep(
                position,
                function_index,
                int(step_records["depth"][index]),
                self.functions[function_index].instructions[step_records["pc"][index]],
                self.requests_by_step[index],
            )
            self._run_step(step, register_rows[row_bounds[index] : row_bounds[index + 1]])

    def describe_instructions(self) -> Iterator[MatrixInstruction]:
        """Yield the instructions that the warp executed. Elements that ``ldmatrix`` loads get the type that a
        later instruction uses.
        """
        for site_key, instruction in zip(self.instruction_index_by_site, self.instructions, strict=True):
            element_types = self.element_types_by_loader[site_key]
            element_type = next(iter(element_types)) if len(element_types) == 1 else ""
            yield dataclasses.replace(
                instruction,
                matrices=tuple(
                    dataclasses.replace(matrix, kind=element_type)
                    if element_type and KIND_BITS[element_type] == KIND_BITS[matrix.kind]
                    else matrix
                    for matrix in instruction.matrices
                ),
            )

    def _run_step(self, step: _ReplayStep, rows: npt.NDArray[Any]) -> None:
        instruction = step.instruction
        if instruction.root not in tensor.ROOTS:
            self._write_registers(step, rows)
            for request_index, request in enumerate(step.requests):
                self._add_access(step, request_index, request)
            return
        operands = [self._read_register_contents(step, operand) for operand in instruction.operands]
        self._write_registers(step, rows)
        if tensor.is_matrix_product(instruction):
            operands[0] = self._read_register_contents(step, instruction.operands[0])
            self._add_product(step, operands)
        elif "store" in instruction.parts or instruction.root == "stmatrix":
            self._add_move(step, instruction.operands[1], operands[1])
        else:
            self._add_move(
                step, instruction.operands[0], self._read_register_contents(step, instruction.operands[0])
            )

    # Registers ---------------------------------------------------------------------------------------
    def _read_register_contents(
        self, step: _ReplayStep, operand: ir.Operand | None
    ) -> list[_RegisterContent]:
        """Return the contents of the registers in an operand, with or without braces."""
        register_contents = []
        for register in list_registers(operand):
            register_content = _RegisterContent()
            if isinstance(register, ir.Immediate):
                register_content = _RegisterContent(np.full(layout.LANES, register.value % 2**64, np.uint64))
            elif isinstance(register, ir.Register):
                register_content = self.register_contents.get(
                    (step.call_depth, step.function_index, register.name), register_content
                )
            register_contents.append(register_content)
        return register_contents

    def _write_registers(self, step: _ReplayStep, row_records: npt.NDArray[Any]) -> None:
        """Change the registers that an instruction has written."""
        if not len(row_records):
            return
        defined_names = cfg.find_definitions_and_uses(step.instruction)[0]
        source_contents = self._find_loaded_contents(step, defined_names)
        for row_record in row_records:
            register_index = int(row_record["kind"]) - layout.ROW_REGISTER
            register_key = step.call_depth, step.function_index, defined_names[register_index]
            old_content = self.register_contents.get(register_key, _RegisterContent())
            source_content = (
                source_contents[register_index]
                if register_index < len(source_contents)
                else _RegisterContent()
            )
            lanes = (row_record["mask"] >> np.arange(layout.LANES, dtype=np.uint32) & 1).astype(np.bool_)
            self.register_contents[register_key] = _RegisterContent(
                np.where(lanes, row_record["lanes"], old_content.bits),
                np.where(lanes, source_content.address, old_content.address),
                source_content.loader_site,
            )

    def _find_loaded_contents(self, step: _ReplayStep, names: Sequence[str]) -> list[_RegisterContent]:
        """Return the origin of each register that an instruction has loaded or moved."""
        instruction = step.instruction
        if instruction.root == "mov":
            return self._find_moved_contents(step, names)
        if not step.requests:
            return []
        if instruction.root in ("ld", "ldu"):
            item_bytes = ir.TYPE_BYTES[instruction.type]
            elements_per_register = 1
            element_addresses = [
                _offset_shared_address(step.addresses[0], n * item_bytes) for n in range(len(names))
            ]
        elif instruction.root in tensor.ROOTS:
            item_bytes = KIND_BITS[instruction.type] // 8
            elements_per_register = max(_REGISTER_BYTES // item_bytes, 1)
            element_addresses = [
                address for addresses in _find_matrix_addresses(step, len(names)) for address in addresses
            ]
            # Several registers of wmma can contain the same element.
            element_addresses = [
                element_addresses[n % len(element_addresses)]
                for n in range(elements_per_register * len(names))
            ]
        else:
            return []
        loader_site = step.site if instruction.root == "ldmatrix" else None
        return [
            _RegisterContent(
                address=_find_byte_addresses(
                    [
                        _offset_shared_address(element_address, n)
                        for element_address in element_addresses[
                            first_element : first_element + elements_per_register
                        ]
                        for n in range(item_bytes)
                    ]
                ),
                loader_site=loader_site,
            )
            for first_element in range(0, len(element_addresses), elements_per_register)
        ]

    def _find_moved_contents(self, step: _ReplayStep, names: Sequence[str]) -> list[_RegisterContent]:
        """Return the origin of the registers that ``mov`` has copied, joined or divided."""
        register_contents = self._read_register_contents(step, step.instruction.operands[1])
        registers = self.functions[step.function_index].registers
        source_registers = list_registers(step.instruction.operands[1])
        addresses: list[LaneAddresses] = []
        for register, register_content in zip(source_registers, register_contents, strict=True):
            name = register.name if isinstance(register, ir.Register) else ""
            addresses += list(
                register_content.address[: ir.TYPE_BYTES.get(registers.get(name, ""), _REGISTER_BYTES)]
            )
        moved_contents = []
        for name in names:
            register_bytes = ir.TYPE_BYTES.get(registers.get(name, ""), _REGISTER_BYTES)
            loader_site = (
                register_contents[0].loader_site if len(register_contents) == len(names) == 1 else None
            )
            moved_contents.append(
                _RegisterContent(
                    address=_find_byte_addresses(addresses[:register_bytes]), loader_site=loader_site
                )
            )
            addresses = addresses[register_bytes:]
        return moved_contents

    # Instructions ------------------------------------------------------------------------------------
    def _add_execution(
        self,
        site: AccessSite,
        step: _ReplayStep,
        instruction: MatrixInstruction,
        bits: Sequence[npt.NDArray[np.uint64]],
        address: Sequence[LaneAddresses],
        lane_address: Sequence[LaneAddresses] = (),
    ) -> None:
        instruction_index = self.instruction_index_by_site.setdefault(
            site, len(self.instruction_index_by_site)
        )
        if instruction_index == len(self.instructions):
            self.instructions.append(instruction)
        self.executions.append(
            MatrixExecution(
                instruction=instruction_index,
                step=step.position,
                bits=tuple(bits),
                address=tuple(address),
                lane_address=np.array(lane_address, np.int64).reshape(-1, layout.LANES),
            )
        )

    def _add_product(self, step: _ReplayStep, operands: Sequence[list[_RegisterContent]]) -> None:
        instruction = step.instruction
        result_kind, a_kind, b_kind, sum_kind = tensor.types_of(instruction)
        shape = tensor.shape_of(instruction)
        matrices = []
        bits_of_matrices = []
        addresses = []
        matrix_operands = (("a", a_kind, 1), ("b", b_kind, 2), ("c", sum_kind, 3), ("d", result_kind, 0))
        for name, element_type, operand in matrix_operands:
            row, column = tensor.positions_of(instruction, name)
            matrix = _make_matrix(
                name,
                element_type,
                tensor.extent_of(name, shape),
                (row, column),
                instruction.operands[operand],
            )
            matrix_contents = operands[operand][: len(matrix.registers)]
            for register_content in matrix_contents:
                if register_content.loader_site is not None:
                    self.element_types_by_loader[register_content.loader_site].add(element_type)
            matrices.append(matrix)
            bits_of_matrices.append(_extract_element_bits(matrix_contents, element_type))
            addresses.append(_find_element_addresses(matrix_contents, element_type))
        self._add_execution(
            step.site,
            step,
            _make_instruction(instruction, "multiply", matrices, shape=shape),
            bits_of_matrices,
            addresses,
        )

    def _add_move(
        self, step: _ReplayStep, operand: ir.Operand | None, contents: Sequence[_RegisterContent]
    ) -> None:
        """Add a load or a store of fragments, with the addresses that it has accessed."""
        instruction = step.instruction
        role: Role = "store" if "store" in instruction.parts or instruction.root == "stmatrix" else "load"
        element_type = instruction.type
        if instruction.root == "wmma":
            name = instruction.parts[2]
            extent = tensor.extent_of(name, tensor.shape_of(instruction))
            matrices = [
                _make_matrix(name, element_type, extent, tensor.positions_of(instruction, name), operand)
            ]
        else:
            matrices = [
                _make_matrix(
                    str(matrix_index),
                    element_type,
                    (8, 8),
                    tensor.compute_row_positions(instruction),
                    register,
                )
                for matrix_index, register in enumerate(list_registers(operand))
            ]
        bits_of_matrices = []
        element_index = 0
        for matrix in matrices:
            bits_of_matrices.append(
                _extract_element_bits(
                    contents[element_index : element_index + len(matrix.registers)], element_type
                )
            )
            element_index += len(matrix.registers)
        addresses = (
            [np.array(matrix_address) for matrix_address in _find_matrix_addresses(step, len(matrices))]
            if step.requests
            else [np.full(matrix.row.shape, -1, np.int64) for matrix in matrices]
        )
        rule: Rule = "store" if role == "store" else "load"
        is_wmma = instruction.root == "wmma"
        matrix_instruction = _make_instruction(
            instruction,
            role,
            matrices,
            size_bytes=KIND_BITS[element_type] // 8 if is_wmma else _ROW_BYTES,
            rule=rule if is_wmma else "matrix",
        )
        self._add_execution(step.site, step, matrix_instruction, bits_of_matrices, addresses, step.addresses)

    def _add_access(self, step: _ReplayStep, request_index: int, request: AccessRequest) -> None:
        function_index, access_instruction = self.access_sites[request.site]
        self._add_execution(
            (step.function_index, step.instruction.pc, request_index),
            step,
            _make_instruction(
                step.instruction,
                "access",
                (),
                size_bytes=memory_ops.size_of(access_instruction),
                rule=memory_ops.rule_of(self.functions[function_index], access_instruction),
            ),
            (),
            (),
            [request.address],
        )


def _find_matrix_addresses(step: _ReplayStep, matrix_count: int) -> list[list[LaneAddresses]]:
    """Return the address of each element of the matrices that an instruction has loaded or stored."""
    if step.instruction.root == "wmma":
        return [step.addresses]
    (row_addresses,) = step.addresses
    rows_of_lanes, columns_of_lanes = tensor.compute_row_positions(step.instruction)
    return [
        list(row_addresses[8 * matrix_index + rows_of_lanes.T] + _ELEMENT_BYTES * columns_of_lanes.T)
        for matrix_index in range(matrix_count)
    ]


def _make_instruction(
    instruction: ir.Instruction, role: Role, matrices: Sequence[Matrix], **options: Any
) -> MatrixInstruction:
    return MatrixInstruction(
        role=role,
        text=instruction.text,
        line=instruction.line,
        column=instruction.column,
        matrices=tuple(matrices),
        **options,
    )


def _make_matrix(
    name: str,
    kind: str,
    extent: tuple[int, int],
    positions: tuple[LaneAddresses, LaneAddresses],
    operand: ir.Operand | None,
) -> Matrix:
    rows, columns = extent
    row, column = positions
    registers = row.shape[1] * KIND_BITS[kind] // max(KIND_BITS[kind], 8 * _REGISTER_BYTES)
    return Matrix(
        name=name,
        kind=kind,
        rows=rows,
        columns=columns,
        registers=tuple(
            strip_copy_mark(register.name) if isinstance(register, ir.Register) else ""
            for register in list_registers(operand)[:registers]
        ),
        row=row.T.astype(np.int64),
        column=column.T.astype(np.int64),
    )


def _extract_element_bits(contents: Sequence[_RegisterContent], kind: str) -> npt.NDArray[np.uint64]:
    """Return the bits of each element in each lane."""
    element_bits = KIND_BITS[kind]
    bit_shifts = range(0, 8 * _REGISTER_BYTES, element_bits)
    mask = np.uint64((1 << element_bits) - 1)
    return np.array(
        [
            register_content.bits >> np.uint64(shift) & mask
            for register_content in contents
            for shift in bit_shifts
        ]
    )


def _find_element_addresses(contents: Sequence[_RegisterContent], kind: str) -> LaneAddresses:
    """Return the offset in shared memory that the first byte of each element was loaded from, or -1."""
    element_bytes = KIND_BITS[kind] // 8
    return np.array(
        [
            register_content.address[n]
            for register_content in contents
            for n in range(0, _REGISTER_BYTES, element_bytes)
        ]
    )


def _offset_shared_address(address: LaneAddresses, offset_bytes: int) -> LaneAddresses:
    return np.where(address >= 0, address + offset_bytes, -1)


def _find_byte_addresses(addresses: Sequence[LaneAddresses]) -> LaneAddresses:
    """Return the addresses of the first 4 bytes of a register, of which the last ones can be unknown."""
    return np.array([*addresses, *_NO_ADDRESSES][:_REGISTER_BYTES])
