"""What a program's lines, streams and arrays are called, and what a watch tells of them, by hand."""

from __future__ import annotations

import gc
import sys
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from virtualgpu.errors import GpulabError
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording import line_watch, ports, program_lines, program_names, recorder, watch
from virtualgpu.model.recording.line_watch import LineWatch, _LineSearch
from virtualgpu.model.recording.program_lines import ProgramLines, display_name
from virtualgpu.model.recording.program_names import ProgramNames
from virtualgpu.model.recording.recorder import Recorder
from virtualgpu.model.recording.watch import StreamRef, Watch
from virtualgpu.records import Activity
from virtualgpu.records.acts import (
    HOST,
    Allocation,
    EventRecord,
    EventWait,
    GraphLaunch,
    GraphMade,
    HostUse,
    HostWait,
    NewStream,
    Region,
    Release,
    Work,
)

# -- lines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "module", "own"),
    [
        ("/elsewhere/program.py", "program", True),
        ("/elsewhere/program.py", "numpyish.core", True),
        ("<ipython-input-3>", "__main__", True),
        ("<string>", "program", True),
        ("<string>", "gpulab.views", False),
        ("<string>", "namedtuple_Point", False),
        ("<frozen importlib._bootstrap>", "importlib._bootstrap", False),
        ("<__array_function__ internals>", "program", False),
        ("/elsewhere/x.py", "numpy.linalg", False),
        ("/elsewhere/x.py", "virtualgpu", False),
        ("/elsewhere/x.py", "ipykernel.kernelbase", False),
        ("/elsewhere/x.py", "gpulab.session", False),
        ("/elsewhere/x.py", "gpulab_course.content.n01", True),
        (program_lines.__file__, "__main__", False),
        (f"{sysconfig.get_path('stdlib')}/json/decoder.py", "json.decoder", False),
        (f"{sysconfig.get_path('purelib')}/somebody/x.py", "somebody.x", False),
        (f"{sysconfig.get_path('stdlib')}ish/x.py", "x", True),
    ],
)
def test_which_files_are_the_program_s(name: str, module: str, own: bool) -> None:
    assert ProgramLines().belongs(name, module) is own


def test_which_classes_are_the_program_s() -> None:
    lines = ProgramLines()
    assert lines.is_own_class(SimpleNamespace) is False
    assert lines.is_own_class(np.ndarray) is False
    assert lines.is_own_class(ProgramLines) is False
    made = type("Model", (), {"__module__": "torch.nn"})
    assert lines.is_own_class(made) is True
    assert lines.is_own_class(type("Model", (), {"__module__": "numpy.ma.core"})) is False


def module(name: str, code: str, file: str = "<string>") -> dict[str, Any]:
    variables: dict[str, Any] = {"__name__": name}
    exec(compile(code, file, "exec"), variables)
    return variables


def test_the_program_s_line_is_found_through_libraries(tmp_path: Path) -> None:
    lines = ProgramLines()
    path = tmp_path / "prog.py"
    path.write_text("def run(f, lines):\n    return f(lines)  # here\n")
    run = module("prog", path.read_text(), str(path))["run"]
    library = "def ask(lines):\n    return lines.here()\ndef through(lines):\n    return ask(lines)\n"
    for _ in range(2):
        source, called = run(module("numpy.fake", library)["through"], lines)
        assert (source.file, source.line, source.text, called) == (
            "prog.py",
            2,
            "return f(lines)  # here",
            "through",
        )
    assert lines.here()[1] == "here"
    with ThreadPoolExecutor(1) as pool:  # whose thread runs nothing of the program
        source, called = pool.submit(lines.here).result()
    assert (source, bool(called)) == (None, True)
    assert [*lines.outward(None)] == []


def test_frames_of_the_program_from_inside_out() -> None:
    lines = ProgramLines()

    def inner() -> list[str]:
        return [frame.f_code.co_name for frame in lines.outward(sys._getframe())]

    through = module("numpy.fake", "def through(f):\n    return f()\n")["through"]

    def outer() -> list[str]:
        return list(through(inner))

    assert outer()[:3] == ["inner", "outer", "test_frames_of_the_program_from_inside_out"]
    assert "through" not in outer()


def test_names_that_several_modules_share_are_asked_about_each_time() -> None:
    lines = ProgramLines()
    ours = module("numpy.fake", "def f(g):\n    return g()\n")["f"]
    theirs = module("mine", "def h(f, g):\n    return f(g)\n")["h"]
    for _ in range(2):
        frames = theirs(ours, lambda: [f.f_code.co_name for f in lines.outward(sys._getframe())])
        assert frames[1] == "h"


def test_files_as_a_page_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    assert display_name("/elsewhere/program.py") == "program.py"
    assert display_name("<string>") == "<string>"
    told = {
        "/tmp/1.py": ("cell", "In [12]"),
        "/tmp/2.py": ("cell", "In[3]"),
        "/tmp/3.py": ("file", "x In [1]"),
    }
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=told.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert [display_name(f"/tmp/{n}.py") for n in (1, 2, 3, 4)] == ["cell [12]", "cell [3]", "3.py", "4.py"]
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert display_name("/tmp/1.py") == "1.py"


# -- names ------------------------------------------------------------------------------------------------


class Array:
    """A device's array."""

    __cuda_array_interface__ = property(lambda self: {})

    def __init__(self, at: int, size: int = 1, base: Any = None) -> None:
        self.data = SimpleNamespace(ptr=at)
        self.size = size
        self.base = base


