"""The judge of all exercises of the course.

An exercise is a value in ``course/nNN_topic/exercises.py``, in the tuple ``EXERCISES``. There are three
kinds.

**A kernel** is judged in five stages. ``results`` tests sizes, block shapes and data that an answer cannot
hard-code. ``orders`` tests other orders of blocks. ``hazards`` runs the sanitizer. ``budget`` compares
counters with those of the reference and of a naive version. ``parallelism`` rejects serial kernels. Counters
show which features a solution uses; its text is never searched for them. All stages run on a virtual GPU. If
there is a real GPU, the results are tested there as well, after all other stages have passed. ::

    from gpulab_course.teach.judge import (
        Advice, Budget, Case, DataGenerator, KernelExercise, MeasuredLaunch, advice, count_blocks, draw
    )

    def scale2d_case(data: DataGenerator, size: tuple[int, int], block: Dim3) -> Case:
        rows, cols = size
        x = data.floats((rows, cols))                               # random, or with 0, -0, infinities, NaN
        grid = count_blocks(cols, block[0]), count_blocks(rows, block[1])
        values = {"x": x, "rows": rows, "cols": cols}               # inputs by parameter name
        return Case(grid, values, expected_outputs={"y": 2 * x})    # outputs, by NumPy

    INDEX = KernelExercise(
        "02-index", "A matrix kernel", "scale2d",
        "const float* x, float* y, int rows, int cols",             # pointers to const are never written
        scale2d_case,
        reference="scale2d.cu",                                     # in this folder's kernels/
        naive="scale2d_down_the_rows.cu",                           # right, and over budget
        level="core", kind="write",                                 # or "warm-up", "stretch"; "repair"
        sizes=draw.draw_matrix_sizes, blocks=draw.draw_plane_blocks, # lengths, lines by default
        measured_launch=MeasuredLaunch((190, 250), (32, 8, 1)),     # the launch in which costs are counted
        budgets=(Budget("sectors", "Neighbouring lanes, that is x, belong on neighbouring columns."),),
        forbids_double_writes=True,                                 # no two threads write one element
        advice=(
            Advice(advice.is_out_of_bounds, "Guard both edges: if (row < rows && col < cols)."),
            Advice(advice.is_transposed, "x counts columns and y counts rows."),
            Advice(lambda m: m.fault_kind == "lanes missing", "All 32 lanes must reach the shuffle."),
        ),
        praise="right for square, wide and tall matrices and for ragged edges on both sides.",
    )

*Data.* `DataGenerator` returns ``floats``, ``integer_floats`` (floats whose sums are exact in any order, so
that they are compared exactly), ``integers`` and ``any_integers``; ``rng`` is its random generator. Each of
them is also drawn with few different values and with extreme values. Vary every parameter. An output that the
kernel also reads must be in ``values``, with its initial contents; every other output starts with random
contents. An array that is neither ``const`` nor in ``expected_outputs`` is scratch memory, whose final
contents are not compared. Integers are compared exactly, floats with a tolerance of two units in the last
place. For sums, use `ExpectedFloats` with few ``ulps``; its scale is the sum of the absolute values. A
missing element must be detected. ``case`` is called with many sizes, also with 0 (`draw.draw_nonzero_lengths`
omits it), and must choose a grid that covers them. Draw data on which common mistakes fail: odd sizes,
negative numbers, zeros if the task distinguishes positive numbers, and both ends of a range.

*The table*, ``table=(SpecialInput("all negative", lambda data, n, block: ...), ...)``, contains inputs that
the task allows and random draws may omit: signs, both ends of a range, equal values, empty and full arrays,
two conditions at the same time. Every answer is tested with every row in addition to random data. Exercises
with programs also have a table; the judge of a Python function contains its own special inputs. If a wrong
answer passes, add a row, not more random draws.

*Budgets* limit a counter of `budget.COUNTERS` (sectors, atomics, atomic_lanes, shuffles, bank_conflicts,
conflict_ways, local_bytes, l2_sectors, dram_bytes, shared_bytes, divergent_branches, warp_instructions ...).
``Budget("sectors")`` allows 1.25 times the count of the reference, and ``max_reference_factor=1.5`` allows
1.5 times that count. ``max_count=0`` forbids an operation ("no atomics"), and ``min_count=1`` requires it.
The counts of the reference and the naive version are measured, never written down. The score is counted in
the launch that `MeasuredLaunch` describes. The budgets also apply to two more launches, whose size and block
are drawn from the answer's text, and to the large launches of the first stage, so that handling one special
case does not help. A budget that the reference itself exceeds in such a launch is not checked there. Counts
of budgets without ``max_count`` and ``min_count`` are the learner's scores. The best score is stored until
the exercise's ``rules`` change: raise ``rules`` with every change that may reject an answer that has passed.

*Orders.* If blocks may wait for each other, set ``waits_between_blocks=True``. A kernel that depends on the
order in which blocks start then runs with more blocks than fit on the device, where it does not end.

*Parallelism* allows a kernel about 6 times the reference's instructions and 3 times the share of its busiest
warp. The lane efficiency must be at least half of the reference's. The parameters of
`MeasuredLaunch` change these limits.

*Advice.* The first advice that matches a `Mistake` is added to the message. Conditions are functions of the
mistake; `advice` contains common ones (``is_out_of_bounds``, ``is_fault(kind, array)``,
``is_hazard("RAW")``, ``is_transposed``, ``is_tail_wrong``, ``is_only_first_right``, ``is_unchanged``,
``is_partly_unwritten``, ``is_written_twice``, ``is_multiple(32)``, ``is_result_of(lambda m: m["x"] + 1)``,
``is_in_stage("budget")``, ``match_all``, ``match_any``, ``match_not``). Each
sentence tells the learner what to do, not how the judge works.

**A Python function or value** is judged by a function that returns praise or raises `NotYet`. The answer runs
in a separate process with limits on time and memory, so that it cannot stop the notebook. The judge runs in
the notebook's process. Replies from the answer are plain data (`values`): numbers, strings, lists, tuples,
dictionaries and arrays of exact types, so that an answer cannot decide its own verdict. ::

    def judge_waves(answer: Answer) -> str:
        sms = int(answer.rng.integers(2, 200))                      # drawn from the answer's text
        found = call(answer, 2 * sms + 1, 2, sms, name="waves")     # an exception becomes a message
        if found != (1, 1):
            message = f"{format_call('waves', (2 * sms + 1, 2, sms))} returns {short_repr(found)}, not (1,
            1)." raise NotYet(message)
        return "full waves and tails are right."

    WAVES = PythonExercise("02-waves", "Waves and tail", judge_waves, level="warm-up")

An answer that has failed is tested with new data when it is tried again, after the case on which the last
answer failed (`past`). ``answer.value()`` returns an answer that is not a function. ``answer.ask(script,
*arguments)`` calls ``script(answer, *arguments)`` in the answer's process, for tests that need a device or an
object with methods. The script reports what happened, and the judge decides. Expected results stay in the
judge's process: data that an answer must find out are requested through ``back``, and are never in an object
that the answer receives.

*Forgeries.* The progress of a learner is not an examination. An answer can replace parts of gpulab in its own
process, which count its costs and watch its streams, it can call a library only to be counted, and it can
read the files of this folder. Only its arguments and its return value must not decide the verdict; the judge
does not prevent more.

**A device program** is a Python function that uses ``cp``. It also runs in a separate process, on a virtual
GPU. Its results are compared, and its costs are counted: kernel launches, copies, bytes, waits of the host
and so on (`counts.COUNTS`). On a GPU machine its results are also tested on the real GPU. ::

    TOTAL = ProgramExercise(
        "07-total", "A sum without copies", "total",
        lambda data, n: ProgramCase((data.integer_floats(n),), expected_result=...),  # with the arguments
        reference=reference_total, naive=naive_total,               # the score is counted at the last size
        sizes=lambda rng: (1, 33, int(rng.integers(2_000, 9_000)), 10_000),
        budgets=(Budget("to_host_bytes", "Copy one number."), Budget("waits", max_count=0)),
        advice=(("is capturing", "Read results after the graph's launch."),),  # words of the message
    )

When the program is called, the current stream is still writing its device arrays. Work in another stream must
wait for the current stream, and the current stream must wait for that work. Data and ``sizes`` are drawn from
the answer's text. Results are compared in values, shape, dtype and ``required_place``, at every size. With
``checks_stream_order``, uses of memory are checked as well, and the program also runs in two other valid
orders of its streams. A budget applies to every size, or with ``large_sizes_only`` to the last two.
``streams``, ``beside``, ``graph_kernels`` and ``working_graph_launches`` count only work on which the result
depends, so that useless work does not count.

`ProgramCase` takes ``known_mistakes=((result of a known mistake, "The sentence that explains it."),)``. Its
``expected_result`` can be a function that takes the result as plain data and raises `NotYet`.

**Answers** in ``tests/answers`` test the judge. There is a module for each notebook, which declares at least
8 wrong answers to each exercise, each with the stage that must reject it and words of the expected message.
It also declares at least 4 different right answers: a grid-stride loop, another shuffle, cooperative groups,
odd formatting, comments that name forbidden features. ``tests/teach/test_mutants.py`` runs them. Some of the
wrong answers are described in ``shown_answers.py`` of the notebook's folder, for instructors. ::

    WRONG = (
        Wrong("02-index", "guard on one side", scale2d("if (col < cols) ..."), "results", "Guard both edges"),
        Wrong("02-index", "lanes down the rows", scale2d("..."), "budget", "neighbouring columns"),
        Wrong("02-waves", "rounds up", lambda b, p, s: (-(-b // (p * s)), 0), "", "it should be"),
    )
    RIGHT = (Right("02-index", "grid-stride in both directions", scale2d("for (...) for (...) ...")),)

The stage is empty for answers that cannot be tested at all (they do not compile, or are not a kernel), and
for Python functions.
"""

from gpulab.processes.errors import short_repr
from gpulab_course.teach.judge import advice, draw
from gpulab_course.teach.judge.compare import ExpectedFloats
from gpulab_course.teach.judge.draw import DataGenerator, count_blocks
from gpulab_course.teach.judge.exercise import (
    Advice,
    Budget,
    Case,
    Exercise,
    KernelExercise,
    MeasuredLaunch,
    Mistake,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    SpecialInput,
)
from gpulab_course.teach.judge.python.answer import Answer, call
from gpulab_course.teach.judge.python.functions import (
    as_float,
    format_call,
    is_integer,
    is_number,
    list_parts,
)

__all__ = [
    "Advice",
    "Answer",
    "Budget",
    "Case",
    "DataGenerator",
    "Exercise",
    "ExpectedFloats",
    "KernelExercise",
    "MeasuredLaunch",
    "Mistake",
    "NotYet",
    "ProgramCase",
    "ProgramExercise",
    "PythonExercise",
    "SpecialInput",
    "advice",
    "as_float",
    "call",
    "count_blocks",
    "draw",
    "format_call",
    "is_integer",
    "is_number",
    "list_parts",
    "short_repr",
]
