"""Exercises of notebook 16."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpulab.session import on_device
from gpulab.words import count
from gpulab_course.teach.judge import (
    Answer,
    NotYet,
    PythonExercise,
    call,
    format_call,
    list_parts,
    short_repr,
)
from gpulab_course.teach.judge.python.counts import QUERIES
from gpulab_course.teach.judge.python.functions import equals, must_be_a_function
from virtualgpu.records.device.images import Capability, Part, choose_part

GPUS: dict[str, Capability] = {
    "T4": (7, 5),
    "A100": (8, 0),
    "RTX 3090": (8, 6),
    "RTX 4090": (8, 9),
    "H200": (9, 0),
    "B200": (10, 0),
    "B300": (10, 3),
}

# 16-matrix

_CUBIN_TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
_PTX_TARGETS = (
    "compute_75",
    "compute_80",
    "compute_86",
    "compute_89",
    "compute_90",
    "compute_100",
    "compute_120",
)
_SPECIFIC_TARGETS = (
    "sm_90a",
    "sm_100a",
    "sm_100f",
    "sm_103f",
    "compute_90a",
    "compute_100a",
    "compute_100f",
    "compute_120a",
    "compute_120f",
)
_CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1))
# Targets that a table of those above does not contain. 8.7 (Jetson) runs only its own machine code.
_OTHER_TARGETS = ("sm_70", "sm_110", "sm_121", "sm_103a", "compute_70", "compute_103", "compute_110")
_OTHER_CAPABILITIES = ((7, 0), (11, 0))


def taken(targets: Iterable[str], capability: Capability) -> str | None:
    """Return the target of a fat binary that a driver chooses for a device, or None (reference solution)."""
    targets_by_part = {Part.of(target): target for target in targets}
    image_part = choose_part(targets_by_part, capability)
    return targets_by_part[image_part] if image_part else None


def _explain_wrong_choice(
    targets: Sequence[str], capability: Capability, result: Any, expected: str | None
) -> str:
    """Return the feedback for a wrong choice of a target."""
    if result is not None and not (isinstance(result, str) and result in targets):
        return "Return one of the targets, or None."
    if result is None:
        expected_part = Part.of(expected or "")
        if expected_part.kind == "PTX" and not expected_part.suffix:
            return "PTX without a letter runs on every later GPU, whatever its major version."
        if expected_part.suffix == "f":
            return "With an f it runs on its own minor version and on later ones of the same major version."
        if expected_part.suffix:
            return "With an a it runs on the GPU that it names."
        return "Machine code runs on its own minor version and on later ones of the same major version."
    expected_part = Part.of(result)
    if expected_part.runs_on(capability):
        if expected_part.kind == "PTX" and expected and Part.of(expected).kind == "cubin":
            return "Machine code that fits comes before any PTX."
        return "Of several that fit, the driver takes the newest. Compare numbers, not strings."
    if expected_part.suffix == "f" and expected_part.capability[0] != capability[0]:
        return "With an f it runs only on the major version that it names; this is also true for PTX."
    if expected_part.suffix == "a" and expected_part.capability != capability:
        return "With an a it runs only on the compute capability that it names; this is also true for PTX."
    if expected_part.capability > capability:
        return "Code for a newer GPU does not run on an older one, even if only the minor version differs."
    return "Machine code does not run on another major version. Only PTX does."


def judge_matrix(answer: Answer) -> str:
    """Judge the learner's ``taken(targets, capability)``, which returns the target that a driver uses for a
    device.
    """
    must_be_a_function("taken", answer.is_function, answer.kind)
    rng = answer.rng
    single_targets = [
        ([build_target], capability)
        for build_target in (*_CUBIN_TARGETS, *_PTX_TARGETS, *_SPECIFIC_TARGETS)
        for capability in _CAPABILITIES
    ]
    target_choices: list[tuple[list[str], Capability]] = [
        single_targets[n] for n in rng.permutation(len(single_targets))
    ]
    target_choices += [(["sm_80", "sm_86"], (8, 9)), (["sm_90", "compute_100"], (10, 0)), ([], (9, 0))]
    target_choices += [
        (["compute_100", "compute_90", "compute_75"], (12, 0)),
        (["compute_90a", "sm_86"], (10, 0)),
    ]
    target_choices += [(["sm_80", "compute_86", "compute_75"], (8, 9)), (["sm_100", "compute_103"], (10, 3))]
    target_choices += [(["compute_80", "sm_80"], (8, 6)), (["sm_90a", "compute_80"], (10, 0))]
    target_choices += [(["sm_100f", "sm_103"], (10, 3)), (["compute_120f", "compute_100"], (12, 1))]
    target_choices += [(["sm_100f", "compute_103"], (10, 3)), (["compute_100f", "compute_90"], (12, 0))]
    for _ in range(40):
        candidates = list(
            rng.permutation(
                [*_CUBIN_TARGETS, *_PTX_TARGETS]
                if rng.random() < 0.6
                else [*_PTX_TARGETS, *_SPECIFIC_TARGETS]
            )
        )
        targets = [str(name) for name in candidates[: int(rng.integers(2, 6))]]
        if len({build_target.rstrip("af") for build_target in targets}) == len(targets):
            target_choices.append((targets, _CAPABILITIES[int(rng.integers(len(_CAPABILITIES)))]))
    known_targets = (*_CUBIN_TARGETS, *_PTX_TARGETS, *_SPECIFIC_TARGETS, *_OTHER_TARGETS)
    all_capabilities = (*_CAPABILITIES, *_OTHER_CAPABILITIES)
    other_programs = [
        ([build_target], capability)
        for build_target in known_targets
        for capability in all_capabilities
        if build_target in _OTHER_TARGETS or capability in _OTHER_CAPABILITIES
    ]
    target_choices += [other_programs[n] for n in rng.permutation(len(other_programs))]
    target_choices += [(["compute_90a", "sm_90"], (9, 0)), (["sm_100", "compute_100a"], (10, 0))]
    for _ in range(20):
        candidates = list(
            rng.permutation([*_CUBIN_TARGETS, *_PTX_TARGETS, *_OTHER_TARGETS[:3], *_OTHER_TARGETS[4:]])
        )
        capability = all_capabilities[int(rng.integers(len(all_capabilities)))]
        target_choices.append(([str(name) for name in candidates[: int(rng.integers(2, 7))]], capability))
    results = answer.ask(_run_taken, target_choices, shown="taken(targets, capability)")
    for (targets, capability), result in zip(target_choices, results, strict=True):
        expected = taken(targets, capability)
        if not equals(result, expected):
            raise NotYet(
                f"{format_call('taken', (targets, capability))} returns {short_repr(result)}, not "
                f"{short_repr(expected)}. " + _explain_wrong_choice(targets, capability, result, expected)
            )
    return (
        f"{len(target_choices)} programs, each on its GPU: for each, the target that a driver loads or "
        "compiles, or None."
    )


def _run_taken(answer: Any, target_choices: Sequence[tuple[list[str], Capability]]) -> list[Any]:
    """Run the answer in its own process for each program and device."""
    return [answer(list(targets), tuple(capability)) for targets, capability in target_choices]


# 16-wheel


def wheel(capabilities: Sequence[str]) -> list[str]:
    """Return the shortest list of targets whose code runs on the given devices and all later ones (reference
    solution).
    """
    versions = sorted(
        tuple(int(version_number) for version_number in capability_text.split("."))
        for capability_text in capabilities
    )
    lowest_minors: dict[int, int] = {}
    for major, minor in versions:
        lowest_minors.setdefault(major, minor)
    targets = [f"sm_{major}{minor}" for major, minor in lowest_minors.items()]
    return [*targets, f"compute_{versions[-1][0]}{versions[-1][1]}"]


def judge_wheel(answer: Answer) -> str:
    """Judge the learner's ``wheel(capabilities)``, which returns the compilation targets for a package."""
    must_be_a_function("wheel", answer.is_function, answer.kind)
    rng = answer.rng
    all_capabilities = [f"{major}.{minor}" for major, minor in _CAPABILITIES]
    capability_lists = [
        ["9.0"],
        ["8.9", "10.0", "8.0"],
        ["12.0", "7.5", "9.0"],
        ["8.9", "8.6"],
        ["10.3", "9.0", "10.0"],
    ]
    capability_lists += [
        [str(name) for name in rng.permutation(all_capabilities)[: int(rng.integers(2, 9))]] for _ in range(8)
    ]
    capability_lists.append([*capability_lists[-1], capability_lists[-1][0]])
    for capabilities in capability_lists:
        result = call(answer, list(capabilities), name="wheel")
        call_text = format_call("wheel", (capabilities,))
        expected = wheel(capabilities)
        targets = list_parts(result)
        if targets is None or not all(isinstance(target, str) for target in targets):
            raise NotYet(
                f"{call_text} returns {short_repr(result)}. Return a list of targets such as 'sm_80'."
            )
        if targets != expected:
            raise NotYet(
                f"{call_text} returns {short_repr(targets)}. "
                f"{_explain_wrong_wheel(capabilities, targets, expected)}"
            )
    return (
        "there is machine code once per major version, oldest first, and PTX of the newest for future GPUs."
    )