class Stream:
    def __init__(self, ptr: int, device_id: int | None = None) -> None:
        self.ptr = ptr
        if device_id is not None:
            self.device_id = device_id

    def wait_event(self) -> None:
        """As CuPy's."""


class Model:
    def __init__(self, **members: Any) -> None:
        vars(self).update(members)


Model.__module__ = "mine"


def taken(**variables: Any) -> ProgramNames:
    made = ProgramNames(ProgramLines())
    made.take(variables)
    return made


def test_variables_items_and_attributes_are_names() -> None:
    names = taken(
        x=Array(1),
        xs=[Array(2), Array(3)],
        pair=(Array(4),),
        by={"a": Array(5), 7: Array(6)},
        model=Model(w=Array(8), _hidden=Array(9), layers=[Array(10)]),
        _private=Array(11),
        empty=Array(12, 0),
        other=Model(inner=Model(w=Array(13))),
    )
    found = {at: names.array(at) for at in range(1, 14)}
    assert found == {
        1: "x",
        2: "xs[0]",
        3: "xs[1]",
        4: "pair[0]",
        5: "by['a']",
        6: "by[7]",
        7: "",
        8: "model.w",
        9: "",
        10: "model.layers[0]",
        11: "",
        12: "",
        13: "",
    }
    assert sorted(names.array_names()) == sorted(name for name in found.values() if name)


def test_what_the_host_holds_has_names_too() -> None:
    a = np.zeros(8)
    names = taken(a=a, views=[a[2:]])
    where = a.__array_interface__["data"][0]
    assert (names.array(where), names.array(where + 16)) == ("a", "views[0]")
    assert taken(b=a[:], a=a).array(where) == "a", "a view comes after what it views"
    assert taken(a=a, b=a[:]).array(where) == "a"


def test_the_best_name_is_the_outermost_and_shortest() -> None:
    x = Array(1)
    assert taken(x=x, xs=[x]).array(1) == "x"
    assert taken(xs=[x], x=x).array(1) == "x"
    assert taken(ys=[x], model=Model(xs=[x], y=x)).array(1) == "model.y"
    names = ProgramNames(ProgramLines())
    names.take({"deep": x}, 2)
    names.take({"outer": x}, 0)
    names.take({"deeper": x}, 3)
    assert names.array(1) == "outer"
    names = ProgramNames(ProgramLines())
    names.take({"local": x}, 1)
    names.take({"xs": [x]}, 0)
    assert names.array(1) == "xs[0]", "a global list goes before a local variable"
    assert taken(view=Array(1, base=x), whole=x).array(1) == "whole"


def test_a_variable_that_means_several_things_gives_way() -> None:
    names = taken(xs=[Array(1), Array(2)])
    for at in (1, 2):
        names.take({"x": Array(at)})
    assert [names.array(1), names.array(2)] == ["xs[0]", "xs[1]"]
    names = ProgramNames(ProgramLines())
    for at in (1, 2):
        names.take({"x": Array(at)})
    assert [names.array(1), names.array(2)] == ["x", "x"]


def test_of_very_many_members_and_variables_none_is_looked_at() -> None:
    many = [Array(at) for at in range(1, 66)]
    assert taken(xs=many[:64]).array(64) == "xs[63]"
    assert taken(xs=many).array(1) == ""
    members = {f"a{at}": Array(at) for at in range(1, 70)}
    assert [taken(m=Model(**members)).array(at) for at in (1, 64, 65)] == ["m.a1", "m.a64", ""]
    variables = {f"v{at}": at for at in range(1999)} | {"x": Array(1)}
    assert taken(**variables).array(1) == "x"
    assert taken(**variables, more=1).array(1) == ""
    assert taken(**{"not a name": Array(1)}).array(1) == ""


def test_streams_have_names_on_each_device() -> None:
    anywhere = taken(u=Stream(9), v=Stream(9, 0))
    assert [anywhere.stream(device, 9) for device in (0, 1)] == ["v", "u"]
    names = taken(s=Stream(7, 0), t=Stream(7, 1), u=Stream(9))
    assert [names.stream(0, 7), names.stream(1, 7), names.stream(1, 9), names.stream(0, 8)] == [
        "s",
        "t",
        "u",
        "",
    ]
    assert names.changes == 3
    names.take({"s": Stream(7, 0)})
    assert names.changes == 3
    names.take({"s": Stream(8, 0)})
    assert names.changes == 4


def test_what_is_gone_loses_its_name() -> None:
    names = taken(x=Array(10), y=Array(20), z=[Array(15)])
    names.forget(10, 20)
    assert [names.array(at) for at in (10, 15, 20)] == ["", "", "y"]


def test_a_frame_is_looked_at_a_few_times_for_each_of_its_lines() -> None:
    names = ProgramNames(ProgramLines())

    def program(count: int) -> None:
        for at in range(count):
            x = Array(at + 1)  # noqa: F841
            names.look(sys._getframe())

    program(5)
    assert [names.array(at) for at in range(1, 6)] == ["x", "x", "x", "", ""]

    def again() -> None:
        y = Array(77)  # noqa: F841
        names.look_again(sys._getframe())

    again()
    assert [names.array(at) for at in (1, 2, 3, 77)] == ["", "", "", "y"], "what there was does not count"
    program(1)
    assert names.array(1) == "x", "and lines count from anew"


