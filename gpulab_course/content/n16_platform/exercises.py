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
from gpulab_course.teach.judge import Answer, NotYet, PythonExercise, call, parts_of, spell, spelt
from gpulab_course.teach.judge.python.counts import QUERIES
from gpulab_course.teach.judge.python.functions import equals, must_be_a_function
from virtualgpu.records.device.images import Capability, Part, chosen

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

_CUBINS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
_PTX = ("compute_75", "compute_80", "compute_86", "compute_89", "compute_90", "compute_100", "compute_120")
_OWN = (
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
# What a table of the ones above would lack. Not 8.7, a Jetson's: it runs no machine code but its own.
_OTHER_TARGETS = ("sm_70", "sm_110", "sm_121", "sm_103a", "compute_70", "compute_103", "compute_110")
_OTHERS = ((7, 0), (11, 0))


def taken(targets: Iterable[str], capability: Capability) -> str | None:
    """Return the target that a driver uses for a device; None if there is none."""
    held = {Part.of(target): target for target in targets}
    part = chosen(held, capability)
    return held[part] if part else None


def _why_taken(targets: Sequence[str], capability: Capability, found: Any, wanted: str | None) -> str:
    """Return the feedback for a wrong choice."""
    if found is not None and not (isinstance(found, str) and found in targets):
        return "Return one of the targets, or None."
    if found is None:
        part = Part.of(wanted or "")
        if part.kind == "PTX" and not part.suffix:
            return "PTX without a letter runs on every later device, of whatever major version."
        if part.suffix == "f":
            return "With an f it runs on its own minor version and on later ones of the same major version."
        if part.suffix:
            return "With an a it runs on the device that it names."
        return "Machine code runs on its own minor version and on later ones of the same major version."
    part = Part.of(found)
    if part.runs_on(capability):
        if part.kind == "PTX" and wanted and Part.of(wanted).kind == "cubin":
            return "Machine code that fits comes before any PTX."
        return "Of several that fit, the newest is taken; compare numbers, not letters."
    if part.suffix == "f" and part.capability[0] != capability[0]:
        return "An f ties it to the major version that it names, PTX as well."
    if part.suffix == "a" and part.capability != capability:
        return "An a ties it to the one compute capability that it names, PTX as well."
    if part.capability > capability:
        return "What is made for a newer device does not run on an older one, minor versions among them."
    return "Machine code does not cross to another major version; that takes PTX."


def judge_matrix(answer: Answer) -> str:
    """``taken(targets, capability)``: what a driver loads of a program for a device."""
    must_be_a_function("taken", answer.is_function, answer.kind)
    rng = answer.rng
    single = [([target], capability) for target in (*_CUBINS, *_PTX, *_OWN) for capability in _CAPABILITIES]
    asked: list[tuple[list[str], Capability]] = [single[n] for n in rng.permutation(len(single))]
    asked += [(["sm_80", "sm_86"], (8, 9)), (["sm_90", "compute_100"], (10, 0)), ([], (9, 0))]
    asked += [(["compute_100", "compute_90", "compute_75"], (12, 0)), (["compute_90a", "sm_86"], (10, 0))]
    asked += [(["sm_80", "compute_86", "compute_75"], (8, 9)), (["sm_100", "compute_103"], (10, 3))]
    asked += [(["compute_80", "sm_80"], (8, 6)), (["sm_90a", "compute_80"], (10, 0))]
    asked += [(["sm_100f", "sm_103"], (10, 3)), (["compute_120f", "compute_100"], (12, 1))]
    asked += [(["sm_100f", "compute_103"], (10, 3)), (["compute_100f", "compute_90"], (12, 0))]
    for _ in range(40):
        pool = list(rng.permutation([*_CUBINS, *_PTX] if rng.random() < 0.6 else [*_PTX, *_OWN]))
        targets = [str(name) for name in pool[: int(rng.integers(2, 6))]]
        if len({t.rstrip("af") for t in targets}) == len(targets):
            asked.append((targets, _CAPABILITIES[int(rng.integers(len(_CAPABILITIES)))]))
    targets_known = (*_CUBINS, *_PTX, *_OWN, *_OTHER_TARGETS)
    all_known = (*_CAPABILITIES, *_OTHERS)
    others = [
        ([target], capability)
        for target in targets_known
        for capability in all_known
        if target in _OTHER_TARGETS or capability in _OTHERS
    ]
    asked += [others[n] for n in rng.permutation(len(others))]
    asked += [(["compute_90a", "sm_90"], (9, 0)), (["sm_100", "compute_100a"], (10, 0))]
    for _ in range(20):
        pool = list(rng.permutation([*_CUBINS, *_PTX, *_OTHER_TARGETS[:3], *_OTHER_TARGETS[4:]]))
        capability = all_known[int(rng.integers(len(all_known)))]
        asked.append(([str(name) for name in pool[: int(rng.integers(2, 7))]], capability))
    found = answer.ask(_all_taken, asked, shown="taken(targets, capability)")
    for (targets, capability), got in zip(asked, found, strict=True):
        wanted = taken(targets, capability)
        if not equals(got, wanted):
            raise NotYet(
                f"{spell('taken', (targets, capability))} gives {spelt(got)}, not {spelt(wanted)}. "
                + _why_taken(targets, capability, got, wanted)
            )
    return f"{len(asked)} programs, each on its device: loaded, compiled or refused as a driver would."


def _all_taken(answer: Any, asked: Sequence[tuple[list[str], Capability]]) -> list[Any]:
    return [answer(list(targets), tuple(capability)) for targets, capability in asked]


# 16-wheel


def wheel(capabilities: Sequence[str]) -> list[str]:
    """Return the shortest list of targets that runs on all of these devices at once, and on later devices."""
    known = sorted(tuple(int(part) for part in text.split(".")) for text in capabilities)
    lowest: dict[int, int] = {}
    for major, minor in known:
        lowest.setdefault(major, minor)
    targets = [f"sm_{major}{minor}" for major, minor in lowest.items()]
    return [*targets, f"compute_{known[-1][0]}{known[-1][1]}"]


def judge_wheel(answer: Answer) -> str:
    """``wheel(capabilities)``: targets to build for."""
    must_be_a_function("wheel", answer.is_function, answer.kind)
    rng = answer.rng
    known = [f"{major}.{minor}" for major, minor in _CAPABILITIES]
    cases = [["9.0"], ["8.9", "10.0", "8.0"], ["12.0", "7.5", "9.0"], ["8.9", "8.6"], ["10.3", "9.0", "10.0"]]
    cases += [[str(name) for name in rng.permutation(known)[: int(rng.integers(2, 9))]] for _ in range(8)]
    cases.append([*cases[-1], cases[-1][0]])
    for case in cases:
        found = call(answer, list(case), name="wheel")
        shown = spell("wheel", (case,))
        wanted = wheel(case)
        targets = parts_of(found)
        if targets is None or not all(isinstance(target, str) for target in targets):
            raise NotYet(f"{shown} gives {spelt(found)}: return a list of targets such as 'sm_80'.")
        if targets != wanted:
            raise NotYet(f"{shown} gives {spelt(targets)}. {_why_wheel(case, targets, wanted)}")
    return "one machine code a major version, oldest first, and PTX of the newest for GPUs to come."


def _why_wheel(case: Sequence[str], targets: list[str], wanted: list[str]) -> str:
    try:
        held = [Part.of(target) for target in targets]
    except ValueError as error:
        return str(error)
    ptx = [part for part in held if part.kind == "PTX"]
    if not ptx:
        return "A GPU of a major version to come finds nothing that it can run: PTX is missing."
    newest = Part.of(wanted[-1])
    if [part.number for part in ptx] != [newest.number]:
        return (
            f"One PTX is enough, of the newest: {wanted[-1]}. Versions are numbers: 10.0 comes after 9.0."
            if ptx[-1].number != newest.number
            else f"One PTX is enough: of the newest, {wanted[-1]}."
        )
    if any(part.suffix for part in held):
        return "A letter after the number ties code to one device or to one family."
    for text in case:
        capability = tuple(int(part) for part in text.split("."))
        if not any(part.kind == "cubin" and part.runs_on((capability[0], capability[1])) for part in held):
            return (
                f"{text} has no machine code to run: a major version's lowest minor version serves them all."
            )
    if sorted(targets) == sorted(wanted):
        return "All is there; put it in the order of the numbers, oldest first, PTX last."
    return "More than it takes: one machine code serves all later minor versions of its major version."


# 16-variables

_NAMES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_CACHE_DISABLE",
    "CUPY_TF32",
    "CUPY_GPU_MEMORY_LIMIT",
    "TORCH_USE_CUDA_DSA",
)
_SEEN = ("devices", "launch returns", "cache files", "product", "memory limit", "kernels")
_OTHER = {"as ever": "otherwise", "otherwise": "as ever"}
MOST_RUNS = 60


