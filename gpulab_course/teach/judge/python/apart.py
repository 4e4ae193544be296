"""Judge of Python answers in a separate process, so that an answer cannot damage the notebook.

The verdict is computed in this process from plain data. Only the values that an answer returns can influence
the verdict.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gpulab import session
from gpulab.processes import child
from gpulab.processes.errors import ProcessError, describe_error
from gpulab.processes.talk import RequestProcess
from gpulab.processes.values import DamagedBytesError
from gpulab_course.teach.first_lines import print_omitted_count
from gpulab_course.teach.judge.exercise import NotYet, ProgramExercise, PythonExercise
from gpulab_course.teach.judge.past import PastFailures
from gpulab_course.teach.judge.python.answer import Answer, make_answer_seed
from gpulab_course.teach.judge.python.programs import judge_program
from gpulab_course.teach.judge.verdict import Verdict
from virtualgpu.errors import UnknownDeviceError

# Modules that an answer's process needs.
PROCESS_MODULES = ("gpulab_course.teach.judge.python.performed", __name__)
MAX_SHOWN_LINES = 20
_MAX_SHOWN_COLUMNS = 200
_MAX_SENT_BYTES = 256 << 20
_DAMAGED_TEXT = (
    "the reply from the answer's process is damaged, because the answer wrote to a file "
    "descriptor that it did not open. Write only to files that you open yourself."
)


def judge_in_process(
    exercise: PythonExercise | ProgramExercise, answer: Any, past: PastFailures | None = None
) -> Verdict:
    """Judge a Python answer in a separate process. A device program is also judged on a real GPU if there is
    one.

    An answer that does not end, uses too much memory or exits the process gets a verdict instead of raising
    an error. Ctrl-C stops the check.
    """
    try:
        return _judge_on_devices(exercise, answer, past or PastFailures())
    except KeyboardInterrupt:
        return Verdict(exercise.exercise_id, False, "you stopped the check.")


def _judge_on_devices(exercise: PythonExercise | ProgramExercise, answer: Any, past: PastFailures) -> Verdict:
    verdict = _judge_on_device(exercise, answer, _get_virtual_device(), past)
    if not verdict or not isinstance(exercise, ProgramExercise) or session.real_cp() is None:
        return verdict
    device_choice = session.which_device()
    real_verdict = _judge_on_device(exercise, answer, f"cuda:{device_choice.index}", past)
    if real_verdict:
        result_stage = replace(
            verdict.stages[0], said=f"{verdict.stages[0].said} The same on the {device_choice.device}."
        )
        return replace(verdict, stages=(result_stage, *verdict.stages[1:]))
    return replace(real_verdict, message=f"on the {device_choice.device}: {real_verdict.message}")


def _judge_on_device(
    exercise: PythonExercise | ProgramExercise, answer: Any, device: str, past: PastFailures
) -> Verdict:
    import cloudpickle

    def make_failed_verdict(message: str) -> Verdict:
        return Verdict(exercise.exercise_id, False, message)

    try:
        answer_bytes = cloudpickle.dumps(answer)
    except Exception as error:
        return make_failed_verdict(_describe_unsendable(error))
    if len(answer_bytes) > _MAX_SENT_BYTES:
        return make_failed_verdict(
            "it contains more than 256 MiB of data. Create large arrays inside the function."
        )
    text_seed = make_answer_seed(answer, answer_bytes)
    try:
        if isinstance(exercise, ProgramExercise):
            with _open_answer_process(device, exercise.limit_s) as answer_process:
                remote_answer = _load_answer(answer_process, answer_bytes, past.choose_seed(text_seed))
                open_reference = functools.partial(_open_reference_process, device, exercise.limit_s)
                return judge_program(exercise, remote_answer, open_reference, past)
        for seed in dict.fromkeys(
            [*([past.failed_case] if past.failed_case is not None else []), past.choose_seed(text_seed)]
        ):
            with _open_answer_process(device, exercise.limit_s) as answer_process:
                try:
                    praise = exercise.judge(_load_answer(answer_process, answer_bytes, seed))
                except NotYet:
                    past.record_failure("", seed)
                    raise
        return Verdict(exercise.exercise_id, True, praise)
    except ProcessError as reason:
        return make_failed_verdict(str(reason))
    except DamagedBytesError:
        return make_failed_verdict(_DAMAGED_TEXT)
    except Exception as error:
        error_text = describe_error(error).removeprefix("it ").rstrip(".")
        return make_failed_verdict(
            f"the check itself {error_text}. That is a fault of gpulab, not of your answer; please report it."
        )


@contextlib.contextmanager
def _open_answer_process(device: str, limit_s: float) -> Iterator[RequestProcess]:
    """Start a process for an answer, and print the output of the answer when the process ends."""
    with RequestProcess(device, limit_s, modules=PROCESS_MODULES) as answer_process:
        try:
            yield answer_process
        finally:
            _show_printed_output(answer_process)


def _show_printed_output(answer_process: RequestProcess) -> None:
    """End an answer's process, print the first lines of its output, and the number of omitted lines."""
    printed_text, line_count = answer_process.end_and_read_output()
    lines = printed_text.splitlines()[:MAX_SHOWN_LINES]
    for line in lines:
        print(line if len(line) <= _MAX_SHOWN_COLUMNS else f"{line[:_MAX_SHOWN_COLUMNS]}…")
    print_omitted_count(line_count - len(lines))


def alias_missing_cupy(_: Any) -> None:
    """Make ``import cupy`` import the virtual GPU in an answer's process if there is no real GPU."""
    if session.real_cp() is None:
        import virtualgpu

        virtualgpu.as_cupy()


def _load_answer(answer_process: RequestProcess, answer_bytes: bytes, seed: int) -> Answer:
    """Unpickle an answer in its process, and return an `Answer` that calls it."""

    def ask(shown: str, function: Callable[..., Any], *arguments: Any, back: Any = None) -> Any:
        try:
            return answer_process.ask(shown, function, *arguments, back=back)
        except NotYet:
            raise
        except ProcessError as error:
            raise NotYet(str(error)) from None

    if b"cupy" in answer_bytes:
        ask("", alias_missing_cupy)
    is_function, type_name = ask("", child.load_answer, answer_bytes)
    return Answer(ask, seed, bool(is_function), str(type_name))


@contextlib.contextmanager
def _open_reference_process(device: str, limit_s: float) -> Iterator[Callable[[Any], Answer]]:
    """Start a separate process for the reference and the naive version, which the answer cannot access."""
    import cloudpickle

    with RequestProcess(device, 2 * limit_s, modules=PROCESS_MODULES) as reference_process:
        yield lambda program: _load_answer(reference_process, cloudpickle.dumps(program), 0)


def _get_virtual_device() -> str:
    name = session.which_device().device
    try:
        return f"virtual:{session.find_table_info(name).name}"
    except UnknownDeviceError:
        return "virtual"


def _describe_unsendable(error: Exception) -> str:
    if isinstance(error.__cause__ or error, RecursionError | MemoryError):  # cloudpickle raises another
        return "it refers to too much data to be checked. Create the data inside the function."
    if isinstance(error, pickle.PicklingError | TypeError | AttributeError):
        reason = describe_error(error).partition(": ")[2] or type(error).__name__
        return (
            f"it refers to an object that cannot leave this notebook ({reason}). Create "
            "streams, files, locks and the like inside the function."
        )
    return f"it cannot be checked: {describe_error(error)}"
