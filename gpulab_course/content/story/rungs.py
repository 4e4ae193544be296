"""The versions of the attention block, one per notebook; each includes the earlier ones.

A rung says what it changes: kernels, arrays that serve twice, how the host hands the launches out. All that
earlier rungs changed holds as well. Whoever adds one adds a line to `RUNGS`, at the place of its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulab_course.content.kernels.work import Step

SEQUENCES = 4

# Gives the streams what they are to run: streams, and a sequence's steps for each of them.
Play = Callable[[Any, Sequence[Any], Sequence[Sequence[Step]]], None]


def one_by_one(cp: Any, streams: Sequence[Any], sequences: Sequence[Sequence[Step]]) -> None:
    """Launch one sequence after the other, all in the first stream."""
    with streams[0]:
        for steps in sequences:
            for step in steps:
                step()


def step_by_step(cp: Any, streams: Sequence[Any], sequences: Sequence[Sequence[Step]]) -> None:
    """Launch the first step of all sequences, then the second of all, with one stream per sequence."""
    for steps in zip(*sequences, strict=True):
        for stream, step in zip(streams, steps, strict=True):
            with stream:
                step()


@dataclass(frozen=True, slots=True)
class Rung:
    """The changes that one notebook makes to the block.

    Attributes
    ----------
    number : str
        The notebook's.
    what : str
        In a few words, for the table.
    kernels : str
        File of CUDA C++ whose kernels take the place of earlier ones of the same name; empty: none.
    lanes_a_row : int
        How many threads share a row in softmax and layer norm; 0: as before.
    in_place : dict
        Array of the block -> the array whose memory serves for it, too; ``boards`` of Life take turns.
    play : callable, optional
        How the host hands out the launches of several sequences; None: as before.
    joined : tuple of str
        Launches whose work a kernel before them does as well.
    narrow : tuple of str
        Arrays that hold BF16 (their bits, as uint16) instead of float32.
    captured : bool
        Whether that is captured once, as a graph, and then launched.
    spread : bool
        Whether sequences take turns on the GPUs that there are, instead of all going to one.
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
    spread: bool = False


IN_PLACE = {"weights": "scores", "out": "mixed", "boards": "turns"}
RUNGS = (
    Rung("00", "five kernels, plainly written", "block.cu", play=one_by_one),
    Rung("04", "checked in four ways: nothing to mend"),
    Rung("05", "both products in tiles", "tiles.cu"),
    Rung("06", "softmax and layer norm by rows, a warp each", "rows.cu", lanes_a_row=32),
    Rung("07", "a stream a sequence, step by step", play=step_by_step),
    Rung(
        "10",
        "softmax and GELU in place, two boards in turns",
        in_place=IN_PLACE,
    ),
    Rung("11", "all launches captured, as one graph", captured=True),
    Rung("12", "GELU at the end of its product", "fused.cu", joined=("gelu",)),
    Rung("13", "what lies between the kernels in BF16", "bf16.cu", narrow=("normed", "scores", "weights")),
    Rung("15", "a GPU a sequence, where there are several", spread=True),
)


def up_to(rung: str) -> tuple[Rung, ...]:
    """Return the versions up to a notebook's own; `rung` is the notebook's number, such as ``"05"``."""
    found = tuple(each for each in RUNGS if each.number <= rung)
    if not found:
        raise ValueError(f"There is no rung {rung!r}; there are {', '.join(each.number for each in RUNGS)}.")
    return found


def played(rung: str) -> Play:
    """Return the function by which the host launches the kernels in this version."""
    return next(each.play for each in reversed(up_to(rung)) if each.play is not None)


def captured(cp: Any, play: Play, streams: Sequence[Any], sequences: Sequence[Any]) -> Any:
    """Capture the launches of `play` as one graph, with forks from the first stream and joins to it."""
    first, *others = streams
    first.begin_capture()
    for stream in others:
        stream.wait_event(first.record())
    play(cp, streams, sequences)
    for stream in others:
        first.wait_event(stream.record())
    return first.end_capture()