class Child:
    """A model of new processes whose program depends on hidden variables, read at hidden times.

    Each effect is (what it changes, when it is read): at the ``"start"``, or each time (``"any"``). What
    differs by itself stays the same in the first `quiet` runs, and never much longer afterwards.
    """

    def __init__(self, effects: dict[str, tuple[str, str]], restless: str, quiet: int, seed: int) -> None:
        self._effects = effects
        self._restless = restless
        self.runs = 0
        self._rng = random.Random(seed)
        self._now = "as ever"
        self._stays = quiet

    def __call__(self, before: Sequence[str], late: Sequence[str]) -> dict[str, Any]:
        """Run it once: what it sees, with variables set before it starts and after its first array."""
        self.runs += 1
        if self.runs > 20 * MOST_RUNS:
            raise NotYet(f"verified(run, variables) starts process after process; {MOST_RUNS} are enough.")
        unknown = [name for name in (*before, *late) if name not in _NAMES]
        if unknown:
            raise ValueError(f"There is no variable {unknown[0]!r} here.")
        if not self._stays:
            self._now, self._stays = _OTHER[self._now], self._rng.randint(1, 3)
        self._stays -= 1
        seen: dict[str, Any] = dict.fromkeys(_SEEN, "as ever")
        seen[self._restless] = self._now
        for name, (what, when) in self._effects.items():
            if name in before or (name in late and when == "any"):
                seen[what] = "otherwise" if what != self._restless else seen[what]
        return seen


