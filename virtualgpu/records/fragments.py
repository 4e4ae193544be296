"""Records of matrix instructions: the lane, register, value and address of each element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from virtualgpu.records.access import Access, Rule
from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance

Role = Literal["multiply", "load", "store", "access"]
KIND_BITS = {
    "f16": 16,
    "bf16": 16,
    "b16": 16,
    "tf32": 32,
    "f32": 32,
    "s32": 32,
    "e4m3": 8,
    "e5m2": 8,
    "s8": 8,
    "u8": 8,
    "f64": 64,
}
"""Bits of an element of each type; the type of elements of ``b16`` is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The distribution of a matrix over the lanes and registers of a warp.

    The arrays ``row`` and ``column`` have one entry for each element of each lane. The elements of a lane are
    in the order of its ``registers``, which are named as in PTX, and the first one of a register is in its
    lowest bits.
    """

    name: str
    kind: str
    rows: int
    columns: int
    registers: tuple[str, ...]
    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]

    @property
    def per_register(self) -> int:
        """Number of matrix elements in one register. A register has 32 bits, or 64 bits for doubles."""
        return max(32 // KIND_BITS[self.kind], 1)

    def holder(self, row: int, column: int) -> tuple[int, int]:
        """Return the lane that holds a matrix element, and the index of the element in this lane.

        Raises
        ------
        IndexError
            If the matrix has no such element.
        """
        register_index, lane = np.nonzero((self.row == row) & (self.column == column))
        if not register_index.size:
            raise IndexError(
                f"The matrix has {self.rows} × {self.columns} elements, so it has no element ({row}, "
                f"{column})."
            )
        return int(lane[0]), int(register_index[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixInstruction:
    """An instruction that multiplies, loads or stores matrix fragments, or an ordinary access to shared
    memory.

    The field ``matrices`` contains the matrices a, b, c and d of a multiplication, or the matrices that the
    instruction loads or stores. An ordinary access has none. ``shape`` is m, n and k of a multiplication.
    ``size_bytes`` and ``rule`` describe the accesses of a lane.
    """

    role: Role
    text: str
    line: int
    column: int
    shape: tuple[int, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    size_bytes: int = 0
    rule: Rule = "load"

    @property
    def opcode(self) -> str:
        """The instruction without its operands and its predicate."""
        return next(word for word in self.text.split() if not word.startswith("@"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixExecution:
    """One execution of a matrix instruction or of an access to shared memory.

    The field ``step`` is the position of the execution among the warp's steps. ``bits`` has an array
    (elements, lanes) for each matrix, with the contents of the registers. ``address`` has the offsets in
    shared memory that the elements were loaded from, or stored to: for a multiplication those of the loads
    that filled its registers. -1 means that an element was computed, or is not in shared memory.
    ``lane_address`` (accesses, lanes) has the offsets that the lanes passed in each access to shared memory.
    ``wmma`` makes one access for each element of a lane, as the virtual GPU does; PTX does not define the
    accesses of a real GPU.
    """

    instruction: int
    step: int
    bits: tuple[npt.NDArray[np.uint64], ...]
    address: tuple[npt.NDArray[np.int64], ...]
    lane_address: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentTrace:
    """All matrix instructions and shared-memory accesses of one warp, in the order in which it executed them.

    The field ``truncated`` states whether the warp executed further steps that were not recorded.
    """

    provenance: Provenance
    kernel_name: str
    code: str
    grid: Dim3
    block: Dim3
    block_index: Dim3
    warp_index: int
    instructions: tuple[MatrixInstruction, ...]
    executions: tuple[MatrixExecution, ...]
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.executions)

    def of(self, execution: MatrixExecution) -> MatrixInstruction:
        """Return the instruction of an execution."""
        return self.instructions[execution.instruction]

    def values(self, execution: MatrixExecution, name: str) -> npt.NDArray[np.float64]:
        """Return the values of a matrix, arranged in rows and columns.

        Raises
        ------
        KeyError
            If the instruction has no matrix of this name.
        """
        for matrix, bits in zip(self.of(execution).matrices, execution.bits, strict=True):
            if matrix.name == name:
                matrix_values = np.zeros((matrix.rows, matrix.columns))
                matrix_values[matrix.row, matrix.column] = decode_bits(bits, matrix.kind)
                return matrix_values
        raise KeyError(name)

    def accesses(self, execution: MatrixExecution) -> tuple[Access, ...]:
        """Return the shared-memory accesses of an execution. A multiplication has no such accesses."""
        instruction = self.of(execution)
        return tuple(
            Access(tuple(addresses), instruction.size_bytes, "shared", instruction.rule)
            for addresses in execution.lane_address.tolist()
        )


def decode_bits(bits: npt.NDArray[np.unsignedinteger[Any]], kind: str) -> npt.NDArray[np.float64]:
    """Convert bits to numbers of a matrix element type such as ``f16``. Bits of the type ``b16`` are
    converted to integers.

    Examples
    --------
    >>> decode_bits(np.array([0x3C00, 0xC000], np.uint32), "f16")
    array([ 1., -2.])
    """
    if kind == "f64":
        return bits.astype(np.uint64).view(np.float64)
    bits = bits.astype(np.uint32)
    with np.errstate(invalid="ignore"):
        match kind:
            case "f16":
                return bits.astype(np.uint16).view(np.float16).astype(np.float64)
            case "bf16":
                return (bits << np.uint32(16)).view(np.float32).astype(np.float64)
            case "tf32":
                return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
            case "f32":
                return bits.view(np.float32).astype(np.float64)
            case "s32":
                return bits.view(np.int32).astype(np.float64)
            case "s8":
                return bits.astype(np.uint8).view(np.int8).astype(np.float64)
            case "e5m2":  # the upper byte of a half
                return (bits << np.uint32(8)).astype(np.uint16).view(np.float16).astype(np.float64)
            case "e4m3":  # a half with 3 bits of fraction, whose exponent has a bias that is 8 smaller
                half_bits = (bits & np.uint32(0x80)) << np.uint32(8) | (bits & np.uint32(0x7F)) << np.uint32(
                    7
                )
                e4m3_values = 256 * half_bits.astype(np.uint16).view(np.float16).astype(np.float64)
                return np.where(bits & np.uint32(0x7F) == np.uint32(0x7F), np.nan, e4m3_values)
    return bits.astype(np.float64)
