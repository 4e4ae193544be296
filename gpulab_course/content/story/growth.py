"""The table of the running example: the effect that each notebook has on its time and memory.

The table is computed again on the device in use whenever it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpulab import session
from gpulab.lab.timeline import timeline
from gpulab.views.tables import Table
from gpulab.words import duration, size
from gpulab_course.content.kernels.work import Step
from gpulab_course.content.story import attention, pictures
from gpulab_course.content.story.rungs import (
    SEQUENCE_COUNT,
    VERSIONS,
    SequenceLauncher,
    capture_graph,
    find_sequence_launcher,
    list_versions,
)
from virtualgpu.records import Provenance

_HEADINGS = ("notebook", "what changed", "attention", "memory", "Life", "memory", "launches")


@dataclass(frozen=True, slots=True)
class VersionCosts:
    """The time, launches and memory that one version of the running example needs for `SEQUENCE_COUNT`
    sequences.
    """

    time_ns: int
    launches: int
    array_bytes: int


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One row of the table of the running example, which shows the costs of one version."""

    notebook_number: str
    description: str
    block: VersionCosts
    life: VersionCosts


class Growth:
    """The table of all versions of the running example. The attribute ``record`` contains the rows."""

    def __init__(self, rows: Sequence[VersionRow], provenance: Provenance) -> None:
        self.record = tuple(rows)
        self.provenance = provenance
        version_rows = [
            (
                version_row.notebook_number,
                version_row.description,
                duration(version_row.block.time_ns),
                size(version_row.block.array_bytes),
                duration(version_row.life.time_ns),
                size(version_row.life.array_bytes),
                str(version_row.block.launches),
            )
            for version_row in rows
        ]
        origin = provenance.of_results_and_times
        subject_text = (
            f"{SEQUENCE_COUNT} sequences through the attention layer, {SEQUENCE_COUNT} boards of Life"
        )
        self._table = Table(
            f"The running example so far: {subject_text}, {origin}", _HEADINGS, tuple(version_rows)
        )

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.card()


def table(rung: str = VERSIONS[-1].notebook_number) -> Growth:
    """Run all versions of the running example up to this notebook, and return a table of their costs.

    Parameters
    ----------
    rung
        The notebook's number, such as ``"07"``.
    """
    versions = list_versions(rung)
    version_rows = []
    with session.show_steps(len(versions), "story.table") as begin_step:
        for version in versions:
            begin_step()
            block_and_life_costs = (
                _measure_version(_make_block_steps, version.notebook_number),
                _measure_version(_make_life_steps, version.notebook_number),
            )
            version_rows.append(
                VersionRow(version.notebook_number, version.description, *block_and_life_costs)
            )
    return Growth(version_rows, session.backend().provenance)


def _make_block_steps(cp: Any, rung: str, seed: int) -> tuple[list[Step], dict[str, Any]]:
    launches, arrays = attention.steps(cp, seed=seed, rung=rung)
    return list(launches.values()), arrays


def _make_life_steps(cp: Any, rung: str, seed: int) -> tuple[list[Step], dict[str, Any]]:
    alternates_boards = any("boards" in version.memory_owners for version in list_versions(rung))
    launches, boards = pictures.generations(cp, seed=seed, alternate_boards=alternates_boards)
    return list(launches), {f"board {k}": board for k, board in enumerate(boards)}


def _measure_version(make_steps: Any, rung: str) -> VersionCosts:
    cp = session.cp()
    uses_all_gpus = any(version.uses_all_gpus for version in list_versions(rung))
    gpu_devices = (
        [cp.cuda.Device(k) for k in range(cp.cuda.runtime.getDeviceCount())]
        if uses_all_gpus
        else [cp.cuda.Device()]
    )
    launch_sequences = find_sequence_launcher(rung)
    gpu_launchers = []
    sequence_arrays = []
    for gpu_index, gpu in enumerate(gpu_devices[:SEQUENCE_COUNT]):
        with gpu:
            gpu_sequences = [
                make_steps(cp, rung, seed) for seed in range(gpu_index, SEQUENCE_COUNT, len(gpu_devices))
            ]
            sequence_arrays += gpu_sequences
            streams = [cp.cuda.Stream(non_blocking=True) for _ in gpu_sequences]
            gpu_launchers.append(
                (
                    gpu,
                    _make_sequence_launcher(
                        cp, launch_sequences, streams, [steps for steps, _ in gpu_sequences], rung
                    ),
                )
            )

    def launch_all_sequences() -> None:
        for gpu, launch_gpu_sequences in gpu_launchers:
            with gpu:
                launch_gpu_sequences()

    def wait_for_gpus() -> None:
        for gpu, _ in gpu_launchers:
            gpu.synchronize()

    wait_for_gpus()
    launch_all_sequences()  # warm up
    wait_for_gpus()
    with timeline() as recording:
        launch_all_sequences()
        wait_for_gpus()
    launch_count = sum("Launch" in call.name for call in recording.record.calls)
    arrays = {array.data.ptr: array.nbytes for array in sequence_arrays[0][1].values()}
    return VersionCosts(recording.record.span_ns, launch_count, sum(arrays.values()))


def _make_sequence_launcher(
    cp: Any, launch_sequences: SequenceLauncher, streams: Sequence[Any], sequences: Sequence[Any], rung: str
) -> Callable[[], None]:
    """Return a function that launches all sequences on the current GPU. From version 11 on, it launches one
    CUDA graph.
    """
    if not any(version.is_captured for version in list_versions(rung)):
        return lambda: launch_sequences(cp, streams, sequences)
    cp.cuda.Device().synchronize()
    launch_sequences(cp, streams, sequences)
    graph = capture_graph(cp, launch_sequences, streams, sequences)

    def launch() -> None:
        graph.launch(streams[0])

    return launch