def _watched(answer: Any, asks: Callable[..., Any]) -> Any:
    def run(before: Any = None, late: Any = None) -> Any:
        return asks(*([str(name) for name in dict(given or {})] for given in (before, late)))

    found = answer(run, list(_NAMES))
    if isinstance(found, dict):
        found = {str(k): list(v) if isinstance(v, (tuple, list)) else v for k, v in found.items()}
    return found


def judge_variables(answer: Answer) -> str:
    """``verified(run, variables)``: what each variable changes, and until when it may be set."""
    must_be_a_function("verified", answer.is_function, answer.kind)
    rng = answer.rng
    for number, quiet in enumerate(rng.permutation((1, 1, 2, 3, 4, 5, 6, 6))):
        restless = str(rng.choice(_SEEN))
        names = [str(name) for name in rng.permutation(_NAMES)]
        idle = int(rng.integers(1, 4))
        places = [str(name) for name in rng.permutation([s for s in _SEEN if s != restless])]
        effects = {
            name: (places[at % 3], "any" if at == 1 or (at > 1 and rng.random() < 0.4) else "start")
            for at, name in enumerate(names[idle:])
        }
        shown = f"verified(run, variables) for program {number + 1}"
        child = Child(effects, restless, int(quiet), int(rng.integers(10**6)))
        found = answer.ask(_watched, shown=shown, back=child)
        if not isinstance(found, dict) or set(found) != set(_NAMES):
            raise NotYet(f"{shown} should return a dict with each of the {len(_NAMES)} variables.")
        for name in _NAMES:
            _compare(shown, name, found[name], effects.get(name), restless)
        if child.runs > MOST_RUNS:
            raise NotYet(f"{shown} starts {child.runs:,} processes; {MOST_RUNS} are enough.")
    return "each variable with what it changes and when it is read, verified in processes of their own."


