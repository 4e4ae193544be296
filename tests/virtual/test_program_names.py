"""Names of a program's lines, streams and arrays, and the reports of a watch."""

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

from virtualgpu.model.recording import program_lines, program_names, watch
from virtualgpu.model.recording.line_watch import LineWatch, _LineSearch
from virtualgpu.model.recording.program_lines import ProgramLines, display_name
from virtualgpu.model.recording.program_names import ProgramNames
from virtualgpu.model.recording.watch import StreamRef, StreamWatch
from virtualgpu.records.acts import HOST, HostUse, HostWait, Region, Work

# -- lines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "module", "expected"),
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
def test_files_are_classified_as_program_or_library(name: str, module: str, expected: bool) -> None:
    assert ProgramLines().is_program_file(name, module) is expected


def test_classes_are_classified_as_program_or_library() -> None:
    lines = ProgramLines()
    assert lines.is_program_class(SimpleNamespace) is False
    assert lines.is_program_class(np.ndarray) is False
    assert lines.is_program_class(ProgramLines) is False
    model = type("Model", (), {"__module__": "torch.nn"})
    assert lines.is_program_class(model) is True
    assert lines.is_program_class(type("Model", (), {"__module__": "numpy.ma.core"})) is False


def module(name: str, code: str, file: str = "<string>") -> dict[str, Any]:
    variables: dict[str, Any] = {"__name__": name}
    exec(compile(code, file, "exec"), variables)
    return variables


def test_the_program_line_is_found_below_library_frames(tmp_path: Path) -> None:
    lines = ProgramLines()
    path = tmp_path / "prog.py"
    path.write_text("def run(f, lines):\n    return f(lines)  # here\n")
    run = module("prog", path.read_text(), str(path))["run"]
    library = (
        "def ask(lines):\n    return lines.find_current_line()\ndef through(lines):\n    return ask(lines)\n"
    )
    for _ in range(2):
        source, called = run(module("numpy.fake", library)["through"], lines)
        assert (source.file, source.line, source.text, called) == (
            "prog.py",
            2,
            "return f(lines)  # here",
            "through",
        )
    assert lines.find_current_line()[1] == "find_current_line"
    with ThreadPoolExecutor(1) as pool:  # whose thread runs nothing of the program
        source, called = pool.submit(lines.find_current_line).result()
    assert (source, bool(called)) == (None, True)
    assert [*lines.walk_program_frames(None)] == []


def test_lines_of_the_learner_are_preferred_to_course_helpers(tmp_path: Path) -> None:
    lines = ProgramLines()
    path = tmp_path / "mine.py"
    path.write_text("def run(helper, f, lines):\n    return helper(f, lines)  # mine\n")
    run = module("mine", path.read_text(), str(path))["run"]
    text = "def helper(f, lines):\n    return f(lines)\n"
    helper_path = tmp_path / "helper.py"
    helper_path.write_text(text)
    helper = module("gpulab_course.content.fake", text, str(helper_path))["helper"]
    library = module("numpy.fake", "def ask(lines):\n    return lines.find_current_line()\n")["ask"]
    source, called = run(helper, library, lines)
    assert (source.file, source.text) == ("mine.py", "return helper(f, lines)  # mine")
    assert called == "ask", "the function of the library, not the helper"
    with ThreadPoolExecutor(1) as pool:  # no learner's code runs there
        source, _ = pool.submit(helper, library, lines).result()
    assert source.file == "helper.py"


def test_program_frames_are_listed_from_innermost_outward() -> None:
    lines = ProgramLines()

    def inner() -> list[str]:
        return [frame.f_code.co_name for frame in lines.walk_program_frames(sys._getframe())]

    through = module("numpy.fake", "def through(f):\n    return f()\n")["through"]

    def outer() -> list[str]:
        return list(through(inner))

    assert outer()[:3] == ["inner", "outer", "test_program_frames_are_listed_from_innermost_outward"]
    assert "through" not in outer()


