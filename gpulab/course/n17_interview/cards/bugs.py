"""Cards with a wrong program out of those that the course's judges are tried with."""

from __future__ import annotations

from functools import partial
from random import Random

from gpulab.course.n17_interview.cards.judged import exercise, outcome, verdict_of, wrong_answers
from gpulab.teach.interview import Card, Drawn, Found, Part

# 02-stride, say: what it is to do, in a sentence for those who have not read its notebook.
_ASKED = {
    "00-saxpy": "It is to compute `y = a * x + y` for n floats.",
    "02-stride": "It is to square n floats, for any grid.",
    "02-index": "It is to double a matrix of rows × cols.",
    "03-warp-sum": "It is to leave the sum of each 32 elements in `out`.",
    "03-bins": "It is to count how often each key occurs.",
    "05-copy4": "It is to copy n floats, four at a time.",
    "05-transpose": "It is to transpose a matrix of rows × cols through a tile.",
    "05-matmul": "It is to multiply two matrices through tiles.",
    "06-block": "It is to leave each block's sum and maximum.",
    "06-scan": "It is to scan n integers in one launch.",
    "06-compact": "It is to keep positive elements, in order.",
    "06-blur": "It is to blur a matrix, 5 × 5, edges repeated.",
    "06-softmax": "It is to make each row's softmax.",
    "14-sum": "It is to add each 256 elements by one tree.",
}
_STAGES = {
    "results": "results: another number comes out",
    "orders": "orders: it depends on which block comes first",
    "hazards": "hazards: right by luck, and unordered",
    "budget": "budget: right, and it costs too much",
    "parallelism": "parallelism: right, and too few threads work",
}


def mend(rng: Random, name: str) -> Drawn:
    wrong = rng.choice(wrong_answers(name))
    code = wrong.answer.strip() + "\n"

    def stage() -> Found:
        verdict = verdict_of(name, wrong.answer)
        return Found(_STAGES[verdict.failed_stage], f"judged as {name}", f"What it earns: {verdict.message}")

    return Drawn(
        parts=(
            Part(
                question=f"{_ASKED[name]} It compiles. Which stage of the judge refuses it first?",
                measure=stage,
                choices=tuple(_STAGES.values()),
                code=code,
            ),
            Part(
                question="Mend it: `answer(code)`. What only hides the fault is refused by another stage.",
                judge=partial(outcome, name),
                code=code,
            ),
        ),
        points=(
            "Named the line, and an input or an order of threads for which it goes wrong.",
            "Said why a test may have passed all the same.",
            "Mended the cause: no smaller grid, no longer array, no clamp, no serial loop.",
            "Said which tool would have found it.",
        ),
        sentence="Here is the line, here the smallest input that shows it, and this change makes it right for all.",
        parameters={"exercise": name, "program": wrong.what},
    )


def _card(name: str) -> Card:
    title = f"A wrong program: {exercise(name).title}"
    return Card(f"bug-{name}", "bug", "L4", title, partial(mend, name=name), (name[:2],))


CARDS = tuple(map(_card, _ASKED))