def _compare(shown: str, name: str, found: Any, effect: tuple[str, str] | None, restless: str) -> None:
    pair = parts_of(found)
    if pair is None or len(pair) != 2:
        raise NotYet(
            f"{shown} gives {spelt(found)} for {name}: return (what changes, when), (None, 'never')."
        )
    what, when = pair
    if effect is None:
        if (what, when) == (None, "never"):
            return
        if what == restless:
            raise NotYet(
                f"{shown} says that {name} changes {what!r}. That differs from run to run with nothing set: "
                "run more than once, with and without."
            )
        raise NotYet(f"{shown} gives {spelt(found)} for {name}, which changes nothing: set one at a time.")
    if (what, when) == (None, "never"):
        raise NotYet(
            f"{shown} finds nothing that {name} changes. Set before the process starts, it changes "
            "something: most variables are read once, before the first array."
        )
    if what != effect[0]:
        restlessly = ", which differs from run to run by itself" if what == restless else ""
        raise NotYet(f"{shown} says that {name} changes {spelt(what)}{restlessly}; it is another.")
    if when != effect[1]:
        raise NotYet(
            f"{shown} gives {spelt(when)} for {name}: it "
            + (
                "is read each time, so that setting it late works, too: 'any'."
                if effect[1] == "any"
                else "is read at the start; set late it changes nothing: 'start'."
            )
        )


# 16-translate


def translate(cp: Any, host: np.ndarray, index: int) -> tuple[Any, int]:
    """The reference: the ten lines of torch.cuda, written with CuPy."""
    pool = cp.get_default_memory_pool()
    with cp.cuda.Device(index):
        before = pool.used_bytes()
        x = cp.asarray(host)
        ready = cp.cuda.get_current_stream().record()
        side = cp.cuda.Stream(non_blocking=True)
        side.wait_event(ready)
        with side:
            y = (x * x).sum(axis=1)
            done = side.record()
        cp.cuda.get_current_stream().wait_event(done)
        z = y + 1
        used = pool.used_bytes() - before
    return z, used


def _translated(answer: Any, host: np.ndarray, index: int, held: int) -> dict[str, Any]:
    """Run the answer in its own process; return its result and actions, and those of the reference.

    Of each GPU another program holds memory, of each as much as of no other; another one is current, and no
    current stream is the default.
    """
    from gpulab.lab.streams import check_streams

    told: dict[str, Any] = {}
    with on_device("virtual:T4", count=3) as cp, ExitStack() as around:
        elsewhere = 3 - index
        others = []
        for device in range(3):
            with cp.cuda.Device(device):
                stream = around.enter_context(cp.cuda.Stream(non_blocking=True))
                others.append((cp.empty(held << device, "uint8"), stream))
        for whose, function in (("reference", translate), ("answer", answer)):
            for device in range(3):
                with cp.cuda.Device(device):
                    cp.get_default_memory_pool().free_all_blocks()
            cp.cuda.Device(elsewhere).use()
            told[whose] = _seen(cp, partial(function, cp, host.copy(), index))
            told[whose]["stays"] = cp.cuda.runtime.getDevice() == elsewhere
            told[whose]["streams stay"] = all(
                _current(cp, device) == stream.ptr for device, (_, stream) in enumerate(others)
            )
            told[whose]["current"] = cp.cuda.runtime.getDevice()
        cp.cuda.Device(elsewhere).use()
        with check_streams() as found:
            _seen(cp, partial(answer, cp, host.copy(), index))
        # Memory given back early is left out: so do PyTorch's lines, which let go of y while it is read.
        unordered = [one.message for one in found.findings if one.kind.startswith(("read", "write"))]
        told["answer"]["hazards"] = unordered[:1]
        cp.cuda.Device(0).use()
    return told


