"""Wrong and right answers to the exercises of notebook 16."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np

from gpulab_course.content.n16_platform import exercises
from gpulab_course.content.n16_platform.exercises import taken, translate, wheel
from tests.answers import Right, Wrong

# 16-matrix


def _read(target: str) -> tuple[bool, int, int, str]:
    """Whether it is machine code, its major and minor version, and its letter, if it has one."""
    digits = "".join(c for c in target if c.isdigit())
    return (
        target.startswith("sm_"),
        int(digits[:-1]),
        int(digits[-1]),
        target[-1] if target[-1] in "af" else "",
    )


def _by(
    cubin: Any = lambda v, w: v[0] == w[0] and v[1] <= w[1],
    ptx: Any = lambda v, w: v <= w,
    own: Any = lambda v, w: v == w,
    family: Any = lambda v, w: v[0] == w[0] and v[1] <= w[1],
    order: Any = lambda t: (t[0], 10 * t[1] + t[2]),
) -> Any:
    """An answer by rules for machine code, PTX, and both letters, and an order among those that fit."""

    def answer(targets: Any, capability: Any) -> Any:
        fits = []
        for target in targets:
            code, major, minor, letter = _read(target)
            rule = {"a": own, "f": family}.get(letter, cubin if code else ptx)
            if rule((major, minor), tuple(capability)):
                fits.append(target)
        return max(fits, key=lambda target: order(_read(target)), default=None)

    return answer


def _by_letter(targets: Any, capability: Any) -> Any:
    digit = str(capability[0])
    fits = [t for t in targets if t.split("_")[1][0] == digit]
    return max(fits, default=None)


def _as_loop(targets: Any, capability: Any) -> Any:
    best, rank = None, (-1, -1)
    major, minor = capability
    for target in targets:
        kind, _, number = target.partition("_")
        plain = int(number.rstrip("af"))
        if number.endswith("a"):
            if plain != major * 10 + minor:
                continue
        elif kind == "sm" or number.endswith("f"):
            if plain // 10 != major or plain % 10 > minor:
                continue
        elif plain > major * 10 + minor:
            continue
        if (int(kind == "sm"), plain) > rank:
            best, rank = target, (int(kind == "sm"), plain)
    return best


def _in_two(targets: Any, capability: Any) -> Any:
    now = 10 * capability[0] + capability[1]
    number = {t: int(re.sub(r"\D", "", t)) for t in targets}
    fits = [t for t in targets if (number[t] == now if t[-1] == "a" else number[t] <= now)]
    fits = [t for t in fits if t[-1] != "f" or number[t] // 10 == capability[0]]
    codes = [t for t in fits if t[:3] == "sm_" and number[t] // 10 == capability[0]]
    return max(codes or [t for t in fits if t[0] == "c"], key=lambda t: number[t], default=None)


_KNOWN = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1))


def _off_a_table(targets: Any, capability: Any) -> Any:
    """Right for the devices that a table names, and nothing for others."""
    return _by()(targets, capability) if tuple(capability) in _KNOWN else None


def _sorted_first(targets: Any, capability: Any) -> Any:
    for target in sorted(targets, key=lambda t: (t[0] != "s", -_read(t)[1], -_read(t)[2])):
        if _by()([target], capability):
            return target
    return None


def _reads_no_f(targets: Any, capability: Any) -> Any:
    """The course's solution until it knew family targets."""
    fits = []
    for target in targets:
        kind, number = target.split("_")
        own, version = number.endswith("a"), divmod(int(number.rstrip("a")), 10)
        if (
            version == capability
            if own
            else version <= capability and (kind != "sm" or version[0] == capability[0])
        ):
            fits.append((kind == "sm", version, target))
    return max(fits)[2] if fits else None


