"""The access microscope: one access of a warp, lane by lane, from a pattern or from a kernel's trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.access import access_text, picture
from gpulab.views.access.rows import HEADINGS, MAX_REQUESTS, make_rows
from gpulab.views.parts.boxes import Box, column, table
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.pack import pack
from gpulab.words import count, number, shape
from virtualgpu.records.access import (
    ELEMENT_BYTES,
    MOST_ELEMENTS,
    ROW_ELEMENTS,
    Access,
    AccessPattern,
    AccessTrace,
)

STRIDES = (*range(34), 40, 48, 63, 64, 65, 96, 128, 256, 512, 1024)
OFFSETS = tuple(range(65))
PADDINGS = tuple(range(ROW_ELEMENTS + 1))
MAX_PICTURE_ROWS = 10
_TRUNCATION_NOTE = "The warp continued after the steps that are shown."
RULES_TEXT = "by the rules of the virtual GPU's counters, which match single accesses on an H200"


class AccessMicroscope(View, module="access/view"):
    """A view of one access of a warp. The view shows the 32 lanes and the sectors and banks that they use.

    Parameters
    ----------
    subject
        A pattern, which sliders change, or a kernel's accesses. One of these is selected in a table, and can
        be edited.
    space
        The memory for a pattern: ``"both"``, ``"global"`` or ``"shared"``.
    line
        The source line whose worst access is shown first.
    note
        A note below the picture.
    """

    contents = traitlets.Dict().tag(sync=True)
    stride = traitlets.Int(1, min=0, max=MOST_ELEMENTS).tag(sync=True, echo_update=False)
    offset = traitlets.Int(0, min=0, max=MOST_ELEMENTS).tag(sync=True, echo_update=False)
    element_bytes = traitlets.Int(4).tag(sync=True, echo_update=False)
    padding = traitlets.Int(0, min=0, max=ROW_ELEMENTS).tag(sync=True, echo_update=False)
    swizzle = traitlets.Bool(False).tag(sync=True, echo_update=False)
    space = traitlets.Enum(("both", "global", "shared"), "both").tag(sync=True, echo_update=False)
    lane = traitlets.Int(0, min=0, max=31).tag(sync=True, echo_update=False)
    row = traitlets.Int(0, min=0).tag(sync=True, echo_update=False)
    request = traitlets.Int(0, min=0).tag(sync=True, echo_update=False)
    edited = traitlets.Bool(False).tag(sync=True, echo_update=False)

    def __init__(
        self,
        subject: AccessPattern | AccessTrace,
        space: str = "both",
        line: int | None = None,
        note: str = "",
    ) -> None:
        self.trace = subject if isinstance(subject, AccessTrace) else None
        self.rows = make_rows(subject) if isinstance(subject, AccessTrace) else []
        if isinstance(subject, AccessTrace):
            counters = subject.counters
            results_origin = subject.counters.provenance.of_results
            notes = (
                f"{note.removesuffix('.')}." if note else "",
                *([_TRUNCATION_NOTE] if subject.truncated else []),
            )
            super().__init__(
                title=f"Memory accesses of {counters.kernel_name}",
                source=results_origin.split()[0],
                caption=f"Table: all warps of grid {shape(counters.grid)}, block {shape(counters.block)}. "
                f"Picture: {self._warp_text()}. Accesses {results_origin}. {' '.join(notes)}".strip(),
                row=next((index for index, row in enumerate(self.rows) if row.line == line), 0),
            )
        else:
            super().__init__(
                title="Access microscope",
                source="modelled",
                caption=f"Modelled: {RULES_TEXT} under Nsight Compute.",
                space=space,
                **{name: getattr(subject, name) for name in subject.__slots__},
            )
        scene, self.data = pack(self._make_contents())
        self.contents = scene

    def _warp_text(self) -> str:
        """Return a text that names the warp whose accesses are shown."""
        assert self.trace is not None
        block = self.trace.block_index
        return f"warp {self.trace.warp_index} of block {block[0] if block[1:] == (0, 0) else block}"

    def _make_contents(self) -> dict[str, Any]:
        """Return the data for the browser: slider choices and, for a kernel, its table and addresses."""

        def make_choices(values: tuple[int, ...], current_value: int) -> list[int]:
            return sorted({*values, current_value})

        page_data: dict[str, Any] = {
            "strides": make_choices(STRIDES, self.stride),
            "offsets": make_choices(OFFSETS, self.offset),
            "paddings": list(PADDINGS),
            "sizes": list(ELEMENT_BYTES),
            "headings": list(HEADINGS),
            "memory_heading": picture.MEMORY_HEADING,
            "banks_heading": picture.BANKS_HEADING,
            "constant_heading": picture.CONSTANT_HEADING,
            "unused": picture.UNUSED_TEXT,
            "extra": picture.EXTRA_PASS_TEXT,
            "traced": self.trace is not None,
            "said": access_text.PAGE_TEXTS,
        }
        trace = self.trace
        if trace is not None:
            requests_of_rows = [row.requests[:MAX_REQUESTS] for row in self.rows]
            request_order = np.concatenate([*requests_of_rows, np.zeros(0, np.int64)]).astype(np.int64)
            accesses = [trace.access(request) for request in request_order.tolist()]
            page_data |= {
                "rows": [
                    {"cells": list(row.cells), "over": row.is_wasteful, "total": row.requests.size}
                    for row in self.rows
                ],
                "begin": np.cumsum([0, *(row_requests.size for row_requests in requests_of_rows)]).astype(
                    np.int32
                ),
                "addresses": np.array([access.addresses for access in accesses], np.float64).ravel(),
                "size_bytes": np.array([access.size_bytes for access in accesses], np.uint8),
                "kinds": [[access.space, access.rule] for access in accesses],
                "whose": self._warp_text(),
            }
        return page_data

    @property
    def record(self) -> AccessPattern | AccessTrace:
        """The access pattern that the sliders select, or the recorded accesses of a kernel."""
        return self.pattern if self.trace is None else self.trace

    @property
    def pattern(self) -> AccessPattern:
        """The access pattern that the sliders select."""
        return AccessPattern(self.stride, self.offset, self.element_bytes, self.padding, self.swizzle)

    @property
    def access(self) -> Access | None:
        """The displayed memory access, or None if the warp made no access."""
        if self.trace is None:
            return self.pattern.access("shared" if self.space == "shared" else "global")
        if not self.rows:
            return None
        requests = self.rows[min(self.row, len(self.rows) - 1)].requests[:MAX_REQUESTS]
        if not requests.size:
            return None
        recorded_access = self.trace.access(int(requests[min(self.request, requests.size - 1)]))
        if not self.edited:
            return recorded_access
        edited_access = self.pattern.access(recorded_access.space, recorded_access.rule)
        address_pairs = zip(edited_access.addresses, recorded_access.addresses, strict=True)
        return replace(
            edited_access,
            addresses=tuple(
                edited_address if original_address >= 0 else -1
                for edited_address, original_address in address_pairs
            ),
        )

    def _find_shown_sides(self, access: Access) -> tuple[bool, bool]:
        """Return whether the sectors and whether the banks of an access are shown."""
        if self.trace is None:
            return self.space != "shared", self.space != "global"
        return access.space != "shared", access.space == "shared"

    def sentence(self) -> str:
        access = self.access
        if self.trace is None:
            assert access is not None
            pattern = self.pattern
            layout_text = (
                f", {count(pattern.padding, 'element')} of padding per row" if pattern.padding else ""
            )
            layout_text += ", swizzled" if pattern.swizzle else ""
            costs = access_text.describe_costs(access, *self._find_shown_sides(access))
            return (
                f"Access microscope, stride {number(pattern.stride)}, offset {number(pattern.offset)}, "
                f"{count(pattern.element_bytes, 'byte')} per lane{layout_text}: {costs}; modelled."
            )
        if not self.rows:
            return f"{self.title}: none; {self.trace.provenance.of_results}."
        row_cells = self.rows[0].cells
        worst_access_text = (
            f"{row_cells[2]} on line {row_cells[0]}: {row_cells[4]} per request, at best {row_cells[5]}"
        )
        return (
            f"{self.title}: {count(len(self.rows), 'access', 'accesses')} by source line, "
            f"the worst is a {worst_access_text}; {self.trace.provenance.of_results}."
        )

    def describe(self) -> str:
        access = self.access
        sentences = [self.sentence()]
        sentences += [
            f"Line {row.cells[0]}, {row.cells[2]}: {row.cells[4]} per request, at best {row.cells[5]}."
            for row in self.rows
        ]
        if access is not None:
            sentences.append(f"Shown: {access_text.describe_costs(access, *self._find_shown_sides(access))}.")
            sentences += access_text.make_lane_sentences(access, *self._find_shown_sides(access))
        return "\n".join(sentences)

    def draw(self) -> Box:
        access = self.access
        table_rows = [list(row.cells) for row in self.rows[:MAX_PICTURE_ROWS]]
        omitted_count = len(self.rows) - len(table_rows)
        access_description = self._describe_access()
        return column(
            table(table_rows, HEADINGS) if table_rows else None,
            paragraph(f"and {omitted_count} more", "note") if omitted_count > 0 else None,
            paragraph(access_description, "mono" if self.trace is None else "heading"),
            picture.draw(access, *self._find_shown_sides(access)) if access is not None else None,
            gap=8,
        )

    def _describe_access(self) -> str:
        """Return a description of the displayed access."""
        if self.trace is None:
            return access_text.make_expression(self.pattern)
        if not self.rows:
            return "The kernel made no access to memory."
        row = self.rows[min(self.row, len(self.rows) - 1)]
        row_name = f"Line {row.cells[0]}, {row.cells[2]}"
        if not row.requests.size:
            return f"{row_name}: {self._warp_text()} did not make this access."
        return f"{row_name}, edited: {access_text.make_expression(self.pattern)}" if self.edited else row_name
