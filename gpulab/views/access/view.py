"""Access microscope: one access of a warp, lane by lane, from a pattern or from a kernel's trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.access import access_text, picture
from gpulab.views.access.rows import HEADINGS, MOST_REQUESTS, rows
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
MOST_ROWS_ON_PAPER = 10
_CUT = "The warp went on after what is shown."
RULES = "by the rules of the virtual GPU's counters, which are those of single accesses on an H200"


class AccessMicroscope(View, module="access/view"):
    """One access of a warp: 32 lanes, and their sectors of memory and banks.

    Parameters
    ----------
    shown
        A pattern, which sliders change, or a kernel's accesses, one of which is chosen from a table and may
        then be edited.
    space
        Which side is shown of a pattern: ``"both"``, ``"global"`` or ``"shared"``.
    line
        The source line whose worst access is shown first.
    note
        Said below the picture.
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
        self, shown: AccessPattern | AccessTrace, space: str = "both", line: int | None = None, note: str = ""
    ) -> None:
        self.trace = shown if isinstance(shown, AccessTrace) else None
        self.rows = rows(shown) if isinstance(shown, AccessTrace) else []
        if isinstance(shown, AccessTrace):
            counters = shown.counters
            origin = shown.counters.provenance.of_results
            said = (f"{note.removesuffix('.')}." if note else "", *([_CUT] if shown.truncated else []))
            super().__init__(
                title=f"Memory accesses of {counters.kernel_name}",
                source=origin.split()[0],
                caption=f"Table: all warps of grid {shape(counters.grid)}, block {shape(counters.block)}. "
                f"Picture: {self._whose()}. Accesses {origin}. {' '.join(said)}".strip(),
                row=next((at for at, row in enumerate(self.rows) if row.line == line), 0),
            )
        else:
            super().__init__(
                title="Access microscope",
                source="modelled",
                caption=f"Modelled: {RULES} under Nsight Compute.",
                space=space,
                **{name: getattr(shown, name) for name in shown.__slots__},
            )
        scene, self.data = pack(self._contents())
        self.contents = scene

    def _whose(self) -> str:
        assert self.trace is not None
        block = self.trace.block_index
        return f"warp {self.trace.warp_index} of block {block[0] if block[1:] == (0, 0) else block}"

    def _contents(self) -> dict[str, Any]:
        """Return the data of the page: slider choices and, for a kernel, its table and addresses."""

        def choices(values: tuple[int, ...], chosen: int) -> list[int]:
            return sorted({*values, chosen})

        sent: dict[str, Any] = {
            "strides": choices(STRIDES, self.stride),
            "offsets": choices(OFFSETS, self.offset),
            "paddings": list(PADDINGS),
            "sizes": list(ELEMENT_BYTES),
            "headings": list(HEADINGS),
            "memory_heading": picture.MEMORY_HEADING,
            "banks_heading": picture.BANKS_HEADING,
            "constant_heading": picture.CONSTANT_HEADING,
            "unused": picture.UNUSED,
            "extra": picture.EXTRA,
            "traced": self.trace is not None,
            "said": access_text.PAGE,
        }
        trace = self.trace
        if trace is not None:
            kept = [row.requests[:MOST_REQUESTS] for row in self.rows]
            order = np.concatenate([*kept, np.zeros(0, np.int64)]).astype(np.int64)
            found = [trace.access(at) for at in order.tolist()]
            sent |= {
                "rows": [
                    {"cells": list(row.cells), "over": row.over, "total": row.requests.size}
                    for row in self.rows
                ],
                "begin": np.cumsum([0, *(part.size for part in kept)]).astype(np.int32),
                "addresses": np.array([a.addresses for a in found], np.float64).ravel(),
                "size_bytes": np.array([a.size_bytes for a in found], np.uint8),
                "kinds": [[a.space, a.rule] for a in found],
                "whose": self._whose(),
            }
        return sent

    @property
    def record(self) -> AccessPattern | AccessTrace:
        """The pattern of the sliders, or the kernel's accesses."""
        return self.pattern if self.trace is None else self.trace

    @property
    def pattern(self) -> AccessPattern:
        """The settings of the sliders."""
        return AccessPattern(self.stride, self.offset, self.element_bytes, self.padding, self.swizzle)

    @property
    def access(self) -> Access | None:
        """The displayed access, with its costs (`memory`, `banks`); None if the warp made no access."""
        if self.trace is None:
            return self.pattern.access("shared" if self.space == "shared" else "global")
        if not self.rows:
            return None
        mine = self.rows[min(self.row, len(self.rows) - 1)].requests[:MOST_REQUESTS]
        if not mine.size:
            return None
        chosen = self.trace.access(int(mine[min(self.request, mine.size - 1)]))
        if not self.edited:
            return chosen
        edited = self.pattern.access(chosen.space, chosen.rule)
        taking = zip(edited.addresses, chosen.addresses, strict=True)
        return replace(edited, addresses=tuple(place if was >= 0 else -1 for place, was in taking))

    def _sides(self, access: Access) -> tuple[bool, bool]:
        if self.trace is None:
            return self.space != "shared", self.space != "global"
        return access.space != "shared", access.space == "shared"

    def sentence(self) -> str:
        access = self.access
        if self.trace is None:
            assert access is not None
            p = self.pattern
            more = f", {count(p.padding, 'element')} of padding a row" if p.padding else ""
            more += ", swizzled" if p.swizzle else ""
            costs = access_text.costs(access, *self._sides(access))
            return (
                f"Access microscope, stride {number(p.stride)}, offset {number(p.offset)}, "
                f"{count(p.element_bytes, 'byte')} a lane{more}: {costs}; modelled."
            )
        if not self.rows:
            return f"{self.title}: none; {self.trace.provenance.of_results}."
        cells = self.rows[0].cells
        worst = f"{cells[2]} on line {cells[0]}: {cells[4]} a request, at best {cells[5]}"
        return (
            f"{self.title}: {count(len(self.rows), 'access', 'accesses')} by source line, "
            f"the worst a {worst}; {self.trace.provenance.of_results}."
        )

    def describe(self) -> str:
        access = self.access
        sentences = [self.sentence()]
        sentences += [
            f"Line {row.cells[0]}, {row.cells[2]}: {row.cells[4]} a request, at best {row.cells[5]}."
            for row in self.rows
        ]
        if access is not None:
            sentences.append(f"Shown: {access_text.costs(access, *self._sides(access))}.")
            sentences += access_text.lane_sentences(access, *self._sides(access))
        return "\n".join(sentences)

    def draw(self) -> Box:
        access = self.access
        shown = [list(row.cells) for row in self.rows[:MOST_ROWS_ON_PAPER]]
        more = len(self.rows) - len(shown)
        text = self._shown_words()
        return column(
            table(shown, HEADINGS) if shown else None,
            paragraph(f"and {more} more", "note") if more > 0 else None,
            paragraph(text, "mono" if self.trace is None else "heading"),
            picture.draw(access, *self._sides(access)) if access is not None else None,
            gap=8,
        )

    def _shown_words(self) -> str:
        """The pattern that the picture shows, in words."""
        if self.trace is None:
            return access_text.expression(self.pattern)
        if not self.rows:
            return "The kernel made no access to memory."
        row = self.rows[min(self.row, len(self.rows) - 1)]
        named = f"Line {row.cells[0]}, {row.cells[2]}"
        if not row.requests.size:
            return f"{named}: {self._whose()} did not make it."
        return f"{named}, edited: {access_text.expression(self.pattern)}" if self.edited else named