def test_functions_with_one_file_name_differ_by_module() -> None:
    lines = ProgramLines()
    library = module("numpy.fake", "def f(g):\n    return g()\n")["f"]
    program = module("mine", "def h(f, g):\n    return f(g)\n")["h"]
    for _ in range(2):
        frames = program(
            library, lambda: [f.f_code.co_name for f in lines.walk_program_frames(sys._getframe())]
        )
        assert frames[1] == "h"


def test_files_and_cells_have_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    assert display_name("/elsewhere/program.py") == "program.py"
    assert display_name("<string>") == "<string>"
    cell_names = {
        "/tmp/1.py": ("cell", "In [12]"),
        "/tmp/2.py": ("cell", "In[3]"),
        "/tmp/3.py": ("file", "x In [1]"),
    }
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=cell_names.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert [display_name(f"/tmp/{n}.py") for n in (1, 2, 3, 4)] == ["cell [12]", "cell [3]", "3.py", "4.py"]
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert display_name("/tmp/1.py") == "1.py"


# -- names ------------------------------------------------------------------------------------------------


class Array:
    """A device's array."""

    __cuda_array_interface__ = property(lambda self: {})

    def __init__(self, address: int, size: int = 1, base: Any = None) -> None:
        self.data = SimpleNamespace(ptr=address)
        self.size = size
        self.base = base


class Stream:
    def __init__(self, ptr: int, device_id: int | None = None) -> None:
        self.ptr = ptr
        if device_id is not None:
            self.device_id = device_id

    def wait_event(self) -> None:
        """As in CuPy."""


class Model:
    def __init__(self, **members: Any) -> None:
        vars(self).update(members)


Model.__module__ = "mine"


def names_of(**variables: Any) -> ProgramNames:
    names = ProgramNames(ProgramLines())
    names.collect_from_variables(variables)
    return names


def test_arrays_are_named_by_variable_item_or_attribute() -> None:
    names = names_of(
        x=Array(1),
        xs=[Array(2), Array(3)],
        pair=(Array(4),),
        by={"a": Array(5), 7: Array(6)},
        model=Model(w=Array(8), _hidden=Array(9), layers=[Array(10)]),
        _private=Array(11),
        empty=Array(12, 0),
        other=Model(inner=Model(w=Array(13))),
    )
    result = {address: name for address in range(1, 14) if (name := names.find_array_name(address))}
    items = {2: "xs[0]", 3: "xs[1]", 4: "pair[0]", 5: "by['a']", 6: "by[7]"}
    assert result == {1: "x", **items, 8: "model.w", 10: "model.layers[0]"}
    assert sorted(names.array_names()) == sorted(result.values())


def test_host_arrays_have_names() -> None:
    a = np.zeros(8)
    names = names_of(a=a, views=[a[2:]])
    address = a.__array_interface__["data"][0]
    assert (names.find_array_name(address), names.find_array_name(address + 16)) == ("a", "views[0]")
    assert names_of(b=a[:], a=a).find_array_name(address) == "a", "a view comes after what it views"
    assert names_of(a=a, b=a[:]).find_array_name(address) == "a"


def test_the_outermost_and_shortest_name_is_preferred() -> None:
    x = Array(1)
    assert names_of(x=x, xs=[x]).find_array_name(1) == "x"
    assert names_of(xs=[x], x=x).find_array_name(1) == "x"
    assert names_of(ys=[x], model=Model(xs=[x], y=x)).find_array_name(1) == "model.y"
    names = ProgramNames(ProgramLines())
    names.collect_from_variables({"deep": x}, 2)
    names.collect_from_variables({"outer": x}, 0)
    names.collect_from_variables({"deeper": x}, 3)
    assert names.find_array_name(1) == "outer"
    names = ProgramNames(ProgramLines())
    names.collect_from_variables({"local": x}, 1)
    names.collect_from_variables({"xs": [x]}, 0)
    assert names.find_array_name(1) == "xs[0]", "a global list goes before a local variable"
    assert names_of(view=Array(1, base=x), whole=x).find_array_name(1) == "whole"


