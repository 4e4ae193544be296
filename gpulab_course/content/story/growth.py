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
from gpulab_course.content.story.rungs import RUNGS, SEQUENCES, Play, capture_graph, find_play, list_rungs
from virtualgpu.records import Provenance

_HEADINGS = ("notebook", "what changed", "attention", "memory", "Life", "memory", "launches")


@dataclass(frozen=True, slots=True)
class VersionCosts:
    """The time, launches and memory that one version of the running example needs for `SEQUENCES`
    sequences.
    """

    time_ns: int
    launches: int
    array_bytes: int


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One row of the table of the running example, which shows the costs of one version."""

    number: str
    what: str
    block: VersionCosts
    life: VersionCosts


class Growth:
    """The table of all versions of the running example. The attribute ``record`` contains the rows."""

    def __init__(self, lines: Sequence[VersionRow], provenance: Provenance) -> None:
        self.record = tuple(lines)
        self.provenance = provenance
        version_rows = [
            (
                version_row.number,
                version_row.what,
                duration(version_row.block.time_ns),
                size(version_row.block.array_bytes),
                duration(version_row.life.time_ns),
                size(version_row.life.array_bytes),
                str(version_row.block.launches),
            )
            for version_row in lines
        ]
        origin = provenance.of_results_and_times
        subject_text = f"{SEQUENCES} sequences through the attention layer, {SEQUENCES} boards of Life"
        self._table = Table(
            f"The running example so far: {subject_text}, {origin}", _HEADINGS, tuple(version_rows)
        )

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.card()


def table(rung: str = RUNGS[-1].number) -> Growth:
    """Run all versions of the running example up to this notebook, and return a table of their costs.

    Parameters
    ----------
    rung
        The notebook's number, such as ``"07"``.
    """
    versions = list_rungs(rung)
    table_lines = []
    with session.show_steps(len(versions), "story.table") as begin_step:
        for version in versions:
            begin_step()
            block_and_life_costs = (
                _measure(_make_block_steps, version.number),
                _measure(_make_life_steps, version.number),
            )
            table_lines.append(VersionRow(version.number, version.what, *block_and_life_costs))
    return Growth(table_lines, session.backend().provenance)


def _make_block_steps(cp: Any, rung: str, seed: int) -> tuple[list[Step], dict[str, Any]]:
    launches, arrays = attention.steps(cp, seed=seed, rung=rung)
    return list(launches.values()), arrays


def _make_life_steps(cp: Any, rung: str, seed: int) -> tuple[list[Step], dict[str, Any]]:
    takes_turns = any("boards" in version.in_place for version in list_rungs(rung))
    launches, boards = pictures.generations(cp, seed=seed, take_turns=takes_turns)
    return list(launches), {f"board {k}": board for k, board in enumerate(boards)}


def _measure(program: Any, rung: str) -> VersionCosts:
    cp = session.cp()
    is_spread = any(version.spread for version in list_rungs(rung))
    gpu_devices = (
        [cp.cuda.Device(k) for k in range(cp.cuda.runtime.getDeviceCount())]
        if is_spread
        else [cp.cuda.Device()]
    )
    launch_sequences = find_play(rung)
    gpu_players = []
    sequence_arrays = []
    for gpu_index, gpu in enumerate(gpu_devices[:SEQUENCES]):
        with gpu:
            gpu_sequences = [
                program(cp, rung, seed) for seed in range(gpu_index, SEQUENCES, len(gpu_devices))
            ]
            sequence_arrays += gpu_sequences
            streams = [cp.cuda.Stream(non_blocking=True) for _ in gpu_sequences]
            gpu_players.append(
                (
                    gpu,
                    _make_player(cp, launch_sequences, streams, [steps for steps, _ in gpu_sequences], rung),
                )
            )

    def play_all() -> None:
        for gpu, play_sequences in gpu_players:
            with gpu:
                play_sequences()

    def wait() -> None:
        for gpu, _ in gpu_players:
            gpu.synchronize()

    wait()
    play_all()  # warm up
    wait()
    with timeline() as recording:
        play_all()
        wait()
    launch_count = sum("Launch" in call.name for call in recording.record.calls)
    arrays = {array.data.ptr: array.nbytes for array in sequence_arrays[0][1].values()}
    return VersionCosts(recording.record.span_ns, launch_count, sum(arrays.values()))


def _make_player(
    cp: Any, launch_sequences: Play, streams: Sequence[Any], sequences: Sequence[Any], rung: str
) -> Callable[[], None]:
    """Return a function that runs all sequences on the current GPU, as a CUDA graph from some version on."""
    if not any(version.captured for version in list_rungs(rung)):
        return lambda: launch_sequences(cp, streams, sequences)
    cp.cuda.Device().synchronize()
    launch_sequences(cp, streams, sequences)
    graph = capture_graph(cp, launch_sequences, streams, sequences)

    def launch() -> None:
        graph.launch(streams[0])

    return launch
