"""Cards that ask for a kernel, judged as an exercise of the course judges it."""

from __future__ import annotations

from functools import partial
from random import Random

from gpulab.course.n17_interview.cards.judged import exercise, outcome
from gpulab.teach.interview import Card, Drawn, Part

_POINTS = (
    "Asked for sizes, types, alignment and edge cases before writing.",
    "Said which thread does which element, and what happens at the ragged end.",
    "Said what it costs: requests, sectors, barriers or atomics, and the least possible.",
    "Named what would be tried next, and how to find out whether it pays.",
)
MINUTES = 20


def write(rng: Random, name: str, asked: str) -> Drawn:
    of = exercise(name)
    stub = f'extern "C" __global__ void {of.kernel}({of.parameters}) {{\n    // {MINUTES} minutes\n}}\n'
    return Drawn(
        parts=(
            Part(
                question=f"{asked} Any size, any block shape. `answer(code)` judges it: results, orders of blocks, "
                "hazards, budget, parallelism.",
                judge=partial(outcome, name),
                code=stub,
            ),
        ),
        points=_POINTS,
        sentence="First right for every size, then coalesced, then as few barriers and atomics as it takes.",
        parameters={"exercise": name, "draw": rng.randrange(10**6)},
    )


def _card(name: str, level: str, asked: str, section: str) -> Card:
    draw = partial(write, name=name, asked=asked)
    return Card(f"whiteboard-{name}", "whiteboard", level, "A kernel on the whiteboard", draw, (section,))


CARDS = (
    _card("02-index", "L3", "`y = 2 * x` for a matrix of rows × cols, with blocks of any shape in two dimensions.", "02"),
    _card("03-warp-sum", "L4", "`out[w]` is the sum of the 32 elements that belong to warp w, in registers alone; n need not be "
          "a multiple of 32.", "03"),
    _card("03-bins", "L4", "Count how often each key occurs, with far fewer atomics on `bins` than there are keys.", "03"),
    _card("03-compact", "L5", "Each warp keeps the positive elements of its 32, in their order, and says how many.", "03"),
    _card("05-copy4", "L3", "Copy n floats, four at a time, also where n is no multiple of four.", "05a"),
    _card("05-split", "L4", "Split an array of (x, y, z) records into three arrays, with all accesses coalesced.", "05a"),
    _card("05-transpose", "L4", "Transpose a matrix of rows × cols, coalesced on both sides and without bank conflicts.", "05b"),
    _card("05-matmul", "L5", "Multiply two matrices of any shape through tiles in shared memory.", "05b"),
    _card("06-scan", "L6", "Inclusive prefix sums of n integers in one launch, for any order of blocks.", "06"),
    _card("06-compact", "L5", "Write the positive elements one behind the other, in their order; `before` has the prefix sums.", "06"),
    _card("06-blur", "L4", "Each cell becomes the mean of the 5 × 5 around it, edges repeated, through a tile.", "06"),
    _card("06-softmax", "L5", "The softmax of each row, with largest and sum found in one pass, also for rows of −∞.", "06"),
    _card("14-sum", "L5", "The sum of each 256 elements by one fixed tree: the same bits for every grid and block.", "14"),
)  # fmt: skip