def _explain_wrong_wheel(capabilities: Sequence[str], targets: list[str], expected: list[str]) -> str:
    """Return the feedback for a wrong list of targets."""
    try:
        image_parts = [Part.of(target) for target in targets]
    except ValueError as error:
        return str(error)
    ptx = [image_part for image_part in image_parts if image_part.kind == "PTX"]
    if not ptx:
        return "A GPU of a future major version finds nothing that it can run: PTX is missing."
    newest_part = Part.of(expected[-1])
    if [image_part.number for image_part in ptx] != [newest_part.number]:
        return (
            f"One PTX target is enough, for the newest capability: {expected[-1]}. Compare numbers: "
            "10.0 comes after 9.0."
            if ptx[-1].number != newest_part.number
            else f"One PTX target is enough, for the newest capability: {expected[-1]}."
        )
    if any(part.suffix for part in image_parts):
        return "With a letter after the number, code runs only on one capability or one family."
    for capability_text in capabilities:
        capability = tuple(int(part) for part in capability_text.split("."))
        if not any(
            part.kind == "cubin" and part.runs_on((capability[0], capability[1])) for part in image_parts
        ):
            return (
                f"{capability_text} finds no machine code that it can run. Use the lowest minor version of "
                "each major version."
            )
    if sorted(targets) == sorted(expected):
        return "The targets are right, but not in the order of the numbers: oldest first, PTX last."
    return (
        "There are too many targets: machine code also runs on all later minor versions of its major version."
    )


