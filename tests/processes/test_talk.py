"""The line to an answer's process: plain data, requests and replies, limits, and the words for each end."""

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
from gpulab.processes.talk import Talk
from gpulab.processes.tree import ResourceUse, Watch, descendants
from gpulab.processes.values import DamagedError, OnDevice, Other, TooMuchError, decode, encode
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
def test_plain_data_come_as_they_were(value: Any) -> None:
    found = decode(encode(value))
    assert (found, type(found), repr(found)) == (value, type(value), repr(value))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.zeros((0, 4)),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array([True, False]),
        np.array(["ab", "c"]),
        np.array(3),
        np.array([b"ab"]),
        np.arange(9)[::-2],
        np.array([np.nan, -0.0]),
        np.array([1 + 2j]),
        np.zeros(3, "U0"),
    ],
)
def test_arrays_come_as_they_were(array: Any) -> None:
    for sent in (array, OnDevice(array)):
        found = decode(encode([sent, 3]))[0]
        assert type(found) is type(sent)
        held = found.values if isinstance(found, OnDevice) else found
        assert (held.dtype, held.shape, held.tobytes()) == (array.dtype, array.shape, array.tobytes())
        held[...] = held  # its own, to be written


def test_scalars_of_numpy_keep_their_type() -> None:
    for scalar in (np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1j), np.str_("a")):
        found = decode(encode(scalar))
        assert (type(found), found) == (type(scalar), scalar)


def test_what_is_of_a_subclass_comes_as_what_it_is_made_of() -> None:
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

    sent = [Number(3), Text("a"), Row([1]), Table(b=2), Real(0.5), np.arange(2).view(Grid)]
    found = decode(encode(sent))
    assert [type(part) for part in found] == [int, str, list, dict, float, np.ndarray]
    assert found[:5] == [3, "a", [1], {"b": 2}, 0.5]


def test_all_else_is_a_type_by_its_name() -> None:
    class Stream:
        __class__ = int  # type: ignore[assignment]

    assert decode(encode([Stream(), ..., {1}, np.array([None]), np.datetime64("2026-01-01")])) == [
        Other("Stream"),
        Other("ellipsis"),
        Other("set"),
        Other("ndarray"),
        Other("datetime64[D]"),
    ]
    assert repr(Other("Stream")) == "a value of type Stream"
    kinds = [values.kind_of(value) for value in (Other("Stream"), OnDevice(np.zeros(1)), 3, None)]
    assert kinds == ["Stream", "cupy.ndarray", "int", "NoneType"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("most", "too_much", "says"),
    [
        (nested(20), nested(21), "too many parts"),
        ({0: nested(19)}, {0: nested(20)}, "too many parts"),
        ((nested(19),), (nested(20),), "too many parts"),
        ([0] * 99_999, [0] * 100_000, "too many parts"),
        ((1 << 4096) - 1, 1 << 4096, "a number of thousands of digits"),
        (np.zeros((1 << 20) - 200, np.uint8), np.zeros((1 << 20) + 1, np.uint8), "more than 1 MiB"),
        (None, [np.zeros(600_000, np.uint8)] * 2, "more than 1 MiB"),
        (None, np.broadcast_to(np.uint8(0), (64 << 20) + 1), "more than 64 MiB"),
        ("x" * ((1 << 20) - 200), "x" * (1 << 20), "more than 1 MiB"),
    ],
    ids=range(9),
)
def test_what_is_too_large_does_not_cross(
    most: Any, too_much: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "1 MiB" in says:
        monkeypatch.setattr(values, "MOST_BYTES", 1 << 20)
    encode(most)
    with pytest.raises(TooMuchError, match=says):
        encode(too_much)


def test_parts_are_counted_at_every_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_MOST_PARTS", 5)
    for most in ([0] * 4, [[0, 0], 0], ({0: (0,)},), {0: 0, 1: 0}):
        assert decode(encode(most)) == most
    for too_much in ([0] * 5, [[0, 0], 0, 0], ({0: (0, 0)},), {0: 0, 1: [0]}):
        with pytest.raises(TooMuchError, match="too many parts"):
            encode(too_much)
    encode([0] * 4)  # each value by itself


def whole(text: str, rest: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "big") + text.encode() + rest


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
def test_damaged_bytes_are_no_value(damaged: bytes) -> None:
    with pytest.raises(DamagedError):
        decode(damaged)


# Requests and replies, with a process that only repeats what it was told to say


class Puppet:
    """Stands for a `Process`: tells its replies, one for a request, and ends as it is told to."""

    def __init__(self, environment: dict[str, str], modules: Sequence[str] = ()) -> None:
        self.environment = environment
        self.pid = 11
        self.top = 12
        self.status: int | None = None
        self.killed = 0
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
        self.heard: list[Any] = []
        self.replies: list[bytes] = []
        self.nonce = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError), self.inside:
            self.nonce = self.inside.read(child.NONCE_BYTES)
            self.tell(encode("ready"))
            while request := self.inside.read(int.from_bytes(self.inside.read(child.LENGTH_BYTES), "big")):
                self.heard.append(pickle.loads(request))
                self.says.write(self.replies.pop(0))

    def framed(self, reply: bytes) -> bytes:
        return self.nonce + len(reply).to_bytes(child.LENGTH_BYTES, "big") + reply

    def tell(self, reply: bytes) -> None:
        self.says.write(self.framed(reply))

    def poll(self) -> int | None:
        return self.status

    def kill(self) -> None:
        self.killed += 1
        for pipe in (self.says, self.prints):
            pipe.close()


