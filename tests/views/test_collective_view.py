"""The view of a collective operation against its record: the ring's moves, and the steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpulab.views import CollectiveView
from gpulab.views.parts import palette, picture
from gpulab.views.parts.items import Ring
from gpulab.views.parts.plots import plot
from tests.views import exchanges
from tests.views.synthetic import boxes


def test_the_view_starts_before_the_first_step() -> None:
    view = CollectiveView(exchanges.collective(exchanges.ring(4, 3, 3), 4))
    (play,) = boxes(view.scene, "player")
    assert (view.step, play["trait"], play["last"]) == (0, "step", 6)
    view.close()


def test_the_ring_shows_the_moves_of_each_step() -> None:
    record = exchanges.collective(exchanges.ring(4, 3, 3), 4)
    view = CollectiveView(record)
    (cases,) = (switch["cases"] for switch in boxes(view.scene, "switch"))
    for step in range(len(record.steps) + 1):
        (ring,) = (
            box["items"][0] for box in boxes(cases[str(step)], "plot") if box["items"][0]["item"] == "ring"
        )
        moves = record.steps[step - 1].moves if step else ()
        assert [*zip(ring["source"], ring["target"], map(int, ring["text"]), strict=True)] == [
            (move.source, move.target, move.chunk) for move in moves
        ]
        assert {tuple(pair) for pair in ring["links"]} == {(0, 1), (1, 2), (2, 3), (3, 0)}
        assert ring["step"] == step
    view.close()


@pytest.mark.parametrize("gpus", [2, 5])
def test_a_mark_is_painted_next_to_the_gpu_that_receives_it(gpus: int) -> None:
    target = gpus - 1
    ring = Ring(
        names=[f"GPU {rank}" for rank in range(gpus)],
        links=[],
        source=[0],
        target=[target],
        text=[""],
        colour=[0],
        colours=["warn"],
        step=1,
    )
    pen = picture.Pen(240, 240)
    picture.lay_out(plot(240, (0, 1), ring, left=0, right=0), 240)[1](pen, 0, 0)
    image = np.asarray(pen.image)
    y, x = np.nonzero((image == [*bytes.fromhex(palette.find_hex("warn")[1:])]).all(axis=2))
    centres = [
        (
            image.shape[1] / 2 * (1 + 0.8 * math.sin(2 * math.pi * rank / gpus)),
            image.shape[0] / 2 * (1 - 0.8 * math.cos(2 * math.pi * rank / gpus)),
        )
        for rank in range(gpus)
    ]
    distances = [math.dist((x.mean(), y.mean()), centre) for centre in centres]
    assert distances.index(min(distances)) == target
