"""The fragment view: the lane, register and value of each element of a warp's matrix instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import traitlets

from gpulab.views._base import View
from gpulab.views.fragments import fragment_text, picture
from gpulab.views.fragments.rows import HEADINGS, InstructionRow, count_passes, make_rows
from gpulab.views.parts.boxes import Box, column, table
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.pack import pack
from gpulab.views.tables import NO_VALUE_MARK
from gpulab.words import count, number
from virtualgpu.records import WARP_SIZE
from virtualgpu.records.fragments import FragmentTrace, MatrixExecution, decode_bits

MAX_PICTURE_ROWS = 8
_TRUNCATION_NOTE = "The warp continued after the steps that are shown."
WMMA_NOTE = (
    "NVIDIA does not document the layout of wmma fragments. {layout} Fragments of halves can have more "
    "elements than are shown. These repeat the shown ones, and the multiplication does not read them. "
    "The virtual GPU accesses one element per lane at a time, but a real GPU can combine several."
)
RECORDED_LAYOUT_NOTE = "It was recorded on an H200."
ASSUMED_LAYOUT_NOTE = "The shown layout was recorded on an H200; for other GPUs it is an assumption."


class FragmentView(View, module="fragments/view"):
    """A view of the matrix instructions of a warp. The view shows matrices by lane and register, and the
    shared memory of these matrices.

    Parameters
    ----------
    trace
        The matrix instructions and accesses to shared memory of a warp.
    line
        The source line whose first instruction is shown first; the first multiplication by default.
    note
        A note below the picture.
    """

    contents = traitlets.Dict().tag(sync=True)
    row = traitlets.Int(0, min=0).tag(sync=True, echo_update=False)
    execution = traitlets.Int(0, min=0).tag(sync=True, echo_update=False)
    matrix = traitlets.Int(0, min=0).tag(sync=True, echo_update=False)
    element = traitlets.Int(0, min=0).tag(sync=True, echo_update=False)
    lane = traitlets.Int(0, min=0, max=WARP_SIZE - 1).tag(sync=True, echo_update=False)
    shown = traitlets.Enum(tuple(fragment_text.SHOWN_CHOICES), "held").tag(sync=True, echo_update=False)

    def __init__(self, trace: FragmentTrace, line: int | None = None, note: str = "") -> None:
        self.trace = trace
        self.rows = make_rows(trace)
        origin = trace.provenance.of_results
        note_texts = (
            f"{note.removesuffix('.')}." if note else "",
            self._make_wmma_note(),
            _TRUNCATION_NOTE if trace.truncated else "",
        )
        super().__init__(
            title=f"Fragments of {trace.kernel_name}",
            source=origin.split()[0],
            caption=" ".join(
                filter(None, [f"{self._warp_text()}. Registers and addresses {origin}.", *note_texts])
            ),
            row=next((index for index, row in enumerate(self.rows) if row.line == line), 0),
        )
        scene, self.data = pack(self._make_contents())
        self.contents = scene

    @property
    def record(self) -> FragmentTrace:
        return self.trace

    @property
    def chosen_row(self) -> InstructionRow:
        """The table row whose instruction executions are shown."""
        return self.rows[min(self.row, len(self.rows) - 1)]

    @property
    def chosen(self) -> MatrixExecution:
        """The execution of a matrix instruction that is shown."""
        shown_executions = self.chosen_row.shown
        return shown_executions[min(self.execution, len(shown_executions) - 1)]

    def _make_wmma_note(self) -> str:
        if not any(instruction.opcode.startswith("wmma") for instruction in self.trace.instructions):
            return ""
        is_recorded = self.trace.provenance.device.split()[-1] == "H200"
        return WMMA_NOTE.format(layout=RECORDED_LAYOUT_NOTE if is_recorded else ASSUMED_LAYOUT_NOTE)

    def _warp_text(self) -> str:
        block = self.trace.block_index
        return f"Warp {self.trace.warp_index} of block {block[0] if block[1:] == (0, 0) else block}"

    def _make_contents(self) -> dict[str, Any]:
        """Return the data for the browser: the table, and the plots and values of each execution."""
        trace = self.trace
        plot_by_matrix_id: dict[int, Any] = {}  # by the identity of a matrix, which instructions keep

        def make_matrix_data(execution: MatrixExecution, index: int) -> dict[str, Any]:
            matrix = trace.of(execution).matrices[index]
            if id(matrix) not in plot_by_matrix_id:
                plot_by_matrix_id[id(matrix)] = picture.draw_matrix(matrix)
            element_values = _compact(decode_bits(execution.bits[index], matrix.kind))
            matrix_data: dict[str, Any] = {
                "index": index,
                "name": fragment_text.name_matrix(matrix),
                "title": fragment_text.make_matrix_title(matrix),
                "columns": matrix.columns,
                "per_register": matrix.per_register,
                "registers": list(matrix.registers),
                "first_register": fragment_text.find_first_register(matrix),
                "plot": plot_by_matrix_id[id(matrix)],
                "values": element_values.ravel(),
                "address": execution.address[index].ravel(),
            }
            if matrix.name == "d" and trace.of(execution).role == "multiply":
                values_before = decode_bits(
                    execution.bits[index - 1], trace.of(execution).matrices[index - 1].kind
                )
                matrix_data["before"] = _compact(values_before).ravel()
            return matrix_data

        def make_execution_data(execution: MatrixExecution) -> dict[str, Any]:
            instruction = trace.of(execution)
            is_access = instruction.role == "access"
            return {
                "role": instruction.role,
                "costs": self._describe_costs(execution),
                "matrices": [
                    make_matrix_data(execution, index)
                    for index in picture.find_drawn_matrices(trace, execution)
                ],
                "memory": picture.draw_memory(trace, execution),
                "conflict": any(run.is_conflict for run in picture.find_byte_runs(trace, execution)),
                "sentences": fragment_text.access_sentences(trace, execution) if is_access else [],
            }

        return {
            "headings": list(HEADINGS),
            "rows": [
                {
                    "cells": list(row.cells),
                    "over": row.is_wasteful,
                    "total": len(row.executions),
                    "executions": [make_execution_data(execution) for execution in row.shown],
                }
                for row in self.rows
            ],
            "lanes": picture.draw_lanes(),
            "shown": [[name, text] for name, text in fragment_text.SHOWN_CHOICES.items()],
            "said": fragment_text.PAGE_TEXTS,
            "listed": fragment_text.MAX_LISTED,
            "headings_of_memory": [picture.MEMORY_HEADING, picture.ACCESS_HEADING],
            "pass_note": picture.PASS_NOTE,
        }

    def _describe_costs(self, execution: MatrixExecution) -> str:
        """Return a text with the passes of an execution through the banks; empty if it makes no access."""
        pass_count, ideal_count = count_passes(self.trace, execution)
        if not pass_count:
            return ""
        return f"{count(pass_count, 'pass', 'passes')} through the banks, at best {number(ideal_count)}"

    def _describe_execution(self) -> str:
        """Return a description of the execution that is shown."""
        row = self.chosen_row
        execution_number = min(self.execution, len(row.shown) - 1) + 1
        phrases = [
            (
                f"Line {row.cells[0]}, {row.cells[2]}: "
                f"execution {execution_number} of {number(len(row.executions))}"
            ),
            self._describe_costs(self.chosen),
        ]
        return "; ".join(filter(None, phrases))

    def _selection_sentences(self) -> list[str]:
        """Return sentences about the selected element and about all elements of its lane."""
        trace = self.trace
        execution = self.chosen
        if trace.of(execution).role == "access":
            return [fragment_text.access_sentences(trace, execution)[self.lane]]
        drawn_indices = picture.find_drawn_matrices(trace, execution)
        matrix_index = drawn_indices[min(self.matrix, len(drawn_indices) - 1)]
        matrices = [trace.of(execution).matrices[drawn_index] for drawn_index in drawn_indices]
        element_index = min(self.element, len(trace.of(execution).matrices[matrix_index].row) - 1)
        return [
            fragment_text.element_sentence(trace, execution, matrix_index, element_index, self.lane),
            fragment_text.lane_sentence(matrices, self.lane),
        ]

    def sentence(self) -> str:
        worst_row = max(self.rows, key=lambda row: row.is_wasteful)
        conflict_text = f", bank conflicts on line {worst_row.cells[0]}" if worst_row.is_wasteful else ""
        product_count = sum(len(row.executions) for row in self.rows if row.instruction.role == "multiply")
        move_count = sum(
            len(row.executions) for row in self.rows if row.instruction.role in ("load", "store")
        )
        count_texts = [
            count(product_count, "multiplication") if product_count else "",
            f"{count(move_count, 'load or store', 'loads and stores')} of fragments" if move_count else "",
        ]
        return (
            f"{self.title}, {self._warp_text().lower()}: "
            f"{', '.join(filter(None, count_texts))}{conflict_text}; "
            f"{self.trace.provenance.of_results}."
        )

    def describe(self) -> str:
        sentences = [self.sentence()]
        for row in self.rows:
            costs_text = (
                ""
                if row.cells[4] == NO_VALUE_MARK
                else f", {row.cells[4]} passes each, at best {row.cells[5]}"
            )
            times_text = count(len(row.executions), "time")
            sentences.append(f"Line {row.cells[0]}, {row.cells[2]}: executed {times_text}{costs_text}.")
        sentences.append(f"Shown: {self._describe_execution()}.")
        sentences += self._selection_sentences()[:1]
        trace = self.trace
        if trace.of(self.chosen).role == "access":
            return "\n".join([*sentences[:-1], *fragment_text.access_sentences(trace, self.chosen)])
        matrices = [
            trace.of(self.chosen).matrices[index] for index in picture.find_drawn_matrices(trace, self.chosen)
        ]
        sentences += [fragment_text.lane_sentence(matrices, lane) for lane in range(WARP_SIZE)]
        return "\n".join(sentences)

    def draw(self) -> Box:
        shown_rows = [list(row.cells) for row in self.rows[:MAX_PICTURE_ROWS]]
        omitted_count = len(self.rows) - len(shown_rows)
        return column(
            table(shown_rows, HEADINGS),
            paragraph(f"and {omitted_count} more", "note") if omitted_count > 0 else None,
            paragraph(self._describe_execution(), "heading"),
            picture.draw(
                self.trace, self.chosen, self.lane, self.shown, " ".join(self._selection_sentences())
            ),
            gap=8,
        )


def _compact(values: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Return the values as single-precision floats if this is exact, and unchanged otherwise."""
    float32_values = values.astype(np.float32)
    return (
        float32_values
        if np.array_equal(float32_values.astype(np.float64), values, equal_nan=True)
        else values
    )
