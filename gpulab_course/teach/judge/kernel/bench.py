"""A learner's kernel: read off the answer, compiled, and launched on a bench where it can do no harm."""

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
from gpulab_course.teach.judge.compare import Array, values_of
from gpulab_course.teach.judge.draw import garbage
from gpulab_course.teach.judge.exercise import Case, KernelExercise, NotYet, Unwritten
from virtualgpu.compile import nvrtc
from virtualgpu.errors import ArgumentWarning
from virtualgpu.protocol import Counters, Hazards, Launch, kernel_source
from virtualgpu.records import KernelCounters, KernelSource, KernelStats, SanitizerReport

# A kernel of an exercise takes milliseconds of processor time: this one takes too long, or does not end if
# for a while nothing comes of it.
WATCHDOG_S = 3.0
PATIENT_WATCHDOG_S = 8.0
IDLE_S = 1.0
# The unowned gap between two arrays: an access that leaves its array is a fault there.
_GAP_BYTES = 1 << 18
_SHOWN_CHARACTERS = 70
_BYTE_ORDER_MARK = "\ufeff"  # some editors put it before a text
# A kernel of an exercise compiles within seconds.
_COMPILE_S = 8.0
_COMPILE_BYTES = 1 << 30


# What a kernel with dynamic shared memory declares. In one without, an array that is too small would reach
# into what the launch asks for.
_DYNAMIC = re.compile(r'\bextern\b(?!\s*"C")')


class Fault(Exception):
    """The kernel was stopped, or refused before its first thread. ``kind`` as in `Mistake.fault`."""

    def __init__(self, kind: str, said: str, array: str = "") -> None:
        super().__init__(said)
        self.kind = kind
        self.said = said
        self.array = array


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a launch: outputs by name, their first contents, and the inputs that it changed."""

    found: dict[str, Array]
    start: dict[str, Array]
    overwritten: tuple[str, ...]
    counters: KernelCounters


@dataclass(slots=True)
class Bench:
    """A virtual GPU like the one in use, without the learner's arrays."""

    side: Any
    cp: Any

    @property
    def threads_at_once(self) -> int:
        """Threads that the device holds at once."""
        info = self.side.device_info()
        return int(info.sm_count * info.max_threads_per_sm)

    def stats(self, source: KernelSource) -> KernelStats:
        """Return the compiler's decisions for a kernel; raise the errors of the compilation."""
        stats: KernelStats = self.side.kernel_stats(source)
        return stats

    def run(
        self,
        exercise: KernelExercise,
        source: KernelSource,
        case: Case,
        seed: int = 0,
        counting: Counters | None = None,
    ) -> Run:
        """Launch a kernel on fresh arrays.

        Raises
        ------
        Fault
            If it does something illegal, does not end, or has other parameters.
        """
        arrays, args, start = on_device(self.cp, exercise, case, seed)
        launch = Launch.of(source, case.grid, case.block, args, _dynamic(source, case))
        counters = self._observe(exercise, case, launch, counting or Counters())
        found = {name: self.cp.asnumpy(arrays[name]) for name in case.wanted}
        inputs = [p.name for p in exercise.arguments if p.pointer and p.read_only]
        written = tuple(
            name
            for name in inputs
            if self.cp.asnumpy(arrays[name]).tobytes() != np.asarray(case.values[name]).tobytes()
        )
        return Run(found, start, written, counters)

    def sanitize(
        self, exercise: KernelExercise, source: KernelSource, case: Case
    ) -> tuple[SanitizerReport, dict[str, Array]]:
        """Launch a kernel under all checks, and what its outputs hold then (`Hazards.restore`)."""
        arrays, args, _ = on_device(self.cp, exercise, case)
        launch = Launch.of(source, case.grid, case.block, args, _dynamic(source, case))
        report: SanitizerReport = self._observe(exercise, case, launch, Hazards(restore=False))
        return report, {name: self.cp.asnumpy(arrays[name]) for name in case.wanted}

    @contextmanager
    def order(self, order: str, seed: int) -> Iterator[None]:
        """Run blocks in another order inside a `with` block."""
        with self.side.machine.keeping("block_order", "turns_seed"):
            self.side.machine.current_device.set_block_order(order, seed)
            yield

    def be_patient(self) -> None:
        """Give launches more time from now on: what ends with few elements ends with many, if slowly."""
        for device in self.side.machine.devices:
            device.watchdog_s = PATIENT_WATCHDOG_S

    def _observe(self, exercise: KernelExercise, case: Case, launch: Launch, what: Any) -> Any:
        try:
            with warnings.catch_warnings():
                # A GPU would silently read another value, so this is another parameter list.
                warnings.simplefilter("error", ArgumentWarning)
                return self.side.observe(launch, what)
        except (TypeError, ArgumentWarning) as error:
            raise Fault("parameters", _parameters(exercise, error)) from None
        except RuntimeError as error:
            empty = any(np.size(value) == 0 for value in case.values.values())
            raise _fault(error, empty, self.side.machine.current_device.watchdog_s) from None