def _current(cp: Any, device: int) -> int:
    with cp.cuda.Device(device):
        return int(cp.cuda.get_current_stream().ptr)


def _seen(cp: Any, program: Callable[[], Any]) -> dict[str, Any]:
    """Run a program; return its result, as its caller reads it, and what it did on the device."""
    from gpulab.lab.timeline import timeline

    with timeline() as seen:
        result = program()
    pair = list(result) if isinstance(result, (tuple, list)) else []
    array = pair[0] if len(pair) == 2 and isinstance(pair[0], cp.ndarray) else None
    value = None
    if array is not None:
        with cp.cuda.Device(array.device.id):
            value = array.get()
    record = seen.record
    waits = [s for s in record.synchronizations if s.type != "STREAM_WAIT_EVENT"]
    polls = sum(call.name in QUERIES for call in record.calls)
    kernels = [a for a in record.activities if a.kind == "CONCURRENT_KERNEL"]
    return {
        "pair": len(pair) == 2,
        "array": array is not None,
        "place": None if array is None else array.device.id,
        "value": value,
        "used": int(pair[1]) if len(pair) == 2 and isinstance(pair[1], (int, np.integer)) else None,
        "copies": [a.copy_kind for a in record.activities if a.kind in ("MEMCPY", "MEMCPY2")],
        "waits": len(waits) + polls,
        "kernel copies": sum(a.name.startswith("cupy_copy") for a in kernels),
        "streams": len({a.stream_id for a in kernels}),
        "all streams": len({(a.device_id, a.stream_id) for a in record.activities}),
        "devices": sorted({a.device_id for a in record.activities}),
        "hazards": [],
    }


def judge_translate(answer: Answer) -> str:
    """``translated(cp, host, index)``: ten lines of torch.cuda with CuPy."""
    must_be_a_function("translated", answer.is_function, answer.kind)
    rng = answer.rng
    for index, kind in ((2, np.float32), (1, np.float64)):
        # less than 1 MiB
        rows = int(rng.integers(3, 80))
        columns = int(rng.integers(100, 1500))
        host = rng.integers(-4, 5, (rows, columns)).astype(kind)
        shown = f"translated(cp, host, {index})"
        held = int(rng.integers(1 << 10, 1 << 20))
        told = answer.ask(_translated, host, index, held, shown=shown)
        _compare_programs(shown, told["answer"], told["reference"], index)
    return "the same result on the same GPU, with one copy, no wait of the host, and nothing left changed."


