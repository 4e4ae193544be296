"""Exercises of notebook 09 on time: causes and their remedy, ranges that can be asked, what to mend first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.profiling.profile import ProfileReport, profile
from gpulab.lab.streams import check_streams
from gpulab.lab.timeline import timeline
from gpulab.processes.values import OnDevice
from gpulab_course.content.n09_profiling.times import stages
from gpulab_course.teach.judge import Answer, NotYet, PythonExercise, as_float, is_number, parts_of, spelt
from gpulab_course.teach.judge.python.functions import call_here
from virtualgpu.records import Timeline

# 09-nvtx

_ANNOTATED = "annotated(layers)"


# Ways to call layers, in turn: with a number by name, by position, all by name, with more of either.
_CALLS: tuple[Callable[[Any, float], tuple[tuple[Any, ...], dict[str, Any]]], ...] = (
    lambda x, gain: ((x,), {"gain": gain}),
    lambda x, gain: ((x, gain), {}),
    lambda x, gain: ((), {"x": x, "gain": gain}),
    lambda x, gain: ((x, gain, None, "causal"), {"training": True}),
)


def _given(number: int, x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _CALLS[number % len(_CALLS)](x, number + 0.5)


def _noted(args: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Return the arguments of a layer without the array, as text."""
    return f"{args[1:]} {sorted((name, value) for name, value in named.items() if name != 'x')}"


class _Stopped(BaseException):
    """An exception like Ctrl-C, which is not an `Exception`."""


class _Layers:
    """Layers that note what they were called with, and in which threads."""

    def __init__(
        self,
        rounds: list[int],
        broken: int = -1,
        barrier: threading.Barrier | None = None,
        error: type[BaseException] = LookupError,
    ) -> None:
        self.ran: list[int] = []  # in which threads
        self.given: list[str] = []
        self._error = error
        made: dict[int, Callable[..., Any]] = {}
        self.functions = []
        for number, turns in enumerate(rounds):
            # Layers of as many rounds are the same function: weights that are shared.
            if turns not in made or number == broken:
                made[turns] = self._layer(turns, number == broken, barrier)
            self.functions.append(made[turns])

    def _layer(self, turns: int, broken: bool, barrier: threading.Barrier | None) -> Callable[..., Any]:
        name = stages.NAMES[turns % len(stages.NAMES)]

        def layer(*args: Any, **named: Any) -> Any:
            x = args[0] if args else named["x"]
            if barrier is not None:
                barrier.wait(timeout=5)
            stages.run(name, x, turns)
            if barrier is not None:
                barrier.wait(timeout=5)
            self.given.append(_noted(args, named))
            self.ran.append(threading.get_ident())
            if broken:
                raise self._error("this layer has no weights")
            return x

        layer.__name__ = name
        return layer