@pytest.fixture
def puppets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Puppet]]:
    made: list[Puppet] = []

    def process(environment: dict[str, str], modules: Sequence[str]) -> Puppet:
        made.append(Puppet(environment))
        return made[-1]

    monkeypatch.setattr(talk, "Process", process)
    yield made
    for puppet in made:
        puppet.stdin.close()


class Uses:
    """Stands for a `Watch`: what the process uses is made up."""

    uses: Any = staticmethod(lambda: ResourceUse(1, 0.0, 0, False))

    def __init__(self, pid: int) -> None:
        assert pid == 12

    def look(self, memory_limit_bytes: int) -> ResourceUse:
        found: ResourceUse = type(self).uses()
        return found


def ask(puppet: Puppet, line: Talk, replies: Sequence[Any], shown: str = "f(1)", **more: Any) -> Any:
    puppet.replies = [r if isinstance(r, bytes) else puppet.framed(encode(r)) for r in replies]
    return line.ask(shown, len, 3, **more)


def test_a_reply_is_a_value_or_why_there_is_none(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    with Talk("virtual:T4", 1.0, variables={"MPLBACKEND": "Agg"}) as line:
        (puppet,) = puppets
        assert puppet.environment["GPULAB_DEVICE"] == "virtual:T4"
        assert puppet.environment["MPLBACKEND"] == "Agg"
        assert puppet.environment["PYTHONPATH"].split(os.pathsep) == list(filter(None, sys.path))
        assert puppet.environment["PATH"] == os.environ["PATH"]
        assert ask(puppet, line, [("value", [1, "a"])]) == [1, "a"]
        assert puppet.heard == [(len, False, 3)]
        for reply, says in (
            (("raised", "it raised KeyError: 3"), "f(1) raised KeyError: 3"),
            (("not yet", "it is\nnot \x1b there."), "it is not   there."),
            (("raised", "it raised \tKeyError"), "f(1) raised  KeyError"),
        ):
            with pytest.raises(ProcessError) as error:
                ask(puppet, line, [reply])
            assert str(error.value) == says
        with pytest.raises(ProcessError, match=r"^it raised KeyError: 3$"):
            ask(puppet, line, [("raised", "it raised KeyError: 3")], shown="")
        for reply in (("else", 3), ("value",), ("raised", 3), ("asks", (1,)), 3, None):
            with pytest.raises(DamagedError, match="no reply"):
                ask(puppet, line, [reply])
    assert puppet.killed
    assert puppet.stdin.closed
    assert puppet.stdout.closed


def test_what_is_asked_back_is_answered_by_the_judge(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)

    def back(number: int, text: str) -> str:
        if number < 0:
            raise ValueError("too low")
        return text * number

    with Talk("virtual:T4", 1.0) as line:
        (puppet,) = puppets
        asked = [("asks", (2, "ab")), ("asks", (-1, "ab")), ("asks", (1,)), ("value", 5)]
        assert ask(puppet, line, asked, back=back) == 5
        first, said, raised, wrong = puppet.heard
        assert (first, said) == ((len, True, 3), (False, "abab"))
        assert (raised[0], type(raised[1]), str(raised[1])) == (True, ValueError, "too low")
        assert (wrong[0], type(wrong[1])) == (True, TypeError)
        with pytest.raises(ZeroDivisionError):
            ask(puppet, line, [("asks", (0,))], back=lambda n: 1 / n)


def test_bytes_that_are_no_reply_of_the_check_are_refused(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    for wrong in (
        lambda p: b"x",
        lambda p: b"x" * 100,
        lambda p: p.nonce[:-1] + b"\x00\x01" + bytes(40),
        lambda p: p.nonce + (values.MOST_BYTES + 1).to_bytes(8, "big"),
        lambda p: p.framed(b"no value"),
    ):
        with Talk("virtual:T4", 1.0) as line, pytest.raises(DamagedError):
            ask(puppets[-1], line, [wrong(puppets[-1])])


def test_replies_may_come_in_pieces_and_at_once(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    with Talk("virtual:T4", 1.0) as line:
        (puppet,) = puppets
        long = puppet.framed(encode(("value", "x" * 200_000)))  # more than a pipe holds
        assert len(ask(puppet, line, [long])) == 200_000
        two = puppet.framed(encode(("value", 1))) + puppet.framed(encode(("value", 2)))
        assert ask(puppet, line, [two[:-3]]) == 1
        assert ask(puppet, line, [two[-3:]]) == 2


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (-signal.SIGSEGV, "it crashed Python (SIGSEGV)."),
        (0, "it ended Python with status 0 before it returned; leave out exit() and its kin."),
        (3, "it ended Python with status 3 before it returned; leave out exit() and its kin."),
        (None, "it closed the line to the check; leave file descriptors alone that are not yours."),
    ],
)
def test_how_a_process_ended_is_said(puppets: list[Puppet], monkeypatch: Any, status: Any, says: str) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    clock(monkeypatch, 0.3)
    with Talk("virtual:T4", 100.0, 1000.0) as line:
        puppets[0].status = status
        puppets[0].says.close()
        with pytest.raises(ProcessError) as error:
            line.ask("f(1)", len, 3)
        assert str(error.value) == says


# Limits, by a clock and a use of the test's own


def clock(monkeypatch: pytest.MonkeyPatch, step_s: float) -> SimpleNamespace:
    """Time goes on by so much whenever somebody asks."""
    told = SimpleNamespace(now=0.0)

    def monotonic() -> float:
        told.now += step_s
        return float(told.now)

    monkeypatch.setattr(talk, "time", SimpleNamespace(monotonic=monotonic, sleep=lambda s: None))
    return told


def limited(monkeypatch: pytest.MonkeyPatch, uses: Any, shown: str = "f(1)", **limits: Any) -> str:
    """Why an answer is ended that goes on and on, and uses what is made up."""
    given: dict[str, Any] = {"limit_s": 4.0, "longest_s": 50.0, "memory_bytes": 3 << 29} | limits
    with Talk("virtual:T4", **given) as line:
        monkeypatch.setattr(Uses, "uses", staticmethod(uses))
        clock(monkeypatch, 1.0)
        with pytest.raises(ProcessError) as error:
            line.ask(shown, len, 3)
    return str(error.value)


PROCESSES = "it has started more than 200 processes (in f(1));"
MEMORY = "it takes more than 1.5 GiB of memory (in f(1));"
TIME = "it takes longer than 4 s of processor time (in f(1));"
MOST = ResourceUse(200, 4.0, 3 << 29, False)
NOT_DONE = (
    "it was not done after 50 s (in f(1)), in which this busy computer gave it 4.0 s of processor time;"
)


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (MOST, f"{NOT_DONE} try again when less is running."),
        (ResourceUse(201, 0, 0, False), f"{PROCESSES} end those that you start, or start none."),
        (ResourceUse(1, 0, (3 << 29) + 1, False), f"{MEMORY} look for a list that grows on and on."),
        (ResourceUse(1, 4.01, 0, False), f"{TIME} look for a loop that does too much, or does not end."),
    ],
)
def test_who_takes_too_much_is_told_of_what(
    puppets: Any, monkeypatch: Any, use: ResourceUse, says: str
) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 0, 0, False)))
    assert limited(monkeypatch, lambda: use) == says
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 0, 0, False)))
    assert limited(monkeypatch, lambda: use, "") == says.replace(" (in f(1))", "")


