"""Sentences and labels of the fragment view. ``view.js`` fills the same templates for each selection."""

from __future__ import annotations

import math

from gpulab.words import fill_template, number
from virtualgpu.records.access import BANKS, WORD_BYTES
from virtualgpu.records.fragments import KIND_BITS, FragmentTrace, Matrix, MatrixExecution, decode_bits

SHOWN_CHOICES = {
    "held": "lane · register",
    "value": "value",
    "address": "byte in shared memory",
}
"""The texts that cells of a matrix can contain."""
ELEMENT_TEXT = (
    "{matrix} ({row}, {column}) = {value}{before}: lane {lane}, register {register} ({name}){bits}{memory}."
)
BEFORE_TEXT = ", before {before}"
BITS_TEXT = ", bits {first} to {last}"
ORIGIN_TEXTS = {
    "multiply": ", loaded from byte {address} of shared memory, bank {bank}",
    "load": ", loaded from byte {address} of shared memory, bank {bank}",
    "store": ", stored to byte {address} of shared memory, bank {bank}",
}
LANE_TEXT = "Lane {lane} (group {group}, position {position}) holds {elements}."
ACCESS_TEXT = "Lane {lane} accesses bytes {first} to {last} of shared memory in pass {pass}."
IDLE_TEXT = "Lane {lane} is inactive."
PAGE_TEXTS = {
    "element": ELEMENT_TEXT,
    "before": BEFORE_TEXT,
    "bits": BITS_TEXT,
    "origin": ORIGIN_TEXTS,
    "lane": LANE_TEXT,
}
"""Templates that ``view.js`` fills."""
TOO_LONG_MARK = "…"
"""What a cell contains if its text does not fit."""
MAX_LISTED = 16
VALUE_DIGITS = 4


def value_text(value: float) -> str:
    """Format the value of a matrix element as text. The file ``view.js`` contains the same function."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return number(value, VALUE_DIGITS)


def _make_value_forms(value: float) -> str:
    """Return the text of a value, with two shorter forms for narrow cells: a rounded number and a mark."""
    full_text = value_text(value)
    rounded_text = number(value, 1) if math.isfinite(value) else full_text
    return "\n".join([full_text, *([] if rounded_text == full_text else [f"≈{rounded_text}"]), TOO_LONG_MARK])


def name_matrix(matrix: Matrix) -> str:
    """Return the short name of a matrix, such as ``a``, or ``m0`` for the first matrix of ``ldmatrix``."""
    return f"m{matrix.name}" if matrix.name.isdigit() else matrix.name


def find_first_register(matrix: Matrix) -> int:
    """Return the index of the operand register that holds the first elements of the matrix."""
    return int(matrix.name) if matrix.name.isdigit() else 0


def make_matrix_title(matrix: Matrix) -> str:
    """Return the heading of a matrix with its name, its shape and the type of its elements."""
    return f"{name_matrix(matrix)}: {matrix.rows} × {matrix.columns}, {matrix.kind}"


def make_cell_texts(execution: MatrixExecution, index: int, matrix: Matrix, shown: str) -> list[str]:
    """Return the text of each cell of a matrix, ordered by element and lane. If a text has several lines,
    each later line is a shorter version of the text.
    """
    element_count, lanes = matrix.row.shape
    if shown == "value":
        element_values = decode_bits(execution.bits[index], matrix.kind)
        return [_make_value_forms(value) for value in element_values.ravel().tolist()]
    if shown == "address":
        addresses = execution.address[index].ravel().tolist()
        return [f"{address}\n{TOO_LONG_MARK}" if address >= 0 else "" for address in addresses]
    return [
        f"{lane}·{find_first_register(matrix) + element // matrix.per_register}\n{lane}"
        for element in range(element_count)
        for lane in range(lanes)
    ]


def element_sentence(
    trace: FragmentTrace, execution: MatrixExecution, index: int, element: int, lane: int
) -> str:
    """Return a sentence about one matrix element with its value, its lane and register, and its address."""
    instruction = trace.of(execution)
    matrix = instruction.matrices[index]
    element_bits = KIND_BITS[matrix.kind]
    part_index = element % matrix.per_register
    address = int(execution.address[index][element, lane])
    old_value_text = ""
    if matrix.name == "d" and instruction.role == "multiply":
        previous_values = decode_bits(execution.bits[index - 1], instruction.matrices[index - 1].kind)
        old_value_text = fill_template(
            BEFORE_TEXT, {"before": value_text(float(previous_values[element, lane]))}
        )
    return fill_template(
        ELEMENT_TEXT,
        {
            "matrix": name_matrix(matrix),
            "row": int(matrix.row[element, lane]),
            "column": int(matrix.column[element, lane]),
            "value": value_text(float(decode_bits(execution.bits[index], matrix.kind)[element, lane])),
            "before": old_value_text,
            "lane": lane,
            "register": find_first_register(matrix) + element // matrix.per_register,
            "name": matrix.registers[element // matrix.per_register],
            "bits": fill_template(
                BITS_TEXT, {"first": part_index * element_bits, "last": (part_index + 1) * element_bits - 1}
            )
            if element_bits < 32
            else "",
            "memory": fill_template(
                ORIGIN_TEXTS[instruction.role],
                {"address": str(address), "bank": address // WORD_BYTES % BANKS},
            )
            if address >= 0
            else "",
        },
    )


def lane_sentence(matrices: list[Matrix], lane: int) -> str:
    """Return a sentence that lists the matrix elements that one lane holds."""
    matrix_texts = []
    for matrix in matrices:
        positions = list(zip(matrix.row[:, lane].tolist(), matrix.column[:, lane].tolist(), strict=True))
        element_list = ", ".join(f"({row}, {column})" for row, column in positions[:MAX_LISTED])
        matrix_texts.append(f"{name_matrix(matrix)} {element_list}")
    return fill_template(
        LANE_TEXT,
        {"lane": lane, "group": lane // 4, "position": lane % 4, "elements": "; ".join(matrix_texts)},
    )


def access_sentences(trace: FragmentTrace, execution: MatrixExecution) -> list[str]:
    """Return a sentence for each lane of an ordinary memory access."""
    (access,) = trace.accesses(execution)
    pass_of_lane = {piece.lane: piece.row + 1 for piece in access.pieces()}
    return [
        fill_template(
            ACCESS_TEXT,
            {
                "lane": lane,
                "first": str(address),
                "last": str(address + access.size_bytes - 1),
                "pass": pass_of_lane[lane],
            },
        )
        if address >= 0
        else fill_template(IDLE_TEXT, {"lane": lane})
        for lane, address in enumerate(access.addresses)
    ]