def nvtx_seen(
    answer: Any, rounds: list[int], broken: int, threads: int, stopped: bool = False
) -> dict[str, Any]:
    """Run a model's layers with the answer, in its own process; return what a profile shows and the truth."""
    cp = session.cp()
    barrier = threading.Barrier(threads) if threads > 1 else None
    error = _Stopped if stopped else LookupError
    layers = _Layers(rounds, broken, barrier, error)
    arrays = [cp.full(64, 0.3, cp.float32) for _ in range(threads)]
    for turns in sorted(set(rounds)):  # compiled before
        stages.run(stages.NAMES[turns % len(stages.NAMES)], arrays[0], 1)
    cp.cuda.Device().synchronize()
    made = call_here(answer, list(layers.functions), name="annotated", shown=_ANNOTATED)
    told: dict[str, Any] = {"made": -1 if not isinstance(made, list | tuple) else len(made), "notes": []}
    if told["made"] != len(rounds) or not all(map(callable, made)):
        return told
    spans: list[tuple[int, int, int, int]] = []
    clock = session.backend().host_ns

    def through(x: Any) -> None:
        for number, layer in enumerate(made):
            begun = clock()
            try:
                args, named = _given(number, x)
                if layer(*args, **named) is not x:
                    told["notes"].append("result")
                if number == broken:
                    told["notes"].append("swallowed")
            except (LookupError, _Stopped) as raised:
                own = number == broken and type(raised) is error
                if not own or str(raised.args[0]) != "this layer has no weights":
                    raise
            spans.append((number, threading.get_ident(), begun, clock()))

    with profile() as report:
        if threads == 1:
            through(arrays[0])
        else:
            workers = [threading.Thread(target=_kept, args=(through, x, told)) for x in arrays]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        with session.cupyx().profiler.time_range("afterwards"):
            stages.run(stages.NAMES[0], arrays[0], 1)
    record = report.record
    ran = report.timeline.record
    operations = {a.correlation_id: a for a in ran.activities}
    given = [
        (call.thread, call.start_ns, operations[call.correlation_id])
        for call in ran.calls
        if call.correlation_id in operations
    ]
    last = max((r for r in ran.ranges if r.name == "afterwards"), key=lambda r: r.start_ns)
    right = [0] * len(rounds)
    for number, thread, begun, ended in spans:
        mine = [a for of, at, a in given if begun <= at < ended and (threads == 1 or of == thread)]
        right[number] += sum(a.duration_ns for a in mine)
    if set(layers.ran) - {thread for _, thread, _, _ in spans}:
        told["notes"].append("elsewhere")
    told |= {
        "right": right,
        "ranges": {r.key: (r.count, r.device_time_total_ns or 0, r.operations) for r in record.ranges},
        "waits": sum(w.count for w in record.waits),
        "given": sorted(layers.given),
        "open": sorted({r.name for r in ran.ranges if r.end_ns > last.start_ns and r is not last}),
    }
    return told


def _kept(through: Callable[[Any], None], x: Any, told: dict[str, Any]) -> None:
    try:
        through(x)
    except Exception as error:
        told["notes"].append(f"raised {type(error).__name__}: {error}")


def judge_nvtx(answer: Answer) -> str:
    """``annotated(layers)``: the same layers, each in an NVTX range of its own name."""
    rng = answer.rng
    turns = [int(n) for n in rng.choice(range(20, 400), 12, replace=False)]
    shared = [turns[0], turns[1], turns[0], turns[2]]
    broken = int(rng.integers(0, 3))
    for rounds, at, threads, stopped, what in (
        (shared, -1, 1, False, "four layers, of which 0 and 2 are the same function"),
        (turns, -1, 1, False, "twelve layers"),
        (turns[:4], broken, 1, False, f"four layers, of which layer {broken} raises an exception"),
        (turns[:4], broken, 1, True, f"four layers, of which layer {broken} is stopped, as by Ctrl-C"),
        (turns[3:6], -1, 2, False, "three layers in two threads at once"),
    ):
        told = answer.ask(nvtx_seen, rounds, at, threads, stopped, shown=_ANNOTATED)
        _judge_nvtx(told, rounds, at, threads, what)
    return "each layer has a range of its own, on its own thread, that ends whatever happens."


def _judge_nvtx(told: dict[str, Any], rounds: list[int], broken: int, threads: int, what: str) -> None:
    if told["made"] != len(rounds) or "right" not in told:
        raise NotYet(f"{_ANNOTATED} should return a list of {len(rounds)} functions, one for each layer.")
    notes = told["notes"]
    raised = [note for note in notes if note.startswith("raised")]
    if raised:
        raise NotYet(f"with {what}, a layer that was given back {raised[0]}.")
    if "elsewhere" in notes:
        raise NotYet(
            f"with {what}, the layers run in a thread of their own: a range holds what its own thread gives "
            "the device. Call the layer where you begin the range."
        )
    if "swallowed" in notes:
        raise NotYet(f"with {what}, the exception does not reach the caller: end the range, and let it pass.")
    if told["given"] != sorted([_noted(*_given(number, None)) for number in range(len(rounds))] * threads):
        raise NotYet(
            f"with {what}, the layers do not get what they are called with: each is to be called once, with "
            "all arguments, by position and by name."
        )
    if "result" in notes:
        raise NotYet(f"with {what}, what a layer returns does not come back.")
    _judge_ranges(told, rounds, broken, threads, what)
    if told["waits"]:
        raise NotYet(
            f"with {what}, the host waits {told['waits']} times for the device: whoever profiles the model "
            "slows it down. Work belongs to the range in which it is given; nobody has to wait."
        )


