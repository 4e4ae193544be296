"""Judging of answers in files: a kernel in CUDA C++, or Python code that defines the answer.

The Python code of a file only runs in the separate process in which answers are judged.
"""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulab import session
from gpulab.processes.errors import ProcessError
from gpulab.processes.talk import RequestProcess
from gpulab.processes.values import DamagedBytesError
from gpulab_course import folders
from gpulab_course.content import copies
from gpulab_course.teach.judge.check import UnknownExerciseError, judge
from gpulab_course.teach.judge.exercise import Exercise, KernelExercise, NotYet
from gpulab_course.teach.judge.verdict import Verdict
from virtualgpu.errors import GpulabError, did_you_mean
from virtualgpu.protocol import kernel_source
from virtualgpu.records import KernelSource

ANSWER_SUFFIXES = (".cu", ".py")
_MAX_FILE_BYTES = 1 << 20
_KERNEL_LIMIT_S = 10.0
_DEFAULT_ANSWER_NAME = "answer"


class AnswerError(GpulabError):
    """Error for an answer file that cannot be judged. The message says what to change in the file."""


@dataclass(frozen=True, slots=True)
class AnswerModule:
    """Python source text that can be pickled. Unpickling runs the text and returns the object `name` that it
    defines.
    """

    text: str
    name: str
    file: str

    def __reduce__(self) -> tuple[Any, tuple[str, str, str]]:
        return define_answer, (self.text, self.name, self.file)


def define_answer(text: str, name: str, file: str) -> Any:
    """Run Python source text, and return the object `name` that it defines. If there is no such object,
    return the object ``answer``.

    Raises
    ------
    NotYet
        If the text defines neither.
    """
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    # Not "__main__": code that runs only in a program is not part of the answer.
    namespace: dict[str, Any] = {"__name__": Path(file).stem, "__file__": file}
    exec(compile(text, file, "exec"), namespace)
    for attribute_name in (name, _DEFAULT_ANSWER_NAME):
        if attribute_name in namespace:
            return namespace[attribute_name]
    raise NotYet(
        f"{file} does not define `{name}`, which is the name that the exercise's cell in the notebook uses."
    )


def judge_file(exercise_id: str, path: Path) -> Verdict:
    """Judge the answer in a file, without storing the result in the learner's progress.

    Parameters
    ----------
    exercise_id
        The exercise's name, such as ``"05-transpose"``.
    path
        A ``.cu`` file with a kernel, or a ``.py`` file that defines what the notebook's cell defines (under
        the name that it passes to ``gl.check``, or as ``answer``).

    Returns
    -------
    Verdict
        The result, as from ``gl.check``. Python code that raises an exception, does not end or exits its
        process also has a verdict.

    Raises
    ------
    UnknownExerciseError
        If there is no such exercise; the message suggests the most similar name.
    AnswerError
        If the file cannot be read, is not Python, or cannot be an answer to this exercise.
    """
    exercise = find_exercise(exercise_id)
    text = _read_answer(path)
    if path.suffix == ".cu":
        if not isinstance(exercise, KernelExercise):
            raise AnswerError(f"{exercise_id} needs an answer in Python, but {path.name} is not a .py file.")
        return judge(exercise, text)
    if path.suffix != ".py":
        raise AnswerError(f"{path.name} is neither a .cu nor a .py file.")
    try:
        compile(text, path.name, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        location_text = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason_text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise AnswerError(
            f"{path.name}{location_text}: the code is not valid Python ({reason_text})."
        ) from None
    module = AnswerModule(text, find_notebook_name(exercise_id), path.name)
    if not isinstance(exercise, KernelExercise):
        return judge(exercise, module)
    try:
        return judge(exercise, _find_kernel(module))
    except ProcessError as process_error:
        return Verdict(exercise_id, False, str(process_error))
    except DamagedBytesError:
        return Verdict(
            exercise_id,
            False,
            "the answer wrote to a file descriptor that it did not open. Write only to files that you open "
            "yourself.",
        )


def find_exercise(exercise_id: str) -> Exercise:
    """Return the exercise with this name.

    Raises
    ------
    UnknownExerciseError
        If there is no such exercise; the message suggests the most similar name.
    """
    exercise = folders.find_exercise(exercise_id)
    if exercise is None:
        names = folders.list_exercises()
        suggestion = did_you_mean(exercise_id, names)
        example_names = [name for name in names if name[:2] == exercise_id[:2]] or names
        message = f"There is no exercise {exercise_id!r}.{suggestion} Examples: {', '.join(example_names)}."
        raise UnknownExerciseError(message)
    return exercise


def find_notebook_name(exercise_id: str) -> str:
    """Return the name of the variable that the notebook passes to ``gl.check`` for an exercise."""
    check_call_pattern = re.compile(rf'gl\.check\(\\"{re.escape(exercise_id)}\\", (\w+)\)')
    for path in copies.find_originals().values():
        if match := check_call_pattern.search(path.read_text(encoding="utf-8")):
            return match[1]
    return _DEFAULT_ANSWER_NAME


def _read_answer(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise AnswerError(f"{path} is larger than {_MAX_FILE_BYTES >> 20} MiB, the limit for an answer.")
        if not path.is_file():
            raise AnswerError(f"{path} is not a file.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise AnswerError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise AnswerError(f"{path} is not UTF-8 text: byte {error.start:,} is invalid.") from None


def _find_kernel(module: AnswerModule) -> KernelSource | str:
    """Run Python source text in a separate process, and return the kernel that it defines."""
    with RequestProcess(
        f"virtual:{session.find_table_info(session.which_device().device).name}", _KERNEL_LIMIT_S
    ) as process:
        kernel_name, kernel_code, options, name_expressions = process.ask(
            "", _read_kernel_fields, module.text, module.name, module.file, "cupy" in module.text
        )
        return (
            kernel_code
            if not kernel_name
            else KernelSource(kernel_name, kernel_code, tuple(options), tuple(name_expressions))
        )


def _read_kernel_fields(
    _: Any, text: str, name: str, file: str, uses_cupy: bool
) -> tuple[str, str, list[str], list[str]]:
    if uses_cupy:
        import virtualgpu

        virtualgpu.as_cupy()
    answer = define_answer(text, name, file)
    if isinstance(answer, str):
        return "", answer, [], []
    try:
        source = kernel_source(answer)
    except (TypeError, AttributeError):
        raise NotYet(
            f"`{name}` in {file} is not a kernel: it must be a cp.RawKernel or CUDA C++ source as a str."
        ) from None
    return source.name, source.code, list(source.options), list(source.name_expressions)


def make_printable(text: str) -> str:
    """Return the text without control characters, which a terminal would interpret."""
    return "".join(character if character.isprintable() else "?" for character in text)