def test_a_reassigned_variable_has_the_lowest_preference() -> None:
    names = names_of(xs=[Array(1), Array(2)])
    for address in (1, 2):
        names.collect_from_variables({"x": Array(address)})
    assert [names.find_array_name(1), names.find_array_name(2)] == ["xs[0]", "xs[1]"]
    names = ProgramNames(ProgramLines())
    for address in (1, 2):
        names.collect_from_variables({"x": Array(address)})
    assert [names.find_array_name(1), names.find_array_name(2)] == ["x", "x"]


def test_large_containers_and_scopes_are_skipped() -> None:
    many = [Array(address) for address in range(1, 66)]
    assert names_of(xs=many[:64]).find_array_name(64) == "xs[63]"
    assert names_of(xs=many).find_array_name(1) == ""
    members = {f"a{address}": Array(address) for address in range(1, 70)}
    assert [names_of(m=Model(**members)).find_array_name(address) for address in (1, 64, 65)] == [
        "m.a1",
        "m.a64",
        "",
    ]
    variables = {f"v{address}": address for address in range(1999)} | {"x": Array(1)}
    assert names_of(**variables).find_array_name(1) == "x"
    assert names_of(**variables, more=1).find_array_name(1) == ""
    assert names_of(**{"not a name": Array(1)}).find_array_name(1) == ""


def test_streams_have_names_on_each_device() -> None:
    anywhere = names_of(u=Stream(9), v=Stream(9, 0))
    assert [anywhere.find_stream_name(device, 9) for device in (0, 1)] == ["v", "u"]
    names = names_of(s=Stream(7, 0), t=Stream(7, 1), u=Stream(9))
    assert [
        names.find_stream_name(0, 7),
        names.find_stream_name(1, 7),
        names.find_stream_name(1, 9),
        names.find_stream_name(0, 8),
    ] == [
        "s",
        "t",
        "u",
        "",
    ]
    assert names.change_count == 3
    names.collect_from_variables({"s": Stream(7, 0)})
    assert names.change_count == 3
    names.collect_from_variables({"s": Stream(8, 0)})
    assert names.change_count == 4


def test_freed_memory_loses_its_name() -> None:
    names = names_of(x=Array(10), y=Array(20), z=[Array(15)])
    names.forget_arrays(10, 20)
    assert [names.find_array_name(address) for address in (10, 15, 20)] == ["", "", "y"]


def test_a_line_is_inspected_a_limited_number_of_times() -> None:
    names = ProgramNames(ProgramLines())

    def program(count: int) -> None:
        for index in range(count):
            x = Array(index + 1)  # noqa: F841
            names.collect_names(sys._getframe())

    program(5)
    assert [names.find_array_name(index) for index in range(1, 6)] == ["x", "x", "x", "", ""]

    def second_program() -> None:
        y = Array(77)  # noqa: F841
        names.collect_again(sys._getframe())

    second_program()
    assert [names.find_array_name(index) for index in (1, 2, 3, 77)] == ["", "", "", "y"], (
        "what there was does not count"
    )
    program(1)
    assert names.find_array_name(1) == "x", "and lines count from anew"


def test_names_of_globals_and_of_outer_callers_are_preferred() -> None:
    names = ProgramNames(ProgramLines())
    code = (
        "def inner(names, frame, mine):\n    z = only\n    names.collect_names(frame())\n    return z\n"
        "def outer(names, frame, x):\n    y = x\n    inner(names, frame, x)\n    return y\n"
    )
    array = Array(5)
    global_array = Array(6)
    variables = module("mine", code) | {"only": global_array}
    exec(compile(code, "<string>", "exec"), variables)
    variables["outer"](names, lambda: sys._getframe(1), array)
    assert names.find_array_name(6) == "only"
    assert names.find_array_name(5) == "array", "the outermost caller's, not that of those it calls"