def _judge_ranges(told: dict[str, Any], rounds: list[int], broken: int, threads: int, what: str) -> None:
    ranges = told["ranges"]
    right = told["right"]
    names = [f"layer {number}" for number in range(len(rounds))]
    missing = [name for name in names if name not in ranges]
    if missing and names[-1] in ranges and len(missing) == len(names) - 1:
        raise NotYet(
            f'with {what}, all ranges have the name "{names[-1]}": a function made in a loop sees the '
            "loop's last variables. Make it in a function of its own, which takes the number and the layer."
        )
    if missing:
        others = [f'"{name}"' for name in ranges if name != "afterwards"]
        there = ", ".join(others[:4]) + (" …" if len(others) > 4 else "") or "none"
        raise NotYet(
            f'with {what}, no range has the name "{missing[0]}" (there {"are" if there != "none" else "is"} '
            f"{there}): number them from 0, by place, since two layers may be one function."
        )
    for number, name in enumerate(names):
        count, device_ns, operations = ranges[name]
        if count != threads:
            raise NotYet(f'with {what}, "{name}" is begun {count} times, not {threads}.')
        if right[number] and not operations:
            raise NotYet(
                f'with {what}, no work is given to the device in "{name}": begin the range before the layer '
                "is called, and end it when the call has returned."
            )
    if told["open"]:
        why = "RangePop ends a range of its own thread only" if broken < 0 else "an exception skips its end"
        raise NotYet(
            f'with {what}, "{told["open"][0]}" is never ended: {why}. End it in a finally, or use a with '
            "block."
        )
    for number, name in enumerate(names):
        device_ns = ranges[name][1]
        if device_ns != right[number]:
            raise NotYet(
                f'with {what}, the device\'s time in "{name}" is told as {device_ns:,} ns, and the layer '
                f"took {right[number]:,}: other layers' work is given in it, or not all of its own."
            )


NVTX = PythonExercise("09-nvtx", "Time in layer 2", judge_nvtx)


# 09-first

_CLOSE = 0.02
Stage = tuple[str, int, int, int]
"""Kernel, rounds of a call, calls, stream (0 or 1)."""


def staged(steps: list[Stage], host_us: float = 0.0) -> None:
    """Give stages to two streams, one after the other in each, let the host be busy, and wait for all."""
    cp = session.cp()
    x = cp.full(64, 0.3, cp.float32)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    for name, rounds, calls, number in steps:
        with streams[number]:
            for _ in range(calls):
                stages.run(name, x, rounds)
    for stream in streams:
        stream.synchronize()
    session.virtual_side().machine.clock.advance(1000 * host_us)


def first_seen(answer: Any, steps: list[Stage], host_us: float, faster: dict[str, float]) -> dict[str, Any]:
    """Run the answer in its own process; return its choice and the gain from each faster kernel."""
    report = profile(staged, steps, host_us, warmup=1)
    found = call_here(answer, report, dict(faster), name="first", shown="first(p, faster)")
    least = profile(staged, [(name, 0, 1, 0) for name in stages.NAMES], warmup=1).record
    walls = {}
    for name in stages.NAMES:
        # With fewer rounds a call takes a part of its time: but for what it takes without any.
        call, none = (p.kernel(name).device_time_ns for p in (report.record, least))
        part = (call / faster[name] - none) / (call - none)
        mended = [
            (of, round(rounds * part) if of == name else rounds, calls, number)
            for of, rounds, calls, number in steps
        ]
        walls[name] = profile(staged, mended, host_us).record.wall_ns
    return {"found": found, "wall": report.record.wall_ns, "walls": walls, "kernels": _rows(report)}


