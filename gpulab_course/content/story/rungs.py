"""The versions of the running example, one per notebook; each version includes all earlier changes.

A version lists its changes: kernels, arrays that share memory, and the order in which the host launches
kernels. To add a version, add an entry to `RUNGS`, in the order of the notebooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulab_course.content.kernels.work import Step

SEQUENCES = 4

# A function that launches the steps of several sequences in streams.
Play = Callable[[Any, Sequence[Any], Sequence[Sequence[Step]]], None]


def one_by_one(cp: Any, streams: Sequence[Any], sequences: Sequence[Sequence[Step]]) -> None:
    """Launch all steps of one sequence after the other in the first stream."""
    with streams[0]:
        for sequence_steps in sequences:
            for step in sequence_steps:
                step()


def step_by_step(cp: Any, streams: Sequence[Any], sequences: Sequence[Sequence[Step]]) -> None:
    """Launch the first step of all sequences, then the second step of all, and so on, with one stream per
    sequence.
    """
    for simultaneous_steps in zip(*sequences, strict=True):
        for stream, step in zip(streams, simultaneous_steps, strict=True):
            with stream:
                step()


@dataclass(frozen=True, slots=True)
class Rung:
    """The changes that one notebook makes to the running example.

    Attributes
    ----------
    number : str
        Number of the notebook.
    what : str
        Short description, for the table.
    kernels : str
        File of CUDA C++ whose kernels replace earlier ones of the same name; empty if there are none.
    lanes_a_row : int
        Number of threads that share a row in softmax and layer norm; 0 if unchanged.
    in_place : dict
        Maps an array to the array whose memory it shares; ``boards`` of Life alternate.
    play : callable, optional
        Function that launches the steps of several sequences; None if unchanged.
    joined : tuple of str
        Launches whose work an earlier kernel also does.
    narrow : tuple of str
        Arrays that contain BF16 (as uint16 bits) instead of float32.
    captured : bool
        Whether the launches are captured once as a graph.
    tiled : bool
        Whether one kernel computes the scores in tiles and uses them at once, so that they are not stored.
    spread : bool
        Whether sequences are distributed over all GPUs instead of one.
    """

    number: str
    what: str
    kernels: str = ""
    lanes_a_row: int = 0
    in_place: dict[str, str] = field(default_factory=dict)
    play: Play | None = None
    joined: tuple[str, ...] = ()
    narrow: tuple[str, ...] = ()
    captured: bool = False
    tiled: bool = False
    spread: bool = False


IN_PLACE = {"weights": "scores", "out": "mixed", "boards": "turns"}
RUNGS = (
    Rung("00", "five simple kernels", "block.cu", play=one_by_one),
    Rung("04", "checked in four ways: no change needed"),
    Rung("05", "both matrix multiplications in tiles", "tiles.cu"),
    Rung("06", "softmax and layer norm: one warp per row", "rows.cu", lanes_a_row=32),
    Rung("07", "one stream per sequence, step by step", play=step_by_step),
    Rung(
        "10",
        "softmax and GELU in place, two boards in turn",
        in_place=IN_PLACE,
    ),
    Rung("11", "all launches captured as one graph", captured=True),
    Rung("12", "GELU fused into its matrix multiplication", "fused.cu", joined=("gelu",)),
    Rung("13", "arrays between the kernels in BF16", "bf16.cu", narrow=("normed", "scores", "weights")),
    Rung("15", "one GPU per sequence, if there are several", spread=True),
    Rung(
        "19",
        "tiled attention: no scores are stored",
        "flash.cu",
        tiled=True,
        joined=("matmul_transposed", "softmax", "matmul"),
    ),
)


def list_rungs(rung: str) -> tuple[Rung, ...]:
    """Return all versions of the running example up to the notebook `rung`, such as ``"05"``."""
    versions = tuple(version for version in RUNGS if version.number <= rung)
    if not versions:
        raise ValueError(
            f"There is no version {rung!r} of the running example. The versions are "
            f"{', '.join(version.number for version in RUNGS)}."
        )
    return versions


def find_play(rung: str) -> Play:
    """Return the function that launches the kernels of several sequences in this version of the running
    example.
    """
    return next(version.play for version in reversed(list_rungs(rung)) if version.play is not None)


def capture_graph(cp: Any, play: Play, streams: Sequence[Any], sequences: Sequence[Any]) -> Any:
    """Capture the kernel launches of `play` in several streams as one graph."""
    origin_stream, *other_streams = streams
    origin_stream.begin_capture()
    for stream in other_streams:
        stream.wait_event(origin_stream.record())
    play(cp, streams, sequences)
    for stream in other_streams:
        origin_stream.wait_event(stream.record())
    return origin_stream.end_capture()
