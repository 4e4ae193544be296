"""The versions of the running example, one per notebook; each version includes all earlier changes.

A version lists its changes: kernels, arrays that share memory, and the order in which the host launches
kernels. To add a version, add an entry to `VERSIONS`, in the order of the notebooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulab_course.content.kernels.work import Step

SEQUENCE_COUNT = 4

# A function that launches the steps of several sequences in streams.
SequenceLauncher = Callable[[Any, Sequence[Any], Sequence[Sequence[Step]]], None]


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
class ExampleVersion:
    """The changes that one notebook makes to the running example.

    Attributes
    ----------
    notebook_number : str
        Number of the notebook.
    description : str
        Short description, for the table.
    kernel_file : str
        File of CUDA C++ whose kernels replace earlier ones of the same name; empty if there are none.
    lanes_per_row : int
        Number of threads that share a row in softmax and layer norm; 0 if unchanged.
    memory_owners : dict
        Maps an array to the array whose memory it shares; ``boards`` of Life alternate.
    launch_sequences : callable, optional
        Function that launches the steps of several sequences; None if unchanged.
    fused_kernels : tuple of str
        Launches whose work an earlier kernel also does.
    bf16_arrays : tuple of str
        Arrays that contain BF16 (as uint16 bits) instead of float32.
    is_captured : bool
        Whether the launches are captured once as a graph.
    is_tiled : bool
        Whether one kernel computes the scores in tiles and uses them at once, so that they are not stored.
    uses_all_gpus : bool
        Whether sequences are distributed over all GPUs instead of one.
    """

    notebook_number: str
    description: str
    kernel_file: str = ""
    lanes_per_row: int = 0
    memory_owners: dict[str, str] = field(default_factory=dict)
    launch_sequences: SequenceLauncher | None = None
    fused_kernels: tuple[str, ...] = ()
    bf16_arrays: tuple[str, ...] = ()
    is_captured: bool = False
    is_tiled: bool = False
    uses_all_gpus: bool = False


MEMORY_OWNERS = {"weights": "scores", "out": "mixed", "boards": "turns"}
VERSIONS = (
    ExampleVersion("00", "five simple kernels", "block.cu", launch_sequences=one_by_one),
    ExampleVersion("04", "checked in four ways: no change needed"),
    ExampleVersion("05", "both matrix multiplications in tiles", "tiles.cu"),
    ExampleVersion("06", "softmax and layer norm: one warp per row", "rows.cu", lanes_per_row=32),
    ExampleVersion("07", "one stream per sequence, step by step", launch_sequences=step_by_step),
    ExampleVersion(
        "10",
        "softmax and GELU in place, two boards in turn",
        memory_owners=MEMORY_OWNERS,
    ),
    ExampleVersion("11", "all launches captured as one graph", is_captured=True),
    ExampleVersion("12", "GELU fused into its matrix multiplication", "fused.cu", fused_kernels=("gelu",)),
    ExampleVersion(
        "13", "arrays between the kernels in BF16", "bf16.cu", bf16_arrays=("normed", "scores", "weights")
    ),
    ExampleVersion("15", "one GPU per sequence, if there are several", uses_all_gpus=True),
    ExampleVersion(
        "19",
        "tiled attention: no scores are stored",
        "flash.cu",
        is_tiled=True,
        fused_kernels=("matmul_transposed", "softmax", "matmul"),
    ),
)


def list_versions(rung: str) -> tuple[ExampleVersion, ...]:
    """Return all versions of the running example up to the notebook `rung`, such as ``"05"``."""
    versions = tuple(version for version in VERSIONS if version.notebook_number <= rung)
    if not versions:
        raise ValueError(
            f"There is no version {rung!r} of the running example. The versions are "
            f"{', '.join(version.notebook_number for version in VERSIONS)}."
        )
    return versions


def find_sequence_launcher(rung: str) -> SequenceLauncher:
    """Return the function that launches the kernels of several sequences in this version of the running
    example.
    """
    return next(
        version.launch_sequences
        for version in reversed(list_versions(rung))
        if version.launch_sequences is not None
    )


def capture_graph(
    cp: Any, launch_sequences: SequenceLauncher, streams: Sequence[Any], sequences: Sequence[Any]
) -> Any:
    """Capture the kernel launches of `launch_sequences` in several streams as one graph."""
    origin_stream, *other_streams = streams
    origin_stream.begin_capture()
    for stream in other_streams:
        stream.wait_event(origin_stream.record())
    launch_sequences(cp, streams, sequences)
    for stream in other_streams:
        origin_stream.wait_event(stream.record())
    return origin_stream.end_capture()
