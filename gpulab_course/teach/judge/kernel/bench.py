"""Functions that read a learner's kernel, compile it, and launch it on a separate virtual GPU."""

from __future__ import annotations

import inspect
import re
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpulab import session
from gpulab.words import count
from gpulab_course.teach.judge.compare import Array, get_expected_values
from gpulab_course.teach.judge.draw import draw_garbage
from gpulab_course.teach.judge.exercise import Case, KernelExercise, NotYet, UnwrittenAnswerError
from virtualgpu.compile import nvrtc
from virtualgpu.errors import ArgumentWarning, SourceWarning
from virtualgpu.protocol import Counters, Hazards, Launch, kernel_source
from virtualgpu.records import KernelCounters, KernelSource, KernelStats, SanitizerReport

# Limits on the processor time of a kernel, which normally takes milliseconds, and on the time without any
# progress.
WATCHDOG_S = 3.0
PATIENT_WATCHDOG_S = 8.0
SHORT_IDLE_S = 1.0
# The unowned gap between two arrays: an access that leaves its array is a fault there.
_GAP_BYTES = 1 << 18
_MAX_SHOWN_CHARACTERS = 70
_BYTE_ORDER_MARK = "\ufeff"  # some editors put it before a text
# A kernel of an exercise compiles within seconds.
_COMPILE_S = 8.0
_COMPILE_LIMIT_BYTES = 1 << 30


# The declaration of dynamic shared memory. A kernel without it gets none, because an array that is too small
# would reach into it.
_EXTERN_PATTERN = re.compile(r'\bextern\b(?!\s*"C")')