def _rows(report: ProfileReport) -> dict[str, tuple[int, int]]:
    return {each.key: (each.count, each.device_time_total_ns) for each in report.record.kernels}


def staged_drawn(rng: np.random.Generator) -> list[tuple[str, list[Stage], float, dict[str, float]]]:
    """Draw programs in which the most conspicuous kernel is not the one to improve."""

    def names() -> list[str]:
        return [str(name) for name in rng.permutation(stages.NAMES)]

    def turns(rounds: float) -> int:
        return int(rounds * rng.uniform(0.95, 1.05))

    a, b, c = names()
    long = [(a, turns(30_000), 1, 0), (b, turns(4_000), 30, 0), (c, turns(2_000), 4, 0)]
    d, e, f = names()
    one, other = (int(n) for n in rng.permutation(2))
    slack = [(d, turns(9_000), 10, one), (e, turns(3_000), 9, one), (f, turns(6_000), 1, other)]
    g, h, i = names()
    full = [(g, turns(9_000), 12, 0), (h, turns(9_000), 6, 0), (i, turns(2_000), 2, 0)]
    j, k, m = names()
    hidden = [(j, turns(8_000), 8, one), (k, turns(7_000), 8, other), (m, turns(4_000), 8, other)]
    r, s, t = names()
    both = [
        (r, turns(9_000), 10, one),
        (s, turns(4_000), 4, other),
        (t, turns(2_000), 3, other),
        (r, turns(9_000), 3, other),
    ]
    n, o, p = names()
    host = [(n, turns(8_000), 6, 0), (o, turns(4_000), 6, 0), (p, turns(10_000), 1, 0)]
    return [
        ("a long kernel beside one of many calls", long, 0.0, {a: 2.0, b: 1.8, c: 4.0}),
        ("a kernel far below its peak that hardly counts", slack, 0.0, {d: 1.6, e: 1.5, f: 20.0}),
        ("the largest share, almost at its peak", full, 0.0, {g: 1.04, h: 3.0, i: 6.0}),
        ("two streams", hidden, 0.0, {j: 8.0, k: 1.3, m: 1.1}),
        ("a kernel that runs in both streams", both, 0.0, {r: 1.5, s: 4.0, t: 8.0}),
        ("a host that is busy, too", host, float(rng.uniform(300, 600)), {n: 2.0, o: 2.5, p: 3.0}),
    ]


def judge_first(answer: Answer) -> str:
    """``first(p, faster)``: the kernel to mend, and how many times as fast the program is then."""
    for what, steps, host_us, faster in staged_drawn(answer.rng):
        told = answer.ask(first_seen, steps, host_us, faster, shown="first(p, faster)")
        _judge_choice(told, faster, f"of a program with {what}")
    return "by what each keeps the program waiting, and by what that buys: Amdahl, on the wall's clock."


def _judge_choice(told: dict[str, Any], faster: dict[str, float], what: str) -> None:
    parts = parts_of(told["found"])
    shown = f"first(p, faster) {what}"
    if parts is None or len(parts) != 2 or not isinstance(parts[0], str) or not is_number(parts[1]):
        raise NotYet(
            f"{shown} returns {spelt(told['found'])}; return the kernel's name, and how many times as fast "
            "the program is when that kernel is mended."
        )
    name = str(parts[0])
    times = as_float(parts[1])
    walls = told["walls"]
    wall = told["wall"]
    kernels = told["kernels"]
    if name not in walls:
        raise NotYet(f"{shown} returns {spelt(name)}; its kernels are {', '.join(sorted(walls))}.")
    best = min(walls, key=walls.__getitem__)
    if name != best:
        raise NotYet(
            f'{shown} returns "{name}". Mended, it makes the program {wall / walls[name]:.3g} times as fast, '
            f'"{best}" {wall / walls[best]:.3g} times{_eye(name, walls, kernels, faster)}.'
        )
    right = wall / walls[best]
    if not np.isclose(times, right, rtol=_CLOSE):
        raise NotYet(
            f'{shown}: "{name}" is right, and {times:.4g} times as fast is not: '
            + _formula(times, told, name, faster)
        )