_MATRIX = (
    Wrong(
        "16-matrix",
        "newer devices run all older machine code",
        _by(cubin=lambda v, w: v <= w),
        "",
        "does not run on another major version",
    ),
    Wrong(
        "16-matrix",
        "older devices run newer machine code",
        _by(cubin=lambda v, w: v[0] == w[0]),
        "",
        "Code for a newer GPU",
    ),
    Wrong(
        "16-matrix",
        "machine code for the very device only",
        _by(cubin=lambda v, w: v == w),
        "",
        "its own minor version and on later",
    ),
    Wrong(
        "16-matrix",
        "PTX within the major version",
        _by(ptx=lambda v, w: v[0] == w[0] and v <= w),
        "",
        "whatever its major version",
    ),
    Wrong("16-matrix", "PTX runs everywhere", _by(ptx=lambda v, w: True), "", "Code for a newer GPU"),
    Wrong("16-matrix", "PTX for older devices", _by(ptx=lambda v, w: v >= w), "", ""),
    Wrong(
        "16-matrix",
        "an a is only a letter",
        _by(own=lambda v, w: v <= w),
        "",
        "only on the compute capability",
    ),
    Wrong(
        "16-matrix",
        "an a holds for its major version",
        _by(own=lambda v, w: v[0] == w[0] and v <= w),
        "",
        "only on the compute capability",
    ),
    Wrong("16-matrix", "refuses every target with an a", _by(own=lambda v, w: False), "", "the GPU that it names"),
    Wrong(
        "16-matrix", "an f is only a letter", _by(family=lambda v, w: v <= w), "", "only on the major version"
    ),
    Wrong(
        "16-matrix", "treats an f as an a", _by(family=lambda v, w: v == w), "", "With an f it runs on its own minor"
    ),
    Wrong(
        "16-matrix",
        "nothing takes an f",
        _by(family=lambda v, w: False),
        "",
        "With an f it runs on its own minor",
    ),
    Wrong("16-matrix", "cannot read an f", _reads_no_f, "", "invalid literal"),
    Wrong(
        "16-matrix",
        "PTX before machine code",
        _by(order=lambda t: (not t[0], t[1], t[2])),
        "",
        "comes before any PTX",
    ),
    Wrong(
        "16-matrix",
        "the newest, PTX or not",
        _by(order=lambda t: (t[1], t[2], t[0])),
        "",
        "comes before any PTX",
    ),
    Wrong(
        "16-matrix",
        "an a before all others",
        _by(order=lambda t: (t[3] == "a", t[0], t[1], t[2])),
        "",
        "comes before any PTX",
    ),
    Wrong("16-matrix", "devices off a table", _off_a_table, "", ""),
    Wrong(
        "16-matrix",
        "takes the oldest target",
        _by(order=lambda t: (t[0], -t[1], -t[2])),
        "",
        "the driver takes the newest",
    ),
    Wrong(
        "16-matrix",
        "compared by letters",
        _by(order=lambda t: (t[0], str(10 * t[1] + t[2]))),
        "",
        "numbers, not strings",
    ),
    Wrong("16-matrix", "by the first digit", _by_letter, "", ""),
    Wrong(
        "16-matrix", "the first that fits", lambda t, c: next((x for x in t if _by()([x], c)), None), "", ""
    ),
    Wrong("16-matrix", "returns True or False", lambda t, c: _by()(t, c) is not None, "", "one of the targets"),
    Right("16-matrix", "the reference", lambda targets, capability: taken(targets, capability)),
    Right("16-matrix", "rules and an order", _by()),
    Right("16-matrix", "a loop", _as_loop),
    Right("16-matrix", "machine code, else PTX", _in_two),
    Right("16-matrix", "sorted, the first", _sorted_first),
)

# 16-wheel


def _pairs(capabilities: Any) -> list[tuple[int, int]]:
    return sorted({(int(a), int(b)) for a, b in (text.split(".") for text in capabilities)})


def _sm(pairs: Any, kind: str = "sm") -> list[str]:
    return [f"{kind}_{major}{minor}" for major, minor in pairs]


def _lowest(capabilities: Any) -> list[tuple[int, int]]:
    known = _pairs(capabilities)
    return [pair for pair in known if pair == min(p for p in known if p[0] == pair[0])]


