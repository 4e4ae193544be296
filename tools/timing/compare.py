"""Comparison of the modelled clock with recorded times of launches, copies and graphs.

``python -m tools.timing.compare h100`` prints the launches that calibrate; add ``--kept`` for those that were
kept from it, and ``--all`` to see each launch. The recording ``h200_tensor`` has those of tensor cores, and
``h200_fresh`` has the programs that were written after the development of the model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.timing.fresh_launches import make_fresh_programs
from tools.timing.launches import LAUNCHES, TimedLaunch

DATA = Path(__file__).parent / "data"
DIFFERENT = 1.15  # pairs of kernels count whose times differ by so much


@dataclass(frozen=True, slots=True)
class Compared:
    """The recorded and modelled time of an operation in ns, and whether it was not used for calibration."""

    name: str
    recorded_ns: float
    modelled_ns: float
    is_kept: bool = False

    @property
    def ratio(self) -> float:
        """The modelled time divided by the recorded time."""
        return self.modelled_ns / self.recorded_ns

    @property
    def error(self) -> float:
        """Relative error: the ratio of the larger to the smaller time, less 1."""
        return max(self.ratio, 1.0 / self.ratio) - 1.0


@dataclass(frozen=True, slots=True)
class Score:
    """The relative errors of a set of launches, and the share of pairs in the right order."""

    count: int
    median: float
    ninth_decile: float
    worst: float
    ranked: float

    def __str__(self) -> str:
        return (
            f"{self.count} compared: median error {self.median:.1%}, nine of ten within "
            f"{self.ninth_decile:.0%}, worst {1 + self.worst:.2f}x, order right in {self.ranked:.1%} of pairs"
        )


def load_recording(name: str) -> dict[str, Any]:
    """Return a recording, ``h100`` or ``h200``."""
    data: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return data


def score(rows: Sequence[Compared]) -> Score:
    """Return the score of a set of launches."""
    errors = sorted(row.error for row in rows)
    order_matches = [
        (a.recorded_ns > b.recorded_ns) == (a.modelled_ns > b.modelled_ns)
        for a, b in itertools.combinations(rows, 2)
        if max(a.recorded_ns / b.recorded_ns, b.recorded_ns / a.recorded_ns) >= DIFFERENT
    ]
    return Score(
        len(rows),
        statistics.median(errors),
        errors[math.ceil(0.9 * len(errors)) - 1],
        errors[-1],
        sum(order_matches) / len(order_matches) if order_matches else 1.0,
    )


def model_times(
    names: Sequence[str], launches: Iterable[TimedLaunch] = LAUNCHES
) -> dict[str, dict[str, tuple[float, float]]]:
    """Run launches once, and return their modelled times in ns, with warm and with cold caches.

    The GPUs must be of one compute capability, so that a kernel is the same for them.
    """
    from virtualgpu.backend import VirtualBackend
    from virtualgpu.model import machine as slot
    from virtualgpu.model.devices import device_info
    from virtualgpu.model.machine import Machine
    from virtualgpu.protocol import Launch

    previous_machine = slot.current()
    machines = [Machine([device_info(name)]) for name in names]
    slot.use(machines[0])
    try:
        backend = VirtualBackend(machines[0])
        modules: dict[tuple[str, ...], Any] = {}
        cp = backend.cp
        times_by_gpu: dict[str, dict[str, tuple[float, float]]] = {name: {} for name in names}
        for timed in launches:
            kernel = timed.load(cp, modules)
            arguments = timed.make_args(cp)
            grid = (*timed.grid, 1, 1)[:3]
            block = (*timed.block, 1, 1)[:3]
            launch = Launch.of(kernel, grid, block, arguments, timed.shared_bytes)
            finished_launch = backend.prepared(launch).run()
            array_bytes = sum(finished_launch.prepared_launch.arrays.values())
            for name, machine in zip(names, machines, strict=True):
                machine_launch = replace(
                    finished_launch,
                    prepared_launch=replace(finished_launch.prepared_launch, device=machine.devices[0]),
                )
                warm_ns = replace(machine_launch, cold_bytes=0).duration_ns
                cold_ns = replace(machine_launch, cold_bytes=array_bytes).duration_ns
                times_by_gpu[name][timed.name] = warm_ns, cold_ns
        return times_by_gpu
    finally:
        slot.use(previous_machine)


def compare_kernels(
    data: dict[str, Any],
    modelled_times: dict[str, tuple[float, float]],
    launches: Iterable[TimedLaunch] = LAUNCHES,
) -> tuple[list[Compared], list[Compared]]:
    """Return launches of a recording, with warm and with cold caches, and their modelled times."""
    floor_ns = data["launches"]["empty one"]["warm_ns"]  # no node of a graph comes sooner after another
    empty_launch_ns = data["host"]["launch between events, held"] - floor_ns
    warm_rows = []
    cold_rows = []
    for timed in launches:
        recorded_launch = data["launches"].get(timed.name)
        if recorded_launch is None or timed.name not in modelled_times:
            continue
        warm_ns, cold_ns = (max(ns, floor_ns) for ns in modelled_times[timed.name])
        warm_rows.append(Compared(timed.name, recorded_launch["warm_ns"], warm_ns, timed.is_kept))
        if "cold_pair_ns" in recorded_launch:
            cold_rows.append(
                Compared(
                    timed.name, recorded_launch["cold_pair_ns"] - empty_launch_ns, cold_ns, timed.is_kept
                )
            )
    return warm_rows, cold_rows


def compare_copies(name: str, data: dict[str, Any]) -> list[Compared]:
    """Return copies and memory sets of a recording and their modelled times.

    The recorded time is that on the device, in a busy stream. For pageable memory, which the host copies in
    part, it is the time of one in a row.
    """
    from virtualgpu.model import cost
    from virtualgpu.model.devices import device_info

    info = device_info(name)
    event_pair_ns = data["host"]["two events, held"]
    rows = []
    for recorded_copy in data["copies"]:
        copy_kind, _, host_memory_kind = recorded_copy["kind"].partition(" ")
        size = recorded_copy["size_bytes"]
        if copy_kind == "memset":
            ns = cost.memset_ns(info, size)
        else:
            ns = cost.copy_ns(info, copy_kind, size, host_memory_kind == "pinned")
        if host_memory_kind == "pageable":
            recorded_ns = recorded_copy["row_ns"]
            ns = max(ns, cost.HOST.copy_ns) if copy_kind == "HtoD" else ns
        else:
            recorded_ns = recorded_copy["pair_ns"] - event_pair_ns
        rows.append(Compared(f"{recorded_copy['kind']}, {size:,} bytes", recorded_ns, ns))
    return rows


def compare_graphs(data: dict[str, Any]) -> list[Compared]:
    """Return the recorded and the modelled times of graphs of small kernels."""
    from virtualgpu.model import cost

    node_ns = data["launches"]["copy 2^10"]["warm_ns"]
    return [
        Compared(
            f"graph of {nodes:,} small kernels",
            data["host"][f"graph of {nodes} small"],
            cost.HOST.graph_ns + cost.GRAPH_START_NS + nodes * max(node_ns, cost.GRAPH_NODE_NS),
        )
        for nodes in (10, 100, 1000)
    ]


def list_tensor_launches() -> tuple[TimedLaunch, ...]:
    """Return the launches of the recording ``h200_tensor``."""
    from tools.timing.tensor_launches import PROBES, make_programs

    return (*PROBES, *make_programs())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison for one GPU."""
    parser = argparse.ArgumentParser(prog="tools.timing.compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gpu", choices=sorted(path.stem for path in DATA.glob("*.json")))
    parser.add_argument("--kept", action="store_true", help="those kept from calibration")
    parser.add_argument("--cold", action="store_true", help="with cold caches")
    parser.add_argument("--all", action="store_true", help="list every launch")
    options = parser.parse_args(arguments)
    gpu, _, recording_part = options.gpu.partition("_")
    launches: tuple[TimedLaunch, ...] = LAUNCHES
    if recording_part == "tensor":
        launches = list_tensor_launches()
    elif recording_part == "fresh":
        launches = make_fresh_programs()
    modelled_times = model_times([gpu], launches)[gpu]
    rows = [
        row
        for row in compare_kernels(load_recording(options.gpu), modelled_times, launches)[options.cold]
        if row.is_kept == options.kept
    ]
    if options.all:
        for row in sorted(rows, key=lambda row: row.ratio):
            print(f"{row.ratio:6.2f}  {row.name:44s} {row.recorded_ns:12,.0f} {row.modelled_ns:12,.0f}")
    print(score(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
