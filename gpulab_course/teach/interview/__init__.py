"""Interviews of ``gl.interview``: a seed draws the cards, and answers are locked before anything is measured.

A card is a value in ``course/nNN_topic/cards``, in its tuple ``CARDS``. Its ``draw(rng)`` draws parameters
(a device, sizes, a kernel) and returns a `Drawn`: parts to answer one after another, the points of a good
answer, and the sentence of a strong candidate. No true value is written down: each `Part` has a function that
measures it in the laboratory, or that judges a program. ::

    def resident(rng: Random) -> Drawn:
        device, kib = rng.choice(DEVICES), rng.choice([8, 12, 20])

        def measure() -> Found:
            with session.on_device(f"virtual:{device}") as cp:
                occupancy = session.backend().occupancy(kernel(cp), 32, kib << 10)
            return Found(occupancy.blocks_per_sm, occupancy.provenance, "...")

        part = Part(question=f"How many blocks ... on a {device}?", measure=measure, unit="blocks", near=1.0)
        return Drawn(parts=(part,), points=(...), sentence="...", parameters={"device": device})

    CARDS = (Card("estimate-resident", "estimate", "L4", resident, ("02",)),)
"""

from gpulab_course.teach.interview.cards import Card, CardQuestion, DrawnCard, FoundValue, Outcome
from gpulab_course.teach.interview.opening import UnknownCardError
from gpulab_course.teach.interview.scorecard import Scorecard
from gpulab_course.teach.interview.talk import Interview

__all__ = [
    "Card",
    "CardQuestion",
    "DrawnCard",
    "FoundValue",
    "Interview",
    "Outcome",
    "Scorecard",
    "UnknownCardError",
]
