"""Recordings of a GPU's results for every case of the corpus.

A recording is one JSON file in ``tests/recordings/data``, made by ``gpulab record``; the virtual GPU is
tested against it. The traces that the same command takes ship with the package (`gpulab.recorded`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.records import Provenance
from virtualgpu.records.io import check_version

FORMAT = "gpulab-recording"
FOLDER = Path(__file__).resolve().parents[2] / "tests" / "recordings" / "data"

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RecordedOutput:
    """An output array of a kernel: its values, or only its SHA-256."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    values: Array | None = None


@dataclass(frozen=True, slots=True)
class RecordedCase:
    """Results of one GPU for one case of the corpus.

    ``counters`` are Nsight Compute's metrics by name; they describe the machine code, in which ptxas may have
    merged, moved or predicated instructions of the PTX.
    """

    inputs_sha256: str
    outputs: tuple[RecordedOutput, ...]
    stdout: str = ""
    registers: int = 0
    counters: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timing:
    """Duration of one of `tools.corpus.workloads` in ns.

    ``alone_ns`` and ``in_a_row_ns`` are by CUDA events: the median of single launches, and the mean
    of launches in a row, where one launch's cost hides behind the kernel before. ``kernel_ns`` is
    Nsight Compute's ``gpu__time_duration`` with warm caches and free clocks.
    """

    name: str
    alone_ns: float
    in_a_row_ns: float
    kernel_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """Results of one GPU for the whole corpus.

    ``versions`` names driver, CUDA, CuPy, NVRTC and ncu; ``ptx`` holds what ran where a trace of it
    was recorded, by case.
    """

    provenance: Provenance
    date: str
    versions: dict[str, str]
    seed: int
    cases: dict[str, RecordedCase]
    timings: tuple[Timing, ...] = ()
    ptx: dict[str, str] = field(default_factory=dict)


def compute_digest(array: Array) -> str:
    """Return the SHA-256 of an array's little-endian bytes in C order, as hexadecimal digits."""
    contiguous_array = np.ascontiguousarray(array)
    return hashlib.sha256(
        contiguous_array.astype(contiguous_array.dtype.newbyteorder("<"), copy=False).tobytes()
    ).hexdigest()


def pack_output(array: Array, *, with_values: bool) -> dict[str, Any]:
    """Convert an output array for the JSON of a recording."""
    packed_output: dict[str, Any] = {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "sha256": compute_digest(array),
    }
    if with_values:
        packed_output["values"] = base64.b64encode(
            zlib.compress(np.ascontiguousarray(array).tobytes(), 9)
        ).decode()
    return packed_output


def pack_text(text: str) -> str:
    """Return text compressed for a recording's JSON."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpack_text(packed: str) -> str:
    """Return the text that `pack_text` has packed."""
    return zlib.decompress(base64.b64decode(packed)).decode()


def list_recordings() -> tuple[str, ...]:
    """Return the names of the tests' recordings, such as ``h200``."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def load_recording(name: str) -> Recording:
    """Read one of the recordings.

    Raises
    ------
    FileNotFoundError
        If there is none of that name; the message lists them.
    TraceFormatError
        If the file is of a newer version.
    """
    file = FOLDER / f"{name}.json"
    if not file.is_file():
        raise FileNotFoundError(f"no recording {name!r}; there are {', '.join(list_recordings()) or 'none'}")
    return parse_recording(json.loads(file.read_text(encoding="utf-8")), name)


def parse_recording(data: dict[str, Any], name: str = "recording") -> Recording:
    """Turn a recording's JSON into a `Recording`."""
    check_version(data, FORMAT, name)
    versions = {str(k): str(v) for k, v in data["versions"].items()}
    provenance_text = ", ".join(
        [data["date"], *(f"{name} {versions.get(name, '?')}" for name in ("driver", "NVRTC"))]
    )
    return Recording(
        provenance=Provenance("recorded", data["device"], provenance_text),
        date=data["date"],
        versions=versions,
        seed=int(data["seed"]),
        cases={key: _parse_case(value) for key, value in data["cases"].items()},
        timings=tuple(Timing(**timing) for timing in data.get("timings", ())),
        ptx={key: unpack_text(text) for key, text in data.get("ptx", {}).items()},
    )


def _parse_case(data: dict[str, Any]) -> RecordedCase:
    return RecordedCase(
        inputs_sha256=data["inputs_sha256"],
        outputs=tuple(_parse_output(output) for output in data["outputs"]),
        stdout=data.get("stdout", ""),
        registers=int(data.get("registers", 0)),
        counters={str(k): float(v) for k, v in data.get("counters", {}).items()},
    )


def _parse_output(data: dict[str, Any]) -> RecordedOutput:
    values = None
    if "values" in data:
        raw_bytes = zlib.decompress(base64.b64decode(data["values"]))
        values = np.frombuffer(raw_bytes, np.dtype(data["dtype"])).reshape(data["shape"])
    return RecordedOutput(data["dtype"], tuple(data["shape"]), data["sha256"], values)
