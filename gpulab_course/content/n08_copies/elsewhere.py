"""Tables of measurements for notebook 08: made on this machine's GPU, or recorded on an H200 and an H100."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from gpulab import session
from gpulab.views.tables import Table
from gpulab.words import duration, size
from virtualgpu.records import Provenance

_TIMEOUT_S = 90


class MeasurementTable:
    """A table of measurements with their provenance. The attribute ``.record`` contains the numbers."""

    def __init__(
        self,
        title: str,
        headings: Sequence[str],
        rows: Iterable[Sequence[str]],
        record: Any,
        *origins: Provenance,
    ) -> None:
        self.record = record
        self.provenance = origins[0]
        origin_labels = "; ".join(origin.label for origin in origins)
        self._table = Table(f"{title}, {origin_labels}", tuple(headings), tuple(map(tuple, rows)))

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.card()


@functools.lru_cache(maxsize=1)
def load_recordings() -> Any:
    """Load the recorded measurements of all GPUs by name. Rates are in GB/s, and times are in µs unless a key
    names ms or s.
    """
    return json.loads(resources.files(__package__).joinpath("recorded.json").read_text(encoding="utf-8"))


def _make_provenance(recording: Any) -> Provenance:
    return Provenance("recorded", recording["device"], f"{recording['date']}, driver {recording['driver']}")


def _read_gpu_name(recording: Any) -> str:
    return str(recording["device"]).removeprefix("NVIDIA ").split()[0]


def _format_us(time_us: float) -> str:
    return duration(time_us * 1e3)


def rates() -> MeasurementTable:
    """Return a table of copy rates by size, for pageable and pinned memory in both directions."""
    recording = load_recordings()["h200"]
    copy_kinds = ("HtoD pinned", "DtoH pinned", "HtoD pageable", "DtoH pageable")
    size_rows = [
        (
            size(size_bytes),
            *(f"{recording['rates'][copy_kind][size_index]:.1f} GB/s" for copy_kind in copy_kinds),
        )
        for size_index, size_bytes in enumerate(recording["sizes"])
    ]
    copy_names = ("pinned to device", "pinned to host", "pageable to device", "pageable to host")
    return MeasurementTable(
        "Rates of copies", ("size", *copy_names), size_rows, recording["rates"], _make_provenance(recording)
    )


def frameworks() -> MeasurementTable:
    """Return a table of PyTorch's copies of 64 MiB, with the times until the call returns and until the copy
    ends.
    """
    recording = load_recordings()["h200"]["torch"]
    name_of_call = {
        'pageable.to("cuda")': "pageable to cuda",
        'pageable.to("cuda", non_blocking=True)': "pageable to cuda, non_blocking",
        'pinned.to("cuda", non_blocking=True)': "pinned to cuda, non_blocking",
        'x.to("cpu", non_blocking=True)': "cuda to cpu, non_blocking",
        'x.cpu().to("cuda")': "cpu().to(cuda)",
        "x.clone()": "clone",
    }
    call_rows = [
        (
            call_text,
            _format_us(recording[recorded_name]["call_us"]),
            _format_us(recording[recorded_name]["done_us"]),
            "yes" if recording[recorded_name]["call_us"] < recording[recorded_name]["done_us"] / 2 else "no",
        )
        for call_text, recorded_name in name_of_call.items()
    ]
    return MeasurementTable(
        f"64 MiB with PyTorch {recording['torch']}",
        ("call", "returns after", "done after", "asynchronous"),
        call_rows,
        recording,
        _make_provenance(load_recordings()["h200"]),
    )


def managed() -> MeasurementTable:
    """Return a table of access times to 64 MiB of managed memory, by the host and by kernels of two GPUs."""
    key_of_step = {
        "kernel, all in device memory": "device memory, kernel",
        "kernel, pages on the host": "kernel, pages on the host",
        "the same kernel again": "kernel again",
        "host reads all of it": "host reads, pages on the device",
        "prefetch to the device": "prefetch",
        "kernel after the prefetch": "kernel after prefetch",
        "kernel, pages never touched before": "kernel writes first",
        "kernel touches one float every 2 MiB": "kernel, one of every 2,097,152 bytes",
    }
    recordings = [load_recordings()[name] for name in ("h200", "h100")]
    step_rows = [
        (step_name, *(_format_us(recording["managed"][recorded_key]) for recording in recordings))
        for step_name, recorded_key in key_of_step.items()
    ]
    return MeasurementTable(
        "64 MiB of managed memory",
        ("step", *map(_read_gpu_name, recordings)),
        step_rows,
        recordings,
        *map(_make_provenance, recordings),
    )


def pinning() -> MeasurementTable:
    """Return a table that compares the time for allocating pinned memory with the time of a copy of the same
    size.
    """
    recordings = [load_recordings()[name] for name in ("h200", "h100")]
    pinning_times_us = [
        recording["arrays"]["first 128 MiB of pinned memory"]["call_us"] for recording in recordings
    ]
    rates_gbps = [
        recording["rates"]["HtoD pinned"][recording["sizes"].index(128 << 21)] for recording in recordings
    ]
    copy_times_us = [(128 << 20) / gbps / 1e3 for gbps in rates_gbps]
    ratios = [
        pinning_time_us / copy_time_us
        for pinning_time_us, copy_time_us in zip(pinning_times_us, copy_times_us, strict=True)
    ]
    summary_rows = (
        ("get 128 MiB of pinned memory", *map(_format_us, pinning_times_us)),
        ("copy 128 MiB to the device", *map(_format_us, copy_times_us)),
        ("how many times as long", *(f"{ratio:.0f}" for ratio in ratios)),
    )
    return MeasurementTable(
        "Pinning",
        ("step", *map(_read_gpu_name, recordings)),
        summary_rows,
        ratios,
        *map(_make_provenance, recordings),
    )


def homeward() -> MeasurementTable:
    """Return a table of copies of 64 MiB from the device to pageable memory, into a new and into a used
    array.
    """
    recordings = [load_recordings()[name] for name in ("h200", "h100")]
    key_of_call = {"x.get()": "get", "x.get(out=a), with a used before": "get out pageable"}
    call_rows = [
        (call_text, *(_format_us(recording["arrays"][recorded_key]["call_us"]) for recording in recordings))
        for call_text, recorded_key in key_of_call.items()
    ]
    return MeasurementTable(
        "64 MiB to the host",
        ("call", *map(_read_gpu_name, recordings)),
        call_rows,
        recordings,
        *map(_make_provenance, recordings),
    )


def after_prefetch() -> dict[str, float]:
    """Return the ratio of a kernel's times on prefetched managed memory and on device memory for each GPU."""
    managed_times = {
        _read_gpu_name(load_recordings()[name]): load_recordings()[name]["managed"]
        for name in ("h200", "h100")
    }
    return {
        name: round(times_us["kernel after prefetch"] / times_us["device memory, kernel"], 1)
        for name, times_us in managed_times.items()
    }


