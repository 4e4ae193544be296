"""Interviews of ``gl.interview``: a seed draws the cards, and answers are locked before anything is measured.

A card is a value in ``course/nNN_topic/cards``, in its tuple ``CARDS``. Its ``draw(rng)`` draws parameters
(a device, sizes, a kernel) and returns a `DrawnCard`: questions to answer one after another, the points of a
good answer, and the sentence of a strong candidate. No true value is written down: each `CardQuestion` has a
function that measures it in the laboratory, or that judges a program. ::

    def resident(rng: Random) -> DrawnCard:
        device, kib = rng.choice(DEVICES), rng.choice([8, 12, 20])

        def measure() -> TrueValue:
            with session.on_device(f"virtual:{device}") as cp:
                occupancy = session.backend().occupancy(kernel(cp), 32, kib << 10)
            return TrueValue(occupancy.blocks_per_sm, occupancy.provenance, "...")

        question = CardQuestion(question="How many?", measure=measure, unit="blocks", max_error_factor=1.0)
        return DrawnCard(questions=(question,), rubric_points=(...), strong_answer="...", parameters={})

    CARDS = (Card("estimate-resident", "estimate", "L4", resident, ("02",)),)
"""

from gpulab_course.teach.interview.cards import Card, CardQuestion, DrawnCard, Outcome, TrueValue
from gpulab_course.teach.interview.opening import UnknownCardError
from gpulab_course.teach.interview.scorecard import Scorecard
from gpulab_course.teach.interview.talk import Interview

__all__ = [
    "Card",
    "CardQuestion",
    "DrawnCard",
    "Interview",
    "Outcome",
    "Scorecard",
    "TrueValue",
    "UnknownCardError",
]