class KernelFault(Exception):
    """Error for a kernel that a fault stopped or that could not start. The attribute ``kind`` is the value of
    `Mistake.fault`.
    """

    def __init__(self, kind: str, message: str, array: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.array = array


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """The results of a kernel launch, such as its outputs, their initial contents, and its counters."""

    outputs: dict[str, Array]
    initial_contents: dict[str, Array]
    overwritten_inputs: tuple[str, ...]
    counters: KernelCounters


@dataclass(slots=True)
class Bench:
    """A separate virtual GPU for testing answers, which has the same model as the GPU in use."""

    side: Any
    cp: Any

    @property
    def threads_at_once(self) -> int:
        """The number of threads that can be resident on the device at the same time."""
        info = self.side.device_info()
        return int(info.sm_count * info.max_threads_per_sm)

    def stats(self, source: KernelSource) -> KernelStats:
        """Compile a kernel, and return the statistics that the compiler reports."""
        stats: KernelStats = self.side.kernel_stats(source)
        return stats

    def run(
        self,
        exercise: KernelExercise,
        source: KernelSource,
        case: Case,
        seed: int = 0,
        counting: Counters | None = None,
    ) -> LaunchOutcome:
        """Launch a kernel with new arrays as its arguments, and return the results.

        Raises
        ------
        KernelFault
            If the kernel causes a CUDA error, does not end, or has other parameters.
        """
        arrays, args, initial_arrays = copy_to_device(self.cp, exercise, case, seed)
        launch = Launch.of(source, case.grid, case.block, args, _find_dynamic_bytes(source, case))
        counters = self._observe(exercise, case, launch, counting or Counters())
        outputs = {name: self.cp.asnumpy(arrays[name]) for name in case.expected_outputs}
        input_names = [p.name for p in exercise.arguments if p.is_pointer and p.is_read_only]
        overwritten_names = tuple(
            name
            for name in input_names
            if self.cp.asnumpy(arrays[name]).tobytes() != np.asarray(case.values[name]).tobytes()
        )
        return LaunchOutcome(outputs, initial_arrays, overwritten_names, counters)

    def sanitize(
        self, exercise: KernelExercise, source: KernelSource, case: Case
    ) -> tuple[SanitizerReport, dict[str, Array]]:
        """Launch a kernel with all checks of the sanitizer, and return the report and the outputs."""
        arrays, args, _ = copy_to_device(self.cp, exercise, case)
        launch = Launch.of(source, case.grid, case.block, args, _find_dynamic_bytes(source, case))
        report: SanitizerReport = self._observe(exercise, case, launch, Hazards(restore=False))
        return report, {name: self.cp.asnumpy(arrays[name]) for name in case.expected_outputs}

    @contextmanager
    def order(self, order: str, seed: int) -> Iterator[None]:
        """Run the blocks of all launches in a `with` block in this order."""
        with self.side.machine.keep_settings("block_order", "turns_seed"):
            self.side.machine.current_device.set_block_order(order, seed)
            yield

    def be_patient(self) -> None:
        """Raise the time limit of launches for large inputs, after the kernel finished with small inputs."""
        for device in self.side.machine.devices:
            device.watchdog_s = PATIENT_WATCHDOG_S

    def _observe(self, exercise: KernelExercise, case: Case, launch: Launch, observation: Any) -> Any:
        try:
            with warnings.catch_warnings():
                # A GPU would silently read another value, so this is another parameter list.
                warnings.simplefilter("error", ArgumentWarning)
                warnings.simplefilter("ignore", SourceWarning)
                return self.side.observe(launch, observation)
        except (TypeError, ArgumentWarning) as error:
            raise KernelFault("parameters", _make_parameter_message(exercise, error)) from None
        except RuntimeError as error:
            has_empty_array = any(np.size(value) == 0 for value in case.values.values())
            raise _make_fault(error, has_empty_array, self.side.machine.current_device.watchdog_s) from None


@contextmanager
def open_bench() -> Iterator[Bench]:
    """Create a `Bench` with short time limits for the duration of a `with` block."""
    with session.use_bench_device() as bench_backend:
        for device in bench_backend.machine.devices:
            device.watchdog_s = WATCHDOG_S
            device.idle_s = SHORT_IDLE_S
        yield Bench(bench_backend, bench_backend.cp)


def read_kernel_answer(exercise: KernelExercise, answer: Any) -> KernelSource:
    """Return the source of an answer's kernel; the answer is text or a ``cp.RawKernel``.

    Raises
    ------
    NotYet
        If the answer is not a kernel, or has the name of another kernel.
    """
    hint = f'pass the kernel itself: cp.RawKernel(code, "{exercise.kernel}"), or its CUDA C++ text'
    if isinstance(answer, str):
        answer = answer.removeprefix(_BYTE_ORDER_MARK)
        if exercise.kernel not in answer:
            raise NotYet(f"this source has no kernel `{exercise.kernel}`. To answer, {hint}.")
        return _check_characters(KernelSource(exercise.kernel, answer))
    try:
        source = kernel_source(answer)
    except (TypeError, AttributeError):
        raise NotYet(f"{_describe_type(answer)} is not a kernel. To answer, {hint}.") from None
    # A template's kernel bears its expression, saxpy<float>, or what C++ makes of it, _Z5saxpyIfE....
    instance_pattern = rf"{exercise.kernel}(<.*)?|_Z{len(exercise.kernel)}{exercise.kernel}\w*"
    if not re.fullmatch(instance_pattern, source.name):
        raise NotYet(f"this kernel is called `{source.name}`, but the exercise needs `{exercise.kernel}`.")
    return _check_characters(source)


def _check_characters(source: KernelSource) -> KernelSource:
    try:
        source.code.encode()
    except UnicodeEncodeError as error:
        line_number = source.code.count("\n", 0, error.start) + 1
        surrogate = ord(source.code[error.start])
        raise NotYet(
            f"line {line_number} contains the invalid character U+{surrogate:04X}. Type it again."
        ) from None
    return source


def check_compiles(bench: Bench, exercise: KernelExercise, source: KernelSource) -> None:
    """Check that the kernel of an answer compiles.

    Raises
    ------
    NotYet
        If the kernel does not compile. The message has the first error and the line of the source.
    """
    try:
        with nvrtc.limit_compilations(_COMPILE_S, _COMPILE_LIMIT_BYTES):
            bench.stats(source)
    except Exception as error:
        if has_todo(source):
            raise make_unwritten_error() from None
        log = getattr(error, "log", None)
        if isinstance(log, str):
            raise NotYet(f"it does not compile: {_describe_first_error(log, source.code)}") from None
        raise NotYet(_simplify_text(str(error))) from None


def has_todo(source: KernelSource) -> bool:
    """Return whether the source of a wrong answer still contains the word TODO of the stub."""
    return "TODO" in source.code


def make_unwritten_error() -> NotYet:
    """Return the error for a stub that still contains its TODO comment."""
    return UnwrittenAnswerError("the kernel still has its TODO; write the body first.")


def _describe_first_error(log: str, code: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    error_line = next((line for line in lines if "error" in line), lines[0] if lines else "no reason given")
    match = re.match(r".*?\((\d+)\): (?:catastrophic )?error: (.*)", error_line)
    if match is None:
        return f"{error_line.strip().rstrip('.')}."
    line_number = int(match[1])
    error_text = match[2].strip().rstrip(".")
    source_lines = code.splitlines()
    source_text = shorten_line(source_lines[line_number - 1]) if 0 < line_number <= len(source_lines) else ""
    message = (
        f"line {line_number} `{source_text}`: {error_text}."
        if source_text
        else f"line {line_number}: {error_text}."
    )
    return message + (_make_pasted_message(source_text) if "token" in error_text else "")


def _make_pasted_message(line: str) -> str:
    """Return a message about a non-ASCII character in a source line, such as a typographic quotation mark."""
    letter = next((letter for letter in line if ord(letter) > 127 and not letter.isalnum()), "")
    name = unicodedata.name(letter, "no printable character") if letter else ""
    return f" U+{ord(letter):04X} ({name}) is not a character of C++. Type it again." if letter else ""


def _find_dynamic_bytes(source: KernelSource, case: Case) -> int:
    return case.shared_bytes if _EXTERN_PATTERN.search(source.code) else 0


def shorten_line(text: str) -> str:
    """Return a source line, shortened to at most 70 characters."""
    text = text.strip()
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[: _MAX_SHOWN_CHARACTERS - 1] + "…"


def _make_parameter_message(exercise: KernelExercise, error: Exception) -> str:
    reason = _simplify_text(str(error))
    argument_match = re.search(r"argument (\d+) \('(\w+)'\)", reason)
    count_match = re.search(r"takes (\d+) arguments? but (\d+)", reason)
    problem_text = "its parameters are not those of the exercise"
    if argument_match and int(argument_match[1]) <= len(exercise.arguments):
        declaration = exercise.parameters.split(",")[int(argument_match[1]) - 1].strip()
        problem_text = f"parameter {argument_match[1]}, `{argument_match[2]}`, must be `{declaration}`"
    elif count_match:
        problem_text = f"it has {count(int(count_match[1]), 'parameter')} instead of {count_match[2]}"
    return f"{problem_text}; keep the given list: {exercise.signature}."


def _make_fault(error: RuntimeError, has_empty_array: bool, limit_s: float) -> KernelFault:
    fault_kind = getattr(error, "kind", "") or "refused"
    fault_site = getattr(error, "site", None)
    if fault_site is None:
        return KernelFault(fault_kind, _simplify_text(str(error)))
    source_text = f" `{shorten_line(fault_site.source_text)}`" if fault_site.source_text else ""
    line_text = f"line {fault_site.line}{source_text}, " if fault_site.line else ""
    location = f"{line_text}block {fault_site.block}, thread {fault_site.thread}"
    message = _simplify_text(str(error)).replace(f" `{fault_site.source_text}`", source_text)
    array_match = re.search(r"\(parameter (\w+)\)", getattr(error, "array", ""))
    if fault_kind == "endless":
        return KernelFault(
            fault_kind,
            f"it does not end ({location}). Look for an infinite loop, or a wait for a "
            "value that is never written.",
        )
    if fault_kind == "too long":
        return KernelFault(
            fault_kind,
            f"it takes longer than {limit_s:g} s of processor time ({location}). "
            "Look for a loop with too many iterations.",
        )
    verb = {"read": "reads", "wrote": "writes"}.get(message.split()[0], "changes an element")
    if fault_kind == "out of bounds" and getattr(error, "space", "") == "shared":
        size_match = re.search(r"the block has [\d,]+ bytes? of shared memory", message)
        return KernelFault(
            fault_kind,
            f"{location}, {verb} outside shared memory{f': {size_match[0]}' if size_match else ''}.",
        )
    if fault_kind == "out of bounds" and re.search("No allocation is near|null pointer", message):
        if has_empty_array:
            return KernelFault(fault_kind, f"{location}, {verb} an element of an array that has no elements.")
        return KernelFault(
            fault_kind,
            f"{location}, {verb} at address {fault_site.address:#x}, which is not near any "
            "array. Check the pointer.",
        )
    if fault_kind == "out of bounds" and array_match:
        return KernelFault(fault_kind, f"{location}, {verb} outside `{array_match[1]}`.", array_match[1])
    return KernelFault(fault_kind, message)


def _simplify_text(text: str) -> str:
    text = " ".join(text.split())
    text = re.sub(r"^(?:cudaError|CUDA_ERROR_)\w+: ", "", text)
    text = re.sub(r"^named symbol not found: ", "", text)
    return re.sub(r"^kernel '[^']*':? ", "", text)


def _describe_type(answer: Any) -> str:
    if inspect.isroutine(answer):
        return f"the function `{answer.__name__}`"
    return f"a value of type {type(answer).__name__}"


def copy_to_device(
    cp: Any, exercise: KernelExercise, case: Case, seed: int = 0
) -> tuple[dict[str, Any], tuple[Any, ...], dict[str, Array]]:
    """Copy the inputs of a test launch to the device.

    Return the device arrays by name, the arguments of the launch, and the initial contents of the outputs.
    """
    arrays: dict[str, Any] = {}
    initial_arrays: dict[str, Array] = {}
    gap_allocations = []
    args = []
    for argument_index, parameter in enumerate(exercise.arguments):
        name = parameter.name
        value = case.values.get(name)
        if name in case.expected_outputs:
            expected_array = get_expected_values(case.expected_outputs[name])
            value = (
                draw_garbage(seed, expected_array.shape, expected_array.dtype, argument_index)
                if value is None
                else value
            )
            initial_arrays[name] = value
        if parameter.is_pointer:
            gap_allocations.append(cp.cuda.alloc(_GAP_BYTES))
            arrays[name] = cp.asarray(value)
            args.append(arrays[name])
        else:
            args.append(parameter.scalar(value))
    gap_allocations.append(cp.cuda.alloc(_GAP_BYTES))
    return arrays, tuple(args), initial_arrays


def launch_on_gpu(
    cp: Any, exercise: KernelExercise, source: KernelSource, case: Case
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Launch a kernel on the real GPU, and return its outputs with their initial contents."""
    kernel = cp.RawKernel(source.code, source.name, options=source.options)
    arrays, args, initial_arrays = copy_to_device(cp, exercise, case)
    Launch.of(kernel, case.grid, case.block, args, case.shared_bytes).run()
    return {name: cp.asnumpy(arrays[name]) for name in case.expected_outputs}, initial_arrays