def test_globals_go_before_locals_and_callers_before_those_they_call() -> None:
    names = ProgramNames(ProgramLines())
    code = (
        "def inner(names, frame, mine):\n    z = only\n    names.look(frame())\n    return z\n"
        "def outer(names, frame, x):\n    y = x\n    inner(names, frame, x)\n    return y\n"
    )
    array = Array(5)
    kept = Array(6)
    variables = module("mine", code) | {"only": kept}
    exec(compile(code, "<string>", "exec"), variables)
    variables["outer"](names, lambda: sys._getframe(1), array)
    assert names.array(6) == "only"
    assert names.array(5) == "array", "the outermost caller's, not that of those it calls"


@pytest.mark.parametrize("version", [sys.version_info, (3, 12, 9)])
def test_looking_keeps_no_array_alive(version: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.version_info < (3, 13):
        system = SimpleNamespace(version_info=version, getrefcount=sys.getrefcount)
        monkeypatch.setattr(program_names, "sys", system)
    names = ProgramNames(ProgramLines())
    ended: list[int] = []

    class Noted(Array):
        def __del__(self) -> None:
            ended.append(self.data.ptr)

    def program() -> None:
        x = Noted(3)
        names.look(sys._getframe())
        del x
        gc.collect()
        assert ended == [3]
        y = Noted(4)
        held = locals()
        names.look(sys._getframe())
        assert held["y"] is y, "the program's own copy of its variables stays"

    program()


# -- a timeline's recorder --------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 100

    def __call__(self) -> int:
        return self.now


def operation(
    number: int, stream: int = 0, kind: Any = "MEMCPY", start: int = 0, device: int = 0
) -> Activity:
    return Activity(
        kind=kind,
        name=f"op {number}",
        device_id=device,
        stream_id=stream,
        start_ns=start,
        end_ns=start + 5,
        correlation_id=number,
    )


FACTS = SimpleNamespace(blocking=True, priority=0)


def test_a_recorder_s_calls_have_their_times_and_operations() -> None:
    clock = Clock()
    made = Recorder(clock)
    assert (made.start_ns, made.begun and made.begun.file) == (100, Path(__file__).name)
    clock.now = 130
    made.ran(operation(3, 7), FACTS, 120)
    made.ran(operation(4, 9, "MEMSET"), FACTS, 125)
    made.captured("CONCURRENT_KERNEL", 126)
    made.called("cudaEventRecord", 127)
    made.ran_graph([operation(8, 11), operation(9, 12, device=1)], FACTS, 128)
    made.ran_graph([], FACTS, 129)
    assert [(c.name, c.start_ns, c.end_ns, c.correlation_id) for c in made.calls] == [
        ("cudaMemcpyAsync", 120, 130, 3),
        ("cudaMemsetAsync", 125, 130, 4),
        ("cuLaunchKernel", 126, 130, 0),
        ("cudaEventRecord", 127, 130, 0),
        ("cudaGraphLaunch", 128, 130, 8),
        ("cudaGraphLaunch", 129, 130, 0),
    ]
    assert {c.source.file for c in made.calls if c.source} == {Path(__file__).name}
    assert list(made.streams) == [(0, 7), (0, 9), (0, 11), (1, 12)]
    assert [a.correlation_id for a in made.activities] == [3, 4, 8, 9]


def test_operations_that_were_overtaken_get_their_new_times() -> None:
    made = Recorder(Clock())
    for number in range(1, 5):
        made.ran(operation(number, start=10 * number), FACTS, 0)
    made.moved({})
    made.moved({3: operation(3, start=80), 4: operation(4, start=90)})
    assert [a.start_ns for a in made.activities] == [10, 20, 80, 90]
    made.moved({1: operation(1, start=5), 3: operation(3, start=70)})
    assert [a.start_ns for a in made.activities] == [5, 20, 70, 90]


def test_a_copy_holds_up_the_call_that_gave_it_out() -> None:
    clock = Clock()
    made = Recorder(clock)
    first = operation(3, 7)
    second = operation(4, 9, "MEMCPY2")
    made.ran(first, FACTS, 90)
    made.ran(second, FACTS, 95)
    clock.now = 200
    made.held_up(first, 91, False)
    assert [(c.start_ns, c.end_ns) for c in made.calls] == [(90, 200), (95, 100)]
    assert made.waits == []
    clock.now = 300
    made.held_up(second, 96, True)
    assert [(c.start_ns, c.end_ns, c.correlation_id) for c in made.calls] == [(90, 200, 3), (95, 300, 4)]
    (wait,) = made.waits
    assert (wait.type, wait.stream_id, wait.start_ns, wait.end_ns, wait.name, wait.after, wait.hidden) == (
        "STREAM_SYNCHRONIZE",
        9,
        96,
        300,
        "cudaMemcpyPeerAsync",
        (4,),
        True,
    )
    assert wait.source == made.calls[1].source


def test_waits_and_orders_are_noted() -> None:
    clock = Clock()
    made = Recorder(clock)
    made.waited("STREAM_SYNCHRONIZE", "cudaStreamSynchronize", 90, 1, 7, (3, 4), 5)
    made.ordered(0, 8, 5, 7, (3,), FACTS)
    wait, order = made.waits
    assert (wait.device_id, wait.stream_id, wait.after, wait.event_id) == (1, 7, (3, 4), 5)
    assert (wait.start_ns, wait.end_ns, wait.hidden) == (90, 100, True)
    assert (order.device_id, order.stream_id, order.event_id, order.event_stream_id, order.after) == (
        0,
        8,
        5,
        7,
        (3,),
    )
    assert (order.start_ns, order.end_ns, order.hidden, order.type) == (100, 100, False, "STREAM_WAIT_EVENT")
    assert [(c.name, c.start_ns, c.end_ns, c.correlation_id) for c in made.calls] == [
        ("cudaStreamSynchronize", 90, 100, 0),
        ("cudaStreamWaitEvent", 100, 100, 0),
    ]
    assert list(made.streams) == [(0, 8)]


def test_of_what_does_not_fit_graphs_keep_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_RECORDS", 2)
    made = Recorder(Clock())
    made.ran_graph([operation(1), operation(2), operation(3)], FACTS, 0)
    made.ran_graph([operation(4)], FACTS, 0)
    assert [a.correlation_id for a in made.activities] == [1, 2]
    made.called("cudaEventRecord", 0)
    assert (len(made.calls), made.lost) == (2, 1)
    made.ran(operation(5), FACTS, 0)
    assert (len(made.activities), made.lost) == (2, 3)


# -- a watch ----------------------------------------------------------------------------------------------


PLACE = StreamRef(0, 7)


class Pinned:
    """Page-locked memory of the host, and a watch of two devices that knows it."""

    def __init__(self, size: int = 256) -> None:
        self.contents = np.zeros(size, np.uint8)
        self.start = int(self.contents.ctypes.data)
        self.pinned = True
        label = "float32 array of shape (4,) (parameter x)"
        self.known = SimpleNamespace(address=1000, end=1100, label=label)
        memories = [
            SimpleNamespace(base_address=1000 * n, arena_bytes=1000, nearest=lambda at: self.known)
            for n in (1, 2)
        ]
        self.acts: list[Any] = []
        self.watch = Watch(
            memories,
            lambda at: self.pinned and self.start <= at < self.start + size,
            lambda *_: None,
            lambda: [(self.start, size)],
        )
        self.watch.begin(self.acts.append)

    def op(
        self, kind: str = "MEMCPY", reads: Any = (), writes: Any = (), run: Any = None, watched: Any = None
    ) -> Any:
        return SimpleNamespace(
            kind=kind,
            name=kind.lower(),
            reads=reads,
            writes=writes,
            run=run or (lambda: 5.0),
            watched=watched,
        )

    def run(self, *args: Any, number: int = 1, stream: StreamRef = PLACE, **how: Any) -> Any:
        self.watch.run(stream, number, self.op(*args, **how))
        return [act for act in self.told() if isinstance(act, Work)][-1]

    def told(self) -> list[Any]:
        found, self.acts[:] = [*self.acts], []
        return found


def places(regions: tuple[Region, ...], start: int = 0) -> list[tuple[int, int, int]]:
    return [(region.memory, region.start - start, region.end - start) for region in regions]


def test_regions_are_those_of_the_arrays_and_have_their_names() -> None:
    made = Pinned()
    work = made.run(reads=[made.contents[8:16]], writes=[made.contents[32:40]], number=4)
    assert (work.number, work.name, work.device_id, work.stream_id) == (4, "memcpy", 0, 7)
    assert places(work.reads, made.start) == [(HOST, 8, 16)]
    assert places(work.writes, made.start) == [(HOST, 32, 40)]
    assert (work.is_peer_copy, work.atomics, work.reads[0].array) == (False, (), "a host buffer")
    assert work.source is not None
    assert made.run("MEMCPY2").is_peer_copy
    assert made.watch.fills_host
    assert [made.watch.memory_of(at) for at in (999, 1000, 1999, 2000, 2999, 3000)] == [
        HOST,
        0,
        0,
        1,
        1,
        HOST,
    ]
    plain = Pinned()
    plain.run(reads=[plain.contents])
    assert not plain.watch.fills_host


def test_a_kernel_tells_what_it_touched() -> None:
    made = Pinned()
    touched = ((Region(0, 1000, 8),), (Region(0, 1099, 1),), (Region(0, 1100, 8), Region(1, 2500, 4)))
    work = made.run("CONCURRENT_KERNEL", watched=lambda run: (3.0, touched))
    assert [places(regions) for regions in (work.reads, work.writes, work.atomics)] == [
        [(0, 1000, 1008)],
        [(0, 1099, 1100)],
        [(0, 1100, 1108), (1, 2500, 2504)],
    ]
    label = "float32 array of shape (4,)"
    assert [r.array for r in (*work.reads, *work.writes, *work.atomics)] == [label, label, "", ""]
    made.known = None
    assert made.run("CONCURRENT_KERNEL", watched=lambda run: (3.0, touched)).reads[0].array == ""


def test_buffers_that_the_host_changes_are_told_at_the_next_act() -> None:
    made = Pinned()
    made.run(reads=[made.contents[:64]])
    made.watch.host_waited("stream", StreamRef(0, 7))
    assert [type(act) for act in made.told()] == [HostWait]
    made.contents[10] = 1
    made.watch.host_waited("event", event=made.watch, number=9)
    used, waited = made.told()
    assert isinstance(used, HostUse)
    assert places(used.writes, made.start) == [(HOST, 0, 64)]
    assert (used.reads, waited.scope, waited.number) == ((), "event", 9)
    made.watch.host_waited("device")
    assert len(made.told()) == 1, "what it is now counts"
    made.contents[10] = 2
    made.run(reads=[made.contents[128:]])
    made.contents[10] = 3
    made.watch.finish()
    assert [type(act) for act in made.told()] == [HostUse]
    made.watch.finish()
    assert made.told() == []


def test_what_a_copy_writes_is_no_change_by_the_host() -> None:
    made = Pinned()

    def fill() -> float:
        made.contents[4] = 9
        return 1.0

    made.run(reads=[made.contents[:16]])
    made.run(writes=[made.contents[:8]], run=fill)
    made.watch.finish()
    assert made.told() == []


def test_what_a_host_function_changes_is_found_by_comparing() -> None:
    made = Pinned()

    def change() -> float:
        made.contents[3], made.contents[20] = 1, 1
        return 2.0

    made.run(reads=[made.contents[:16]])
    work = made.run("HOST_LAUNCH", run=change)
    assert places(work.writes, made.start) == [(HOST, 3, 21)]
    made.watch.finish()
    assert made.told() == []
    assert made.run("HOST_LAUNCH").writes == ()

    def unpin() -> float:
        made.contents[3] = 7
        made.pinned = False
        return 2.0

    assert made.run("HOST_LAUNCH", run=unpin).writes == ()


def test_of_very_much_page_locked_memory_only_buffers_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(limit: int) -> list[tuple[int, int, int]]:
        monkeypatch.setattr(watch, "_MAX_COPIED_BYTES", limit)
        made = Pinned()

        def change() -> float:
            made.contents[3], made.contents[200] = 1, 1
            return 2.0

        made.run(reads=[made.contents[:16]])
        return places(made.run("HOST_LAUNCH", run=change).writes, made.start)

    assert of(256) == [(HOST, 3, 201)]
    assert of(255) == [(HOST, 3, 4)]


def test_buffers_are_forgotten() -> None:
    def changed(*forget: Any) -> list[tuple[int, int, int]]:
        made = Pinned()
        for first in (0, 64):
            made.run(reads=[made.contents[first : first + 64]])
        forget[0](made)
        made.told()
        made.contents[:] = 1
        made.watch.finish()
        return [places(act.writes, made.start)[0] for act in made.told()]

    both = [(HOST, 0, 64), (HOST, 64, 128)]
    assert changed(lambda made: None) == both
    assert changed(lambda made: made.watch.forget_buffers()) == []
    assert changed(lambda made: made.watch.forget_buffers(made.start, made.start + 1)) == both[1:]
    assert changed(lambda made: made.watch.forget_buffers(made.start + 63, made.start + 64)) == both[1:]
    assert changed(lambda made: made.watch.forget_buffers(made.start + 64, made.start + 65)) == both[:1]
    assert changed(lambda made: made.watch.forget_buffers(made.start + 128, made.start + 300)) == both
    assert changed(lambda made: made.watch.host_released(made.start, 64)) == both[1:]
    assert changed(lambda made: made.watch.host_released(made.start + 64, 64)) == both[:1]
    assert changed(lambda made: setattr(made, "pinned", False)) == []

    def given_back_and_taken(made: Pinned) -> None:
        made.pinned = False
        made.watch.finish()
        made.pinned = True

    assert changed(given_back_and_taken) == [], "other memory may lie there now"


def test_of_very_many_buffers_the_last_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_MAX_BUFFERS", 2)
    made = Pinned()
    for first in (0, 8, 16, 8):
        made.run(reads=[made.contents[first : first + 8]])
    made.run(reads=[made.contents[24:32]])
    made.contents[:] = 1
    made.told()
    made.watch.finish()
    assert [places(act.writes, made.start)[0][1] for act in made.told()] == [8, 24]


def test_large_buffers_are_looked_at_where_an_act_meets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(limit: int, *act: slice) -> list[int]:
        monkeypatch.setattr(watch, "_CHEAP_BYTES", limit)
        made = Pinned()
        for first in (0, 64):
            made.run(reads=[made.contents[first : first + 64]])
        made.contents[:] = 1
        made.told()
        made.watch.run(StreamRef(0, 7), 1, made.op(reads=[made.contents[where] for where in act]))
        return [places(a.writes, made.start)[0][1] for a in made.told() if isinstance(a, HostUse)]

    assert found(128) == [0, 64]
    assert found(127) == []
    assert found(127, slice(0, 64)) == [0]
    assert found(127, slice(63, 64)) == [0]
    assert found(127, slice(64, 65)) == [64]
    assert found(127, slice(128, 129)) == []
    assert found(127, slice(60, 70)) == [0, 64]


def test_streams_are_told_before_their_first_use_and_when_they_get_a_name() -> None:
    made = Pinned()
    made.watch.graph_made(4)
    made.run(stream=StreamRef(0, 7))
    made.acts.clear()
    made.watch.run(StreamRef(1, 9, False), 1, made.op())
    made.watch.run(StreamRef(1, 9, False), 2, made.op())
    assert [a for a in made.told() if isinstance(a, NewStream)] == [NewStream(1, 9, "", False)]
    mine = Stream(9, 1)
    made.watch.run(StreamRef(0, 7), 3, made.op())
    assert [a for a in made.told() if isinstance(a, NewStream)] == [NewStream(1, 9, "mine", False)]
    late: list[Any] = []
    made.watch.begin(late.append)
    made.watch.run(StreamRef(0, 7), 4, made.op())
    assert [a for a in late if isinstance(a, NewStream)] == [NewStream(0, 7, "", True)]
    assert made.watch.end(late.append) is False
    assert made.watch.end(made.acts.append) is True
    assert mine.ptr == 9


def test_events_graphs_and_memory() -> None:
    made = Pinned()
    place = StreamRef(1, 7)
    event = Model()
    other = Model()
    unknown = Model()
    made.watch.recorded(event, place)
    made.watch.recorded(other, place)
    made.watch.waits(event, place, True)
    made.watch.waits(unknown, place, True)
    made.watch.waits(unknown, place, False)
    made.watch.host_waited("event", place, other)
    made.watch.host_waited("device")
    made.watch.launched(place, [], [(1, 2)], 6)
    made.watch.graph_made(6)
    acts = [act for act in made.told() if not isinstance(act, NewStream)]
    assert [type(act) for act in acts] == [
        EventRecord,
        EventRecord,
        EventWait,
        EventWait,
        HostWait,
        HostWait,
        GraphLaunch,
        GraphMade,
    ]
    assert [getattr(act, "event_id", None) for act in acts[:6]] == [1, 2, 1, 3, 2, 0]
    assert {(act.device_id, act.stream_id) for act in acts[:4]} == {(1, 7)}
    assert all(act.source for act in acts[:7])
    assert (acts[4].device_id, acts[4].stream_id, acts[5].scope) == (1, 7, "device")
    assert (acts[6].device_id, acts[6].nodes, acts[6].edges, acts[6].graph_id) == (1, (), ((1, 2),), 6)
    made.watch.allocated(1, 2000, 64, 7)
    made.watch.released(1, 2000, 64, 7)
    made.watch.allocated(1, 2000, 64, private=True)
    made.watch.released(1, 2000, 64, None)
    made.watch.allocated(1, 2000, 64)
    made.watch.released(1, 2000, 64, 7)
    acts = made.told()
    assert [type(act) for act in acts] == [
        Allocation,
        Release,
        Allocation,
        HostWait,
        Release,
        Allocation,
        Release,
    ]
    assert [act.is_private for act in acts if isinstance(act, Release)] == [False, True, False]
    assert (acts[0].stream_id, acts[2].stream_id, acts[3].scope, acts[3].device_id) == (7, None, "device", 1)
    made.watch.host_released(made.start, 64)
    (released,) = made.told()
    assert isinstance(released, Release)
    array = Array(2000)
    made.watch.here()
    assert made.watch._with_name(Region(1, 2000, 4)).array == "array"
    made.watch.allocated(1, 1990, 10)
    assert made.watch._with_name(Region(1, 2000, 4)).array == "array"
    assert array.size


def test_what_is_told_while_an_act_is_handed_on_comes_after_it() -> None:
    made = Pinned()
    order: list[str] = []

    def first(act: Any) -> None:
        order.append(f"first {act.graph_id}")
        if act.graph_id == 1:
            made.watch.graph_made(2)

    made.watch.begin(first)
    made.watch.begin(lambda act: order.append(f"second {act.graph_id}"))
    made.watch.graph_made(1)
    assert order == ["first 1", "second 1", "first 2", "second 2"]

    def fails(act: Any) -> None:
        raise RuntimeError("mine")

    made.watch.begin(fails)
    with pytest.raises(RuntimeError, match="mine"):
        made.watch.graph_made(3)
    made.watch.end(fails)
    made.watch.graph_made(4)
    assert order[-2:] == ["first 4", "second 4"]


# -- lines told from times --------------------------------------------------------------------------------

A = module("mine", "def f():\n    pass\n")["f"].__code__
B = module("other", "def g():\n    pass\n")["g"].__code__


def test_a_call_is_of_the_line_that_began_last() -> None:
    made = _LineSearch([(10, 1, A, 3), (20, 1, A, 4), (15, 2, B, 5)], {})
    asked = [(1, 9), (1, 10), (1, 19), (1, 20), (1, 99), (2, 14), (2, 15), (3, 50)]
    assert [made.line(thread, at, "x") for thread, at in asked] == [
        None,
        (A, 3),
        (A, 3),
        (A, 4),
        (A, 4),
        None,
        (B, 5),
        None,
    ]


def test_a_call_of_a_silent_line_is_of_the_line_that_made_such_calls() -> None:
    begun = [(10, 1, A, 3), (20, 1, A, 4), (30, 1, A, 5), (40, 1, A, 6)]
    made = _LineSearch(begun, {(A, 3): 25, (A, 4): 27})
    assert [made.line(1, 11, "a"), made.line(1, 21, "b"), made.line(1, 24, "b")] == [(A, 3), (A, 4), (A, 4)]
    assert made.line(1, 26, "a") == (A, 3), "line 4 began last, and calls `b`"
    assert made.line(1, 28, "b") == (A, 4)
    assert made.line(1, 29, "c") is None, "nobody is known to call it"
    assert made.line(1, 31, "c") == (A, 5), "a new line's first call is its own"
    assert made.line(1, 32, "c") == (A, 5)
    assert made.line(1, 33, "b") == (A, 4), "its second one a silent line's"
    assert made.line(1, 41, "a") == (A, 6)
    assert made.line(1, 42, "c") == (A, 5)


def test_of_two_lines_that_made_such_calls_none_is_taken() -> None:
    begun = [(10, 1, A, 3), (20, 1, A, 4), (22, 1, A, 9)]
    made = _LineSearch(begun, {(A, 3): 25})
    assert [made.line(1, 11, "a"), made.line(1, 21, "a"), made.line(1, 23, "z")] == [(A, 3), (A, 4), (A, 9)]
    assert made.line(1, 26, "a") is None


def test_a_new_line_may_call_a_function_whose_lines_are_silent() -> None:
    begun = [(10, 1, B, 3), (30, 1, A, 5)]
    made = _LineSearch(begun, {(B, 3): 25})
    assert made.line(1, 11, "a") == (B, 3)
    assert made.line(1, 31, "a") is None
    assert made.line(1, 32, "a") == (B, 3)


def test_lines_fall_silent_after_some_beginnings(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100, 200))
    monkeypatch.setattr(line_watch, "time", SimpleNamespace(time_ns=lambda: next(times)))
    monkeypatch.setattr(line_watch, "MAX_PER_LINE", 3)
    made = LineWatch()
    assert [made._begin(A, 2) for _ in range(3)] == [False, False, True]
    assert made._switched_off == {(A, 2): 102}
    assert made._begin(B, 2) is False
    monkeypatch.setattr(line_watch, "_MAX_BEGINNINGS", 6)
    assert [made._begin(B, 7), made._begin(B, 8)] == [False, True]
    assert [at for at, *_ in made._beginnings] == [100, 101, 102, 103, 104, 105]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="lines are silenced one by one")
