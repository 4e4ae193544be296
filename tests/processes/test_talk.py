"""The line to an answer's process: plain data, requests and replies, limits, and the reason of each end."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from gpulab.processes import child, talk, tree, values
from gpulab.processes import process as processes
from gpulab.processes.errors import ProcessError
from gpulab.processes.process import Process
from gpulab.processes.talk import RequestProcess
from gpulab.processes.tree import ResourceMeter, ResourceUse, find_descendants
from gpulab.processes.values import (
    DamagedBytesError,
    DeviceContents,
    OtherObject,
    ValueTooLargeError,
    decode,
    encode,
)
from gpulab_course.teach.judge.python import apart

# Plain data

PLAIN = [
    None,
    True,
    False,
    0,
    -(1 << 70),
    1.5,
    float("inf"),
    -0.0,
    2 - 3j,
    "ä\udc80",
    "",
    (1, [2.5, {"a": (None,)}]),
    {1: "one", (2, 3): [4]},
    [],
    (),
    {},
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_survive_encoding(value: Any) -> None:
    copy = decode(encode(value))
    assert (copy, type(copy), repr(copy)) == (value, type(value), repr(value))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.zeros((0, 4)),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(["ab", "c"]),
        np.array(3),
        np.array([b"ab"]),
        np.arange(9)[::-2],
        np.array([np.nan, -0.0]),
        np.array([1 + 2j]),
        np.zeros(3, "U0"),
    ],
)
def test_arrays_survive_encoding(array: Any) -> None:
    for value in (array, DeviceContents(array)):
        copy = decode(encode([value, 3]))[0]
        assert type(copy) is type(value)
        values = copy.values if isinstance(copy, DeviceContents) else copy
        assert (values.dtype, values.shape, values.tobytes()) == (array.dtype, array.shape, array.tobytes())
        values[...] = values  # it can be written


def test_scalars_of_numpy_keep_their_type() -> None:
    for scalar in (np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1j), np.str_("a")):
        copy = decode(encode(scalar))
        assert (type(copy), copy) == (type(scalar), scalar)


def test_values_of_subclasses_become_plain_values() -> None:
    class Number(int):
        def __add__(self, other: object) -> Any:
            raise AssertionError

        __eq__ = __hash__ = __index__ = __add__  # type: ignore[assignment]

    class Text(str):
        __str__ = __eq__ = __hash__ = Number.__add__  # type: ignore[assignment]

    class Row(list[Any]):
        __iter__ = Number.__add__  # type: ignore[assignment]

    class Table(dict[Any, Any]):
        items = __iter__ = Number.__add__  # type: ignore[assignment]

    class Real(float):
        hex = __float__ = Number.__add__  # type: ignore[assignment]

    class Grid(np.ndarray[Any, Any]):
        pass

    originals = [Number(3), Text("a"), Row([1]), Table(b=2), Real(0.5), np.arange(2).view(Grid)]
    copies = decode(encode(originals))
    assert [type(part) for part in copies] == [int, str, list, dict, float, np.ndarray]
    assert copies[:5] == [3, "a", [1], {"b": 2}, 0.5]


def test_unsupported_values_become_their_type_names() -> None:
    class Stream:
        __class__ = int  # type: ignore[assignment]

    values_in = [Stream(), ..., {1}, np.array([None]), np.datetime64("2026-01-01")]
    names = ["Stream", "ellipsis", "set", "ndarray", "datetime64[D]"]
    assert decode(encode(values_in)) == [OtherObject(name) for name in names]
    assert repr(OtherObject("Stream")) == "a value of type Stream"
    kinds = [
        values.find_type_name(value)
        for value in (OtherObject("Stream"), DeviceContents(np.zeros(1)), 3, None)
    ]
    assert kinds == ["Stream", "cupy.ndarray", "int", "NoneType"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("largest", "too_large", "message"),
    [
        (nested(20), nested(21), "too many parts"),
        ({0: nested(19)}, {0: nested(20)}, "too many parts"),
        ((nested(19),), (nested(20),), "too many parts"),
        ([0] * 99_999, [0] * 100_000, "too many parts"),
        ((1 << 4096) - 1, 1 << 4096, "a number with thousands of digits"),
        (np.zeros((1 << 20) - 200, np.uint8), np.zeros((1 << 20) + 1, np.uint8), "more than 1 MiB"),
        (None, [np.zeros(600_000, np.uint8)] * 2, "more than 1 MiB"),
        (None, np.broadcast_to(np.uint8(0), (64 << 20) + 1), "more than 64 MiB"),
        ("x" * ((1 << 20) - 200), "x" * (1 << 20), "more than 1 MiB"),
    ],
    ids=range(9),
)
def test_too_large_values_are_refused(
    largest: Any, too_large: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "1 MiB" in message:
        monkeypatch.setattr(values, "MAX_VALUE_BYTES", 1 << 20)
    encode(largest)
    with pytest.raises(ValueTooLargeError, match=message):
        encode(too_large)


def test_nested_parts_count_toward_the_part_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_MAX_VALUE_PARTS", 5)
    for largest in ([0] * 4, [[0, 0], 0], ({0: (0,)},), {0: 0, 1: 0}):
        assert decode(encode(largest)) == largest
    for too_large in ([0] * 5, [[0, 0], 0, 0], ({0: (0, 0)},), {0: 0, 1: [0]}):
        with pytest.raises(ValueTooLargeError, match="too many parts"):
            encode(too_large)
    encode([0] * 4)  # each value is counted by itself


def whole(text: str, data: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "big") + text.encode() + data


ARRAY = encode(np.arange(3, dtype=np.int16))
HEAD = int.from_bytes(ARRAY[:8], "big") + 8
NPY = ARRAY[HEAD:]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"x",
        whole("{"),
        whole("3"),
        whole('["none", 1]'),
        whole("[]"),
        whole('["int"]'),
        whole('["int", 3]'),
        whole('["int", "zz"]'),
        whole('["float", "x"]'),
        whole('["tuple", 3]'),
        whole('["tuple", "ab"]'),
        whole('["dict", [[["list", []], null]]]'),
        whole('["list", [' * 5000 + "]]" * 5000),
        whole('["str", 1]'),
        whole('["other", 1]'),
        whole('"int"'),
        whole("null", b"more"),
        encode([1, 2])[:-1],
        ARRAY[:-1],
        ARRAY + b"1",
        whole('["array", 3]', b"abc"),
        whole(f'["array", {len(NPY)}]', NPY.replace(b"<i2", b"|O8")),
        whole(f'["array", {len(NPY)}]', NPY.replace(b"(3,)", b"(4,)")),
        whole(f'["array", {len(NPY)}]', NPY.replace(b"(3,)", b"(2,)")),
        whole(f'["array", {len(NPY)}]', NPY[:6] + b"\x02" + NPY[7:]),
        whole('["float", 1.5]'),
    ],
    ids=range(27),
)
def test_damaged_bytes_are_refused(damaged: bytes) -> None:
    with pytest.raises(DamagedBytesError):
        decode(damaged)


# Requests and replies, with a process whose replies are set


class Puppet:
    """Replacement for a `Process` that sends a reply per request, and ends as a test sets."""

    def __init__(self, environment: dict[str, str], modules: Sequence[str] = ()) -> None:
        self.environment = environment
        self.pid = 11
        self.top_pid = 12
        self.status: int | None = None
        self.kills = 0
        inside, self.stdin = (
            os.fdopen(fd, mode, 0) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        )
        self.stdout, self.says = (
            os.fdopen(fd, mode, 0) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        )
        self.stderr, self.prints = (
            os.fdopen(fd, mode, 0) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        )
        self.inside = os.fdopen(os.dup(inside.fileno()), "rb")
        inside.close()
        self.requests: list[Any] = []
        self.replies: list[bytes] = []
        self.nonce = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError), self.inside:
            self.nonce = self.inside.read(child.NONCE_BYTES)
            self.tell(encode("ready"))
            while request := self.inside.read(int.from_bytes(self.inside.read(child.LENGTH_BYTES), "big")):
                self.requests.append(pickle.loads(request))
                self.says.write(self.replies.pop(0))

    def framed(self, reply: bytes) -> bytes:
        return self.nonce + len(reply).to_bytes(child.LENGTH_BYTES, "big") + reply

    def tell(self, reply: bytes) -> None:
        self.says.write(self.framed(reply))

    def poll(self) -> int | None:
        return self.status

    def kill(self) -> None:
        self.kills += 1
        for pipe in (self.says, self.prints):
            pipe.close()


@pytest.fixture
def puppets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Puppet]]:
    """Replace processes by puppets, of which the list has all, and what they use by a constant."""
    started: list[Puppet] = []

    def process(environment: dict[str, str], modules: Sequence[str]) -> Puppet:
        started.append(Puppet(environment))
        return started[-1]

    monkeypatch.setattr(talk, "Process", process)
    monkeypatch.setattr(talk, "ResourceMeter", Uses)
    set_use(monkeypatch, NOTHING)
    yield started
    for puppet in started:
        puppet.stdin.close()


class Uses:
    """Replacement for a `ResourceMeter`, with the use that a test sets."""

    uses: Any = staticmethod(lambda: NOTHING)

    def __init__(self, pid: int) -> None:
        assert pid == 12

    def measure_use(self, memory_limit_bytes: int) -> ResourceUse:
        use: ResourceUse = type(self).uses()
        return use


NOTHING = ResourceUse(1, 0.0, 0, False)


def set_use(monkeypatch: pytest.MonkeyPatch, uses: Any) -> None:
    """Let the process use what a function returns, or a constant."""
    monkeypatch.setattr(Uses, "uses", staticmethod(uses if callable(uses) else lambda: uses))


def ask(
    puppet: Puppet, line: RequestProcess, replies: Sequence[Any], shown: str = "f(1)", **options: Any
) -> Any:
    puppet.replies = [r if isinstance(r, bytes) else puppet.framed(encode(r)) for r in replies]
    return line.ask(shown, len, 3, **options)


def test_a_reply_is_a_value_or_an_error(puppets: list[Puppet]) -> None:
    with RequestProcess("virtual:T4", 1.0, environment_variables={"MPLBACKEND": "Agg"}) as line:
        (puppet,) = puppets
        assert puppet.environment["GPULAB_DEVICE"] == "virtual:T4"
        assert puppet.environment["MPLBACKEND"] == "Agg"
        assert puppet.environment["PYTHONPATH"].split(os.pathsep) == list(filter(None, sys.path))
        assert puppet.environment["PATH"] == os.environ["PATH"]
        assert ask(puppet, line, [("value", [1, "a"])]) == [1, "a"]
        assert puppet.requests == [(len, False, 3)]
        for reply, message in (
            (("raised", "it raised KeyError: 3"), "f(1) raised KeyError: 3"),
            (("not yet", "it is\nnot \x1b there."), "it is not   there."),
            (("raised", "it raised \tKeyError"), "f(1) raised  KeyError"),
        ):
            with pytest.raises(ProcessError) as error:
                ask(puppet, line, [reply])
            assert str(error.value) == message
        with pytest.raises(ProcessError, match=r"^it raised KeyError: 3$"):
            ask(puppet, line, [("raised", "it raised KeyError: 3")], shown="")
        for reply in (("else", 3), ("value",), ("raised", 3), ("asks", (1,)), 3, None):
            with pytest.raises(DamagedBytesError, match="no reply"):
                ask(puppet, line, [reply])
    assert puppet.kills
    assert puppet.stdin.closed
    assert puppet.stdout.closed


def test_requests_of_the_process_are_answered_by_the_judge(puppets: list[Puppet]) -> None:
    def back(number: int, text: str) -> str:
        if number < 0:
            raise ValueError("too low")
        return text * number

    with RequestProcess("virtual:T4", 1.0) as line:
        (puppet,) = puppets
        replies = [("asks", (2, "ab")), ("asks", (-1, "ab")), ("asks", (1,)), ("value", 5)]
        assert ask(puppet, line, replies, back=back) == 5
        request, answer, raised, wrong = puppet.requests
        assert (request, answer) == ((len, True, 3), (False, "abab"))
        assert (raised[0], type(raised[1]), str(raised[1])) == (True, ValueError, "too low")
        assert (wrong[0], type(wrong[1])) == (True, TypeError)
        with pytest.raises(ZeroDivisionError):
            ask(puppet, line, [("asks", (0,))], back=lambda n: 1 / n)


def test_malformed_replies_are_refused(puppets: list[Puppet]) -> None:
    for wrong in (
        lambda p: b"x",
        lambda p: b"x" * 100,
        lambda p: p.nonce[:-1] + b"\x00\x01" + bytes(40),
        lambda p: p.nonce + (values.MAX_VALUE_BYTES + 1).to_bytes(8, "big"),
        lambda p: p.framed(b"no value"),
    ):
        with RequestProcess("virtual:T4", 1.0) as line, pytest.raises(DamagedBytesError):
            ask(puppets[-1], line, [wrong(puppets[-1])])


def test_partial_and_combined_replies_are_decoded(puppets: list[Puppet]) -> None:
    with RequestProcess("virtual:T4", 1.0) as line:
        (puppet,) = puppets
        long = puppet.framed(encode(("value", "x" * 200_000)))  # more than a pipe holds
        assert len(ask(puppet, line, [long])) == 200_000
        two = puppet.framed(encode(("value", 1))) + puppet.framed(encode(("value", 2)))
        assert ask(puppet, line, [two[:-3]]) == 1
        assert ask(puppet, line, [two[-3:]]) == 2


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (-signal.SIGSEGV, "it crashed Python (SIGSEGV)."),
        (3, "it ended Python with status 3 before it returned"),
        (None, "it closed the connection to the check"),
    ],
)
def test_error_explains_why_the_process_ended(
    puppets: list[Puppet], monkeypatch: Any, status: Any, message: str
) -> None:
    clock(monkeypatch, 0.3)
    with RequestProcess("virtual:T4", 100.0, 1000.0) as line:
        puppets[0].status = status
        puppets[0].says.close()
        with pytest.raises(ProcessError) as error:
            line.ask("f(1)", len, 3)
        assert message in str(error.value)


# Limits, with a clock and uses of the test's own


def clock(monkeypatch: pytest.MonkeyPatch, step_s: float) -> SimpleNamespace:
    """Let the time advance by a step at each reading."""
    time_now = SimpleNamespace(s=0.0)

    def monotonic() -> float:
        time_now.s += step_s
        return float(time_now.s)

    monkeypatch.setattr(talk, "time", SimpleNamespace(monotonic=monotonic, sleep=lambda s: None))
    return time_now


def limited(monkeypatch: pytest.MonkeyPatch, uses: Any, shown: str = "f(1)", **limits: Any) -> str:
    """Return the reason for which a process is ended that never replies and uses these resources."""
    set_use(monkeypatch, limits.pop("before", NOTHING))
    options: dict[str, Any] = {"limit_s": 4.0, "max_elapsed_s": 50.0, "memory_bytes": 3 << 29} | limits
    with RequestProcess("virtual:T4", **options) as line:
        set_use(monkeypatch, uses)
        clock(monkeypatch, 1.0)
        with pytest.raises(ProcessError) as error:
            line.ask(shown, len, 3)
    return str(error.value)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            ResourceUse(200, 4.0, 3 << 29, False),
            "did not finish within 50 s (in f(1)), and this busy computer gave it only 4.0 s",
        ),
        (ResourceUse(201, 0, 0, False), "it has started more than 200 processes (in f(1))"),
        (ResourceUse(1, 0, (3 << 29) + 1, False), "it takes more than 1.5 GiB of memory (in f(1))"),
        (ResourceUse(1, 4.01, 0, False), "it takes longer than 4 s of processor time (in f(1))"),
    ],
)
def test_process_over_its_resource_limits_is_ended(
    puppets: Any, monkeypatch: Any, use: ResourceUse, message: str
) -> None:
    assert message in limited(monkeypatch, use)
    assert message.replace(" (in f(1))", "") in limited(monkeypatch, use, "")


def test_earlier_use_of_a_process_does_not_count(puppets: Any, monkeypatch: Any) -> None:
    reason = limited(monkeypatch, ResourceUse(1, 13.0, 0, False), before=ResourceUse(1, 9.0, 0, False))
    assert "gave it only 4.0 s" in reason


def test_a_process_that_only_waits_is_ended_after_twice_its_limit(
    puppets: list[Puppet], monkeypatch: Any
) -> None:
    reason = limited(monkeypatch, ResourceUse(1, 0.0, 0, True))
    assert reason.startswith("it waits (in f(1)): for ")
    assert 8 < int(reason.partition("for ")[2].split()[0]) <= 8 + 6  # it is checked every few seconds
    assert "sleep()" in reason

    def printing() -> ResourceUse:
        puppets[-1].prints.write(b"x")
        time.sleep(0.005)
        return ResourceUse(1, 0.0, 0, True)

    assert "it did not finish within 50 s" in limited(monkeypatch, printing), "printing is no waiting"


def test_replying_process_is_not_treated_as_waiting(puppets: list[Puppet], monkeypatch: Any) -> None:
    set_use(monkeypatch, ResourceUse(1, 0.0, 0, True))
    with RequestProcess("virtual:T4", 10.0, max_elapsed_s=1000.0) as line:
        clock(monkeypatch, 5.0)  # the judge itself gets little processor time
        for _ in range(9):
            assert ask(puppets[-1], line, [("value", 1)]) == 1


def test_a_process_that_prints_too_much_is_ended(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "_MAX_PRINTED_BYTES", 1 << 20)

    def printing(size: int) -> Any:
        def prints() -> ResourceUse:
            puppets[-1].prints.write(bytes(size))
            return NOTHING

        return prints

    assert "prints more than 1 MiB (in f(1))" in limited(monkeypatch, printing(60_000), max_elapsed_s=1e6)
    assert "it did not finish" in limited(monkeypatch, printing(10))


def test_process_that_does_not_start_in_time_is_an_error(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(Puppet, "tell", lambda self, reply: None)
    set_use(monkeypatch, ResourceUse(1, 99.0, 0, True))
    time_now = clock(monkeypatch, 3.0)
    with pytest.raises(ProcessError, match=r"could not start in time, because this computer is very busy"):
        RequestProcess("virtual:T4", 1.0).__enter__()
    assert 60 < time_now.s < 100
    assert puppets[0].kills


def test_limits_can_be_changed_and_have_defaults(puppets: list[Puppet], monkeypatch: Any) -> None:
    set_use(monkeypatch, ResourceUse(1, 5.0, 0, False))
    with RequestProcess("virtual:T4", 1.0) as line:
        set_use(monkeypatch, ResourceUse(1, 5.5, 0, False))
        line.set_limits(2.0, 30.0, 1 << 30)
        set_use(monkeypatch, ResourceUse(1, 7.0, 1 << 30, False))
        clock(monkeypatch, 1.0)
        with pytest.raises(
            ProcessError, match=r"did not finish within 30 s, and this busy computer gave it only 1\.5 s"
        ):
            line.ask("", len)
    defaults: Any = {"max_elapsed_s": None, "memory_bytes": None}
    assert "did not finish within 20 s" in limited(monkeypatch, ResourceUse(1, 0, 3 << 30, False), **defaults)
    assert "more than 3 GiB" in limited(monkeypatch, ResourceUse(1, 0, (3 << 30) + 1, False), **defaults)


# What is printed


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"", ""),
        (b"one\ntwo\n", "one\ntwo\n"),
        (b"no end", "no end\n"),
        (b"\x1b[31mred\x1b[0m \x00\x07bell\x7f\ttab\n", "red bell\ttab\n"),
        (b"\xff\n", "\ufffd\n"),
        (b"x" * 200 + b"\n", "x" * 200 + "\n"),
        (b"x" * 201 + b"\n", "x" * 200 + "…\n"),
        (b"line\n" * 20, "line\n" * 20),
        (b"line\n" * 21, "line\n" * 20 + "... 1 more line was printed during the check.\n"),
        (b"line\n" * 3000, "line\n" * 20 + "... 2,980 more lines were printed during the check.\n"),
    ],
    ids=range(10),
)
def test_the_first_lines_of_the_output_are_shown(
    puppets: list[Puppet], capsys: Any, printed: bytes, shown: str
) -> None:
    with RequestProcess("virtual:T4", 1.0) as line:
        puppets[0].prints.write(printed)
        apart._show_printed_output(line)
    assert capsys.readouterr().out == shown


def test_the_start_of_the_output_is_kept_and_all_lines_counted(puppets: Any) -> None:
    for size, options in ((8192, {}), (10, {"kept_bytes": 10})):
        with RequestProcess("virtual:T4", 1.0, **options) as line:
            puppets[-1].prints.write(b"abcd\n" * 4000)
            text, lines = line.end_and_read_output()
        assert (text, lines) == (("abcd\n" * 4000)[:size], 4000)


# The processes


@pytest.mark.parametrize("way", ["forked", "started"])
def test_a_process_reports_how_it_ended(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "started":
        monkeypatch.setattr(processes, "_MESSAGE_BYTES", 10)  # the start is longer than a message
    elif sys.platform != "linux":
        pytest.skip("forks on Linux only")

    def until(condition: Any) -> None:
        end_s = time.monotonic() + 10
        while not condition() and time.monotonic() < end_s:
            time.sleep(0.005)
        assert condition()

    for end in ("by itself", "killed", "stopped"):
        process = Process(dict(os.environ))
        with process.stdin, process.stdout, process.stderr:
            assert process.poll() is None
            assert (process.top_pid == process.pid) == (way == "started")
            assert process.top_pid in find_descendants(os.getpid())
            if end == "by itself":
                os.write(process.stdin.fileno(), b"n" * child.NONCE_BYTES)
                assert process.stdout.read(child.NONCE_BYTES) == b"n" * child.NONCE_BYTES
                process.stdin.close()
                until(lambda process=process: process.poll() is not None)
                assert process.poll() == 0
                process.kill()
                assert process.poll() == 0, "it ended by itself"
            else:
                if end == "stopped":  # the process that watches over it
                    os.kill(process.top_pid, signal.SIGSTOP)
                process.kill()
                assert process.poll() == -signal.SIGKILL
                process.kill()
        until(lambda process=process: tree._has_ended(process.pid) and tree._has_ended(process.top_pid))


# What they use


class Tree:
    """Replacement for psutil: processes with made-up uses, by number."""

    Error = psutil.Error
    STATUS_STOPPED = psutil.STATUS_STOPPED

    def __init__(self, **uses: tuple[float, float, int, str]) -> None:
        self.uses = {int(name[1:]): use for name, use in uses.items()}
        self.made: list[int] = []

    def Process(self, pid: int) -> Any:
        if pid not in self.uses:
            raise psutil.NoSuchProcess(pid)
        self.made.append(pid)

        def of(index: int) -> Any:
            if pid not in self.uses:
                raise psutil.NoSuchProcess(pid)
            return self.uses[pid][index]

        return SimpleNamespace(
            pid=-pid,
            oneshot=contextlib.nullcontext,
            status=lambda: of(3),
            cpu_times=lambda: (of(0), 0.5, of(1), 0.25, 100.0),
            memory_info=lambda: SimpleNamespace(rss=of(2)),
            memory_full_info=lambda: SimpleNamespace(pss=of(2) // 2, uss=1),
        )

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tree, "psutil", self)
        monkeypatch.setattr(tree, "find_descendants", lambda pid: [n for n in self.uses if n != pid])


def test_the_use_of_a_process_and_its_children_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    Tree().install(monkeypatch)
    assert ResourceMeter(1).measure_use(9) == ResourceUse(1, 0.0, 0, True)
    processes = Tree(p1=(1.0, 0.0, 1000, "sleeping"), p2=(2.0, 1.0, 500, "sleeping"))
    processes.install(monkeypatch)
    watch = ResourceMeter(1)
    assert watch.measure_use(1500) == ResourceUse(2, 5.5, 1500, True)  # 0.75 each for system and children
    assert watch.measure_use(1499) == ResourceUse(
        2, 5.5, 750, True
    )  # above the limit, shared memory counts once
    processes.uses[2] = (3.0, 1.0, 500, "running")
    assert watch.measure_use(9999) == ResourceUse(2, 6.5, 1500, False)
    processes.uses.update({1: (1.0, 0.0, 1000, "running"), 2: (3.0, 1.0, 500, "sleeping")})
    assert watch.measure_use(9999) == ResourceUse(2, 6.5, 1500, False)
    processes.uses[1] = (1.0, 0.0, 1000, "sleeping")
    assert processes.made == [1, 2]
    # The time of an ended process is not lost, nor counted twice when its parent reads its status.
    del processes.uses[2]
    assert watch.measure_use(9999) == ResourceUse(1, 6.5, 1000, True)
    processes.uses[1] = (1.0, 2.0, 1000, "disk-sleep")
    assert watch.measure_use(9999) == ResourceUse(1, 8.5, 1000, False)
    assert watch.measure_use(999) == ResourceUse(1, 8.5, 1000, False)  # a single process shares no memory
    del processes.uses[1]
    assert watch.measure_use(999) == ResourceUse(1, 8.5, 0, True)
    processes.uses.update((n, (9.0, 0.0, 1, "running")) for n in range(2, 201))
    assert watch.measure_use(9999).process_count == 200
    processes.uses[201] = (9.0, 0.0, 1, "running")
    assert watch.measure_use(9999) == ResourceUse(201, 8.5 + 199 * 9.75, 0, False)  # too many to read each


def test_children_are_found_without_the_systems_child_list(monkeypatch: Any, tmp_path: Any) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        for place in (tree._PROC_FOLDER, tmp_path):
            monkeypatch.setattr(tree, "_PROC_FOLDER", place)
            assert process.pid in tree.find_children(os.getpid())
            assert process.pid in find_descendants(os.getpid())
            assert tree.find_children(process.pid) == []
            assert not tree._has_ended(process.pid)
    assert tree.find_children(process.pid) == []
    assert tree._has_ended(process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_descendants_are_found_stopped_and_ended() -> None:
    sleeps = "import time; print(1, flush=True); time.sleep(99)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeps!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        (grandchild,) = find_descendants(parent.pid)
        assert tree.find_children(parent.pid) == [grandchild]
        assert tree.find_children(grandchild) == []
        assert parent.pid in tree.find_children(os.getpid())
        assert {parent.pid, grandchild} <= set(find_descendants(os.getpid()))
        assert not tree.is_stopped(parent.pid)
        parent.send_signal(signal.SIGSTOP)
        while not tree.is_stopped(parent.pid):
            time.sleep(0.001)
        tree.end_descendants(parent.pid)
        assert tree._has_ended(grandchild)
        assert not tree._has_ended(parent.pid)
        parent.kill()
    assert tree._has_ended(parent.pid)
    assert not tree.is_stopped(parent.pid)
    assert find_descendants(parent.pid) == []