def _plus(which: Any = -1, kind: str = "compute", most: Any = _lowest) -> Any:
    return lambda c: _sm(most(c)) + _sm([_pairs(c)[which]], kind)


def _highest(capabilities: Any) -> list[tuple[int, int]]:
    known = _pairs(capabilities)
    return [pair for pair in known if pair == max(p for p in known if p[0] == pair[0])]


def _by_texts(capabilities: Any) -> list[str]:
    """Sorts and compares texts: 10.0 before 7.5."""
    first: dict[str, str] = {}
    for text in sorted(capabilities):
        first.setdefault(text.split(".")[0], text)
    names = [text.replace(".", "") for text in first.values()]
    return [*("sm_" + name for name in names), "compute_" + max(capabilities).replace(".", "")]


def _grouped(capabilities: Any) -> Any:
    from itertools import groupby

    known = _pairs(capabilities)
    firsts = [next(group) for _, group in groupby(known, key=lambda pair: pair[0])]
    return (*_sm(firsts), *_sm(known[-1:], "compute"))


def _by_numbers(capabilities: Any) -> Any:
    numbers = sorted({int(text.replace(".", "")) for text in capabilities})
    kept: list[int] = []
    for number in numbers:
        if not kept or kept[-1] // 10 != number // 10:
            kept.append(number)
    return [f"sm_{number}" for number in kept] + [f"compute_{numbers[-1]}"]


def _float_sorted(capabilities: Any) -> Any:
    ordered = sorted(set(capabilities), key=float)
    majors = sorted({int(text.split(".")[0]) for text in ordered})
    lows = [min((t for t in ordered if int(t.split(".")[0]) == m), key=float) for m in majors]
    return ["sm_" + t.replace(".", "") for t in lows] + ["compute_" + ordered[-1].replace(".", "")]


_WHEEL = (
    Wrong("16-wheel", "no PTX", lambda c: _sm(_lowest(c)), "", "PTX is missing"),
    Wrong("16-wheel", "sorted as texts", _by_texts, "", "10.0 comes after 9.0"),
    Wrong("16-wheel", "PTX of the oldest", _plus(0), "", "for the newest"),
    Wrong(
        "16-wheel",
        "PTX of all capabilities",
        lambda c: _sm(_lowest(c)) + _sm(_pairs(c), "compute"),
        "",
        "One PTX target is enough",
    ),
    Wrong("16-wheel", "only PTX", lambda c: _sm(_pairs(c)[-1:], "compute"), "", "no machine code"),
    Wrong("16-wheel", "PTX of the oldest alone", lambda c: _sm(_pairs(c)[:1], "compute"), "", ""),
    Wrong("16-wheel", "machine code for each", _plus(most=_pairs), "", "too many targets"),
    Wrong("16-wheel", "the highest minor version", _plus(most=_highest), "", "lowest minor version"),
    Wrong(
        "16-wheel",
        "the newest major version only",
        _plus(most=lambda c: _lowest(c)[-1:]),
        "",
        "no machine code",
    ),
    Wrong("16-wheel", "the oldest only", _plus(most=lambda c: _lowest(c)[:1]), "", "no machine code"),
    Wrong(
        "16-wheel",
        "an a behind the newest",
        lambda c: [*_sm(_lowest(c)), _sm(_pairs(c)[-1:], "compute")[0] + "a"],
        "",
        "With a letter after the number",
    ),
    Wrong("16-wheel", "newest first", lambda c: _plus()(c)[::-1], "", "in the order of the numbers"),
    Wrong("16-wheel", "with the dot", lambda c: ["sm_" + t for t in c], "", "not a target"),
    Wrong("16-wheel", "returns a string", lambda c: ";".join(_plus()(c)), "", "Return a list"),
    Wrong(
        "16-wheel",
        "as given, not sorted",
        lambda c: [
            *("sm_" + t.replace(".", "") for t in c if tuple(map(int, t.split("."))) in _lowest(c)),
            _plus()(c)[-1],
        ],
        "",
        "",
    ),
    Right("16-wheel", "the reference", lambda capabilities: wheel(capabilities)),
    Right("16-wheel", "grouped", _grouped),
    Right("16-wheel", "by numbers", _by_numbers),
    Right("16-wheel", "by floats", _float_sorted),
    Right("16-wheel", "pairs", _plus()),
)

