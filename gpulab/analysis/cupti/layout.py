"""Offsets of the fields of CUPTI's records (cupti_activity.h, CUDA 12.9 to 13.5).

Each version of a record appends fields to the previous version, so the offsets stay the same while sizes
grow. CUPTI itself reports where a record ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.analysis.cupti import kinds as cupti


def _make_layout(**fields: tuple[str, int]) -> np.dtype[Any]:
    """Return the NumPy dtype of a record from the type and offset of each field."""
    field_types = [field_type for field_type, _ in fields.values()]
    offsets = [offset for _, offset in fields.values()]
    size_bytes = max(offset + np.dtype(field_type).itemsize for field_type, offset in fields.values())
    return np.dtype(
        {"names": list(fields), "formats": field_types, "offsets": offsets, "itemsize": size_bytes}
    )


KERNEL = _make_layout(
    start=("u8", 16),
    end=("u8", 24),
    device=("u4", 40),
    context=("u4", 44),
    stream=("u4", 48),
    correlation=("u4", 92),
    graph=("u4", 156),
    node=("u8", 144),
    name=("u8", 104),
    grid_x=("i4", 52),
    grid_y=("i4", 56),
    grid_z=("i4", 60),
    block_x=("i4", 64),
    block_y=("i4", 68),
    block_z=("i4", 72),
    static_shared=("i4", 76),
    dynamic_shared=("i4", 80),
    registers=("u2", 6),
)
_DEVICE_FIELDS = {
    "start": ("u8", 16),
    "end": ("u8", 24),
    "device": ("u4", 32),
    "context": ("u4", 36),
    "stream": ("u4", 40),
}
MEMCPY = _make_layout(
    **_DEVICE_FIELDS,
    correlation=("u4", 44),
    graph=("u4", 72),
    node=("u8", 64),
    kind=("u1", 4),
    source=("u1", 5),
    target=("u1", 6),
    size=("u8", 8),
)
MEMCPY2 = _make_layout(
    **_DEVICE_FIELDS,
    correlation=("u4", 60),
    graph=("u4", 80),
    node=("u8", 72),
    kind=("u1", 4),
    source=("u1", 5),
    target=("u1", 6),
    size=("u8", 8),
)
MEMSET = _make_layout(
    **_DEVICE_FIELDS, correlation=("u4", 44), graph=("u4", 72), node=("u8", 64), size=("u8", 8)
)
API = _make_layout(cbid=("u4", 4), start=("u8", 8), end=("u8", 16), thread=("u4", 28), correlation=("u4", 32))
MARKER = _make_layout(
    flags=("u4", 4),
    time=("u8", 8),
    id=("u4", 16),
    object_kind=("u4", 20),
    thread=("u4", 28),
    name=("u8", 40),
    domain=("u8", 48),
)
MARKER_DATA = _make_layout(flags=("u4", 4), id=("u4", 8), color=("u4", 24))
CUDA_EVENT = _make_layout(
    correlation=("u4", 4), context=("u4", 8), stream=("u4", 12), event=("u4", 16), sync=("u8", 48)
)
STREAM = _make_layout(context=("u4", 4), stream=("u4", 8), priority=("u4", 12), flag=("u4", 16))
SYNCHRONIZATION = _make_layout(
    type=("u4", 4),
    start=("u8", 8),
    end=("u8", 16),
    correlation=("u4", 24),
    context=("u4", 28),
    stream=("u4", 32),
    event=("u4", 36),
    sync=("u8", 40),
    status=("u4", 48),
)
HOST_LAUNCH = _make_layout(
    start=("u8", 32),
    end=("u8", 40),
    device=("u4", 12),
    context=("u4", 8),
    stream=("u4", 4),
    correlation=("u4", 16),
)
GRAPH_HOST_NODE = _make_layout(
    start=("u8", 40),
    end=("u8", 48),
    device=("u4", 12),
    context=("u4", 8),
    stream=("u4", 4),
    correlation=("u4", 16),
    graph=("u4", 20),
    node=("u8", 24),
)

LAYOUTS: dict[int, np.dtype[Any]] = {
    cupti.CONCURRENT_KERNEL: KERNEL,
    cupti.MEMCPY: MEMCPY,
    cupti.MEMCPY2: MEMCPY2,
    cupti.MEMSET: MEMSET,
    cupti.RUNTIME: API,
    cupti.DRIVER: API,
    cupti.MARKER: MARKER,
    cupti.MARKER_DATA: MARKER_DATA,
    cupti.CUDA_EVENT: CUDA_EVENT,
    cupti.STREAM: STREAM,
    cupti.SYNCHRONIZATION: SYNCHRONIZATION,
    cupti.HOST_LAUNCH: HOST_LAUNCH,
    cupti.GRAPH_HOST_NODE: GRAPH_HOST_NODE,
}


def read_records(data: memoryview, offsets: list[int]) -> dict[int, list[tuple[Any, ...]]]:
    """Return the records of a CUPTI buffer, grouped by kind. Each record is a tuple with the fields of its
    layout.
    """
    buffer_bytes = np.frombuffer(data, np.uint8)
    record_starts = np.asarray(offsets, np.int64)
    record_kinds = _gather_records(buffer_bytes, record_starts, np.dtype("u4"))
    records_by_kind: dict[int, list[tuple[Any, ...]]] = {}
    for record_kind in np.unique(record_kinds).tolist():
        if record_kind in LAYOUTS:
            records_by_kind[record_kind] = _gather_records(
                buffer_bytes, record_starts[record_kinds == record_kind], LAYOUTS[record_kind]
            ).tolist()
    return records_by_kind


def _gather_records(
    buffer_bytes: npt.NDArray[np.uint8], record_starts: npt.NDArray[np.int64], layout: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Return the records with dtype `layout` that begin at the offsets `record_starts`, shape (n,)."""
    record_bytes = buffer_bytes[record_starts[:, None] + np.arange(layout.itemsize)]
    records: npt.NDArray[Any] = record_bytes.view(layout).reshape(-1)
    return records