@contextmanager
def bench() -> Iterator[Bench]:
    """Make a bench for a `with` block."""
    with session.bench() as side:
        for device in side.machine.devices:
            device.watchdog_s = WATCHDOG_S
            device.idle_s = IDLE_S
        yield Bench(side, side.cp)


def read(exercise: KernelExercise, answer: Any) -> KernelSource:
    """Return the kernel of an answer.

    Raises
    ------
    NotYet
        If it is none, or another one.
    """
    pass_it = f'pass the kernel itself: cp.RawKernel(code, "{exercise.kernel}"), or its CUDA C++ text'
    if isinstance(answer, str):
        answer = answer.removeprefix(_BYTE_ORDER_MARK)
        if exercise.kernel not in answer:
            raise NotYet(f"this text has no kernel `{exercise.kernel}`; {pass_it}.")
        return _of_characters(KernelSource(exercise.kernel, answer))
    try:
        source = kernel_source(answer)
    except (TypeError, AttributeError):
        raise NotYet(f"{_described(answer)} is no kernel; {pass_it}.") from None
    # A template's kernel bears its expression, saxpy<float>, or what C++ makes of it, _Z5saxpyIfE....
    instance = rf"{exercise.kernel}(<.*)?|_Z{len(exercise.kernel)}{exercise.kernel}\w*"
    if not re.fullmatch(instance, source.name):
        raise NotYet(f"this kernel is called `{source.name}`; the exercise asks for `{exercise.kernel}`.")
    return _of_characters(source)


def _of_characters(source: KernelSource) -> KernelSource:
    try:
        source.code.encode()
    except UnicodeEncodeError as error:
        line = source.code.count("\n", 0, error.start) + 1
        half = ord(source.code[error.start])
        raise NotYet(f"line {line} has half a character (U+{half:04X}): type it again.") from None
    return source


def compiled(bench: Bench, exercise: KernelExercise, source: KernelSource) -> None:
    """Compile a kernel.

    Raises
    ------
    NotYet
        If it does not compile, with the first error and the learner's line.
    """
    try:
        with nvrtc.limited(_COMPILE_S, _COMPILE_BYTES):
            bench.stats(source)
    except Exception as error:
        if has_todo(source):
            raise unwritten() from None
        log = getattr(error, "log", None)
        if isinstance(log, str):
            raise NotYet(f"it does not compile: {_first_error(log, source.code)}") from None
        raise NotYet(_plain(str(error))) from None


def has_todo(source: KernelSource) -> bool:
    """Return whether the stub's TODO is still in the text. It is called for wrong answers only."""
    return "TODO" in source.code


def unwritten() -> NotYet:
    """The verdict on a stub."""
    return Unwritten("the kernel still has its TODO; write the body first.")


def _first_error(log: str, code: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else "no reason given")
    found = re.match(r".*?\((\d+)\): (?:catastrophic )?error: (.*)", first)
    if found is None:
        return f"{first.strip().rstrip('.')}."
    number = int(found[1])
    what = found[2].strip().rstrip(".")
    source = code.splitlines()
    text = short(source[number - 1]) if 0 < number <= len(source) else ""
    said = f"line {number} `{text}`: {what}." if text else f"line {number}: {what}."
    return said + (_pasted(text) if "token" in what else "")


def _pasted(line: str) -> str:
    """Return a message for a character that only looks like one of C++, as pasted text may have."""
    letter = next((letter for letter in line if ord(letter) > 127 and not letter.isalnum()), "")
    name = unicodedata.name(letter, "no printable character") if letter else ""
    return f" U+{ord(letter):04X} ({name}) means nothing to C++: type it again." if letter else ""


def _dynamic(source: KernelSource, case: Case) -> int:
    return case.shared_bytes if _DYNAMIC.search(source.code) else 0