def _eye(
    name: str, walls: dict[str, float], kernels: dict[str, tuple[int, int]], faster: dict[str, float]
) -> str:
    """Return a reason why a wrong choice looks right, as feedback."""
    most = {key: kernels[key][1] for key in walls}
    if name == max(faster, key=faster.__getitem__) and most[name] < max(most.values()):
        return ": how far a kernel is below its peak says nothing of how long the program waits for it"
    if name == max(most, key=most.__getitem__):
        gain = "what can be gained of it counts, and what runs behind other work keeps nobody waiting"
        return f": it has the largest share of the GPU's time, but {gain}"
    if name == max(walls, key=lambda key: kernels[key][1] / kernels[key][0]):
        return ": it takes longest a call, but it is called less often"
    return ": ask of each kernel how much of the program's time goes, when it is mended"


def _formula(times: float, told: dict[str, Any], name: str, faster: dict[str, float]) -> str:
    wall = told["wall"]
    total = told["kernels"][name][1]
    kernels = told["kernels"]
    gpu = sum(ns for _, ns in kernels.values())
    speed = faster[name]
    kept = {
        "that is what the kernel gains; the rest of the program stays as it is.": speed,
        "that is the share of the GPU's time; the host's part, and what runs side by side, are missing: "
        "divide by the program's wall time.": 1 / (1 - total / gpu * (1 - 1 / speed)),
        "a part of its calls runs behind other work: only what the program waits for is saved.": wall
        / (wall - total * (1 - 1 / speed)),
        "that is the share of the time that is saved; divide the time before by the time after.": 1
        - told["walls"][name] / wall,
        "that is the time after by the time before; it is the other way round.": told["walls"][name] / wall,
        "mended, the kernel still takes its time divided by its factor: it does not go away.": wall
        / (wall - total),
    }
    for said, value in kept.items():
        if np.isclose(times, value, rtol=_CLOSE / 2):
            return said
    return "divide the program's time by what is left of it, when the kernel's part is divided by its factor."


FIRST = PythonExercise("09-first", "Which kernel first?", judge_first, level="warm-up", limit_s=8.0)


# 09-timelines

# Causes of a program's waits, each with the part of its time that may remain without the cause.
CAUSES = {"launches": 0.5, "copies": 0.6, "waits": 0.8, "one stream": 0.9}
_FAULTS = {
    "launches": "its kernels are shorter than the calls that launch them, so the host sets the pace",
    "copies": "most of its time goes into a copy, and what is copied does not change",
    "waits": "each round the host waits for the device, and then the device for the host",
    "one stream": "pieces of work that need nothing of each other run one after the other on a few SMs",
}


def warm_up(x: Any, rounds: int) -> Any:
    """Program A: many short stages of one array, which is changed and returned."""
    for _ in range(rounds):
        stages.run("embed", x, 20)
    return x


def weigh(parts: list[Any], weights: Any) -> list[Any]:
    """Program B: each of some device arrays times the weights, an array of the host."""
    return [part * session.cp().asarray(weights) for part in parts]


def follow(x: Any, rounds: int) -> list[float]:
    """Program C: stages of one array, which is changed, and its mean after each."""
    means = []
    for _ in range(rounds):
        stages.run("gate", x, 500)
        means.append(float(x.mean()))
    return means


def combine(parts: list[Any]) -> Any:
    """Program D: a long stage for each of some arrays, then their sum."""
    for part in parts:
        stages.run("mix", part, 5_000)
    return sum(parts[1:], start=parts[0])


PROGRAMS: dict[str, tuple[str, Callable[..., Any]]] = {
    "A": ("launches", warm_up),
    "B": ("copies", weigh),
    "C": ("waits", follow),
    "D": ("one stream", combine),
}