# 16-variables

_VARIABLE_NAMES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_CACHE_DISABLE",
    "CUPY_TF32",
    "CUPY_GPU_MEMORY_LIMIT",
    "TORCH_USE_CUDA_DSA",
)
_OBSERVATIONS = ("devices", "launch returns", "cache files", "product", "memory limit", "kernels")
_OPPOSITE_VALUE = {"as ever": "otherwise", "otherwise": "as ever"}
MAX_RUN_COUNT = 60


class ChildProcess:
    """A model of processes whose reported values depend on environment variables by hidden rules.

    An effect consists of the observation that changes, and the time when the process reads the variable. This
    time is the ``"start"`` of the process or each use (``"any"``). One observation also changes by itself,
    but not in the first `quiet_run_count` runs, and later after 1 to 3 runs.
    """

    def __init__(
        self, effects: dict[str, tuple[str, str]], unstable_observation: str, quiet_run_count: int, seed: int
    ) -> None:
        self._effects = effects
        self._unstable_observation = unstable_observation
        self.runs = 0
        self._rng = random.Random(seed)
        self._unstable_value = "as ever"
        self._remaining_runs = quiet_run_count

    def __call__(self, early_variables: Sequence[str], late_variables: Sequence[str]) -> dict[str, Any]:
        """Run a process with some variables set before its start, and others after its first array."""
        self.runs += 1
        if self.runs > 20 * MAX_RUN_COUNT:
            raise NotYet(
                f"verified(run, variables) starts more and more processes, but {MAX_RUN_COUNT} are enough."
            )
        unknown_names = [name for name in (*early_variables, *late_variables) if name not in _VARIABLE_NAMES]
        if unknown_names:
            raise ValueError(f"There is no variable {unknown_names[0]!r} in `variables`.")
        if not self._remaining_runs:
            self._unstable_value = _OPPOSITE_VALUE[self._unstable_value]
            self._remaining_runs = self._rng.randint(1, 3)
        self._remaining_runs -= 1
        value_of_observation: dict[str, Any] = dict.fromkeys(_OBSERVATIONS, "as ever")
        value_of_observation[self._unstable_observation] = self._unstable_value
        for name, (observation, read_time) in self._effects.items():
            has_effect = name in early_variables or (name in late_variables and read_time == "any")
            if has_effect and observation != self._unstable_observation:
                value_of_observation[observation] = "otherwise"
        return value_of_observation