def short(text: str) -> str:
    """Return a source line shortened to fit into a sentence."""
    text = text.strip()
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _parameters(exercise: KernelExercise, error: Exception) -> str:
    reason = _plain(str(error))
    number = re.search(r"argument (\d+) \('(\w+)'\)", reason)
    takes = re.search(r"takes (\d+) arguments? but (\d+)", reason)
    what = "its parameters are not those of the exercise"
    if number and int(number[1]) <= len(exercise.arguments):
        wanted = exercise.parameters.split(",")[int(number[1]) - 1].strip()
        what = f"parameter {number[1]}, `{number[2]}`, is to be `{wanted}`"
    elif takes:
        what = f"it has {count(int(takes[1]), 'parameter')} instead of {takes[2]}"
    return f"{what}; keep the given list: {exercise.signature}."


def _fault(error: RuntimeError, empty: bool, limit_s: float) -> Fault:
    kind = getattr(error, "kind", "") or "refused"
    site = getattr(error, "site", None)
    if site is None:
        return Fault(kind, _plain(str(error)))
    text = f" `{short(site.source_text)}`" if site.source_text else ""
    line = f"line {site.line}{text}, " if site.line else ""
    where = f"{line}block {site.block}, thread {site.thread}"
    message = _plain(str(error)).replace(f" `{site.source_text}`", text)
    array = re.search(r"\(parameter (\w+)\)", getattr(error, "array", ""))
    if kind == "endless":
        return Fault(
            kind, f"it does not end ({where}). Look for a loop that never stops, or for a wait in vain."
        )
    if kind == "too long":
        return Fault(
            kind,
            f"it takes longer than {limit_s:g} s of processor time ({where}). "
            "Look for a loop that takes more turns than it should.",
        )
    did = {"read": "reads", "wrote": "writes"}.get(message.split()[0], "changes an element")
    if kind == "out of bounds" and getattr(error, "space", "") == "shared":
        size = re.search(r"the block has [\d,]+ bytes? of shared memory", message)
        return Fault(kind, f"{where}, {did} outside shared memory{f': {size[0]}' if size else ''}.")
    if kind == "out of bounds" and re.search("No allocation is near|null pointer", message):
        if empty:
            return Fault(kind, f"{where}, {did} an element of an array that has none.")
        return Fault(kind, f"{where}, {did} at address {site.address:#x}, near no array: check the pointer.")
    if kind == "out of bounds" and array:
        return Fault(kind, f"{where}, {did} outside `{array[1]}`.", array[1])
    return Fault(kind, message)


def _plain(text: str) -> str:
    text = " ".join(text.split())
    text = re.sub(r"^(?:cudaError|CUDA_ERROR_)\w+: ", "", text)
    text = re.sub(r"^named symbol not found: ", "", text)
    return re.sub(r"^kernel '[^']*':? ", "", text)


def _described(answer: Any) -> str:
    if inspect.isroutine(answer):
        return f"the function `{answer.__name__}`"
    return f"a value of type {type(answer).__name__}"


def on_device(
    cp: Any, exercise: KernelExercise, case: Case, seed: int = 0
) -> tuple[dict[str, Any], tuple[Any, ...], dict[str, Array]]:
    """Arrays by name, the arguments of a launch, and what outputs hold before it."""
    arrays: dict[str, Any] = {}
    start: dict[str, Array] = {}
    gaps = []
    args = []
    for number, parameter in enumerate(exercise.arguments):
        name = parameter.name
        value = case.values.get(name)
        if name in case.wanted:
            wanted = values_of(case.wanted[name])
            value = garbage(seed, wanted.shape, wanted.dtype, number) if value is None else value
            start[name] = value
        if parameter.pointer:
            gaps.append(cp.cuda.alloc(_GAP_BYTES))
            arrays[name] = cp.asarray(value)
            args.append(arrays[name])
        else:
            args.append(parameter.scalar(value))
    gaps.append(cp.cuda.alloc(_GAP_BYTES))
    return arrays, tuple(args), start


def on_gpu(
    cp: Any, exercise: KernelExercise, source: KernelSource, case: Case
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the real GPU's results of a launch, and the first contents of its outputs."""
    kernel = cp.RawKernel(source.code, source.name, options=source.options)
    arrays, args, start = on_device(cp, exercise, case)
    Launch.of(kernel, case.grid, case.block, args, case.shared_bytes).run()
    return {name: cp.asnumpy(arrays[name]) for name in case.wanted}, start
