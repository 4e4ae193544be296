"""The layouts of the fragments of ``wmma``: the matrix element in each ``x[i]`` of each lane.

NVIDIA does not document these layouts. `LAYOUTS_PATH` has those of an H200, recorded by
``tools.recordings.wmma_layouts``. The virtual GPU uses them for all GPUs. A layout does not depend on whether
memory contains the matrix by row or by column.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.matrix_product import ElementPositions
from virtualgpu.errors import NotSupportedError

LAYOUTS_PATH = Path(__file__).with_name("wmma_layouts.json")


def compute_positions(coordinate_bits: Mapping[str, Sequence[Sequence[int]]]) -> ElementPositions:
    """Return the rows and columns of the elements that each lane holds, as (32, elements) arrays.

    Each set bit of the lane number or element index adds a row and a column offset. A bit of the index that
    adds nothing repeats elements.
    """
    lane = np.arange(layout.LANES)[:, None]
    element = np.arange(1 << len(coordinate_bits["element"]))
    row, column = np.zeros((2, layout.LANES, len(element)), np.int64)
    for bit_source, name in ((lane, "lane"), (element, "element")):
        for bit, (row_step, column_step) in enumerate(coordinate_bits[name]):
            row += row_step * (bit_source >> bit & 1)
            column += column_step * (bit_source >> bit & 1)
    return row, column


@functools.cache
def _read_layouts() -> dict[str, dict[str, list[list[int]]]]:
    layouts: dict[str, dict[str, list[list[int]]]] = json.loads(LAYOUTS_PATH.read_text(encoding="utf-8"))[
        "layouts"
    ]
    return layouts


def make_key(name: str, shape: tuple[int, int, int], element_type: str) -> str:
    """Return the key in `LAYOUTS_PATH` for the layout of matrix a, b, c or d."""
    m, n, k = shape
    return f"{'c' if name == 'd' else name} m{m}n{n}k{k} {element_type}"


def positions_of(name: str, shape: tuple[int, int, int], element_type: str) -> ElementPositions:
    """Return the rows and columns of the elements in a fragment of matrix a, b, c or d. Repeated elements are
    omitted.
    """
    layout_bits = _read_layouts().get(make_key(name, shape, element_type))
    if layout_bits is None:
        raise NotSupportedError(
            f"The virtual GPU does not support wmma with the fragment {make_key(name, shape, element_type)}."
        )
    row, column = compute_positions(layout_bits)
    elements_per_lane = 1 << sum(bit != [0, 0] for bit in layout_bits["element"])
    return row[:, :elements_per_lane], column[:, :elements_per_lane]