# 16-variables


def _verified(
    runs: int = 8, late: bool = True, before: bool = True, ignore: bool = True, together: bool = False
) -> Any:
    """What differs in all runs with it from all without."""

    def answer(run: Any, variables: Any) -> Any:
        plain = [run() for _ in range(runs if ignore else 1)]

        def changed(**how: Any) -> str | None:
            seen = [run(**how) for _ in range(3)]
            for what in plain[0]:
                without = {str(one[what]) for one in plain}
                if without.isdisjoint({str(one[what]) for one in seen}):
                    return str(what)
            return None

        found = {}
        for name in variables:
            value = dict.fromkeys(variables, "1") if together else {name: "1"}
            at_start = changed(before=value) if before else None
            at_last = changed(late=value) if late else None
            what = at_start or at_last
            found[name] = (what, "any" if at_last else "start") if what else (None, "never")
        return found

    return answer


def _one_each(run: Any, variables: Any) -> Any:
    """A run without and one with: what moves by itself is taken for an effect."""
    plain, found = run(), {}
    for name in variables:
        seen, late = run({name: "1"}), run({}, {name: "1"})
        differs = [what for what in plain if seen[what] != plain[what]]
        found[name] = (
            (differs[0], "any" if late[differs[0]] != plain[differs[0]] else "start")
            if differs
            else (None, "never")
        )
    return found


def _by_heart(run: Any, variables: Any) -> Any:
    """What the documentation says, in another program."""
    known = {
        "CUDA_VISIBLE_DEVICES": "devices",
        "CUDA_LAUNCH_BLOCKING": "launch returns",
        "CUDA_CACHE_DISABLE": "cache files",
        "CUPY_TF32": "product",
        "CUPY_GPU_MEMORY_LIMIT": "memory limit",
    }
    return {name: (known[name], "start") if name in known else (None, "never") for name in variables}


def _handed(run: Any, variables: Any) -> Any:
    return {name: run._effects.get(name, (None, "never")) for name in variables}


def _found_somewhere(run: Any, variables: Any) -> Any:
    """Any dictionary with pairs of this kind is the truth."""
    found = dict.fromkeys(variables, (None, "never"))
    for one in gc.get_objects():
        if type(one) is dict:
            found |= {
                k: v
                for k, v in one.items()
                if k in variables and type(v) is tuple and v[1:] in (("any",), ("start",))
            }
    return found


def _counted(run: Any, variables: Any, runs: int = 9) -> Any:
    """What never moves with nothing set is what can be believed."""
    plain = [run() for _ in range(runs)]
    still = [what for what in plain[0] if len({str(seen[what]) for seen in plain}) == 1]
    found = {}
    for name in variables:
        at_start, late = run(before={name: "x"}), run(late={name: "x"})
        what = next((w for w in still if at_start[w] != plain[0][w]), None)
        found[name] = (
            (None, "never") if what is None else (what, "start" if late[what] == plain[0][what] else "any")
        )
    return found


def _known_noise(run: Any, variables: Any) -> Any:
    plain = run()
    restless = {what for _ in range(12) for what, value in run().items() if value != plain[what]}
    result = dict.fromkeys(variables, (None, "never"))
    for name in variables:
        for when, how in (("start", ({name: 1}, {})), ("any", ({}, {name: 1}))):
            for what, value in run(*how).items():
                if value != plain[what] and what not in restless:
                    result[name] = (what, when)
    return result


def _lists(run: Any, variables: Any) -> Any:
    return {name: list(pair) for name, pair in _verified(runs=10)(run, variables).items()}