def _compare_programs(shown: str, mine: dict[str, Any], other: dict[str, Any], index: int) -> None:
    def refuse(no: bool, why: str) -> None:
        if no:
            raise NotYet(f"{shown} {why}")

    refuse(not mine["pair"], "should return a pair: z, and the bytes used.")
    refuse(not mine["array"], "should return z as an array on the GPU: PyTorch's line leaves it there, too.")
    refuse(
        mine["place"] != index,
        f"leaves z on GPU {mine['place']}. All of it belongs on GPU {index}: `with cp.cuda.Device(index):`",
    )
    refuse(
        not mine["stays"],
        f"leaves GPU {mine['current']} current. `with torch.cuda.device` puts the former one back; so does "
        "`with cp.cuda.Device`, and .use() does not.",
    )
    stay = mine["streams stay"]
    refuse(not stay, "leaves another stream current: `with side:` puts the former one back.")
    wrong = mine["value"].shape != other["value"].shape or not np.array_equal(mine["value"], other["value"])
    refuse(wrong, "gives other numbers: z is the sum of squares of each row, and 1.")
    kind = mine["value"].dtype
    right_kind = other["value"].dtype
    refuse(kind != right_kind, f"returns {kind}: PyTorch keeps the host's type, {right_kind}.")
    refuse(mine["devices"] != [index], f"works on GPUs {mine['devices']}; only {index} has anything to do.")
    more = [kind for kind in mine["copies"] if kind != "HtoD"]
    refuse(bool(more), f"copies {more[0] if more else ''}: PyTorch's lines copy once, from the host.")
    refuse(
        len(mine["copies"]) != 1,
        f"makes {count(len(mine['copies']), 'copy', 'copies')}; the host's array is copied once.",
    )
    refuse(
        mine["kernel copies"] > other["kernel copies"],
        "copies an array on the GPU: PyTorch's lines copy once, from the host.",
    )
    refuse(
        mine["waits"] > other["waits"],
        "makes the host wait where PyTorch's lines do not: streams wait for each other by events.",
    )
    refuse(mine["streams"] < 2, "runs everything in one stream: the squares belong in the side stream.")
    refuse(
        bool(mine["hazards"]),
        "lets a stream run ahead: the side stream waits for the copy, the current one for the squares. "
        + "".join(mine["hazards"]),
    )
    refuse(
        mine["all streams"] > other["all streams"],
        f"works in {count(mine['all streams'], 'stream')}; PyTorch's lines use two: the current one of that "
        "GPU, cp.cuda.get_current_stream(), and side.",
    )
    refuse(
        mine["used"] != other["used"],
        f"says {spelt(mine['used'])} bytes, not {other['used']:,}: memory_allocated is what arrays hold, of "
        "that GPU, now less before: pool.used_bytes().",
    )


# 16-warp64

_KERNEL = "positives"
_REFERENCE = "positives.cu"
_COSTS_MORE = 4


def kernel_file(name: str) -> str:
    """The text of a file in ``kernels``."""
    return (Path(__file__).parent / "kernels" / name).read_text(encoding="utf-8")


def for_waves(code: str, width: int) -> str:
    """A kernel written with HIP's warp functions, for waves of so many lanes."""
    return f"#define gpulab_lanes {width}\n{kernel_file('wave.cuh')}\n{code}"


