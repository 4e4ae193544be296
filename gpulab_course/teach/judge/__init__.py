"""The judge of all exercises of the course.

An exercise is a value in ``course/nNN_topic/exercises.py``, in the tuple ``EXERCISES``. There are three
kinds.

**A kernel** is judged in five stages: ``results`` on sizes, block shapes and data that nobody can type in;
``orders`` of blocks; ``hazards`` under the sanitizer; ``budget``, named counters beside those of the
reference and of a naive version; ``parallelism``, so that no serial kernel passes. What a solution uses is
read off counters, never off its text. All of that runs on a virtual GPU; where there is a real one, the
results are taken there, too, once everything else has passed. ::

    from gpulab_course.teach.judge import (
        Advice, Budget, Case, Draw, KernelExercise, Measured, advice, blocks_for, draw
    )

    def scale2d_case(data: Draw, size: tuple[int, int], block: Dim3) -> Case:
        rows, cols = size
        x = data.floats((rows, cols))                               # random, or with 0, -0, infinities, NaN
        grid = blocks_for(cols, block[0]), blocks_for(rows, block[1])
        values = {"x": x, "rows": rows, "cols": cols}               # inputs by parameter name
        return Case(grid, values, wanted={"y": 2 * x})              # outputs, by NumPy

    INDEX = KernelExercise(
        "02-index", "A matrix kernel", "scale2d",
        "const float* x, float* y, int rows, int cols",             # pointers to const are never written
        scale2d_case,
        reference="scale2d.cu",                                     # in this folder's kernels/
        naive="scale2d_down_the_rows.cu",                           # right, and over budget
        level="core", kind="write",                                 # or "warm-up", "stretch"; "repair"
        sizes=draw.matrices, blocks=draw.planes,                    # instead of draw.lengths, draw.lines
        measured=Measured((190, 250), (32, 8, 1)),                  # the launch in which costs are counted
        budgets=(Budget("sectors", "Neighbouring lanes, that is x, belong on neighbouring columns."),),
        once=True,                                                  # no two threads write one element
        advice=(
            Advice(advice.out_of_bounds, "Guard both edges: if (row < rows && col < cols)."),
            Advice(advice.transposed, "x counts columns and y counts rows."),
            Advice(lambda m: m.fault == "lanes missing", "All 32 lanes must reach the shuffle."),
        ),
        praise="right for square, wide and tall matrices and for ragged edges on both sides.",
    )

*Data.* `Draw` gives ``floats``, ``whole`` (floats whose sums are exact in any order, hence compared
exactly), ``integers``, ``any_integers`` and ``rng``; each of them with few values and with extreme ones, too.
Vary every parameter. An output that is read as well stands in ``values``, too, with its first
contents; any other starts as garbage. What is neither ``const`` nor wanted is scratch, which may hold
anything in the end. Outputs are compared exactly if they are integers, within two units
in the last place if they are floats; for sums use `Near`, with the absolute values that were added up as
its scale, and few ``ulps``: a lost element must show. ``case`` is called with many sizes, 0 among them
(`draw.some_lengths` leaves that out), and must itself choose a grid that covers them. Make it fail for what
learners get wrong: odd sizes, negative numbers, zeros where "positive" matters, extremes at both ends.

*The table*, ``table=(Row("all negative", lambda data, n, block: ...), ...)``, has what the text admits and
chance may leave out: signs, both ends of a range, equal values, empty and full, two conditions at once.
Every answer is tried with every row, beside what is drawn. Programs have such a table, too; the judge of a
Python function has rows of its own. A mistake that passes is closed by a row, not by more draws.

*Budgets* name a counter of `budget.COUNTERS` (sectors, atomics, atomic_lanes, shuffles, bank_conflicts,
conflict_ways, local_bytes, l2_sectors, dram_bytes, shared_bytes, divergent_branches, warp_instructions ...).
``Budget("sectors")`` allows 1.25 times the reference's, ``allowance=1.5`` that many times; ``most=0`` forbids
("no atomics"), ``least=1`` demands. Figures of the reference and the naive version are counted, never written
down. The score is counted in the launch that `Measured` names. Bounds have to hold in two more, whose size
and block are drawn from the answer's text, and in the large launches of the first stage, so that no special
case helps; one that the reference itself exceeds there is not asked for. Where there is neither ``most`` nor
``least``, figures become the learner's score, and the best is kept for as long as the exercise's ``rules``
stay the same: raise them with whatever may refuse an answer that has passed.

*Orders.* Where blocks may wait for each other, say ``crowded=True``: a kernel that counts on the order in
which blocks begin ends while all of them fit on the device, and only then.

*Parallelism* allows 6 times the reference's instructions and a few more, with 3 times its busiest warp's
share of them, and asks for half its lane efficiency; ``Measured(slack=..., lanes=...)`` changes that.

*Advice.* The first that fits a `Mistake` is said after what was found. Matchers are functions of it;
`advice` has common ones (``out_of_bounds``, ``fault(kind, array)``, ``hazard("RAW")``, ``transposed``,
``tail_wrong``, ``only_first``, ``unchanged``, ``partly_unwritten``, ``written_twice``, ``times(32)``,
``holds(lambda m: m["x"] + 1)``, ``in_stage("budget")``, ``both``, ``either``, ``not_``). Every sentence
says what to do, not how the judge works.

**A Python function or value** is judged by a function that returns praise or raises `NotYet`. The answer runs
in a process of its own with limits on time and memory, so that whatever it does, the notebook lives on; the
judge runs in the notebook's, and what it asks comes back as plain data (`values`): exact numbers, texts,
lists, tuples, dictionaries and arrays, so that no answer can decide its own verdict. ::

    def judge_waves(answer: Answer) -> str:
        sms = int(answer.rng.integers(2, 200))                      # drawn from the answer's text
        found = call(answer, 2 * sms + 1, 2, sms, name="waves")     # what it raises becomes a sentence
        if found != (1, 1):
            raise NotYet(f"{spell('waves', (2 * sms + 1, 2, sms))} returns {spelt(found)}, not (1, 1).")
        return "full waves and tails are right."

    WAVES = PythonExercise("02-waves", "Waves and tail", judge_waves, level="warm-up")

An answer that has failed gets new data when it is tried again, after the case on which the last one failed
(`past`). ``answer.value()`` is an answer that is no function. ``answer.ask(script, *arguments)`` calls
``script(answer, *arguments)`` where the answer is, for what needs a device or an object with methods: the
script reports what happened, the judge decides. Truth stays here: what an answer has to find out is asked
through ``back``, never held by something that it is handed.

*Forgeries.* Progress is no examination. Nothing keeps an answer from replacing parts of gpulab in its own
process, which count its costs and watch its streams, from calling a library for show, or from reading this
folder's files. What it is handed and what it returns must not decide the verdict; more is not tried.

**A device program** is a Python function that uses ``cp``. It runs in a process of its own, too, on a
virtual GPU; results are compared, and its costs are counted: kernel launches, copies, bytes, waits of the
host and so on (`counts.COUNTS`). On a GPU machine its results are taken there as well. ::

    TOTAL = ProgramExercise(
        "07-total", "A sum without copies", "total",
        lambda data, n: ProgramCase((data.whole(n),), wanted=...),  # arguments, and what is to be returned
        reference=reference_total, naive=naive_total,               # functions; the last size is the score's
        sizes=lambda rng: (1, 33, int(rng.integers(2_000, 9_000)), 10_000),
        budgets=(Budget("to_host_bytes", "Copy one number.", large=True), Budget("waits", most=0)),
        advice=(("is capturing", "Read results after the graph's launch."),),  # words of the message
    )

The call's device arrays are still being written when it begins, in a current stream of its own: work in
another stream has to wait for that one, and to be waited for. Data and ``sizes`` are drawn from the answer's
text. Results are compared in values, shape, dtype and ``place``, in every size and, if ``checked``, with
the order of uses looked at and in two other lawful orders of the streams. A budget holds in every size, one
for ``large`` ones in the last two. ``streams``, ``beside``, ``graph_kernels`` and
``working_graph_launches`` count only what the result rests on: nothing is done for show.

`ProgramCase` takes ``mistakes=((what a known mistake returns, "The sentence it earns."),)``; its ``wanted``
may be a function that looks at what is returned, as plain data, and raises `NotYet`.

**Answers** are what the judge itself is tried with. ``tests/answers`` has a module for each notebook, which
declares for every exercise at least 8 wrong answers, each with the stage that must catch it and words of the
sentence it earns, and at least 4 right ones that differ: a grid-stride loop, another shuffle, cooperative
groups, odd formatting, comments that name what is forbidden. ``tests/teach/test_mutants.py`` runs them.
Some of the wrong ones are described in ``shown_answers.py`` of the notebook's folder, for instructors. ::

    WRONG = (
        Wrong("02-index", "guard on one side", scale2d("if (col < cols) ..."), "results", "Guard both edges"),
        Wrong("02-index", "lanes down the rows", scale2d("..."), "budget", "neighbouring columns"),
        Wrong("02-waves", "rounds up", lambda b, p, s: (-(-b // (p * s)), 0), "", "it should be"),
    )
    RIGHT = (Right("02-index", "grid-stride in both directions", scale2d("for (...) for (...) ...")),)

The stage is empty for what cannot be tried at all (it does not compile, is not a kernel), and for Python
functions.
"""

from gpulab.processes.errors import spelt
from gpulab_course.teach.judge import advice, draw
from gpulab_course.teach.judge.compare import Near
from gpulab_course.teach.judge.draw import Draw, blocks_for
from gpulab_course.teach.judge.exercise import (
    Advice,
    Budget,
    Case,
    Exercise,
    KernelExercise,
    Measured,
    Mistake,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    Row,
)
from gpulab_course.teach.judge.python.answer import Answer, call
from gpulab_course.teach.judge.python.functions import as_float, is_number, is_whole, parts_of, spell

__all__ = [
    "Advice",
    "Answer",
    "Budget",
    "Case",
    "Draw",
    "Exercise",
    "KernelExercise",
    "Measured",
    "Mistake",
    "Near",
    "NotYet",
    "ProgramCase",
    "ProgramExercise",
    "PythonExercise",
    "Row",
    "advice",
    "as_float",
    "blocks_for",
    "call",
    "draw",
    "is_number",
    "is_whole",
    "parts_of",
    "spell",
    "spelt",
]