def test_what_a_process_used_before_it_was_asked_does_not_count(puppets: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 9.0, 0, False)))
    assert "gave it 4.0 s" in limited(monkeypatch, lambda: ResourceUse(1, 13.0, 0, False))


def test_who_only_waits_has_twice_its_seconds(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    waiting = limited(monkeypatch, lambda: ResourceUse(1, 0.0, 0, True))
    assert waiting.startswith("it waits (in f(1)): for ")
    assert 8 < int(waiting.partition("for ")[2].split()[0]) <= 8 + 6  # the looks are some seconds apart
    assert waiting.endswith(
        "it computed next to nothing. Look for a sleep(), or for something that nobody ever does."
    )
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 0, 0, False)))
    looks: list[int] = []

    def printing() -> ResourceUse:
        looks.append(1)
        puppets[-1].prints.write(b"x")
        seen = time.perf_counter()
        while puppets[-1].environment and time.perf_counter() - seen < 0.005:
            time.sleep(0.001)
        return ResourceUse(1, 0.0, 0, True)

    assert "it was not done after 50 s" in limited(monkeypatch, printing)  # who prints does not wait


def test_who_has_replied_does_not_wait(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 0.0, 0, True)))
    with Talk("virtual:T4", 10.0, longest_s=1000.0) as line:
        clock(monkeypatch, 5.0)  # as where the judge itself gets hardly any time
        for _ in range(9):
            assert ask(puppets[-1], line, [("value", 1)]) == 1


