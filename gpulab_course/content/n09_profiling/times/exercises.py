"""Exercises of notebook 09 about time: causes of waits, NVTX ranges, and the kernel to improve first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.profiling.profile import ProfileReport, profile
from gpulab.lab.streams import check_streams
from gpulab.lab.timeline import timeline
from gpulab.processes.values import DeviceContents
from gpulab_course.content.n09_profiling.times import stages
from gpulab_course.teach.judge import (
    Answer,
    NotYet,
    PythonExercise,
    as_float,
    is_number,
    list_parts,
    short_repr,
)
from gpulab_course.teach.judge.python.functions import call_here
from virtualgpu.records import Timeline

# 09-nvtx

_ANNOTATED_CALL_TEXT = "annotated(layers)"


# The ways to call layers: gain by name, by position, all arguments by name, and additional arguments.
_LAYER_ARGUMENT_MAKERS: tuple[Callable[[Any, float], tuple[tuple[Any, ...], dict[str, Any]]], ...] = (
    lambda x, gain: ((x,), {"gain": gain}),
    lambda x, gain: ((x, gain), {}),
    lambda x, gain: ((), {"x": x, "gain": gain}),
    lambda x, gain: ((x, gain, None, "causal"), {"training": True}),
)


def _call_arguments(layer_index: int, x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments with which layer `layer_index` must be called."""
    return _LAYER_ARGUMENT_MAKERS[layer_index % len(_LAYER_ARGUMENT_MAKERS)](x, layer_index + 0.5)


def _make_argument_text(args: tuple[Any, ...], keyword_arguments: dict[str, Any]) -> str:
    """Return the arguments of a layer as text, without the array."""
    return f"{args[1:]} {sorted((name, value) for name, value in keyword_arguments.items() if name != 'x')}"


class _Interrupt(BaseException):
    """An exception like KeyboardInterrupt, which ``except Exception`` does not catch."""


class _Layers:
    """Layers of a model as functions, which record the arguments and the thread of each call."""

    def __init__(
        self,
        round_counts: list[int],
        broken_layer: int = -1,
        barrier: threading.Barrier | None = None,
        error_type: type[BaseException] = LookupError,
    ) -> None:
        self.thread_ids: list[int] = []
        self.argument_texts: list[str] = []
        self._error_type = error_type
        functions_by_rounds: dict[int, Callable[..., Any]] = {}
        self.functions = []
        for layer_index, round_count in enumerate(round_counts):
            # Layers with equal rounds are the same function, like layers that share weights.
            if round_count not in functions_by_rounds or layer_index == broken_layer:
                functions_by_rounds[round_count] = self._make_layer(
                    round_count, layer_index == broken_layer, barrier
                )
            self.functions.append(functions_by_rounds[round_count])

    def _make_layer(
        self, round_count: int, raises_error: bool, barrier: threading.Barrier | None
    ) -> Callable[..., Any]:
        name = stages.STAGE_NAMES[round_count % len(stages.STAGE_NAMES)]

        def call_layer(*args: Any, **keyword_arguments: Any) -> Any:
            x = args[0] if args else keyword_arguments["x"]
            if barrier is not None:
                barrier.wait(timeout=5)
            stages.run(name, x, round_count)
            if barrier is not None:
                barrier.wait(timeout=5)
            self.argument_texts.append(_make_argument_text(args, keyword_arguments))
            self.thread_ids.append(threading.get_ident())
            if raises_error:
                raise self._error_type("this layer has no weights")
            return x

        call_layer.__name__ = name
        return call_layer