@pytest.mark.parametrize("version", [sys.version_info, (3, 12, 9)])
def test_looking_keeps_no_array_alive(version: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.version_info < (3, 13):
        system = SimpleNamespace(version_info=version, getrefcount=sys.getrefcount)
        monkeypatch.setattr(program_names, "sys", system)
    names = ProgramNames(ProgramLines())
    ends: list[int] = []

    class Noted(Array):
        def __del__(self) -> None:
            ends.append(self.data.ptr)

    def program() -> None:
        x = Noted(3)
        names.collect_names(sys._getframe())
        del x
        gc.collect()
        assert ends == [3]
        y = Noted(4)
        variables = locals()
        names.collect_names(sys._getframe())
        assert variables["y"] is y, "the program's own copy of its variables stays"

    program()


# -- a timeline's recorder --------------------------------------------------------------------------------


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
            SimpleNamespace(base_address=1000 * n, arena_bytes=1000, nearest=lambda address: self.known)
            for n in (1, 2)
        ]
        self.acts: list[Any] = []
        self.watch = StreamWatch(
            memories,
            lambda address: self.pinned and self.start <= address < self.start + size,
            lambda *_: None,
            lambda: [(self.start, size)],
        )
        self.watch.add_observer(self.acts.append)

    def op(
        self, kind: str = "MEMCPY", reads: Any = (), writes: Any = (), run: Any = None, watched: Any = None
    ) -> Any:
        return SimpleNamespace(
            kind=kind,
            name=kind.lower(),
            reads=reads,
            writes=writes,
            run=run or (lambda: 5.0),
            run_watched=watched,
        )

    def run(self, *args: Any, number: int = 1, stream: StreamRef = PLACE, **options: Any) -> Any:
        self.watch.run_operation(stream, number, self.op(*args, **options))
        return [act for act in self.take_acts() if isinstance(act, Work)][-1]

    def take_acts(self) -> list[Any]:
        acts, self.acts[:] = [*self.acts], []
        return acts


def intervals(regions: tuple[Region, ...], start: int = 0) -> list[tuple[int, int, int]]:
    return [(region.memory, region.start - start, region.end - start) for region in regions]


def test_host_writes_to_a_buffer_are_reported_at_the_next_act() -> None:
    pinned = Pinned()
    pinned.run(reads=[pinned.contents[:64]])
    pinned.watch.note_host_wait("stream", StreamRef(0, 7))
    assert [type(act) for act in pinned.take_acts()] == [HostWait]
    pinned.contents[10] = 1
    pinned.watch.note_host_wait("event", event=pinned.watch, number=9)
    used, waited = pinned.take_acts()
    assert isinstance(used, HostUse)
    assert intervals(used.writes, pinned.start) == [(HOST, 0, 64)]
    assert (used.reads, waited.scope, waited.number) == ((), "event", 9)
    pinned.watch.note_host_wait("device")
    assert len(pinned.take_acts()) == 1, "what it is now counts"
    pinned.contents[10] = 2
    pinned.run(reads=[pinned.contents[128:]])
    pinned.contents[10] = 3
    pinned.watch.report_remaining_changes()
    assert [type(act) for act in pinned.take_acts()] == [HostUse]
    pinned.watch.report_remaining_changes()
    assert pinned.take_acts() == []


def test_a_copy_to_a_buffer_is_not_a_host_change() -> None:
    pinned = Pinned()

    def fill() -> float:
        pinned.contents[4] = 9
        return 1.0

    pinned.run(reads=[pinned.contents[:16]])
    pinned.run(writes=[pinned.contents[:8]], run=fill)
    pinned.watch.report_remaining_changes()
    assert pinned.take_acts() == []


def test_changes_by_a_host_function_are_recorded_as_writes() -> None:
    pinned = Pinned()

    def change() -> float:
        pinned.contents[3], pinned.contents[20] = 1, 1
        return 2.0

    pinned.run(reads=[pinned.contents[:16]])
    work = pinned.run("HOST_LAUNCH", run=change)
    assert intervals(work.writes, pinned.start) == [(HOST, 3, 21)]
    pinned.watch.report_remaining_changes()
    assert pinned.take_acts() == []
    assert pinned.run("HOST_LAUNCH").writes == ()

    def unpin() -> float:
        pinned.contents[3] = 7
        pinned.pinned = False
        return 2.0

    assert pinned.run("HOST_LAUNCH", run=unpin).writes == ()