def arguments(key: str, large: bool, seed: int) -> tuple[Any, ...]:
    """Return arguments for a program."""
    cp = session.cp()
    rng = np.random.default_rng(seed)

    def array(n: int = 64) -> Any:
        return cp.asarray(rng.random(n, dtype=np.float32)) * np.float32(0.5)

    if key in "AC":
        return array(int(rng.integers(33, 65))), int(rng.integers(14, 20)) if large else int(
            rng.integers(1, 4)
        )
    count = 5 if large else int(rng.integers(1, 3))
    if key == "D":
        return ([array() for _ in range(count)],)
    n = 1 << 16 if large else int(rng.integers(1, 100))
    return [array(n) for _ in range(count)], rng.random(n, dtype=np.float32)


def tried(answer: Any, key: str, seed: int) -> dict[str, Any]:
    """Run the answer in its own process: the cause that it names for a program, and its new program."""
    if not isinstance(answer, dict) or key not in answer:
        return {"shape": False}
    pair = answer[key]
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not callable(pair[1]):
        return {"shape": False}
    said, program = pair
    told: dict[str, Any] = {"shape": True, "cause": said if isinstance(said, str) else type(said).__name__}
    slow = PROGRAMS[key][1]
    for large in (False, True):
        for of, run in (("right", slow), ("result", program)):
            with check_streams() as found, session.cp().cuda.Stream(non_blocking=True):
                given = arguments(key, large, seed)  # still being written when the program begins
                result = call_here(run, *given, name=key, shown=f"program {key}")
                told[f"{of}/{large}"] = _on_host(result)
                told[f"{of} left/{large}"] = _on_host(list(given))
                known = [each for each in given if isinstance(each, np.ndarray)]
        told[f"hazards/{large}"] = [
            f"nothing orders {each.first.name} and {each.second.name}, which use the same memory"
            for each in found.findings
        ]
    for of, run in (("before", slow), ("after", program)):
        given = arguments(key, True, seed + 1)
        # Other numbers, in arrays of the host that were there before: nothing that was kept is right again.
        given = (*(_refilled(known, each) for each in given),)
        session.cp().cuda.Device().synchronize()
        with timeline() as t, session.cp().cuda.Stream(non_blocking=True) as stream:
            result = run(*given)
            stream.synchronize()
        told[f"{of} again"] = _on_host(result)
        told[of] = t.record.duration_ns
        told[f"{of}/counts"] = _counts(t.record)
    return told


def _refilled(known: list[Any], given: Any) -> Any:
    """Return the array that a program knows, with new contents; return anything else unchanged."""
    for each in known:
        if isinstance(given, np.ndarray) and each.shape == given.shape:
            each[...] = given
            return each
    return given


def _on_host(result: Any) -> Any:
    """Return the present contents of arrays, with those of device arrays marked as `OnDevice`."""
    if isinstance(result, list | tuple):
        return [_on_host(each) for each in result]
    if isinstance(result, np.ndarray):
        return result.copy()
    return OnDevice(result.get()) if isinstance(result, session.cp().ndarray) else result


def _counts(record: Timeline) -> dict[str, int]:
    kernels = [a for a in record.activities if a.kind == "CONCURRENT_KERNEL"]
    graphs = {a.graph_id for a in kernels if a.graph_id}
    waits = [w for w in record.synchronizations if w.type != "STREAM_WAIT_EVENT"]
    return {
        "launches": len([a for a in kernels if not a.graph_id]) + len(graphs),
        "copies": sum(a.size_bytes for a in record.activities if a.copy_kind == "HtoD"),
        "waits": len(waits),
        "one stream": len({a.stream_id for a in kernels if a.name in stages.NAMES}),
    }