def _run_verified(answer: Any, send_request: Callable[..., Any]) -> Any:
    """Run the answer in its own process, and return its result."""

    def run(before: Any = None, late: Any = None) -> Any:
        return send_request(*([str(name) for name in dict(variables or {})] for variables in (before, late)))

    result = answer(run, list(_VARIABLE_NAMES))
    if isinstance(result, dict):
        result = {
            str(name): list(observed_effect)
            if isinstance(observed_effect, (tuple, list))
            else observed_effect
            for name, observed_effect in result.items()
        }
    return result


def judge_variables(answer: Answer) -> str:
    """Judge the learner's ``verified(run, variables)``, which finds what each environment variable changes
    and when to set it.
    """
    must_be_a_function("verified", answer.is_function, answer.kind)
    rng = answer.rng
    for program_index, quiet_run_count in enumerate(rng.permutation((1, 1, 2, 3, 4, 5, 6, 6))):
        unstable_observation = str(rng.choice(_OBSERVATIONS))
        names = [str(name) for name in rng.permutation(_VARIABLE_NAMES)]
        idle_count = int(rng.integers(1, 4))
        observations = [
            str(name)
            for name in rng.permutation(
                [observation for observation in _OBSERVATIONS if observation != unstable_observation]
            )
        ]
        effects = {
            name: (
                observations[variable_index % 3],
                "any" if variable_index == 1 or (variable_index > 1 and rng.random() < 0.4) else "start",
            )
            for variable_index, name in enumerate(names[idle_count:])
        }
        call_text = f"verified(run, variables) for program {program_index + 1}"
        child = ChildProcess(effects, unstable_observation, int(quiet_run_count), int(rng.integers(10**6)))
        result = answer.ask(_run_verified, shown=call_text, back=child)
        if not isinstance(result, dict) or set(result) != set(_VARIABLE_NAMES):
            raise NotYet(
                f"{call_text} should return a dict with each of the {len(_VARIABLE_NAMES)} variables."
            )
        for name in _VARIABLE_NAMES:
            _judge_variable(call_text, name, result[name], effects.get(name), unstable_observation)
        if child.runs > MAX_RUN_COUNT:
            raise NotYet(f"{call_text} starts {child.runs:,} processes, but {MAX_RUN_COUNT} are enough.")
    return (
        "your function finds for each variable what it changes and when it is read, verified in fresh "
        "processes."
    )


def _judge_variable(
    call_text: str, name: str, result: Any, effect: tuple[str, str] | None, unstable_observation: str
) -> None:
    """Compare the answer for one variable with the variable's true effect."""
    result_values = list_parts(result)
    if result_values is None or len(result_values) != 2:
        raise NotYet(
            f"{call_text} returns {short_repr(result)} for {name}. Return (observation, when), or (None, "
            "'never')."
        )
    observation, read_time = result_values
    if effect is None:
        if (observation, read_time) == (None, "never"):
            return
        if observation == unstable_observation:
            raise NotYet(
                f"{call_text} reports that {name} changes {observation!r}, but {observation!r} differs from "
                "run to run even if no environment variable is set. Run several processes without setting "
                "any variable."
            )
        raise NotYet(
            f"{call_text} returns {short_repr(result)} for {name}, but {name} changes nothing "
            "in this program. Set only one variable at a time."
        )
    if (observation, read_time) == (None, "never"):
        raise NotYet(
            f"{call_text} reports that {name} changes nothing. It does change something "
            "if it is set before the process starts: most variables are read only once, "
            "before the first array is created."
        )
    if observation != effect[0]:
        explanation = (
            ", which differs from run to run by itself" if observation == unstable_observation else ""
        )
        raise NotYet(
            f"{call_text} reports that {name} changes {short_repr(observation)}{explanation}. {name} changes "
            "another observation."
        )
    if read_time != effect[1]:
        raise NotYet(
            f"{call_text} returns {short_repr(read_time)} for {name}: it "
            + (
                "is read each time, so setting it late works, too: 'any'."
                if effect[1] == "any"
                else "is read at the start; set late, it changes nothing: 'start'."
            )
        )


