"""Interview cards with a buggy program: one change to the course's solution that people often make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random

from gpulab_course.content.n17_interview.cards.judged import (
    ENDLESS_FAULT,
    FAULT_TEXTS,
    IDLE_FAULT,
    MEMORY_FAULT,
    RACE_FAULT,
    WRONG_RESULTS_FAULT,
    find_exercise,
    find_faults,
    judge_kernel,
    read_model_answer,
)
from gpulab_course.content.n17_interview.cards.tasks import TASKS
from gpulab_course.teach.interview import Card, CardQuestion, DrawnCard, TrueValue


@dataclass(frozen=True)
class InsertedBug:
    """A bug for a debugging question, with the text changes that add it to the solution."""

    name: str
    changes: tuple[tuple[str, str], ...]
    other_faults: tuple[str, ...] = ()

    def make_program(self, solution: str) -> str:
        """Return the solution with the bug, and without comments that would reveal it."""
        for original_code, replacement_code in self.changes:
            assert solution.count(original_code) == 1, (self.name, original_code)
            solution = solution.replace(original_code, replacement_code)
        code_lines = [line.partition("//")[0].rstrip() for line in solution.splitlines()]
        return "\n".join(line for line in code_lines if line.strip()) + "\n"


def _make_bug(name: str, *changes: tuple[str, str], other_faults: tuple[str, ...] = ()) -> InsertedBug:
    return InsertedBug(name, changes, other_faults)


_GUARD_CHANGE = ("    if (i < n) {\n        y[i] = a * x[i] + y[i];\n    }", "    y[i] = a * x[i] + y[i];")
_SCAN_STEP_CODE = "        int other = t >= step ? part[t - step] : 0;\n        __syncthreads();\n"
_TREE_CODE = (
    "            for (int k = threadIdx.x; k < half; k += blockDim.x) s[k] += s[k + half];\n"
    "            __syncthreads();\n"
)
BUGS: dict[str, tuple[InsertedBug, ...]] = {
    "00-saxpy": (
        _make_bug("no guard", _GUARD_CHANGE),
        _make_bug("guard with <=", ("i < n", "i <= n")),
        _make_bug(
            "without the block's number",
            ("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),
            other_faults=(WRONG_RESULTS_FAULT,),
        ),
        _make_bug(
            "gridDim instead of blockDim",
            ("blockIdx.x * blockDim.x", "blockIdx.x * gridDim.x"),
            other_faults=(WRONG_RESULTS_FAULT,),
        ),
    ),
    "02-stride": (
        _make_bug(
            "one element a thread",
            (
                "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)",
                "int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n)",
            ),
            ("    int stride = gridDim.x * blockDim.x;\n", ""),
        ),
        _make_bug("guard with <=", ("i < n", "i <= n")),
        _make_bug(
            "a run of neighbours for each thread",
            (
                "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)\n",
                (
                    "    int run = (n + stride - 1) / stride, t = blockIdx.x * blockDim.x + threadIdx.x;\n"
                    "    for (int i = t * run; i < min(n, (t + 1) * run); ++i)\n"
                ),
            ),
        ),
    ),
    "02-index": (
        _make_bug("rows and columns exchanged", ("row * cols + col", "col * rows + row")),
        _make_bug(
            "width for height",
            ("row * cols + col", "row * rows + col"),
            other_faults=(WRONG_RESULTS_FAULT, RACE_FAULT),
        ),
        _make_bug(
            "guard on one side", ("row < rows && col < cols", "col < cols"), other_faults=(RACE_FAULT,)
        ),
    ),
    "03-warp-sum": (
        _make_bug("one step short", ("offset > 0", "offset > 1")),
        _make_bug(
            "a sum for each block",
            ("threadIdx.x % 32 == 0", "threadIdx.x == 0"),
            ("out[i / 32]", "out[blockIdx.x]"),
        ),
        _make_bug(
            "returns before the shuffle",
            ("    int v = i < n ? x[i] : 0;", "    if (i >= n) return;\n    int v = x[i];"),
            other_faults=(WRONG_RESULTS_FAULT,),
        ),
    ),
    "03-bins": (
        _make_bug(
            "adds without an atomic", ("atomicAdd(&bins[key], __popc(peers))", "bins[key] += __popc(peers)")
        ),
        _make_bug("one for each group", ("__popc(peers)", "1")),
        _make_bug("key 0 for lanes without one", ("keys[i] : -1", "keys[i] : 0")),
    ),
    "05-copy4": (
        _make_bug(
            "the tail is forgotten",
            ("    int last = 4 * whole + i;\n    if (last < n) y[last] = x[last];\n", ""),
        ),
        _make_bug("rounds up", ("whole = n / 4", "whole = (n + 3) / 4")),
        _make_bug(
            "four loads in a row",
            (
                "if (i < whole) ((float4*)y)[i] = ((const float4*)x)[i];",
                "if (i < whole)\n        for (int k = 0; k < 4; ++k) y[4 * i + k] = x[4 * i + k];",
            ),
        ),
    ),
    "05-transpose": (
        _make_bug("no barrier", ("    __syncthreads();\n", ""), other_faults=(MEMORY_FAULT,)),
        _make_bug("no padding", ("tile[32][33]", "tile[32][32]")),
        _make_bug(
            "the tile stays where it was",
            (
                "blockIdx.y * 32 + threadIdx.x, out_row = blockIdx.x * 32",
                "blockIdx.x * 32 + threadIdx.x, out_row = blockIdx.y * 32",
            ),
            other_faults=(WRONG_RESULTS_FAULT, MEMORY_FAULT, RACE_FAULT),
        ),
        _make_bug(
            "the old guard",
            ("out_row + k < cols && out_col < rows", "out_row + k < rows && out_col < cols"),
            other_faults=(WRONG_RESULTS_FAULT, MEMORY_FAULT),
        ),
    ),
    "05-matmul": (
        _make_bug(
            "no barrier after the loads",
            (
                (
                    "        __syncthreads();\n        for (int k = 0; k < side; ++k) sum += as[ty][k] * "
                    "bs[k][tx];\n"
                ),
                "        for (int k = 0; k < side; ++k) sum += as[ty][k] * bs[k][tx];\n",
            ),
            other_faults=(MEMORY_FAULT,),
        ),
        _make_bug(
            "no barrier before the next loads", ("bs[k][tx];\n        __syncthreads();\n", "bs[k][tx];\n")
        ),
        _make_bug("whole tiles only", ("k0 < inner;", "k0 + side <= inner;")),
        _make_bug(
            "row for inner",
            ("a[row * inner + k0 + tx]", "a[row * rows + k0 + tx]"),
            other_faults=(WRONG_RESULTS_FAULT,),
        ),
    ),
    "06-block": (
        _make_bug("a maximum from 0", ("-2147483647 - 1", "0")),
        _make_bug("halves an odd number", ("int half = (left + 1) / 2;", "int half = left / 2;")),
        _make_bug(
            "the last warp without a barrier",
            (
                "        __syncthreads();\n        left = half;",
                "        if (half > 32) __syncthreads();\n        left = half;",
            ),
        ),
    ),
    "06-scan": (
        _make_bug(
            "in place with one barrier",
            (_SCAN_STEP_CODE, _SCAN_STEP_CODE.replace("        __syncthreads();\n", "")),
        ),
        _make_bug(
            "the block's number instead of a ticket",
            ("if (t == 0) tile = atomicAdd(state, 1);", "if (t == 0) tile = blockIdx.x;"),
            other_faults=(ENDLESS_FAULT,),
        ),
        _make_bug(
            "no fence before the flag", ("        __threadfence();\n        atomicExch", "        atomicExch")
        ),
        _make_bug("inclusive", ("part[t] - own", "part[t]")),
    ),
    "06-compact": (
        _make_bug("no barrier", ("    __syncthreads();\n", ""), other_faults=(MEMORY_FAULT,)),
        _make_bug(
            "all votes of the warp",
            ("__popc(votes & ((1u << lane) - 1))", "__popc(votes)"),
            other_faults=(WRONG_RESULTS_FAULT, MEMORY_FAULT),
        ),
        _make_bug("counts its own block only", ("before[blockIdx.x] + kept", "kept")),
    ),
    "06-blur": (
        _make_bug(
            "no barrier before the next tile",
            (
                "    sum / 25;\n        }\n        __syncthreads();\n".strip(),
                "sum / 25;\n        }\n".strip(),
            ),
        ),
        _make_bug(
            "no barrier after the loads",
            ("        __syncthreads();\n        int row", "        int row"),
            other_faults=(MEMORY_FAULT,),
        ),
        _make_bug("clamps to the height", ("rows - 1)", "rows)"), other_faults=(WRONG_RESULTS_FAULT,)),
        _make_bug(
            "zeros beyond the edge",
            (
                (
                    "            int r = min(max(top - 2 + k / width, 0), rows - 1);\n"
                    "            int c = min(max(left + k % width, 0), cols - 1);\n"
                    "            tile[k] = x[r * cols + c];\n"
                ),
                (
                    "            int r = top - 2 + k / width, c = left + k % width;\n"
                    "            tile[k] = r >= 0 && r < rows && c >= 0 && c < cols ? x[r * cols + c] : 0;\n"
                ),
            ),
        ),
    ),
    "06-softmax": (
        _make_bug("the sum keeps its old scale", ("            sum *= expf(most - v);\n", "")),
        _make_bug("no barrier", ("    __syncthreads();\n", ""), other_faults=(MEMORY_FAULT,)),
        _make_bug("warps added without their scale", ("sums[w] * expf(mosts[w] - most)", "sums[w]")),
    ),
    "14-sum": (
        _make_bug(
            "no barrier between the steps",
            (_TREE_CODE, _TREE_CODE.replace("            __syncthreads();\n", "")),
        ),
        _make_bug(
            "one element a thread",
            (
                (
                    "        for (int k = threadIdx.x; k < 256; k += blockDim.x) {\n"
                    "            int i = tile * 256 + k;\n            s[k] = i < n ? x[i] : 0;\n        }\n"
                ),
                (
                    "        int i = tile * 256 + threadIdx.x;\n"
                    "        if (threadIdx.x < 256) s[threadIdx.x] = i < n ? x[i] : 0;\n"
                ),
            ),
            other_faults=(WRONG_RESULTS_FAULT,),
        ),
        _make_bug(
            "thread 0 adds in order",
            (
                "        for (int half = 128; half > 0; half /= 2) {\n" + _TREE_CODE + "        }\n",
                "        if (threadIdx.x == 0)\n            for (int k = 1; k < 256; ++k) s[0] += s[k];\n",
            ),
            other_faults=(IDLE_FAULT,),
        ),
    ),
}


def draw_bug_questions(rng: Random, name: str) -> DrawnCard:
    """Choose a bug of an exercise at random, and return the questions about it."""
    inserted_bug = rng.choice(BUGS[name])
    program_text = inserted_bug.make_program(read_model_answer(name))

    def find_fault() -> TrueValue:
        fault_kinds, verdict = find_faults(name, program_text)
        return TrueValue(
            fault_kinds[0],
            f"by the sanitizer, and judged as {name}",
            f"The judge reports: {verdict.message}",
            other_right_choices=(*fault_kinds[1:], *inserted_bug.other_faults),
        )

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"{TASKS[name]} This program compiles, but its results are wrong, or it costs too "
                "much. What is wrong with it?",
                measure=find_fault,
                choices=FAULT_TEXTS,
                code=program_text,
            ),
            CardQuestion(
                question="Repair it: `answer(code)`, for the same launch. A change that only hides the fault is "
                "refused. A program that does not compile is not locked.",
                judge=partial(judge_kernel, name),
                code=program_text,
                model_answer=read_model_answer(name),
            ),
        ),
        rubric_points=(
            "Named the line, and an input or an order of threads for which the result is wrong.",
            "Said why a test can pass nevertheless.",
            "Repaired the cause, without a smaller grid, a longer array, a clamp or a serial loop.",
            "Said which tool would have found it.",
        ),
        strong_answer="This is the line, this is the smallest input that shows the fault, and this change makes it right for all inputs.",
        parameters={"exercise": name, "bug": inserted_bug.name},
    )


def _make_bug_card(name: str) -> Card:
    title = f"A wrong program: {find_exercise(name).title}"
    return Card(f"bug-{name}", "bug", "L4", title, partial(draw_bug_questions, name=name), (name[:2],))


CARDS = tuple(map(_make_bug_card, BUGS))