def two_gpus() -> MeasurementTable:
    """Return a table of copies between two H200 GPUs with and without peer access."""
    recording = load_recordings()["two h200"]
    link_rows = [
        (f"a copy of {size(size_bytes)}", f"{host_gbps:g} GB/s", f"{peer_gbps:g} GB/s")
        for size_bytes, host_gbps, peer_gbps in zip(
            recording["sizes"], recording["by the host"], recording["peer access"], strict=True
        )
    ]
    link_rows.append(
        (
            f"a kernel that reads {size(recording['sizes'][-1])} of the other",
            "–",
            f"{recording['kernel reads']} GB/s",
        )
    )
    origin = Provenance("recorded", recording["device"], f"{recording['link']}, CuPy {recording['cupy']}")
    return MeasurementTable(
        "Two GPUs", ("what", "without peer access", "with it"), link_rows, recording, origin
    )


def two_processes() -> MeasurementTable:
    """Return a table of the results of two processes that share a device array through an IPC handle."""
    measurements, origin = _measure_or_load("gpulab_course.content.n08_copies.processes", "ipc")
    handle_rows = (
        ("sum of 16,777,216 ones, computed in the second process", f"{measurements['sum there']:,.0f}"),
        (
            "their sum in the first process, after the second has doubled them",
            f"{measurements['sum here']:,.0f}",
        ),
        ("address of the array in the first process", measurements["address here"]),
        ("address of the array in the second process", measurements["address there"]),
        ("size of the handle that was passed on", f"{measurements['handle_bytes']} bytes"),
    )
    return MeasurementTable("One array, two processes", ("what", "value"), handle_rows, measurements, origin)


def from_file() -> MeasurementTable:
    """Return a table that compares cuFile and NumPy for reading 64 MiB from a file into device memory."""
    measurements, origin = _measure_or_load("gpulab_course.content.n08_copies.storage", "cufile")
    numpy_ms = min(measurements["by NumPy"])
    storage_rows = [
        ("library", measurements["library"]),
        ("kernel module nvidia-fs", "loaded" if measurements["kernel module"] else "not loaded"),
        (
            "mode of cuFile",
            measurements.get("mode", "compatibility, forced: the bytes went through the host"),
        ),
        (
            "the file's bytes came from",
            measurements.get("from", "the host's page cache: it had just been written"),
        ),
    ]
    if measurements.get("by cuFile"):
        cufile_ms = min(measurements["by cuFile"])
        storage_rows.append(
            ("cuFileRead into device memory", f"{cufile_ms:.1f} ms, {64 * 1.048576 / cufile_ms:.2f} GB/s")
        )
    else:
        storage_rows.append(
            ("cuFileHandleRegister", f"refused, status {measurements.get('register', 'none')}")
        )
    storage_rows.append(
        ("np.fromfile, then cp.asarray", f"{numpy_ms:.1f} ms, {64 * 1.048576 / numpy_ms:.2f} GB/s")
    )
    return MeasurementTable(
        "64 MiB from a file", ("step", "what happened"), storage_rows, measurements, origin
    )


def _measure_or_load(module: str, key: str) -> tuple[Any, Provenance]:
    """Measure with a module in a separate process on a GPU, or return the recorded result."""
    device_choice = session.which_device()
    if device_choice.kind != "virtual":
        command = [sys.executable, "-m", module]
        try:
            process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
            return json.loads(process.stdout.splitlines()[-1]), Provenance(
                "measured", device_choice.device, ""
            )
        except (subprocess.SubprocessError, ValueError, IndexError) as error:
            error_lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            print(
                f"On this {device_choice.device} it failed: "
                f"{error_lines[-1] if error_lines else type(error).__name__}"
            )
    recording = load_recordings()["h200"]
    return recording[key], _make_provenance(recording)