def test_tracing_ends_when_enough_was_seen_and_passes_errors_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "def program(watch, note, now, traced):\n    watch.start()\n    try:\n        [][1]\n"
        "    except IndexError:\n        note((now(), 'caught'))\n    traced.append(gettrace())\n"
        "    for at in range(40):\n        note((now(), at))\n"
        "    traced.append(gettrace())\n    watch.stop()\n"
    )
    monkeypatch.setattr(line_watch, "MAX_PER_LINE", 20)
    before = sys.gettrace()
    noted: list[tuple[int, Any]] = []
    traced: list[Any] = []
    made = LineWatch()
    variables = module("prog", code, str(tmp_path / "prog.py"))
    variables["gettrace"] = sys.gettrace
    variables["program"](made, noted.append, time.time_ns, traced)
    sys.settrace(before)
    here = threading.get_native_id()
    found = [line and line.line for line in (made.line(here, at, str(what)) for at, what in noted)]
    assert found[0] == 6
    assert traced[0] is not None
    assert traced[1] is None, "the cost ends"
    assert set(found[1:21]) <= {9, None}
    assert found[1:15] == [9] * 14
    assert found[-1] is None


def test_before_python_3_12_lines_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[Any] = []
    system = SimpleNamespace(
        version_info=(3, 11), gettrace=lambda: None, settrace=set_to.append, _getframe=sys._getframe
    )
    monkeypatch.setattr(line_watch, "sys", system)
    here = sys._getframe()
    before = here.f_trace
    here.f_trace = None
    made = LineWatch()
    made.start()
    in_frame = here.f_trace
    here.f_trace = before
    (entered,) = set_to
    inner = SimpleNamespace(f_code=A, f_lineno=7, f_back=here, f_trace=None)
    library = module("numpy.fake", "def f(entered, frame):\n    return entered(frame(), 'call', None)\n")["f"]
    assert library(entered, lambda: sys._getframe(1)) is None
    assert entered(here, "call", None) is in_frame
    made._is_program[A] = True
    for event in ("line", "return", "exception", "call"):
        assert in_frame(inner, event, None) is in_frame
    assert [code for _, _, code, _ in made._beginnings] == [A, here.f_code], "its caller goes on"
    assert made.line(threading.get_native_id(), time.time_ns(), "x") is not None
    monkeypatch.setattr(line_watch, "MAX_PER_LINE", 2)
    assert in_frame(inner, "line", None) is None, "seen often enough"
    assert set_to[1:] == [None]
    assert made.line(threading.get_native_id(), time.time_ns() + 1, "x") is None
    made.stop()
    assert set_to[1:] == [None], "once"
    system.gettrace = lambda: entered
    debugged = LineWatch()
    debugged.start()
    assert len(set_to) == 2, "it gives way to a debugger"