_VARIABLES = (
    Wrong("16-variables", "set after the start", _verified(before=False), "", "most variables are read only once"),
    Wrong(
        "16-variables", "set before the start only", _verified(late=False), "", "setting it late works, too"
    ),
    Wrong(
        "16-variables",
        "six runs without a variable",
        lambda run, v: _counted(run, v, runs=6),
        "",
        "differs from run to run",
    ),
    Wrong("16-variables", "reads what it was handed", _handed, "", "no attribute"),
    Wrong("16-variables", "looks for a table in all there is", _found_somewhere, "", "changes nothing"),
    Wrong("16-variables", "one run without, one with", _one_each, "", ""),
    Wrong("16-variables", "all at once", _verified(together=True), "", ""),
    Wrong("16-variables", "by heart", _by_heart, "", ""),
    Wrong(
        "16-variables",
        "all change nothing",
        lambda run, v: dict.fromkeys(v, (None, "never")),
        "",
        "most variables are read only once",
    ),
    Wrong("16-variables", "a thousand runs", _verified(runs=100), "", "are enough"),
    Wrong("16-variables", "leaves out one variable", lambda run, v: _verified()(run, v[:-1]), "", "each of the 6"),
    Wrong(
        "16-variables",
        "returns what changes, but not when",
        lambda run, v: {n: p[0] for n, p in _verified()(run, v).items()},
        "",
        "Return (observation, when)",
    ),
    Wrong(
        "16-variables",
        "reports “any” for every variable",
        lambda run, v: {n: (p[0], "any") if p[0] else p for n, p in _verified()(run, v).items()},
        "",
        "set late, it changes nothing",
    ),
    Wrong(
        "16-variables",
        "all at the start",
        lambda run, v: {n: (p[0], "start") for n, p in _verified()(run, v).items()},
        "",
        "",
    ),
    Wrong(
        "16-variables",
        "a variable that is not there",
        lambda run, v: run({"CUDA_DEVICE": "1"}),
        "",
        "no variable",
    ),
    Right("16-variables", "in all runs with it, in none without", _verified()),
    Right("16-variables", "what stays still", _counted),
    Right("16-variables", "noise known first", _known_noise),
    Right("16-variables", "lists", _lists),
)

# 16-translate


def _ours(
    place: bool = True,
    side: bool = True,
    wait: bool = True,
    join: bool = True,
    sync: str = "",
    end: str = "z",
    after: Any = None,
    base: bool = True,
    early: bool = False,
    total: bool = False,
    twice: bool = False,
    legacy: bool = False,
    outside: bool = False,
    again: bool = False,
) -> Any:
    """The reference with parts of it otherwise."""

    def answer(cp: Any, host: Any, index: int) -> Any:
        elsewhere = cp.get_default_memory_pool().used_bytes()
        with cp.cuda.Device(index if place else 0):
            pool = cp.get_default_memory_pool()
            size = pool.total_bytes if total else pool.used_bytes
            before = elsewhere if outside else size() if base else 0
            x = cp.asarray(host)
            if again:
                x = cp.array(x)
            if twice:
                x = cp.asarray(cp.asnumpy(x))
            stream = cp.cuda.Stream(non_blocking=not legacy) if side else cp.cuda.get_current_stream()
            if wait and side:
                stream.wait_event(cp.cuda.get_current_stream().record())
            if sync == "device":
                cp.cuda.Device(index).synchronize()
            event = stream.record()
            with stream:
                y = (x * x).sum(axis=1)
                event = event if early else stream.record()
            while sync == "query" and not event.done:
                pass
            if sync == "stream":
                stream.synchronize()
            if sync == "event":
                event.synchronize()
            if join and side:
                cp.cuda.get_current_stream().wait_event(event)
            z = y + 1
            if sync == "float":
                float(z[0])
            used = size() - before
            result = (cp.asnumpy(z) if end == "host" else y if end == "y" else z, used)
            result = result[0] if end == "alone" else result
        if after:
            after(cp, index)
        return result

    return answer


def _used(cp: Any, host: Any, index: int) -> Any:
    """Never puts the device back."""
    cp.cuda.Device(index).use()
    return _ours()(cp, host, index)