def test_host_functions_compare_only_known_buffers_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(limit: int) -> list[tuple[int, int, int]]:
        monkeypatch.setattr(watch, "_MAX_COPIED_BYTES", limit)
        pinned = Pinned()

        def change() -> float:
            pinned.contents[3], pinned.contents[200] = 1, 1
            return 2.0

        pinned.run(reads=[pinned.contents[:16]])
        return intervals(pinned.run("HOST_LAUNCH", run=change).writes, pinned.start)

    assert of(256) == [(HOST, 3, 201)]
    assert of(255) == [(HOST, 3, 4)]


def test_freed_or_forgotten_buffers_are_not_checked() -> None:
    def changed(*forget: Any) -> list[tuple[int, int, int]]:
        pinned = Pinned()
        for first in (0, 64):
            pinned.run(reads=[pinned.contents[first : first + 64]])
        forget[0](pinned)
        pinned.take_acts()
        pinned.contents[:] = 1
        pinned.watch.report_remaining_changes()
        return [intervals(act.writes, pinned.start)[0] for act in pinned.take_acts()]

    both = [(HOST, 0, 64), (HOST, 64, 128)]
    assert changed(lambda pinned: None) == both
    assert changed(lambda pinned: pinned.watch.forget_buffers()) == []
    assert changed(lambda pinned: pinned.watch.forget_buffers(pinned.start, pinned.start + 1)) == both[1:]
    assert (
        changed(lambda pinned: pinned.watch.forget_buffers(pinned.start + 63, pinned.start + 64)) == both[1:]
    )
    assert (
        changed(lambda pinned: pinned.watch.forget_buffers(pinned.start + 64, pinned.start + 65)) == both[:1]
    )
    assert changed(lambda pinned: pinned.watch.forget_buffers(pinned.start + 128, pinned.start + 300)) == both
    assert changed(lambda pinned: pinned.watch.note_host_release(pinned.start, 64)) == both[1:]
    assert changed(lambda pinned: pinned.watch.note_host_release(pinned.start + 64, 64)) == both[:1]
    assert changed(lambda pinned: setattr(pinned, "pinned", False)) == []

    def given_back_and_taken(pinned: Pinned) -> None:
        pinned.pinned = False
        pinned.watch.report_remaining_changes()
        pinned.pinned = True

    assert changed(given_back_and_taken) == [], "other memory may lie there now"


def test_only_the_latest_buffers_are_checked_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_MAX_BUFFERS", 2)
    pinned = Pinned()
    for first in (0, 8, 16, 8):
        pinned.run(reads=[pinned.contents[first : first + 8]])
    pinned.run(reads=[pinned.contents[24:32]])
    pinned.contents[:] = 1
    pinned.take_acts()
    pinned.watch.report_remaining_changes()
    assert [intervals(act.writes, pinned.start)[0][1] for act in pinned.take_acts()] == [8, 24]


def test_large_buffers_are_checked_when_an_act_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed_buffers(limit: int, *act: slice) -> list[int]:
        monkeypatch.setattr(watch, "_MAX_CHEAP_BYTES", limit)
        pinned = Pinned()
        for first in (0, 64):
            pinned.run(reads=[pinned.contents[first : first + 64]])
        pinned.contents[:] = 1
        pinned.take_acts()
        pinned.watch.run_operation(
            StreamRef(0, 7), 1, pinned.op(reads=[pinned.contents[part] for part in act])
        )
        return [intervals(a.writes, pinned.start)[0][1] for a in pinned.take_acts() if isinstance(a, HostUse)]

    assert changed_buffers(128) == [0, 64]
    assert changed_buffers(127) == []
    assert changed_buffers(127, slice(0, 64)) == [0]
    assert changed_buffers(127, slice(63, 64)) == [0]
    assert changed_buffers(127, slice(64, 65)) == [64]
    assert changed_buffers(127, slice(128, 129)) == []
    assert changed_buffers(127, slice(60, 70)) == [0, 64]


