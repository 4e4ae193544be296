"""The model of PyTorch's allocator against PyTorch's on an H200: 1,500 random sequences of calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.allocators.torch_side import ModelSide, Scripted
from tools.recordings import FOLDER
from tools.recordings.torch_pools import COLUMNS, Recording, compute_checksum, program

FILES = [FOLDER / f"torch_pools_{part}.npz.xz" for part in ("default", "expandable")]


def differences(recording: Recording, index: int, *, own_addresses: bool = False) -> str:
    """Where the model first says something else than PyTorch did in one sequence; empty for nowhere.

    With addresses of the model's own device only the figures after each call can be compared.
    """
    about = recording.about
    side = ModelSide(about["total_bytes"], about["streams"], about["expandable"])
    if not own_addresses:
        side.device = Scripted(about["total_bytes"], recording.segments[index], side.expandable)
    settings, steps = program(about["seeds"][index])
    side.start(settings)
    start = recording.starts[index]
    for number, step in enumerate(steps):
        side.step(step)
        expected = recording.rows[start + number].tolist()
        side.open(expected[-1])
        if side.row() != expected:
            wrong = [n for n, a, b in zip(COLUMNS, side.row(), expected, strict=True) if a != b]
            return f"seed {about['seeds'][index]} ({settings}), call {number} {step}: {', '.join(wrong)}"
    if own_addresses:
        return ""
    if index < len(about["statistics"]):
        statistics = side.statistics()["nested"] | {
            "max_split_size": -1
        }  # PyTorch's is that of the program's start
        if statistics != about["statistics"][index]["nested"]:
            return f"seed {about['seeds'][index]} ({settings}): statistics"
    result, events = side.finish()
    if result != recording.layouts[index]:
        return f"seed {about['seeds'][index]} ({settings}): blocks at the end"
    if compute_checksum(events) != recording.digests[index]:
        return f"seed {about['seeds'][index]} ({settings}): events"
    return ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_model_equals_pytorchs_allocator_on_a_gpu(path: Path) -> None:
    recording = Recording.load(path)
    wrong = [text for index in range(len(recording.starts)) if (text := differences(recording, index))]
    assert not wrong, f"{len(wrong)} of {len(recording.starts)}: {wrong[:5]}"


def test_model_predicts_the_segment_addresses_of_the_driver() -> None:
    """The choice between two equal blocks depends on addresses, so wrong addresses change the statistics."""
    recording = Recording.load(FILES[0])
    wrong = [differences(recording, i, own_addresses=True) for i in range(len(recording.starts))]
    assert not any(wrong), wrong