def _other_device(cp: Any, host: Any, index: int) -> Any:
    """Uploads to the current device, and copies from there."""
    x = cp.asarray(host)
    with cp.cuda.Device(index):
        pool = cp.get_default_memory_pool()
        before = pool.used_bytes()
        z = (cp.asarray(x) ** 2).sum(axis=1) + 1
        return z, pool.used_bytes() - before


def _stream_kept(cp: Any, host: Any, index: int) -> Any:
    with cp.cuda.Device(index):
        pool = cp.get_default_memory_pool()
        before, x, main = pool.used_bytes(), cp.asarray(host), cp.cuda.get_current_stream()
        side = cp.cuda.Stream(non_blocking=True)
        side.wait_event(main.record())
        side.use()
        y = (x * x).sum(axis=1)
        main.wait_event(side.record())
        main.use()
        z = y + 1
        return z, pool.used_bytes() - before


def _third_stream(cp: Any, host: Any, index: int) -> Any:
    """The copy in a stream of its own, too."""
    with cp.cuda.Device(index):
        pool, side = cp.get_default_memory_pool(), cp.cuda.Stream(non_blocking=True)
        before = pool.used_bytes()
        with cp.cuda.Stream(non_blocking=True) as up:
            x = cp.asarray(host)
            side.wait_event(up.record())
        with side:
            y = (x * x).sum(axis=1)
        cp.cuda.get_current_stream().wait_event(side.record())
        return y + 1, pool.used_bytes() - before


def _null_stream(cp: Any, host: Any, index: int) -> Any:
    """Takes the default stream for the current one."""
    with cp.cuda.Device(index):
        pool, side = cp.get_default_memory_pool(), cp.cuda.Stream(non_blocking=True)
        before, x = pool.used_bytes(), cp.asarray(host)
        side.wait_event(cp.cuda.Stream.null.record())
        with side:
            y = (x * x).sum(axis=1)
        cp.cuda.Stream.null.wait_event(side.record())
        z = y + 1
        return z, pool.used_bytes() - before


def _back_to_zero(cp: Any, host: Any, index: int) -> Any:
    cp.cuda.Device(index).use()
    result = _ours()(cp, host, index)
    cp.cuda.Device(0).use()
    return result


def _explicit_events(cp: Any, host: Any, index: int) -> Any:
    with cp.cuda.Device(index):
        start, stop = (cp.cuda.Event(disable_timing=True) for _ in range(2))
        pool, main = cp.get_default_memory_pool(), cp.cuda.get_current_stream()
        before = pool.used_bytes()
        x = cp.array(host)
        start.record(main)
        side = cp.cuda.Stream(non_blocking=True)
        side.wait_event(start)
        with side:
            y = cp.sum(cp.square(x), axis=1)
            stop.record(side)
        main.wait_event(stop)
        z = cp.add(y, 1)
        del start
        return [z, int(pool.used_bytes() - before)]


def _empty_and_set(cp: Any, host: Any, index: int) -> Any:
    with cp.cuda.Device(index):
        pool = cp.get_default_memory_pool()
        before = pool.used_bytes()
        x = cp.empty(host.shape, host.dtype)
        x.set(host)
        side = cp.cuda.Stream(non_blocking=True)
        side.wait_event(cp.cuda.get_current_stream().record())
        with side:
            y = (x * x).sum(axis=1)
        cp.cuda.get_current_stream().wait_event(side.record())
        z = y + np.float32(1)
        return z, pool.used_bytes() - before