# 16-translate


def translate(cp: Any, host: np.ndarray, index: int) -> tuple[Any, int]:
    """Do the work of ten given lines of ``torch.cuda`` with CuPy (reference solution)."""
    pool = cp.get_default_memory_pool()
    with cp.cuda.Device(index):
        before_bytes = pool.used_bytes()
        values = cp.asarray(host)
        copy_event = cp.cuda.get_current_stream().record()
        side_stream = cp.cuda.Stream(non_blocking=True)
        side_stream.wait_event(copy_event)
        with side_stream:
            row_sums = (values * values).sum(axis=1)
            sum_event = side_stream.record()
        cp.cuda.get_current_stream().wait_event(sum_event)
        result = row_sums + 1
        used_bytes = pool.used_bytes() - before_bytes
    return result, used_bytes


def _run_translated(answer: Any, host_array: np.ndarray, gpu_index: int, held_bytes: int) -> dict[str, Any]:
    """Run the answer and the reference in the answer's process; return the results and actions of both.

    Another program holds a different amount of memory of each GPU, another GPU is current, and no current
    stream is the default stream.
    """
    from gpulab.lab.streams import check_streams

    outcome: dict[str, Any] = {}
    with on_device("virtual:T4", count=3) as cp, ExitStack() as exit_stack:
        other_gpu = 3 - gpu_index
        memory_and_streams = []
        for device in range(3):
            with cp.cuda.Device(device):
                stream = exit_stack.enter_context(cp.cuda.Stream(non_blocking=True))
                memory_and_streams.append((cp.empty(held_bytes << device, "uint8"), stream))
        for program_role, function in (("reference", translate), ("answer", answer)):
            for device in range(3):
                with cp.cuda.Device(device):
                    cp.get_default_memory_pool().free_all_blocks()
            cp.cuda.Device(other_gpu).use()
            outcome[program_role] = _run_and_observe(cp, partial(function, cp, host_array.copy(), gpu_index))
            outcome[program_role]["stays"] = cp.cuda.runtime.getDevice() == other_gpu
            outcome[program_role]["streams stay"] = all(
                _find_current_stream(cp, device) == stream.ptr
                for device, (_, stream) in enumerate(memory_and_streams)
            )
            outcome[program_role]["current"] = cp.cuda.runtime.getDevice()
        cp.cuda.Device(other_gpu).use()
        with check_streams() as report:
            _run_and_observe(cp, partial(answer, cp, host_array.copy(), gpu_index))
        # Memory that is freed early is ignored: PyTorch's lines also release y while it is read.
        hazards = [
            finding.message for finding in report.findings if finding.kind.startswith(("read", "write"))
        ]
        outcome["answer"]["hazards"] = hazards[:1]
        cp.cuda.Device(0).use()
    return outcome


def _find_current_stream(cp: Any, device: int) -> int:
    """Return the pointer of a device's current stream."""
    with cp.cuda.Device(device):
        return int(cp.cuda.get_current_stream().ptr)


def _run_and_observe(cp: Any, program: Callable[[], Any]) -> dict[str, Any]:
    """Run a program; return its result as the caller reads it, and its operations on the device."""
    from gpulab.lab.timeline import timeline

    with timeline() as recorded_timeline:
        result = program()
    result_values = list(result) if isinstance(result, (tuple, list)) else []
    array = result_values[0] if len(result_values) == 2 and isinstance(result_values[0], cp.ndarray) else None
    array_values = None
    if array is not None:
        with cp.cuda.Device(array.device.id):
            array_values = array.get()
    record = recorded_timeline.record
    waits = [
        synchronization
        for synchronization in record.synchronizations
        if synchronization.type != "STREAM_WAIT_EVENT"
    ]
    query_count = sum(call.name in QUERIES for call in record.calls)
    kernels = [activity for activity in record.activities if activity.kind == "CONCURRENT_KERNEL"]
    return {
        "pair": len(result_values) == 2,
        "array": array is not None,
        "place": None if array is None else array.device.id,
        "value": array_values,
        "used": int(result_values[1])
        if len(result_values) == 2 and isinstance(result_values[1], (int, np.integer))
        else None,
        "copies": [
            activity.copy_kind for activity in record.activities if activity.kind in ("MEMCPY", "MEMCPY2")
        ],
        "waits": len(waits) + query_count,
        "kernel copies": sum(activity.name.startswith("cupy_copy") for activity in kernels),
        "streams": len({activity.stream_id for activity in kernels}),
        "all streams": len({(activity.device_id, activity.stream_id) for activity in record.activities}),
        "devices": sorted({activity.device_id for activity in record.activities}),
        "hazards": [],
    }


