"""``gl.interview``: cards drawn by seed, answered first and measured afterwards.

A card is a value in ``course/nNN_topic/cards``, in its tuple ``CARDS``. Its ``draw(rng)`` makes parameters
(a device, sizes, a kernel) and with them a `Drawn`: parts to answer one after another, what a good answer has
to say, and the sentence of a strong candidate. No truth is written down: each `Part` has a function that lets
the laboratory find it, or judges a program. ::

    def resident(rng: Random) -> Drawn:
        device, kib = rng.choice(DEVICES), rng.choice([8, 12, 20])

        def found() -> Found:
            with session.on_device(f"virtual:{device}") as cp:
                seen = session.backend().occupancy(kernel(cp), 32, kib << 10)
            return Found(seen.blocks_per_sm, seen.provenance, f"It is limited by {seen.limiters[0]}.")

        asked = Part(question=f"How many blocks ... on a {device}?", measure=found, unit="blocks", near=1.0)
        return Drawn(parts=(asked,), points=(...), sentence="...", parameters={"device": device})

    CARDS = (Card("estimate-resident", "estimate", "L4", resident, ("02",)),)
"""

from gpulab_course.teach.interview.cards import Card, Drawn, Found, Outcome, Part
from gpulab_course.teach.interview.opening import UnknownCardError
from gpulab_course.teach.interview.scorecard import Scorecard
from gpulab_course.teach.interview.talk import Interview

__all__ = [
    "Card",
    "Drawn",
    "Found",
    "Interview",
    "Outcome",
    "Part",
    "Scorecard",
    "UnknownCardError",
]