def test_acts_reported_by_a_listener_follow_the_current_act() -> None:
    pinned = Pinned()
    order: list[str] = []

    def first(act: Any) -> None:
        order.append(f"first {act.graph_id}")
        if act.graph_id == 1:
            pinned.watch.note_graph_creation(2)

    pinned.watch.add_observer(first)
    pinned.watch.add_observer(lambda act: order.append(f"second {act.graph_id}"))
    pinned.watch.note_graph_creation(1)
    assert order == ["first 1", "second 1", "first 2", "second 2"]

    def fails(act: Any) -> None:
        raise RuntimeError("mine")

    pinned.watch.add_observer(fails)
    with pytest.raises(RuntimeError, match="mine"):
        pinned.watch.note_graph_creation(3)
    pinned.watch.remove_observer(fails)
    pinned.watch.note_graph_creation(4)
    assert order[-2:] == ["first 4", "second 4"]


# -- lines told from times --------------------------------------------------------------------------------

A = module("mine", "def f():\n    pass\n")["f"].__code__
B = module("other", "def g():\n    pass\n")["g"].__code__


def test_a_call_belongs_to_the_line_that_began_last() -> None:
    search = _LineSearch([(10, 1, A, 3), (20, 1, A, 4), (15, 2, B, 5)], {})
    calls = [(1, 9), (1, 10), (1, 19), (1, 20), (1, 99), (2, 14), (2, 15), (3, 50)]
    assert [search.line(thread, time_ns, "x") for thread, time_ns in calls] == [
        None,
        (A, 3),
        (A, 3),
        (A, 4),
        (A, 4),
        None,
        (B, 5),
        None,
    ]


def test_a_call_of_a_disabled_line_has_its_earlier_caller() -> None:
    beginnings = [(10, 1, A, 3), (20, 1, A, 4), (30, 1, A, 5), (40, 1, A, 6)]
    search = _LineSearch(beginnings, {(A, 3): 25, (A, 4): 27})
    assert [search.line(1, 11, "a"), search.line(1, 21, "b"), search.line(1, 24, "b")] == [
        (A, 3),
        (A, 4),
        (A, 4),
    ]
    assert search.line(1, 26, "a") == (A, 3), "line 4 began last, and calls `b`"
    assert search.line(1, 28, "b") == (A, 4)
    assert search.line(1, 29, "c") is None, "nobody is known to call it"
    assert search.line(1, 31, "c") == (A, 5), "a new line's first call is its own"
    assert search.line(1, 32, "c") == (A, 5)
    assert search.line(1, 33, "b") == (A, 4), "its second one a silent line's"
    assert search.line(1, 41, "a") == (A, 6)
    assert search.line(1, 42, "c") == (A, 5)


def test_an_ambiguous_call_has_no_line() -> None:
    beginnings = [(10, 1, A, 3), (20, 1, A, 4), (22, 1, A, 9)]
    search = _LineSearch(beginnings, {(A, 3): 25})
    assert [search.line(1, 11, "a"), search.line(1, 21, "a"), search.line(1, 23, "z")] == [
        (A, 3),
        (A, 4),
        (A, 9),
    ]
    assert search.line(1, 26, "a") is None


def test_a_new_line_can_call_a_function_with_disabled_lines() -> None:
    beginnings = [(10, 1, B, 3), (30, 1, A, 5)]
    search = _LineSearch(beginnings, {(B, 3): 25})
    assert search.line(1, 11, "a") == (B, 3)
    assert search.line(1, 31, "a") is None
    assert search.line(1, 32, "a") == (B, 3)


def test_lines_of_generators_and_callers_are_known(tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    code = (
        "def steps():\n    yield 1\n    yield 2\n"
        "def program(watch, note, now):\n    watch.start()\n    note((now(), 'first'))\n"
        "    for n in steps():\n        note((now(), 'in loop'))\n"
        "    note((now(), 'last'))\n    watch.stop()\n"
    )
    path.write_text(code)
    calls: list[tuple[int, str]] = []
    watch = LineWatch()
    module("prog", code, str(path))["program"](watch, calls.append, time.time_ns)
    thread = threading.get_native_id()
    lines = [(name, watch.line(thread, time_ns, name)) for time_ns, name in calls]
    assert [(name, line and line.line) for name, line in lines[:4]] == [
        ("first", 6),
        ("in loop", 8),
        ("in loop", 8),
        ("last", 9),
    ]
    assert all(line is None or line.file == "prog.py" for _, line in lines)