_TRANSLATE = (
    Wrong("16-translate", "on the current device", _ours(place=False), "", "leaves z on GPU 0"),
    Wrong("16-translate", "another device left current", _used, "", "current"),
    Wrong("16-translate", "uploaded elsewhere", _other_device, "", "may work"),
    Wrong("16-translate", "no side stream", _ours(side=False), "", "in one stream"),
    Wrong("16-translate", "does not wait for the copy", _ours(wait=False), "", "run ahead"),
    Wrong("16-translate", "does not wait for the squares", _ours(join=False), "", "run ahead"),
    Wrong("16-translate", "the device waits", _ours(sync="device"), "", "makes the host wait"),
    Wrong("16-translate", "the stream waits", _ours(sync="stream", join=False), "", "makes the host wait"),
    Wrong("16-translate", "the event waits", _ours(sync="event"), "", "makes the host wait"),
    Wrong("16-translate", "the host asks until it is done", _ours(sync="query"), "", "makes the host wait"),
    Wrong("16-translate", "an event from before the squares", _ours(early=True), "", "run ahead"),
    Wrong("16-translate", "the default stream, not the current one", _null_stream, "", "run ahead"),
    Wrong("16-translate", "a third stream", _third_stream, "", "PyTorch's lines use two"),
    Wrong("16-translate", "back to GPU 0, whichever was current", _back_to_zero, "", "leaves GPU 0 current"),
    Wrong("16-translate", "does not subtract the bytes used before", _ours(base=False), "", "memory_allocated counts the bytes"),
    Wrong(
        "16-translate",
        "less what another GPU holds",
        _ours(outside=True),
        "",
        "memory_allocated counts the bytes",
    ),
    Wrong("16-translate", "a copy by a kernel", _ours(again=True), "", "copy once, from the host"),
    Wrong("16-translate", "a number for a look", _ours(sync="float"), "", "copies DtoH"),
    Wrong("16-translate", "returns z on the host", _ours(end="host"), "", "on the GPU"),
    Wrong("16-translate", "there and back", _ours(twice=True), "", "copies DtoH"),
    Wrong("16-translate", "returns only z", _ours(end="alone"), "", "a pair"),
    Wrong("16-translate", "does not add 1", _ours(end="y"), "", "other numbers"),
    Wrong(
        "16-translate", "reserved, not allocated", _ours(total=True), "", "memory_allocated counts the bytes"
    ),
    Wrong(
        "16-translate",
        "the host does it",
        lambda cp, host, index: ((host * host).sum(1) + 1, 0),
        "",
        "on the GPU",
    ),
    Right("16-translate", "the reference", lambda cp, host, index: translate(cp, host, index)),
    Right("16-translate", "parts of it", _ours()),
    Right("16-translate", "use() and back", _stream_kept),
    Right("16-translate", "events of its own", _explicit_events),
    Right("16-translate", "empty and set", _empty_and_set),
)

# 16-warp64


def _waves(*changes: str) -> str:
    code = exercises.read_kernel_file("positives.cu")
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in code, old
        code = code.replace(old, new)
    return code


