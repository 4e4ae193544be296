"""Measurements that only a GPU can make: recorded on an H200 and an H100, or made here if there is a GPU."""

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

_LIMIT_S = 90


class Shown:
    """A table with its origin; ``.record`` holds the figures."""

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
        told = "; ".join(origin.label for origin in origins)
        self._table = Table(f"{title}, {told}", tuple(headings), tuple(map(tuple, rows)))

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.html()


@functools.lru_cache(maxsize=1)
def recorded() -> Any:
    """All figures, of ``h200`` and ``h100``: rates in GB/s, times in us unless a name says ms or s."""
    return json.loads(resources.files(__package__).joinpath("recorded.json").read_text(encoding="utf-8"))


def _origin(told: Any) -> Provenance:
    return Provenance("recorded", told["device"], f"{told['date']}, driver {told['driver']}")


def _name(told: Any) -> str:
    return str(told["device"]).removeprefix("NVIDIA ").split()[0]


def _us(value: float) -> str:
    return duration(value * 1e3)


def rates() -> Shown:
    """Rates of copies by size, pageable and pinned."""
    told = recorded()["h200"]
    kinds = ("HtoD pinned", "DtoH pinned", "HtoD pageable", "DtoH pageable")
    rows = [
        (size(n), *(f"{told['rates'][kind][at]:.1f} GB/s" for kind in kinds))
        for at, n in enumerate(told["sizes"])
    ]
    names = ("pinned to device", "pinned to host", "pageable to device", "pageable to host")
    return Shown("Rates of copies", ("size", *names), rows, told["rates"], _origin(told))


def frameworks() -> Shown:
    """Times of torch's ``.to`` for 64 MiB: when the call returns, and when the copy has ended."""
    told = recorded()["h200"]["torch"]
    calls = {
        'pageable.to("cuda")': "pageable to cuda",
        'pageable.to("cuda", non_blocking=True)': "pageable to cuda, non_blocking",
        'pinned.to("cuda", non_blocking=True)': "pinned to cuda, non_blocking",
        'x.to("cpu", non_blocking=True)': "cuda to cpu, non_blocking",
        'x.cpu().to("cuda")': "cpu().to(cuda)",
        "x.clone()": "clone",
    }
    rows = [
        (
            call,
            _us(told[name]["call_us"]),
            _us(told[name]["done_us"]),
            "yes" if told[name]["call_us"] < told[name]["done_us"] / 2 else "no",
        )
        for call, name in calls.items()
    ]
    return Shown(
        f"64 MiB with PyTorch {told['torch']}",
        ("call", "returns after", "done after", "asynchronous"),
        rows,
        told,
        _origin(recorded()["h200"]),
    )


def managed() -> Shown:
    """Times of host and kernels that access 64 MiB of managed memory, on two GPUs."""
    steps = {
        "kernel, all in device memory": "device memory, kernel",
        "kernel, pages on the host": "kernel, pages on the host",
        "the same kernel again": "kernel again",
        "host reads all of it": "host reads, pages on the device",
        "prefetch to the device": "prefetch",
        "kernel after the prefetch": "kernel after prefetch",
        "kernel, pages that nobody had": "kernel writes first",
        "kernel touches one float every 2 MiB": "kernel, one of every 2,097,152 bytes",
    }
    both = [recorded()[name] for name in ("h200", "h100")]
    rows = [(text, *(_us(told["managed"][key]) for told in both)) for text, key in steps.items()]
    return Shown("64 MiB of managed memory", ("step", *map(_name, both)), rows, both, *map(_origin, both))


def pinning() -> Shown:
    """Time to allocate pinned memory for the first time, compared with a copy of as many bytes."""
    both = [recorded()[name] for name in ("h200", "h100")]
    got = [told["arrays"]["first 128 MiB of pinned memory"]["call_us"] for told in both]
    rate = [told["rates"]["HtoD pinned"][told["sizes"].index(128 << 21)] for told in both]
    copied = [(128 << 20) / gbps / 1e3 for gbps in rate]
    ratios = [one / other for one, other in zip(got, copied, strict=True)]
    rows = (
        ("get 128 MiB of pinned memory", *map(_us, got)),
        ("copy as many bytes to the device", *map(_us, copied)),
        ("how many times as long", *(f"{ratio:.0f}" for ratio in ratios)),
    )
    return Shown("Pinning", ("step", *map(_name, both)), rows, ratios, *map(_origin, both))