def test_who_prints_on_and_on_is_ended(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    monkeypatch.setattr(talk, "_PRINTED_BYTES", 1 << 20)

    def printing(size: int) -> Any:
        def prints() -> ResourceUse:
            puppets[-1].prints.write(bytes(size))
            return ResourceUse(1, 0.0, 0, False)

        return prints

    said = "it prints more than 1 MiB (in f(1)); print less, and look for a loop that goes on and on."
    assert limited(monkeypatch, printing(60_000), longest_s=1e6) == said
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 0, 0, False)))
    assert "it was not done" in limited(monkeypatch, printing(10))


def test_a_process_that_does_not_stand_in_time_is_told_of(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    monkeypatch.setattr(Puppet, "tell", lambda self, reply: None)
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 99.0, 0, True)))
    told = clock(monkeypatch, 3.0)
    with pytest.raises(
        ProcessError, match=r"^the check could not start in time: this computer is very busy; try again.$"
    ):
        Talk("virtual:T4", 1.0).__enter__()
    assert 60 < told.now < 100
    assert puppets[0].killed


def test_limits_may_be_changed_and_are_those_of_the_module(puppets: list[Puppet], monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 5.0, 0, False)))
    with Talk("virtual:T4", 1.0) as line:
        monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 5.5, 0, False)))
        line.limit(2.0, 30.0, 1 << 30)
        monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 7.0, 1 << 30, False)))
        clock(monkeypatch, 1.0)
        with pytest.raises(
            ProcessError, match=r"not done after 30 s, in which this busy computer gave it 1\.5 s"
        ):
            line.ask("", len)
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 0, 0, False)))
    most = limited(monkeypatch, lambda: ResourceUse(1, 0, 3 << 30, False), longest_s=None, memory_bytes=None)
    assert "not done after 20 s" in most
    monkeypatch.setattr(Uses, "uses", staticmethod(lambda: ResourceUse(1, 0, 0, False)))
    more = limited(
        monkeypatch, lambda: ResourceUse(1, 0, (3 << 30) + 1, False), longest_s=None, memory_bytes=None
    )
    assert "more than 3 GiB" in more


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
def test_of_what_is_printed_the_first_lines_are_shown(
    puppets: list[Puppet], monkeypatch: Any, capsys: Any, printed: bytes, shown: str
) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    with Talk("virtual:T4", 1.0) as line:
        puppets[0].prints.write(printed)
        apart._show_printed(line)
    assert capsys.readouterr().out == shown


