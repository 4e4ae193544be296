"""Interview cards that ask for a kernel, which is judged like an exercise of the course."""

from __future__ import annotations

from functools import partial
from random import Random

from gpulab_course.content.n17_interview.cards.judged import (
    BLOCK_CONVENTIONS,
    find_exercise,
    judge_kernel,
    read_model_answer,
)
from gpulab_course.content.n17_interview.cards.tasks import TASKS
from gpulab_course.teach.interview import Card, CardQuestion, DrawnCard

_KERNEL_POINTS = (
    "Repeated sizes, types, alignment and edge cases before writing.",
    "Said which thread processes which element, and what happens at the end of the array.",
    "Said what it costs (requests, sectors, barriers, atomics), and what the smallest cost is.",
    "Named the next thing to try, and how to find out whether it helps.",
)
ANSWER_MINUTES = 20


def draw_kernel_question(rng: Random, name: str) -> DrawnCard:
    """Return the interview question that asks for the kernel of an exercise."""
    kernel_exercise = find_exercise(name)
    has_own_launch = name in BLOCK_CONVENTIONS
    kernel_stub = f'extern "C" __global__ void {kernel_exercise.kernel}({kernel_exercise.parameters}) {{\n    // {ANSWER_MINUTES} minutes\n}}\n'
    launch_text = ""
    if has_own_launch:
        size_names = ", ".join(
            argument.name
            for argument in kernel_exercise.arguments
            if not argument.is_pointer and argument.type == "int"
        )
        launch_text = f" Or choose the launch yourself: `answer(code, block=(32, 8), grid=lambda {size_names}: (…, …))`."
    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"{TASKS[name]} `answer(code)` tests the results with any order of blocks, "
                f"hazards, costs and parallelism.{launch_text} A kernel that does not compile is not "
                "locked.",
                judge=partial(judge_kernel, name),
                code=kernel_stub,
                accepts_launch=has_own_launch,
                model_answer=read_model_answer(name),
            ),
        ),
        rubric_points=_KERNEL_POINTS,
        strong_answer="First right for every size, then coalesced, then with as few barriers and atomics as possible.",
        parameters={"exercise": name},
    )


def _make_whiteboard_card(name: str, level: str, section: str) -> Card:
    draw_question = partial(draw_kernel_question, name=name)
    return Card(
        f"whiteboard-{name}", "whiteboard", level, "A kernel on the whiteboard", draw_question, (section,)
    )


CARDS = (
    _make_whiteboard_card("02-index", "L3", "02"),
    _make_whiteboard_card("03-warp-sum", "L4", "03"),
    _make_whiteboard_card("03-bins", "L4", "03"),
    _make_whiteboard_card("03-compact", "L5", "03"),
    _make_whiteboard_card("05-copy4", "L3", "05a"),
    _make_whiteboard_card("05-split", "L4", "05a"),
    _make_whiteboard_card("05-transpose", "L4", "05b"),
    _make_whiteboard_card("05-matmul", "L5", "05b"),
    _make_whiteboard_card("06-scan", "L6", "06a"),
    _make_whiteboard_card("06-compact", "L5", "06b"),
    _make_whiteboard_card("06-blur", "L4", "06b"),
    _make_whiteboard_card("06-softmax", "L5", "06b"),
    _make_whiteboard_card("14-sum", "L5", "14"),
)