def judge_translate(answer: Answer) -> str:
    """Judge the learner's ``translated(cp, host, index)``, which replaces ten lines of ``torch.cuda`` by
    CuPy.
    """
    must_be_a_function("translated", answer.is_function, answer.kind)
    rng = answer.rng
    for gpu_index, dtype in ((2, np.float32), (1, np.float64)):
        # The array has less than 1 MiB.
        rows = int(rng.integers(3, 80))
        columns = int(rng.integers(100, 1500))
        host_array = rng.integers(-4, 5, (rows, columns)).astype(dtype)
        call_text = f"translated(cp, host, {gpu_index})"
        held_bytes = int(rng.integers(1 << 10, 1 << 20))
        outcome = answer.ask(_run_translated, host_array, gpu_index, held_bytes, shown=call_text)
        _judge_program(call_text, outcome["answer"], outcome["reference"], gpu_index)
    return (
        "the result is the same on the same GPU, with one copy, no wait of the host, and no other GPU or "
        "stream current."
    )


def _judge_program(call_text: str, answer: dict[str, Any], reference: dict[str, Any], gpu_index: int) -> None:
    """Compare the result and the operations of the answer with those of the reference."""

    def refuse_if(is_wrong: bool, message: str) -> None:
        if is_wrong:
            raise NotYet(f"{call_text} {message}")

    refuse_if(not answer["pair"], "should return a pair: z, and the bytes used.")
    refuse_if(not answer["array"], "should return z as an array on the GPU, as PyTorch's program does.")
    refuse_if(
        answer["place"] != gpu_index,
        f"leaves z on GPU {answer['place']}. All work belongs on GPU {gpu_index}: "
        "`with cp.cuda.Device(index):`",
    )
    refuse_if(
        not answer["stays"],
        f"leaves GPU {answer['current']} current. `with torch.cuda.device` and "
        "`with cp.cuda.Device` restore the device that was current before; .use() does not.",
    )
    streams_stay = answer["streams stay"]
    refuse_if(not streams_stay, "leaves another stream current: `with side:` restores the former one.")
    is_different = answer["value"].shape != reference["value"].shape or not np.array_equal(
        answer["value"], reference["value"]
    )
    refuse_if(is_different, "returns other numbers: z is the sum of squares of each row, plus 1.")
    result_dtype = answer["value"].dtype
    expected_dtype = reference["value"].dtype
    refuse_if(
        result_dtype != expected_dtype,
        f"returns {result_dtype}: PyTorch keeps the host's type, {expected_dtype}.",
    )
    refuse_if(
        answer["devices"] != [gpu_index], f"works on GPUs {answer['devices']}; only GPU {gpu_index} may work."
    )
    other_copies = [copy_kind for copy_kind in answer["copies"] if copy_kind != "HtoD"]
    refuse_if(
        bool(other_copies),
        f"copies {(other_copies[0] if other_copies else '')}: PyTorch's lines copy only once, from the host.",
    )
    refuse_if(
        len(answer["copies"]) != 1,
        f"makes {count(len(answer['copies']), 'copy', 'copies')}; the host's array must be copied only once.",
    )
    refuse_if(
        answer["kernel copies"] > reference["kernel copies"],
        "copies an array on the GPU: PyTorch's lines copy once, from the host.",
    )
    refuse_if(
        answer["waits"] > reference["waits"],
        "makes the host wait where PyTorch's lines do not. Let the streams wait for each other, with events.",
    )
    refuse_if(answer["streams"] < 2, "runs everything in one stream: the squares belong in the side stream.")
    refuse_if(
        bool(answer["hazards"]),
        "lets a stream run ahead: the side stream must wait for the copy, and the current stream "
        "for the squares. " + "".join(answer["hazards"]),
    )
    refuse_if(
        answer["all streams"] > reference["all streams"],
        f"works in {count(answer['all streams'], 'stream')}; PyTorch's lines use two: the current one of "
        "that GPU, cp.cuda.get_current_stream(), and side.",
    )
    refuse_if(
        answer["used"] != reference["used"],
        f"returns {short_repr(answer['used'])} bytes, not {reference['used']:,}. memory_allocated counts "
        "the bytes "
        "that arrays use on that GPU: take pool.used_bytes() at the end, minus its value at the beginning.",
    )