def test_so_much_of_what_is_printed_is_kept_and_all_lines_counted(puppets: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(talk, "Watch", Uses)
    for kept, more in ((8192, {}), (10, {"kept_bytes": 10})):
        with Talk("virtual:T4", 1.0, **more) as line:
            puppets[-1].prints.write(b"abcd\n" * 4000)
            text, lines = line.printed()
        assert (len(text), lines) == (kept, 4000)
        assert text == ("abcd\n" * 4000)[:kept]


# The processes


@pytest.mark.parametrize("way", ["forked", "started"])
def test_a_process_says_how_it_ended(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "started":
        monkeypatch.setattr(processes, "_MESSAGE_BYTES", 10)  # what is longer than a message
    elif sys.platform != "linux":
        pytest.skip("forks on Linux only")
    for ended in ("by itself", "killed", "stopped"):
        process = Process(dict(os.environ))
        with process.stdin, process.stdout, process.stderr:
            assert process.poll() is None
            assert (process.top == process.pid) == (way == "started")
            assert process.top in descendants(os.getpid())
            if ended == "by itself":
                os.write(process.stdin.fileno(), b"n" * child.NONCE_BYTES)
                assert process.stdout.read(child.NONCE_BYTES) == b"n" * child.NONCE_BYTES
                process.stdin.close()  # nobody asks any more
                until = time.monotonic() + 10
                while process.poll() is None and time.monotonic() < until:
                    time.sleep(0.005)
                assert process.poll() == 0
                process.kill()
                assert process.poll() == 0  # as it ended by itself
            else:
                if ended == "stopped":  # whoever watches over it stands still
                    os.kill(process.top, signal.SIGSTOP)
                process.kill()
                assert process.poll() == -signal.SIGKILL
                process.kill()
        until = time.monotonic() + 10
        while (
            not (tree._has_ended(process.pid) and tree._has_ended(process.top)) and time.monotonic() < until
        ):
            time.sleep(0.005)
        assert tree._has_ended(process.pid)
        assert tree._has_ended(process.top), "who watches over it ends with it"


# What they use


class Tree:
    """Stands for psutil: processes with made-up uses, by number."""

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
        monkeypatch.setattr(tree, "descendants", lambda pid: [n for n in self.uses if n != pid])


def test_what_a_tree_uses_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    Tree().install(monkeypatch)
    assert Watch(1).look(9) == ResourceUse(1, 0.0, 0, True)
    held = Tree(p1=(1.0, 0.0, 1000, "sleeping"), p2=(2.0, 1.0, 500, "sleeping"))
    held.install(monkeypatch)
    watch = Watch(1)
    assert watch.look(1500) == ResourceUse(2, 5.5, 1500, True)  # 0.75 each for system and children
    assert watch.look(1499) == ResourceUse(
        2, 5.5, 750, True
    )  # more than the limit: what they share counts once
    held.uses[2] = (3.0, 1.0, 500, "running")
    assert watch.look(9999) == ResourceUse(2, 6.5, 1500, False)
    assert held.made == [1, 2]
    # What has ended, and nobody has read, is not lost; nor does it count twice when its parent reads it.
    del held.uses[2]
    assert watch.look(9999) == ResourceUse(1, 6.5, 1000, True)
    held.uses[1] = (1.0, 2.0, 1000, "disk-sleep")
    assert watch.look(9999) == ResourceUse(1, 8.5, 1000, False)
    assert watch.look(999) == ResourceUse(1, 8.5, 1000, False)  # alone, it shares with nobody
    del held.uses[1]
    assert watch.look(999) == ResourceUse(1, 8.5, 0, True)
    held.uses.update((n, (9.0, 0.0, 1, "running")) for n in range(2, 201))
    assert watch.look(9999).processes == 200
    held.uses[201] = (9.0, 0.0, 1, "running")
    assert watch.look(9999) == ResourceUse(201, 8.5 + 199 * 9.75, 0, False)  # too many to look at


def test_children_are_found_where_the_system_has_no_list(monkeypatch: Any, tmp_path: Any) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as begun:
        for place in (tree._PROC, tmp_path):
            monkeypatch.setattr(tree, "_PROC", place)
            assert begun.pid in tree.children(os.getpid())
            assert begun.pid in descendants(os.getpid())
            assert tree.children(begun.pid) == []
            assert not tree._has_ended(begun.pid)
    assert tree.children(begun.pid) == []
    assert tree._has_ended(begun.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_descendants_are_found_stopped_and_ended() -> None:
    sleeps = "import time; print(1, flush=True); time.sleep(99)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeps!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        (grandchild,) = descendants(parent.pid)
        assert tree.children(parent.pid) == [grandchild]
        assert tree.children(grandchild) == []
        assert parent.pid in tree.children(os.getpid())
        assert {parent.pid, grandchild} <= set(descendants(os.getpid()))
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
    assert descendants(parent.pid) == []