def _waved(code: Any, launches: Sequence[tuple[int, int, int]], seed: int) -> list[dict[str, Any]]:
    """Run the answer in its own process; return the kernel's results for each launch (width, block, n)."""
    from gpulab.lab.kernels import count as counted
    from gpulab.lab.kernels import sanitize

    told: list[dict[str, Any]] = []
    with on_device("virtual:A100") as cp:
        kernels = {width: cp.RawKernel(for_waves(code, width), _KERNEL) for width in (32, 64)}
        for width, block, n in launches:
            x = np.random.default_rng(seed + n).integers(-36, 37, n).astype(np.float32) / 4
            grid = max(1, -(-n // block))
            args = cp.asarray(x), cp.full(grid, 77, "f4"), cp.full(grid, 77, "i4"), np.int32(n)
            try:
                kernels[width]((grid,), (block,), args)
                found = args[1].get(), args[2].get()
            except cp.cuda.compiler.CompileException as error:
                return [*told, {"compile": str(error)[:1500]}]
            except Exception as error:
                return [*told, {"fault": f"{type(error).__name__}: {error}"[:600]}]
            padded = np.zeros(grid * block, np.float32)
            padded[:n] = x
            rows = padded.reshape(grid, block)
            right = rows.sum(1), (rows > 0).sum(1)
            told.append({"right": [bool((a == b).all()) for a, b in zip(found, right, strict=True)]})
        width = 32
        block = 256
        n = 600
        kernel = kernels[width]
        args = (cp.ones(n, "f4"), cp.zeros(-(-n // block), "f4"), cp.zeros(-(-n // block), "i4"), np.int32(n))
        shape = -(-n // block), block
        report = sanitize(kernel, *shape, args).record
        mine = counted(kernel, *shape, args).record
        other = cp.RawKernel(for_waves(kernel_file(_REFERENCE), width), _KERNEL)
        reference = counted(other, *shape, args).record
        told.append(
            {
                "hazards": [str(one) for one in getattr(report, "hazards", ())][:1],
                "instructions": [int(one.longest_warp_instructions) for one in (mine, reference)],
            }
        )
    return told


def judge_warp64(answer: Answer) -> str:
    """``positives``: right for waves of 32 and of 64 lanes."""
    code = answer.value()
    if not isinstance(code, str):
        raise NotYet("The answer is a kernel's text: a string.")
    if "gpulab_" in code:
        raise NotYet("Names that begin with gpulab_ belong to the check: take warpSize and HIP's functions.")
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
    told = answer.ask(_waved_text, code, launches, int(rng.integers(1000)), shown=_KERNEL)
    for (width, block, n), seen in zip(launches, told, strict=False):
        where = f"With waves of {width} lanes, blocks of {block} threads and n = {n:,},"
        if "compile" in seen:
            raise NotYet(_why_not_compiled(seen["compile"]))
        if "fault" in seen:
            raise NotYet(f"{where} it fails: {seen['fault']} {_FAULT_ADVICE}")
        sums, counts = seen["right"]
        if not (sums and counts):
            what = "sums and counts are" if not (sums or counts) else "sums are" if not sums else "counts are"
            raise NotYet(
                f"{where} {what} wrong. {_MANY if block == 1024 else _WIDTH_ADVICE[width, bool(sums)]}"
            )
    last = told[-1]
    if last["hazards"]:
        raise NotYet(f"With waves of 32 lanes the sanitizer finds: {last['hazards'][0]}")
    mine, reference = last["instructions"]
    if mine > _COSTS_MORE * reference:
        raise NotYet(
            f"Its busiest warp takes {mine:,} warp instructions, with shuffles {reference:,}: let all lanes "
            "of a wave add."
        )
    return "the same kernel for warps of 32 lanes and for waves of 64."


_FAULT_ADVICE = "All lanes of a wave come to a shuffle, and all threads of a block to a barrier."
_WIDTH_ADVICE = {
    (64, False): "Where does it take for granted that there are 32 lanes: a shuffle's first step, a mask, "
    "a remainder, a number of warps?",
    (64, True): "Only what is greater than 0 counts. A vote of 64 lanes has 64 bits: keep it in unsigned "
    "long long, and count it with __popcll.",
    (32, False): "With 64 it is right: where does it take for granted that there are 64 lanes?",
    (32, True): "With 64 they are right: where does it take for granted that there are 64 lanes?",
}
_MANY = "With 32 lanes there are more waves in a block, up to 32 parts."


def _waved_text(answer: Any, code: str, launches: Any, seed: int) -> list[dict[str, Any]]:
    return _waved(code, launches, seed)


def _why_not_compiled(log: str) -> str:
    if "The mask must be a 64-bit integer" in log:
        return "A mask names lanes, one bit each: of 64 lanes it takes 64 bits, as ~0ull has."
    if "constant value" in log:
        return (
            "warpSize is known when the kernel runs, not when it is compiled: an array's size has to be a "
            "constant. 1,024 threads are 32 waves of 32 lanes, and fewer of 64: room for 32 is enough."
        )
    return f"It does not compile: {log[:400]}"


def _exercise(name: str, title: str, judge: Callable[[Answer], str], level: Any = "core") -> PythonExercise:
    return PythonExercise(f"16-{name}", title, judge, level=level)


EXERCISES = (
    _exercise("matrix", "What the driver takes", judge_matrix),
    _exercise("wheel", "A wheel's architecture list", judge_wheel, "warm-up"),
    _exercise("variables", "What this variable changes", judge_variables),
    _exercise("translate", "Ten lines of torch.cuda", judge_translate),
    _exercise("warp64", "Sixty-four lanes", judge_warp64, "stretch"),
)