# 16-warp64

_KERNEL_NAME = "positives"
_REFERENCE_FILE = "positives.cu"
_MAX_COST_RATIO = 4


def read_kernel_file(name: str) -> str:
    """Return the text of a file in the folder ``kernels``."""
    return (Path(__file__).parent / "kernels" / name).read_text(encoding="utf-8")


def translate_wave_functions(code: str, width: int) -> str:
    """Translate a kernel that uses HIP's warp functions to CUDA, with wavefronts of `width` lanes."""
    return f"#define gpulab_lanes {width}\n{read_kernel_file('wave.cuh')}\n{code}"


def _run_launches(
    kernel_code: Any, launches: Sequence[tuple[int, int, int]], seed: int
) -> list[dict[str, Any]]:
    """Run launches (width, block, n) in the answer's process, and return the results of the kernel."""
    from gpulab.lab.kernels import count as counted
    from gpulab.lab.kernels import sanitize

    outcomes: list[dict[str, Any]] = []
    with on_device("virtual:A100") as cp:
        kernels = {
            width: cp.RawKernel(translate_wave_functions(kernel_code, width), _KERNEL_NAME)
            for width in (32, 64)
        }
        for width, block, n in launches:
            x = np.random.default_rng(seed + n).integers(-36, 37, n).astype(np.float32) / 4
            grid = max(1, -(-n // block))
            args = cp.asarray(x), cp.full(grid, 77, "f4"), cp.full(grid, 77, "i4"), np.int32(n)
            try:
                kernels[width]((grid,), (block,), args)
                sums_and_counts = args[1].get(), args[2].get()
            except cp.cuda.compiler.CompileException as error:
                return [*outcomes, {"compile": str(error)[:1500]}]
            except Exception as error:
                return [*outcomes, {"fault": f"{type(error).__name__}: {error}"[:600]}]
            padded_x = np.zeros(grid * block, np.float32)
            padded_x[:n] = x
            block_rows = padded_x.reshape(grid, block)
            expected_arrays = block_rows.sum(1), (block_rows > 0).sum(1)
            outcomes.append(
                {
                    "right": [
                        bool((result == expected_values).all())
                        for result, expected_values in zip(sums_and_counts, expected_arrays, strict=True)
                    ]
                }
            )
        width = 32
        block = 256
        n = 600
        kernel = kernels[width]
        args = (cp.ones(n, "f4"), cp.zeros(-(-n // block), "f4"), cp.zeros(-(-n // block), "i4"), np.int32(n))
        launch_shape = -(-n // block), block
        report = sanitize(kernel, *launch_shape, args).record
        counter_record = counted(kernel, *launch_shape, args).record
        reference_kernel = cp.RawKernel(
            translate_wave_functions(read_kernel_file(_REFERENCE_FILE), width), _KERNEL_NAME
        )
        reference_cost = counted(reference_kernel, *launch_shape, args).record
        outcomes.append(
            {
                "hazards": [str(hazard) for hazard in getattr(report, "hazards", ())][:1],
                "instructions": [
                    int(record.longest_warp_instructions) for record in (counter_record, reference_cost)
                ],
            }
        )
    return outcomes


def judge_warp64(answer: Answer) -> str:
    """Judge the kernel ``positives``, which must work with wavefronts of 32 and of 64 lanes."""
    kernel_code = answer.value()
    if not isinstance(kernel_code, str):
        raise NotYet("The answer must be the source of a kernel, as a string.")
    if "gpulab_" in kernel_code:
        raise NotYet(
            "Names that begin with gpulab_ are reserved for the check. Use warpSize and HIP's functions "
            "instead."
        )
    rng = answer.rng
    launches = [
        (64, 256, 900),
        (64, 64, 1),
        (64, 512, 0),
        (64, 64 * int(rng.integers(1, 9)), int(rng.integers(1, 2000))),
    ]
    launches += [
        (32, 256, 600),
        (32, 1024, 2500),
        (32, 32, 100),
        (32, 32 * int(rng.integers(1, 17)), int(rng.integers(1, 2000))),
    ]
    outcomes = answer.ask(
        _run_kernel_text, kernel_code, launches, int(rng.integers(1000)), shown=_KERNEL_NAME
    )
    for (width, block, n), outcome in zip(launches, outcomes, strict=False):
        launch_text = f"With wavefronts of {width} lanes, blocks of {block} threads and n = {n:,},"
        if "compile" in outcome:
            raise NotYet(_compile_lesson(outcome["compile"]))
        if "fault" in outcome:
            raise NotYet(f"{launch_text} it fails: {outcome['fault']} {_FAULT_ADVICE}")
        are_sums_right, are_counts_right = outcome["right"]
        if not (are_sums_right and are_counts_right):
            widths_text = " and ".join(
                name
                for name, is_right in (("sums", are_sums_right), ("counts", are_counts_right))
                if not is_right
            )
            raise NotYet(
                f"{launch_text} {widths_text} are wrong. "
                f"{_MANY_WAVES_ADVICE if block == 1024 else _WIDTH_ADVICE[width, bool(are_sums_right)]}"
            )
    launch_costs = outcomes[-1]
    if launch_costs["hazards"]:
        raise NotYet(f"With wavefronts of 32 lanes, the sanitizer finds: {launch_costs['hazards'][0]}")
    instruction_count, reference_cost = launch_costs["instructions"]
    if instruction_count > _MAX_COST_RATIO * reference_cost:
        raise NotYet(
            f"The busiest warp takes {instruction_count:,} warp instructions, but with shuffles it takes "
            f"{reference_cost:,}. Let all lanes of a wavefront add."
        )
    return "one kernel is right for wavefronts of 32 lanes and of 64."


_FAULT_ADVICE = (
    "All lanes of a wavefront must reach a shuffle, and all threads of a block must reach a barrier."
)
_WIDTH_ADVICE = {
    (64, False): "Where does the kernel assume that there are 32 lanes: in a shuffle's first step, a mask, "
    "a remainder, the number of warps?",
    (64, True): "Only elements greater than 0 count. A vote of 64 lanes has 64 bits: store it as unsigned "
    "long long, and count its bits with __popcll.",
    (32, False): "With 64 lanes the results are right: where does the kernel assume that there are 64 lanes?",
    (32, True): "With 64 lanes the results are right: where does the kernel assume that there are 64 lanes?",
}
_MANY_WAVES_ADVICE = (
    "With 32 lanes, a block has more wavefronts, up to 32, and each has a part of the result."
)


def _run_kernel_text(answer: Any, kernel_code: str, launches: Any, seed: int) -> list[dict[str, Any]]:
    """Run launches of a kernel that is given as source text, in the answer's process."""
    return _run_launches(kernel_code, launches, seed)


def _compile_lesson(compile_log: str) -> str:
    """Return the feedback for a kernel that does not compile."""
    if "The mask must be a 64-bit integer" in compile_log:
        return "A mask has one bit per lane: 64 lanes need 64 bits. ~0ull is a mask of 64 bits."
    if "constant value" in compile_log:
        return (
            "warpSize is known when the kernel runs, not when it is compiled: an array's size has to be a "
            "constant. 1,024 threads are 32 wavefronts of 32 lanes, or 16 of 64, so 32 elements are enough."
        )
    return f"It does not compile: {compile_log[:400]}"


def _make_python_exercise(
    name: str, title: str, judge: Callable[[Answer], str], level: Any = "core"
) -> PythonExercise:
    """Return an exercise of this notebook."""
    return PythonExercise(f"16-{name}", title, judge, level=level)


EXERCISES = (
    _make_python_exercise("matrix", "What the driver takes", judge_matrix),
    _make_python_exercise("wheel", "A wheel's architecture list", judge_wheel, "warm-up"),
    _make_python_exercise("variables", "What this variable changes", judge_variables),
    _make_python_exercise("translate", "Ten lines of torch.cuda", judge_translate),
    _make_python_exercise("warp64", "Sixty-four lanes", judge_warp64, "stretch"),
)