_LOOP = "    for (int d = warpSize / 2; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d);\n"
_BY_ONE = _waves(
    _LOOP,
    "",
    "threadIdx.x % warpSize == 0",
    "threadIdx.x == 0",
    "sum[threadIdx.x / warpSize] = v;",
    "sum[0] = 0; count[0] = 0; for (int k = 0; k < blockDim.x && i + k < n; ++k) { sum[0] += x[i + k]; count[0] += x[i + k] > 0; }",
    "count[threadIdx.x / warpSize] = __popcll(votes);",
    "",
    "int w = 1; w < blockDim.x / warpSize; ++w",
    "int w = 1; w < 1; ++w",
)
_TREE = r"""
extern "C" __global__ void positives(const float* x, float* sums, int* counts, int n) {
    __shared__ float s[1024];
    __shared__ int c[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0;
    c[t] = s[t] > 0;
    for (int left = blockDim.x; left > 1; left = (left + 1) / 2) {
        __syncthreads();
        if (t < left / 2) { s[t] += s[t + (left + 1) / 2]; c[t] += c[t + (left + 1) / 2]; }
    }
    if (t == 0) { sums[blockIdx.x] = s[0]; counts[blockIdx.x] = c[0]; }
}"""
_WARP64 = (
    Wrong("16-warp64", "a first step of 16", _waves("warpSize / 2; d", "16; d"), "", "sums are wrong"),
    Wrong("16-warp64", "a first step of 32", _waves("warpSize / 2; d", "32; d"), "", ""),
    Wrong("16-warp64", "a remainder of 32", _waves("% warpSize == 0", "% 32 == 0"), "", ""),
    Wrong("16-warp64", "shifted by 5", _waves("threadIdx.x / warpSize", "threadIdx.x >> 5"), "", ""),
    Wrong("16-warp64", "blockDim.x / 32 parts", _waves("blockDim.x / warpSize", "blockDim.x / 32"), "", ""),
    Wrong("16-warp64", "assumes 32 lanes", _waves("warpSize", "32"), "", "counts are wrong"),
    Wrong("16-warp64", "assumes 64 lanes", _waves("warpSize", "64"), "", "that there are 64 lanes"),
    Wrong(
        "16-warp64",
        "the check's number of lanes",
        _waves("warpSize", "gpulab_lanes"),
        "",
        "are reserved for the check",
    ),
    Wrong("16-warp64", "a mask of 32 bits", _waves("~0ull, v, d", "0xffffffff, v, d"), "", "64 bits"),
    Wrong(
        "16-warp64",
        "a mask of 32 ones in 64 bits",
        _waves("~0ull, v, d", "0xffffffffull, v, d"),
        "",
        "sums are wrong",
    ),
    Wrong(
        "16-warp64", "a vote among 32", _waves("~0ull, v > 0", "0xffffffffull, v > 0"), "", "counts are wrong"
    ),
    Wrong(
        "16-warp64",
        "votes in unsigned",
        _waves("unsigned long long votes", "unsigned votes"),
        "",
        "unsigned long long",
    ),
    Wrong("16-warp64", "__popc() instead of __popcll()", _waves("__popcll", "__popc"), "", "__popcll"),
    Wrong(
        "16-warp64",
        "warpSize in an array's bound",
        _waves("float sum[32]", "float sum[1024 / warpSize]"),
        "",
        "has to be a constant",
    ),
    Wrong(
        "16-warp64",
        "room for 16 waves",
        _waves("float sum[32]", "float sum[16]", "int count[32]", "int count[16]"),
        "",
        "",
    ),
    Wrong("16-warp64", "sums of whole numbers", _waves("float v = i", "int v = i"), "", ""),
    Wrong("16-warp64", "no barrier", _waves("    __syncthreads();\n", ""), "", ""),
    Wrong(
        "16-warp64",
        "early return",
        _waves("    float v = i", "    if (i >= n) return;\n    float v = i"),
        "",
        "",
    ),
    Wrong("16-warp64", "one thread adds all elements", _BY_ONE, "", "busiest warp"),
    Wrong("16-warp64", "no kernel of that name", _waves("void positives", "void positive"), "", ""),
    Right("16-warp64", "the reference", _waves()),
    Right(
        "16-warp64",
        "without masks",
        _waves(
            "__shfl_down_sync(~0ull, v, d)",
            "__shfl_down(v, d)",
            "__ballot_sync(~0ull, v > 0)",
            "__ballot(v > 0)",
        ),
    ),
    Right("16-warp64", "crosswise", _waves("__shfl_down_sync", "__shfl_xor_sync")),
    Right(
        "16-warp64",
        "counts by shuffles",
        _waves(
            "    unsigned long long votes = __ballot_sync(~0ull, v > 0);\n",
            "    int positive = v > 0;\n",
            _LOOP,
            "    for (int d = warpSize / 2; d > 0; d /= 2) { v += __shfl_down(v, d); positive += __shfl_down(positive, d); }\n",
            "__popcll(votes)",
            "positive",
        ),
    ),
    Right("16-warp64", "a tree, whatever the waves", _TREE),
    Right("16-warp64", "from a list of active lanes", _waves("~0ull, v, d", "__activemask(), v, d")),
)

_ALL: tuple[Wrong | Right, ...] = (*_MATRIX, *_WHEEL, *_VARIABLES, *_TRANSLATE, *_WARP64)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]