def run_annotated(
    answer: Any, round_counts: list[int], broken_layer: int, thread_count: int, is_interrupted: bool = False
) -> dict[str, Any]:
    """Run the annotated layers in the answer's process, and return the profile's ranges and the expected
    times.
    """
    cp = session.cp()
    barrier = threading.Barrier(thread_count) if thread_count > 1 else None
    error_type = _Interrupt if is_interrupted else LookupError
    layers = _Layers(round_counts, broken_layer, barrier, error_type)
    arrays = [cp.full(64, 0.3, cp.float32) for _ in range(thread_count)]
    for round_count in sorted(set(round_counts)):  # compile the kernels
        stages.run(stages.STAGE_NAMES[round_count % len(stages.STAGE_NAMES)], arrays[0], 1)
    cp.cuda.Device().synchronize()
    functions = call_here(answer, list(layers.functions), name="annotated", shown=_ANNOTATED_CALL_TEXT)
    run_outcome: dict[str, Any] = {
        "made": -1 if not isinstance(functions, list | tuple) else len(functions),
        "notes": [],
    }
    if run_outcome["made"] != len(round_counts) or not all(map(callable, functions)):
        return run_outcome
    call_spans: list[tuple[int, int, int, int]] = []
    host_ns = session.backend().host_ns

    def run_layers(x: Any) -> None:
        for layer_index, layer in enumerate(functions):
            start_ns = host_ns()
            try:
                args, keyword_arguments = _call_arguments(layer_index, x)
                if layer(*args, **keyword_arguments) is not x:
                    run_outcome["notes"].append("result")
                if layer_index == broken_layer:
                    run_outcome["notes"].append("swallowed")
            except (LookupError, _Interrupt) as exception:
                is_expected = layer_index == broken_layer and type(exception) is error_type
                if not is_expected or str(exception.args[0]) != "this layer has no weights":
                    raise
            call_spans.append((layer_index, threading.get_ident(), start_ns, host_ns()))

    with profile() as report:
        if thread_count == 1:
            run_layers(arrays[0])
        else:
            workers = [
                threading.Thread(target=_run_and_note_errors, args=(run_layers, x, run_outcome))
                for x in arrays
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        with session.cupyx().profiler.time_range("afterwards"):
            stages.run(stages.STAGE_NAMES[0], arrays[0], 1)
    profile_record = report.record
    record = report.timeline.record
    operations = {activity.correlation_id: activity for activity in record.activities}
    launches = [
        (call.thread, call.start_ns, operations[call.correlation_id])
        for call in record.calls
        if call.correlation_id in operations
    ]
    last_range = max(
        (nvtx_range for nvtx_range in record.ranges if nvtx_range.name == "afterwards"),
        key=lambda nvtx_range: nvtx_range.start_ns,
    )
    expected_ns = [0] * len(round_counts)
    for layer_index, thread, start_ns, end_ns in call_spans:
        layer_operations = [
            activity
            for launch_thread, launch_ns, activity in launches
            if start_ns <= launch_ns < end_ns and (thread_count == 1 or launch_thread == thread)
        ]
        expected_ns[layer_index] += sum(activity.duration_ns for activity in layer_operations)
    if set(layers.thread_ids) - {thread for _, thread, _, _ in call_spans}:
        run_outcome["notes"].append("elsewhere")
    run_outcome |= {
        "right": expected_ns,
        "ranges": {
            nvtx_range.key: (nvtx_range.count, nvtx_range.device_time_total_ns or 0, nvtx_range.operations)
            for nvtx_range in profile_record.ranges
        },
        "waits": sum(wait.count for wait in profile_record.waits),
        "given": sorted(layers.argument_texts),
        "open": sorted(
            {
                nvtx_range.name
                for nvtx_range in record.ranges
                if nvtx_range.end_ns > last_range.start_ns and nvtx_range is not last_range
            }
        ),
    }
    return run_outcome


def _run_and_note_errors(run_layers: Callable[[Any], None], x: Any, outcome: dict[str, Any]) -> None:
    """Run layers in a thread, and store an exception in `outcome` instead of raising it."""
    try:
        run_layers(x)
    except Exception as error:
        outcome["notes"].append(f"raised {type(error).__name__}: {error}")


def judge_nvtx(answer: Answer) -> str:
    """Judge the learner's ``annotated(layers)``, which puts each layer into an NVTX range with the layer's
    name.
    """
    rng = answer.rng
    round_counts = [int(n) for n in rng.choice(range(20, 400), 12, replace=False)]
    shared_rounds = [round_counts[0], round_counts[1], round_counts[0], round_counts[2]]
    broken_layer = int(rng.integers(0, 3))
    for layer_rounds, raising_layer, thread_count, is_interrupted, description in (
        (shared_rounds, -1, 1, False, "four layers, of which 0 and 2 are the same function"),
        (round_counts, -1, 1, False, "twelve layers"),
        (
            round_counts[:4],
            broken_layer,
            1,
            False,
            f"four layers, of which layer {broken_layer} raises an exception",
        ),
        (
            round_counts[:4],
            broken_layer,
            1,
            True,
            f"four layers, of which layer {broken_layer} is stopped, as by Ctrl-C",
        ),
        (round_counts[3:6], -1, 2, False, "three layers in two threads at once"),
    ):
        run_outcome = answer.ask(
            run_annotated,
            layer_rounds,
            raising_layer,
            thread_count,
            is_interrupted,
            shown=_ANNOTATED_CALL_TEXT,
        )
        _judge_nvtx(run_outcome, layer_rounds, raising_layer, thread_count, description)
    return "each layer has its own range, in its own thread, and the range always ends."


def _judge_nvtx(
    outcome: dict[str, Any], round_counts: list[int], broken_layer: int, thread_count: int, description: str
) -> None:
    if outcome["made"] != len(round_counts) or "right" not in outcome:
        raise NotYet(
            f"{_ANNOTATED_CALL_TEXT} should return a list of {len(round_counts)} functions, "
            "one for each layer."
        )
    event_notes = outcome["notes"]
    errors = [event_note for event_note in event_notes if event_note.startswith("raised")]
    if errors:
        raise NotYet(f"with {description}, a function in your list {errors[0]}.")
    if "elsewhere" in event_notes:
        raise NotYet(
            f"with {description}, the layers run in another thread, but a range contains "
            "only the work that its own thread launches. Call the layer in the thread "
            "that begins the range."
        )
    if "swallowed" in event_notes:
        raise NotYet(
            f"with {description}, the exception does not reach the caller. End the range, and raise it again."
        )
    if outcome["given"] != sorted(
        [_make_argument_text(*_call_arguments(layer_index, None)) for layer_index in range(len(round_counts))]
        * thread_count
    ):
        raise NotYet(
            f"with {description}, the layers do not receive their arguments. Call each layer once, and pass "
            "on all arguments, by position and by name."
        )
    if "result" in event_notes:
        raise NotYet(f"with {description}, the result of a layer does not come back to the caller.")
    _judge_ranges(outcome, round_counts, broken_layer, thread_count, description)
    if outcome["waits"]:
        raise NotYet(
            f"with {description}, the host waits {outcome['waits']} times for the device, which slows the "
            "model down. Work belongs to the range in which it is launched, so no wait is needed."
        )


def _judge_ranges(
    outcome: dict[str, Any], round_counts: list[int], broken_layer: int, thread_count: int, description: str
) -> None:
    ranges = outcome["ranges"]
    expected_ns = outcome["right"]
    names = [f"layer {layer_index}" for layer_index in range(len(round_counts))]
    missing_names = [name for name in names if name not in ranges]
    if missing_names and names[-1] in ranges and len(missing_names) == len(names) - 1:
        raise NotYet(
            f'with {description}, all ranges have the name "{names[-1]}". A function that '
            "is created in a loop uses the last values of the loop's variables. Create "
            "the function in another function, which takes the number and the layer as "
            "arguments."
        )
    if missing_names:
        other_names = [f'"{name}"' for name in ranges if name != "afterwards"]
        listing = ", ".join(other_names[:4]) + (" …" if len(other_names) > 4 else "") or "none"
        raise NotYet(
            f'with {description}, no range has the name "{missing_names[0]}" (there '
            f"{'are' if listing != 'none' else 'is'} {listing}): number the ranges from 0 "
            "by position, because two layers can be the same function."
        )
    for layer_index, name in enumerate(names):
        begin_count, device_ns, operations = ranges[name]
        if begin_count != thread_count:
            raise NotYet(f'with {description}, "{name}" begins {begin_count} times, not {thread_count}.')
        if expected_ns[layer_index] and not operations:
            raise NotYet(
                f'with {description}, no work is launched in "{name}". Begin the range before '
                "the layer is called, and end it when the call has returned."
            )
    if outcome["open"]:
        reason = (
            "RangePop ends a range of its own thread only"
            if broken_layer < 0
            else "an exception prevents its end"
        )
        raise NotYet(
            f'with {description}, "{outcome["open"][0]}" is never ended: {reason}. End '
            "the range in a finally clause, or use a with block."
        )
    for layer_index, name in enumerate(names):
        device_ns = ranges[name][1]
        if device_ns != expected_ns[layer_index]:
            raise NotYet(
                f'with {description}, the device time of "{name}" is {device_ns:,} ns, but the '
                f"layer took {expected_ns[layer_index]:,} ns. The range contains work of other layers, or "
                "not all work of its own layer."
            )


NVTX_EXERCISE = PythonExercise("09-nvtx", "Time in layer 2", judge_nvtx)


# 09-first

_RELATIVE_TOLERANCE = 0.02
StageStep = tuple[str, int, int, int]
"""Kernel, rounds of a call, calls, stream (0 or 1)."""


def run_stages(steps: list[StageStep], host_busy_us: float = 0.0) -> None:
    """Launch stages of kernels in two streams, keep the host busy, and synchronize both streams.

    Stages in the same stream run one after the other.
    """
    cp = session.cp()
    x = cp.full(64, 0.3, cp.float32)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    for name, round_count, call_count, stream_index in steps:
        with streams[stream_index]:
            for _ in range(call_count):
                stages.run(name, x, round_count)
    for stream in streams:
        stream.synchronize()
    session.virtual_side().machine.clock.advance(1000 * host_busy_us)


def run_first(
    answer: Any, steps: list[StageStep], host_busy_us: float, speedup_factors: dict[str, float]
) -> dict[str, Any]:
    """Run the answer in its own process. Return the learner's choice, and the wall time with a faster version
    of each kernel.
    """
    report = profile(run_stages, steps, host_busy_us, warmup=1)
    chosen_kernel = call_here(answer, report, dict(speedup_factors), name="first", shown="first(p, faster)")
    empty_stages = profile(run_stages, [(name, 0, 1, 0) for name in stages.STAGE_NAMES], warmup=1).record
    wall_times_ns = {}
    for name in stages.STAGE_NAMES:
        # A faster kernel is a call with fewer rounds; the time of an empty call cannot be reduced.
        call_ns, empty_ns = (
            profile_record.kernel(name).device_time_ns for profile_record in (report.record, empty_stages)
        )
        remaining_share = (call_ns / speedup_factors[name] - empty_ns) / (call_ns - empty_ns)
        faster_steps = [
            (
                kernel,
                round(round_count * remaining_share) if kernel == name else round_count,
                call_count,
                stream,
            )
            for kernel, round_count, call_count, stream in steps
        ]
        wall_times_ns[name] = profile(run_stages, faster_steps, host_busy_us).record.wall_ns
    return {
        "found": chosen_kernel,
        "wall": report.record.wall_ns,
        "walls": wall_times_ns,
        "kernels": _sum_kernel_times(report),
    }


def _sum_kernel_times(report: ProfileReport) -> dict[str, tuple[int, int]]:
    """Return the number of calls and the total time in ns of each kernel."""
    return {kernel.key: (kernel.count, kernel.device_time_total_ns) for kernel in report.record.kernels}


def draw_programs(rng: np.random.Generator) -> list[tuple[str, list[StageStep], float, dict[str, float]]]:
    """Return random programs in which the kernel with the longest time is not the kernel to improve."""

    def draw_names() -> list[str]:
        return [str(name) for name in rng.permutation(stages.STAGE_NAMES)]

    def vary_rounds(rounds: float) -> int:
        return int(rounds * rng.uniform(0.95, 1.05))

    kernel_a, kernel_b, kernel_c = draw_names()
    long_kernel = [
        (kernel_a, vary_rounds(30_000), 1, 0),
        (kernel_b, vary_rounds(4_000), 30, 0),
        (kernel_c, vary_rounds(2_000), 4, 0),
    ]
    kernel_d, kernel_e, kernel_f = draw_names()
    main_stream, side_stream = (int(n) for n in rng.permutation(2))
    slow_kernel = [
        (kernel_d, vary_rounds(9_000), 10, main_stream),
        (kernel_e, vary_rounds(3_000), 9, main_stream),
        (kernel_f, vary_rounds(6_000), 1, side_stream),
    ]
    kernel_g, kernel_h, kernel_i = draw_names()
    largest_share = [
        (kernel_g, vary_rounds(9_000), 12, 0),
        (kernel_h, vary_rounds(9_000), 6, 0),
        (kernel_i, vary_rounds(2_000), 2, 0),
    ]
    kernel_j, kernel_k, kernel_m = draw_names()
    two_streams = [
        (kernel_j, vary_rounds(8_000), 8, main_stream),
        (kernel_k, vary_rounds(7_000), 8, side_stream),
        (kernel_m, vary_rounds(4_000), 8, side_stream),
    ]
    kernel_r, kernel_s, kernel_t = draw_names()
    shared_kernel = [
        (kernel_r, vary_rounds(9_000), 10, main_stream),
        (kernel_s, vary_rounds(4_000), 4, side_stream),
        (kernel_t, vary_rounds(2_000), 3, side_stream),
        (kernel_r, vary_rounds(9_000), 3, side_stream),
    ]
    kernel_n, kernel_o, kernel_p = draw_names()
    busy_host = [
        (kernel_n, vary_rounds(8_000), 6, 0),
        (kernel_o, vary_rounds(4_000), 6, 0),
        (kernel_p, vary_rounds(10_000), 1, 0),
    ]
    return [
        (
            "a long kernel next to one with many calls",
            long_kernel,
            0.0,
            {kernel_a: 2.0, kernel_b: 1.8, kernel_c: 4.0},
        ),
        (
            "a kernel that is far below its peak but takes little time",
            slow_kernel,
            0.0,
            {kernel_d: 1.6, kernel_e: 1.5, kernel_f: 20.0},
        ),
        (
            "a kernel with the largest share that is almost at its peak",
            largest_share,
            0.0,
            {kernel_g: 1.04, kernel_h: 3.0, kernel_i: 6.0},
        ),
        ("two streams", two_streams, 0.0, {kernel_j: 8.0, kernel_k: 1.3, kernel_m: 1.1}),
        (
            "a kernel that runs in both streams",
            shared_kernel,
            0.0,
            {kernel_r: 1.5, kernel_s: 4.0, kernel_t: 8.0},
        ),
        (
            "a host that is busy as well",
            busy_host,
            float(rng.uniform(300, 600)),
            {kernel_n: 2.0, kernel_o: 2.5, kernel_p: 3.0},
        ),
    ]


def judge_first(answer: Answer) -> str:
    """Judge the learner's ``first(p, faster)``, which returns the kernel to improve first and the resulting
    speedup.
    """
    for description, program_steps, host_busy_us, speedup_factors in draw_programs(answer.rng):
        run_outcome = answer.ask(
            run_first, program_steps, host_busy_us, speedup_factors, shown="first(p, faster)"
        )
        _judge_choice(run_outcome, speedup_factors, f"of a program with {description}")
    return (
        "your function compares how long the program waits for each kernel, and how much of this time "
        "can be saved."
    )


def _judge_choice(outcome: dict[str, Any], speedup_factors: dict[str, float], description: str) -> None:
    result_values = list_parts(outcome["found"])
    call_text = f"first(p, faster) {description}"
    if (
        result_values is None
        or len(result_values) != 2
        or not isinstance(result_values[0], str)
        or not is_number(result_values[1])
    ):
        raise NotYet(
            f"{call_text} returns {short_repr(outcome['found'])}. Return the kernel's name, and how many "
            "times as fast the program becomes if that kernel is improved."
        )
    chosen_kernel = str(result_values[0])
    speedup = as_float(result_values[1])
    wall_times_ns = outcome["walls"]
    wall_ns = outcome["wall"]
    kernels = outcome["kernels"]
    if chosen_kernel not in wall_times_ns:
        raise NotYet(
            f"{call_text} returns {short_repr(chosen_kernel)}, but the program's kernels are "
            f"{', '.join(sorted(wall_times_ns))}."
        )
    best_kernel = min(wall_times_ns, key=wall_times_ns.__getitem__)
    if chosen_kernel != best_kernel:
        raise NotYet(
            f'{call_text} returns "{chosen_kernel}". If you improve it, the program is '
            f"{wall_ns / wall_times_ns[chosen_kernel]:.3g} "
            f'times as fast; with "{best_kernel}" it is {wall_ns / wall_times_ns[best_kernel]:.3g} '
            f"times as fast{_explain_wrong_choice(chosen_kernel, wall_times_ns, kernels, speedup_factors)}."
        )
    expected_speedup = wall_ns / wall_times_ns[best_kernel]
    if not np.isclose(speedup, expected_speedup, rtol=_RELATIVE_TOLERANCE):
        raise NotYet(
            f'{call_text}: "{chosen_kernel}" is right, but {speedup:.4g} times as fast is not: '
            + _explain_wrong_speedup(speedup, outcome, chosen_kernel, speedup_factors)
        )


def _explain_wrong_choice(
    name: str,
    wall_times_ns: dict[str, float],
    kernels: dict[str, tuple[int, int]],
    speedup_factors: dict[str, float],
) -> str:
    """Return the feedback for a wrong choice of a kernel."""
    total_ns = {kernel_name: kernels[kernel_name][1] for kernel_name in wall_times_ns}
    if name == max(speedup_factors, key=speedup_factors.__getitem__) and total_ns[name] < max(
        total_ns.values()
    ):
        return ": how far a kernel is below its peak does not show how long the program waits for it"
    if name == max(total_ns, key=total_ns.__getitem__):
        choice_reason = "only the possible gain counts, and the program does not wait for hidden work"
        return f": it has the largest share of the GPU's time, but {choice_reason}"
    if name == max(wall_times_ns, key=lambda key: kernels[key][1] / kernels[key][0]):
        return ": it has the longest time per call, but it is called less often"
    return ": compute for each kernel how much time the program saves if you improve it"


def _explain_wrong_speedup(
    speedup: float, outcome: dict[str, Any], name: str, speedup_factors: dict[str, float]
) -> str:
    """Return the feedback for a wrong speedup."""
    wall_ns = outcome["wall"]
    kernel_ns = outcome["kernels"][name][1]
    kernels = outcome["kernels"]
    gpu_ns = sum(total_kernel_ns for _, total_kernel_ns in kernels.values())
    kernel_speedup = speedup_factors[name]
    lessons = {
        "that is the gain of the kernel; the rest of the program stays the same.": kernel_speedup,
        "that is the share of the GPU's time; it ignores the host's time and overlapping work: "
        "divide by the program's wall time.": 1 / (1 - kernel_ns / gpu_ns * (1 - 1 / kernel_speedup)),
        "a part of its calls is hidden behind other work, so its gain is smaller.": wall_ns
        / (wall_ns - kernel_ns * (1 - 1 / kernel_speedup)),
        "that is the share of the time that is saved; divide the time before by the time after.": 1
        - outcome["walls"][name] / wall_ns,
        "that is the time after divided by the time before; it must be the other way round.": outcome[
            "walls"
        ][name]
        / wall_ns,
        "the improved kernel still takes its time divided by its factor: it does not go away.": wall_ns
        / (wall_ns - kernel_ns),
    }
    for lesson, mistaken_speedup in lessons.items():
        if np.isclose(speedup, mistaken_speedup, rtol=_RELATIVE_TOLERANCE / 2):
            return lesson
    return "divide the program's time by the time that remains if the kernel's part is divided by its factor."


FIRST_KERNEL_EXERCISE = PythonExercise(
    "09-first", "Which kernel first?", judge_first, level="warm-up", limit_s=8.0
)


# 09-timelines

# Causes of a program's waits, each with the largest share of the time that may remain without the cause.
MAX_DURATION_OF_CAUSE = {"launches": 0.5, "copies": 0.6, "waits": 0.8, "one stream": 0.9}
_CAUSE_TEXTS = {
    "launches": "its kernels are shorter than the calls that launch them, so the host limits the speed",
    "copies": "most of its time goes into a copy of data that does not change",
    "waits": "in each iteration the host waits for the device, and then the device waits for the host",
    "one stream": "independent pieces of work run one after the other on a few SMs",
}


def warm_up(x: Any, rounds: int) -> Any:
    """Launch many short stages that change one array (program A)."""
    for _ in range(rounds):
        stages.run("embed", x, 20)
    return x


def weigh(parts: list[Any], weights: Any) -> list[Any]:
    """Multiply each device array by a host array of weights (program B)."""
    return [device_array * session.cp().asarray(weights) for device_array in parts]


def follow(x: Any, rounds: int) -> list[float]:
    """Launch stages that change one array, and return its mean after each stage (program C)."""
    mean_after_stage = []
    for _ in range(rounds):
        stages.run("gate", x, 500)
        mean_after_stage.append(float(x.mean()))
    return mean_after_stage


def combine(parts: list[Any]) -> Any:
    """Launch a long stage for each array, and return the sum of the arrays (program D)."""
    for device_array in parts:
        stages.run("mix", device_array, 5_000)
    return sum(parts[1:], start=parts[0])


PROGRAMS: dict[str, tuple[str, Callable[..., Any]]] = {
    "A": ("launches", warm_up),
    "B": ("copies", weigh),
    "C": ("waits", follow),
    "D": ("one stream", combine),
}


def arguments(program_key: str, large: bool, seed: int) -> tuple[Any, ...]:
    """Create the arguments of the program with the letter `program_key`, which is A, B, C or D."""
    cp = session.cp()
    rng = np.random.default_rng(seed)

    def draw_array(n: int = 64) -> Any:
        return cp.asarray(rng.random(n, dtype=np.float32)) * np.float32(0.5)

    if program_key in "AC":
        return draw_array(int(rng.integers(33, 65))), int(rng.integers(14, 20)) if large else int(
            rng.integers(1, 4)
        )
    array_count = 5 if large else int(rng.integers(1, 3))
    if program_key == "D":
        return ([draw_array() for _ in range(array_count)],)
    n = 1 << 16 if large else int(rng.integers(1, 100))
    return [draw_array(n) for _ in range(array_count)], rng.random(n, dtype=np.float32)


def run_pair(answer: Any, program_key: str, seed: int) -> dict[str, Any]:
    """Run the original and the learner's program in the answer's process, and return their results and
    counts.
    """
    if not isinstance(answer, dict) or program_key not in answer:
        return {"shape": False}
    cause_and_program = answer[program_key]
    if (
        not isinstance(cause_and_program, list | tuple)
        or len(cause_and_program) != 2
        or not callable(cause_and_program[1])
    ):
        return {"shape": False}
    cause, program = cause_and_program
    run_outcome: dict[str, Any] = {
        "shape": True,
        "cause": cause if isinstance(cause, str) else type(cause).__name__,
    }
    slow_program = PROGRAMS[program_key][1]
    for is_large in (False, True):
        for result_key, program_version in (("right", slow_program), ("result", program)):
            with check_streams() as hazards, session.cp().cuda.Stream(non_blocking=True):
                call_values = arguments(
                    program_key, is_large, seed
                )  # still being written when the program begins
                result = call_here(
                    program_version, *call_values, name=program_key, shown=f"program {program_key}"
                )
                run_outcome[f"{result_key}/{is_large}"] = _copy_to_host(result)
                run_outcome[f"{result_key} left/{is_large}"] = _copy_to_host(list(call_values))
                host_arrays = [call_value for call_value in call_values if isinstance(call_value, np.ndarray)]
        run_outcome[f"hazards/{is_large}"] = [
            f"nothing orders {finding.first.name} and {finding.second.name}, which use the same memory"
            for finding in hazards.findings
        ]
    for result_key, program_version in (("before", slow_program), ("after", program)):
        call_values = arguments(program_key, True, seed + 1)
        # Other numbers in the same host arrays: results that the program has kept are wrong.
        call_values = (*(_overwrite_host_array(host_arrays, call_value) for call_value in call_values),)
        session.cp().cuda.Device().synchronize()
        with timeline() as recording, session.cp().cuda.Stream(non_blocking=True) as stream:
            result = program_version(*call_values)
            stream.synchronize()
        run_outcome[f"{result_key} again"] = _copy_to_host(result)
        run_outcome[result_key] = recording.record.duration_ns
        run_outcome[f"{result_key}/counts"] = _count_operations(recording.record)
    return run_outcome


def _overwrite_host_array(host_arrays: list[Any], new_value: Any) -> Any:
    """Overwrite the contents of a host array that belongs to the program; return other values unchanged."""
    for array in host_arrays:
        if isinstance(new_value, np.ndarray) and array.shape == new_value.shape:
            array[...] = new_value
            return array
    return new_value


def _copy_to_host(result: Any) -> Any:
    """Copy the arrays of a result to the host; copies of device arrays are wrapped in `DeviceContents`."""
    if isinstance(result, list | tuple):
        return [_copy_to_host(result_item) for result_item in result]
    if isinstance(result, np.ndarray):
        return result.copy()
    return DeviceContents(result.get()) if isinstance(result, session.cp().ndarray) else result


def _count_operations(record: Timeline) -> dict[str, int]:
    """Return the counts of a timeline that show whether each cause of waits is still present."""
    kernels = [activity for activity in record.activities if activity.kind == "CONCURRENT_KERNEL"]
    graph_ids = {kernel.graph_id for kernel in kernels if kernel.graph_id}
    host_waits = [wait for wait in record.synchronizations if wait.type != "STREAM_WAIT_EVENT"]
    return {
        "launches": len([kernel for kernel in kernels if not kernel.graph_id]) + len(graph_ids),
        "copies": sum(activity.size_bytes for activity in record.activities if activity.copy_kind == "HtoD"),
        "waits": len(host_waits),
        "one stream": len({kernel.stream_id for kernel in kernels if kernel.name in stages.STAGE_NAMES}),
    }


def judge_timelines(answer: Answer) -> str:
    """Judge a dict with the cause of the waits in each program, and a faster version of each program."""
    for program_key, (cause, _) in PROGRAMS.items():
        run_outcome = answer.ask(
            run_pair, program_key, int(answer.rng.integers(1 << 30)), shown=f"program {program_key}"
        )
        if not run_outcome["shape"]:
            raise NotYet(
                'return a dictionary of four pairs, {"A": (cause, program), "B": …}. A cause is one of '
                f"{', '.join(short_repr(name) for name in MAX_DURATION_OF_CAUSE)}, and a program is a "
                "function."
            )
        _judge_pair(program_key, cause, run_outcome)
    return "four causes, four remedies, and four new timelines that show it."


def _judge_pair(program_key: str, cause: str, outcome: dict[str, Any]) -> None:
    if outcome["cause"] not in MAX_DURATION_OF_CAUSE:
        causes_text = ", ".join(f'"{cause_name}"' for cause_name in MAX_DURATION_OF_CAUSE)
        raise NotYet(
            f"the cause of program {program_key}, {short_repr(outcome['cause'])}, "
            f"is not one of {causes_text}."
        )
    if outcome["cause"] != cause:
        raise NotYet(
            f'"{outcome["cause"]}" is not the cause of program {program_key}: {_CAUSE_TEXTS[cause]}.'
        )
    for is_large in (False, True):
        _judge_results(program_key, outcome[f"result/{is_large}"], outcome[f"right/{is_large}"])
        if not _are_equal(outcome[f"result left/{is_large}"], outcome[f"right left/{is_large}"]):
            raise NotYet(
                f"the cause of program {program_key} is right, but your program leaves other "
                "values in its arguments "
                "than the given program does. Change only the arguments that the given program changes."
            )
        if outcome[f"hazards/{is_large}"]:
            raise NotYet(
                f"program {program_key} has a race: {outcome[f'hazards/{is_large}'][0]}. "
                "Let streams wait for each other with events, before and after the work."
            )
    _judge_results(program_key, outcome["after again"], outcome["before again"])
    counts_before = outcome["before/counts"]
    counts_after = outcome["after/counts"]
    remaining_causes = {
        "launches": counts_after["launches"] > counts_before["launches"] // 4,
        "copies": counts_after["copies"] > counts_before["copies"] // 4,
        "waits": counts_after["waits"] > 3,
        "one stream": counts_after["one stream"] < 2,
    }
    speedup = outcome["before"] / outcome["after"]
    speedup_text = "as fast as before" if 0.95 < speedup < 1.05 else f"{speedup:.2g} times as fast as before"
    if remaining_causes[cause]:
        evidence = {
            "launches": f"the host still launches {counts_after['launches']} times, compared with "
            f"{counts_before['launches']}",
            "copies": f"{counts_after['copies']:,} bytes still go to the device, compared with "
            f"{counts_before['copies']:,}",
            "waits": f"the host still waits {counts_after['waits']} times, compared with "
            f"{counts_before['waits']}",
            "one stream": "its long kernels still share one stream",
        }
        raise NotYet(
            f'program {program_key}: the cause "{cause}" is right, but your program still has this cause: '
            f"{evidence[cause]}. The program runs {speedup_text}."
        )
    if outcome["after"] > MAX_DURATION_OF_CAUSE[cause] * outcome["before"]:
        raise NotYet(
            f'program {program_key}: your program no longer has the cause "{cause}", but its '
            f"timeline is hardly shorter. The program runs {speedup_text}. Look at the new "
            "timeline, which has another cause."
        )


def _judge_results(program_key: str, result: Any, expected: Any) -> None:
    if not _are_equal(result, expected):
        difference_text = (
            "in another place: numbers must stay numbers, and device arrays must stay on the device."
            if _are_equal(_read_contents(result), _read_contents(expected))
            else "not the same as that of the old program."
        )
        raise NotYet(
            f"the cause of program {program_key} is right, but the result of "
            f"your program is {difference_text}"
        )


def _read_contents(result: Any) -> Any:
    """Return the contents of arrays that are on the host or on a device."""
    if isinstance(result, list | tuple):
        return [_read_contents(result_item) for result_item in result]
    return result.values if isinstance(result, DeviceContents) else result


def _are_equal(result: Any, expected: Any) -> bool:
    if isinstance(result, DeviceContents) and isinstance(expected, DeviceContents):
        return result.values.dtype == expected.values.dtype and _are_equal(result.values, expected.values)
    if isinstance(expected, list):
        return (
            isinstance(result, list | tuple)
            and len(result) == len(expected)
            and all(map(_are_equal, result, expected))
        )
    if not isinstance(result, float | int | np.ndarray | np.generic):
        return False
    return np.shape(result) == np.shape(expected) and bool(np.allclose(result, expected, rtol=1e-5))


TIMELINES_EXERCISE = PythonExercise(
    "09-timelines", "Four timelines", judge_timelines, level="core", kind="repair", limit_s=10.0
)

EXERCISES = (TIMELINES_EXERCISE, NVTX_EXERCISE, FIRST_KERNEL_EXERCISE)