def homeward() -> Shown:
    """Times of copies of 64 MiB to pageable memory: into a new array, and into one that was used before."""
    both = [recorded()[name] for name in ("h200", "h100")]
    calls = {"x.get()": "get", "x.get(out=a), a used before": "get out pageable"}
    rows = [(text, *(_us(told["arrays"][key]["call_us"]) for told in both)) for text, key in calls.items()]
    return Shown("64 MiB home", ("call", *map(_name, both)), rows, both, *map(_origin, both))


def after_prefetch() -> dict[str, float]:
    """Return for each GPU the time of a kernel after a prefetch, relative to its time in device memory."""
    told = {_name(recorded()[name]): recorded()[name]["managed"] for name in ("h200", "h100")}
    return {
        name: round(times["kernel after prefetch"] / times["device memory, kernel"], 1)
        for name, times in told.items()
    }


def two_gpus() -> Shown:
    """Copies from GPU to GPU, with and without peer access: recorded on two H200 of one host."""
    told = recorded()["two h200"]
    rows = [
        (f"a copy of {size(n)}", f"{through:g} GB/s", f"{direct:g} GB/s")
        for n, through, direct in zip(told["sizes"], told["by the host"], told["peer access"], strict=True)
    ]
    rows.append(
        (f"a kernel that reads {size(told['sizes'][-1])} of the other", "–", f"{told['kernel reads']} GB/s")
    )
    origin = Provenance("recorded", told["device"], f"{told['link']}, CuPy {told['cupy']}")
    return Shown("Two GPUs", ("what", "without peer access", "with it"), rows, told, origin)


def two_processes() -> Shown:
    """One array in two processes, by an IPC handle: done here on a GPU, else as recorded on an H200."""
    told, origin = _done("gpulab_course.content.n08_copies.processes", "ipc")
    rows = (
        ("sum of 16,777,216 ones, as the second process sees them", f"{told['sum there']:,.0f}"),
        ("their sum in the first, after the second has doubled them", f"{told['sum here']:,.0f}"),
        ("its address in the first process", told["address here"]),
        ("its address in the second", told["address there"]),
        ("what went from process to process", f"{told['handle_bytes']} bytes"),
    )
    return Shown("One array, two processes", ("what", "value"), rows, told, origin)


def from_file() -> Shown:
    """64 MiB from a file to device memory: by cuFile, and by way of NumPy."""
    told, origin = _done("gpulab_course.content.n08_copies.storage", "cufile")
    best = min(told["by NumPy"])
    rows = [
        ("library", told["library"]),
        ("kernel module nvidia-fs", "loaded" if told["kernel module"] else "not there"),
        ("mode of cuFile", told.get("mode", "compatibility, forced: the bytes went by way of the host")),
        ("the file's bytes came from", told.get("from", "the host's page cache: it had just been written")),
    ]
    if told.get("by cuFile"):
        fastest = min(told["by cuFile"])
        rows.append(
            ("cuFileRead into device memory", f"{fastest:.1f} ms, {64 * 1.048576 / fastest:.2f} GB/s")
        )
    else:
        rows.append(("cuFileHandleRegister", f"refused, status {told.get('register', 'none')}"))
    rows.append(("np.fromfile, then cp.asarray", f"{best:.1f} ms, {64 * 1.048576 / best:.2f} GB/s"))
    return Shown("64 MiB from a file", ("step", "what happened"), rows, told, origin)


def _done(module: str, key: str) -> tuple[Any, Provenance]:
    """Run a module in its own process on a GPU and return its result, or return the recorded one."""
    choice = session.which_device()
    if choice.kind != "virtual":
        command = [sys.executable, "-m", module]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LIMIT_S)
            return json.loads(done.stdout.splitlines()[-1]), Provenance("measured", choice.device, "")
        except (subprocess.SubprocessError, ValueError, IndexError) as error:
            lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            print(f"On this {choice.device} it failed: {lines[-1] if lines else type(error).__name__}")
    told = recorded()["h200"]
    return told[key], _origin(told)