def test_what_passes_the_ports_of_a_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ports.PortRecorder(machine)
    with pytest.raises(GpulabError, match="has not begun"):
        made.stop()
    made.start()
    seen = made._crossings
    assert seen is not None
    monkeypatch.setattr(ports, "MAX_CROSSINGS", 2)
    found = made.stop()
    assert (found.links, found.devices, found.crossings, found.lost) == (
        machine.links.kind,
        len(machine.devices),
        (),
        0,
    )
    made.start()
    assert made._crossings is not None
    made._crossings += ["a", "b", "c"]  # type: ignore[list-item]
    found = made.stop()
    assert (found.crossings, found.lost) == (("a", "b"), 1)
    assert found.provenance.source == "modelled"


def test_a_name_that_several_modules_share_says_nothing_of_the_next(monitored: Any) -> None:
    watching, made = monitored()
    entered = made.callbacks[4, made.events.PY_START]
    for name, own in (("numpy.fake", False), ("mine", True), ("cupy.fake", False)):
        f = name.partition(".")[0]  # equal code of one name would be one
        function = module(name, f"def {f}(entered):\n    return entered({f}.__code__, 0)\n")[f]
        function(entered)
        assert (function.__code__ in made.local) is own
    watching.stop()


def test_lines_of_callers_are_seen_and_of_a_function_that_went_on(tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    code = (
        "def steps():\n    yield 1\n    yield 2\n"
        "def program(watch, note, now):\n    watch.start()\n    note((now(), 'first'))\n"
        "    for n in steps():\n        note((now(), 'in loop'))\n"
        "    note((now(), 'last'))\n    watch.stop()\n"
    )
    path.write_text(code)
    noted: list[tuple[int, str]] = []
    made = LineWatch()
    module("prog", code, str(path))["program"](made, noted.append, time.time_ns)
    here = threading.get_native_id()
    found = [(what, made.line(here, at, what)) for at, what in noted]
    assert [(what, line and line.line) for what, line in found[:4]] == [
        ("first", 6),
        ("in loop", 8),
        ("in loop", 8),
        ("last", 9),
    ]
    assert all(line is None or line.file == "prog.py" for _, line in found)


class Monitoring:
    """`sys.monitoring` of Python 3.12, as far as lines are watched with it; it calls back when told to."""

    events = SimpleNamespace(PY_START=1, LINE=32, PY_RETURN=4, PY_YIELD=8)
    DISABLE = object()

    def __init__(self, *taken: int) -> None:
        self.tools = dict.fromkeys(taken, "another")
        self.callbacks: dict[tuple[int, int], Any] = {}
        self.local: dict[Any, int] = {}
        self.everywhere: dict[int, int] = {}
        self.restarts = 0

    def get_tool(self, tool: int) -> str | None:
        return self.tools.get(tool)

    def use_tool_id(self, tool: int, name: str) -> None:
        assert tool not in self.tools
        self.tools[tool] = name

    def free_tool_id(self, tool: int) -> None:
        del self.tools[tool]

    def register_callback(self, tool: int, event: int, callback: Any) -> None:
        self.callbacks[tool, event] = callback

    def set_local_events(self, tool: int, code: Any, events: int) -> None:
        self.local[code] = events

    def set_events(self, tool: int, events: int) -> None:
        self.everywhere[tool] = events

    def restart_events(self) -> None:
        self.restarts += 1


@pytest.fixture
def monitored(monkeypatch: pytest.MonkeyPatch) -> Any:
    def start(*taken: int) -> tuple[LineWatch, Monitoring]:
        made = Monitoring(*taken)
        monkeypatch.setattr(
            line_watch,
            "sys",
            SimpleNamespace(monitoring=made, version_info=(3, 12), _getframe=sys._getframe),
        )
        watching = LineWatch()
        watching.start()
        return watching, made

    return start


def test_of_python_3_12_lines_are_monitored(monitored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watching, made = monitored()
    events = made.events
    here = sys._getframe().f_code
    lines = events.LINE | events.PY_RETURN | events.PY_YIELD
    assert made.tools == {4: "gpulab"}
    assert (made.everywhere, made.restarts, made.local[here]) == ({4: events.PY_START}, 1, lines)
    library = module("numpy.fake", "def f(entered):\n    return entered(f.__code__, 0)\n")["f"]
    entered = made.callbacks[4, events.PY_START]
    began = made.callbacks[4, events.LINE]
    assert made.callbacks[4, events.PY_RETURN] is made.callbacks[4, events.PY_YIELD]
    assert library(entered) is made.DISABLE
    assert library.__code__ not in made.local

    def of_the_program() -> Any:
        return entered(sys._getframe().f_code, 0)

    assert of_the_program() is made.DISABLE
    assert made.local[of_the_program.__code__] == lines
    monkeypatch.setattr(line_watch, "MAX_PER_LINE", 2)
    assert [began(A, 3), began(A, 3)] == [None, made.DISABLE]
    began(B, 7)
    now = time.time_ns()
    found = watching._search or _LineSearch(watching._beginnings, {})
    assert found.line(threading.get_native_id(), now, "x") == (B, 7)
    watching.stop()
    assert made.tools == {}
    assert made.everywhere == {4: 0}
    assert set(made.local.values()) == {0}
    assert set(made.callbacks.values()) == {None}
    watching.stop()
    assert made.tools == {}


def test_a_function_that_ends_gives_the_line_back_to_its_caller(monitored: Any) -> None:
    watching, made = monitored()
    back = made.callbacks[4, made.events.PY_RETURN]
    given: list[Any] = []
    code = "def f(back, code, given):\n    given.append(back(code, 6, None))\n"
    returns = module("mine", code)["f"]
    returns(back, returns.__code__, given)
    watching.stop()
    assert given == [None]
    last = watching._beginnings[-1]
    assert last[2] is sys._getframe().f_code
    assert last[3] == sys._getframe().f_lineno - 5


def test_another_free_tool_is_taken_or_none(monitored: Any) -> None:
    for taken, tool in (((4,), 3), ((4, 3), 1), ((4, 3, 1), 0)):
        watching, made = monitored(*taken)
        assert made.tools[tool] == "gpulab"
        watching.stop()
        assert tool not in made.tools
    watching, made = monitored(4, 3, 1, 0)
    assert (made.callbacks, made.everywhere) == ({}, {})
    watching.stop()