def judge_timelines(answer: Answer) -> str:
    """``{"A": (cause, program), ...}``: what each of four programs waits for, and the program without it."""
    for key, (cause, _) in PROGRAMS.items():
        told = answer.ask(tried, key, int(answer.rng.integers(1 << 30)), shown=f"program {key}")
        if not told["shape"]:
            raise NotYet(
                'give a dictionary of four pairs, {"A": (cause, program), "B": …}: a cause is one of '
                f"{', '.join(spelt(each) for each in CAUSES)}, a program a function."
            )
        _judge_mended(key, cause, told)
    return "four causes, four remedies, and four new timelines that show it."


def _judge_mended(key: str, cause: str, told: dict[str, Any]) -> None:
    if told["cause"] not in CAUSES:
        known = ", ".join(f'"{each}"' for each in CAUSES)
        raise NotYet(f"the cause of program {key}, {spelt(told['cause'])}, is none of {known}.")
    if told["cause"] != cause:
        raise NotYet(f'program {key} does not wait for "{told["cause"]}": {_FAULTS[cause]}.')
    for large in (False, True):
        _judge_results(key, told[f"result/{large}"], told[f"right/{large}"])
        if not _same(told[f"result left/{large}"], told[f"right left/{large}"]):
            raise NotYet(
                f"the cause of program {key} is right, and its arguments hold something else afterwards than "
                "before it was mended: change what it changed, and nothing else."
            )
        if told[f"hazards/{large}"]:
            raise NotYet(
                f"program {key} is faster, and a race: {told[f'hazards/{large}'][0]}. Let streams wait for "
                "each other by events, there and back."
            )
    _judge_results(key, told["after again"], told["before again"])
    before = told["before/counts"]
    after = told["after/counts"]
    left = {
        "launches": after["launches"] > before["launches"] // 4,
        "copies": after["copies"] > before["copies"] // 4,
        "waits": after["waits"] > 3,
        "one stream": after["one stream"] < 2,
    }[cause]
    gain = told["before"] / told["after"]
    times = "as fast as before" if 0.95 < gain < 1.05 else f"{gain:.2g} times as fast as before"
    if left:
        counted = {
            "launches": f"the host still launches {after['launches']} times, as against {before['launches']}",
            "copies": f"{after['copies']:,} bytes still go to the device, as against {before['copies']:,}",
            "waits": f"the host still waits {after['waits']} times, as against {before['waits']}",
            "one stream": "its long kernels still share one stream",
        }[cause]
        raise NotYet(f'program {key}: "{cause}" is right, and it is still there: {counted}; it runs {times}.')
    if told["after"] > CAUSES[cause] * told["before"]:
        raise NotYet(
            f'program {key}: "{cause}" is mended, and its new timeline is hardly shorter: it runs {times}. '
            "Look at it again: something else takes the place of what is gone."
        )


def _judge_results(key: str, found: Any, right: Any) -> None:
    if not _same(found, right):
        which = "where" if _same(_values(found), _values(right)) else "what"
        raise NotYet(
            f"the cause of program {key} is right, and what it returns now is not {which} it was"
            + (": numbers stay numbers, and arrays of the device on the device." if which == "where" else ".")
        )


def _values(result: Any) -> Any:
    """Return the contents of arrays, on the host or on a device."""
    if isinstance(result, list | tuple):
        return [_values(each) for each in result]
    return result.values if isinstance(result, OnDevice) else result


def _same(found: Any, right: Any) -> bool:
    if isinstance(found, OnDevice) and isinstance(right, OnDevice):
        return found.values.dtype == right.values.dtype and _same(found.values, right.values)
    if isinstance(right, list):
        return isinstance(found, list | tuple) and len(found) == len(right) and all(map(_same, found, right))
    if not isinstance(found, float | int | np.ndarray | np.generic):
        return False
    return np.shape(found) == np.shape(right) and bool(np.allclose(found, right, rtol=1e-5))


TIMELINES = PythonExercise(
    "09-timelines", "Four timelines", judge_timelines, level="core", kind="repair", limit_s=10.0
)

EXERCISES = (TIMELINES, NVTX, FIRST)
