"""Operations of several GPUs, part by part: what is asked of NCCL, rounds and their times, moves, peers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.links import collective, nccl, records, runs, schedules
from gpulab.lab.links.peers import Peers
from gpulab_course.teach.judge.python import several
from virtualgpu.errors import GpulabError
from virtualgpu.records.origin import Provenance
from virtualgpu.records.traffic.collective import Move, Operation, input_arrays
from virtualgpu.records.traffic.schedules import star_or_tree

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
ORIGIN = Provenance("measured", "GPU of ours")


@pytest.fixture(autouse=True)
def h200() -> None:
    gl.use_device("virtual:H200")


# What is asked ------------------------------------------------------------------------------------------


class Asked(Exception):
    """How many GPUs a call is made for."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, ...]]:
    """What a call comes to, without making arrays for it: GPUs, real ones there, links."""

    def raises(*what: Any) -> None:
        raise Asked(*what)

    monkeypatch.setattr(collective, "_gpus", raises)

    def ask(*what: Any, there: int = 0, **how: Any) -> tuple[Any, ...]:
        real = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: there)))
        monkeypatch.setattr(session, "real_cp", lambda: real if there else None)
        with pytest.raises(Asked) as told:
            gl.collective(*what, **how)
        return told.value.args

    return ask


def test_eight_virtual_gpus_take_part_or_all_real_ones(asked: Callable[..., tuple[Any, ...]]) -> None:
    assert asked() == (8, 0, None)
    assert asked(there=1) == (8, 1, None)
    assert asked(there=2) == (2, 2, None)
    assert asked(there=3, gpus=16) == (16, 3, None)
    assert asked(there=3, links="pairs") == (8, 0, "pairs")
    assert asked("all-reduce", "nccl", there=2, gpus=2) == (2, 2, None)
    assert asked("all-reduce", "nccl", there=3) == (3, 3, None)


def test_nccl_wants_as_many_real_gpus_or_virtual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, said in ((1, "there is 1 real GPU here"), (2, "there are 2 real GPUs here")):
        runtime = SimpleNamespace(getDeviceCount=lambda there=there: there)
        real = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        monkeypatch.setattr(session, "real_cp", lambda real=real: real)
        with pytest.raises(GpulabError, match=f"NCCL on 3 GPUs needs as many, and {said}: take fewer, or gl"):
            gl.collective("reduce", "nccl", gpus=3)


def test_sizes_are_limited_to_the_element(asked: Callable[..., tuple[Any, ...]]) -> None:
    """A GiB in all arrays together, and an element in each chunk."""
    assert asked(gpus=2, size_bytes=1 << 29)[0] == 2
    assert asked(gpus=2, size_bytes=(1 << 29) + 3)[0] == 2  # rounded down to whole elements
    assert asked(size_bytes=32)[0] == 8
    assert asked("broadcast", [], size_bytes=4)[0] == 8
    assert asked("all-gather", [], size_bytes=32)[0] == 8
    for what, how in (
        (("all-reduce", "ring"), {"gpus": 2, "size_bytes": (1 << 29) + 4}),
        (("all-reduce", "ring"), {"size_bytes": 31}),
        (("broadcast", []), {"size_bytes": 3}),
        (("all-gather", []), {"size_bytes": 31}),
        (("reduce-scatter", [[(0, 1, 3, "copy")]]), {"gpus": 5, "size_bytes": 16}),
    ):
        with pytest.raises(ValueError, match=f"at most 1 GiB; it is {how['size_bytes']}"):
            gl.collective(*what, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpus", [1, 17, 2.0, True, "2"])
def test_another_number_of_gpus_is_refused(gpus: Any) -> None:
    with pytest.raises(ValueError, match=f"`gpus` is a whole number from 2 to 16, not {gpus!r}"):
        gl.collective(gpus=gpus)


def test_what_is_not_said_is_an_all_reduce_of_eight_mebibytes() -> None:
    record = gl.collective(gpus=2).record
    assert (record.operation, record.algorithm, record.size_bytes) == ("all-reduce", "ring", 8 << 20)
    assert record.chunk_bytes == (4 << 20, 4 << 20)
    assert record.bytes_are == "counted at the ports"
    assert (record.begins, record.in_one_go_ns, record.opaque) == ((0, 2), 0, False)
    assert all(step.time_ns > step.copies_ns > 0 for step in record.steps[:1])
    assert [[m.add for m in step.moves] for step in record.steps] == [[True, True], [False, False]]
    assert [c.over for c in record.traffic.crossings] == ["NVLink"] * 4
    cut = gl.collective("all-gather", [[(0, 1, 0, "copy")]], gpus=3, size_bytes=44).record
    assert cut.chunk_bytes == (12, 16, 16)
    assert gl.collective(gpus=2, size_bytes=9).record.chunk_bytes == (4, 4)


def test_an_array_that_nobody_sizes_has_eight_mebibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*what: Any) -> None:
        raise Asked(*what)

    monkeypatch.setattr(collective, "_gpus", lambda *_: nullcontext())
    monkeypatch.setattr(collective, "by_schedule", raises)
    with pytest.raises(Asked) as told:
        gl.collective()
    (_, operation, name, gpus, bounds, steps) = told.value.args
    assert (operation, name, gpus, len(steps)) == ("all-reduce", "ring", 8, 14)
    assert bounds == [at << 18 for at in range(9)]


def test_on_too_few_real_gpus_virtual_ones_take_part_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "real_cp", session.cp)
    view = gl.collective(gpus=2, size_bytes=64)
    assert view.record.provenance.detail == "this computer has 1 of 2 GPUs"
    assert gl.collective(gpus=2, size_bytes=64, links="host").record.provenance.detail == ""
    assert gl.collective(gpus=2, size_bytes=64, links="host").record.links == "host"


# Rounds and their times ---------------------------------------------------------------------------------


class Made:
    """A run that is made up: it notes what it is given, and its results are right as it is told."""

    def __init__(self, cp: Any, gpus: int, bounds: Any) -> None:
        self.slices, self.joined, self.done = 5, {(0, 1), (1, 0)}, list[Any]()
        self.told = [(True, True), (True, False), (True, True)]
        Made.last = self

    def as_graph(self, steps: Any, slices: int) -> Callable[[], int]:
        self.done.append(("graph", len(steps), slices))
        taken = iter([10**9, 5, 9, 7, *[7] * 10])
        return lambda: self.done.append("launch") or next(taken)

    last: Made

    def give(self, step: Any, slices: int = 1) -> None:
        self.done.append((step[0].chunk, slices))

    def wait(self) -> None:
        self.done.append("wait")

    def begin_again(self) -> None:
        self.done.append("again")

    def right(self, what: str) -> tuple[bool, bool]:
        self.done.append(what)
        return self.told.pop(0)


@pytest.mark.parametrize(
    ("takes_ns", "rounds"),
    [(100, 10), (499_999_999, 3), (500_000_000, 2), (10**10, 2), (111_111_111, 10), (125_000_000, 8)],
)
def test_real_gpus_go_round_ten_times_or_for_a_second(
    takes_ns: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round is not counted, and each step is timed for itself afterwards."""
    ticks = iter(n * takes_ns for n in range(1000))
    monkeypatch.setattr(collective, "Run", Made)
    monkeypatch.setattr(collective, "time", SimpleNamespace(perf_counter_ns=lambda: next(ticks)))
    steps = [[Move(0, 1, 0, True)], [Move(1, 0, 1), Move(0, 1, 1)]]
    record = collective.by_schedule(None, "reduce", "mine", 2, [0, 10, 30], steps)
    one = [(0, 5), (1, 5), "wait"]
    assert Made.last.done == [
        *one,
        "reduce",
        *one * (rounds - 1),
        "again",
        ("graph", 2, 5),
        "launch",
        "reduce",
        "launch",
        "again",
        (0, 1),
        "wait",
        (1, 1),
        "wait",
        "reduce",
    ]
    assert record.right == (True, False)
    assert record.from_host_ns == takes_ns
    assert record.in_one_go_ns == record.time_ns == 5
    assert [(s.moves, s.time_ns, s.copies_ns) for s in record.steps] == [
        (tuple(step), takes_ns, 0) for step in steps
    ]
    assert record.begins == (0, 1)
    assert [(c.name, c.size_bytes, c.over) for c in record.traffic.crossings] == [
        ("Memcpy PtoP", 40, "NVLink"),
        ("Memcpy PtoP", 80, "NVLink"),
        ("Memcpy PtoP", 80, "NVLink"),
    ]
    assert (record.operation, record.algorithm, record.links) == ("reduce", "mine", "nvswitch")
    assert record.bytes_are == "computed from the moves"


def test_times_of_one_go_are_the_median_without_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0, 10**9, 0, 15, 0, 19, *[0] * 9])
    monkeypatch.setattr(collective, "Run", Made)
    monkeypatch.setattr(collective, "_ROUNDS", 3)
    monkeypatch.setattr(collective, "_MOST_NS", 10**10)
    monkeypatch.setattr(collective, "time", SimpleNamespace(perf_counter_ns=lambda: next(ticks)))
    record = collective.by_schedule(None, "reduce", "m", 2, [0, 1], [[Move(0, 1, 0)]])
    assert (record.from_host_ns, record.in_one_go_ns) == (17, 7)


def test_where_nothing_can_be_captured_the_hosts_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device("virtual:H200", count=2)
    error = session.cp().cuda.runtime.CUDARuntimeError

    def refuse(*_: Any) -> Any:
        raise error(900, "cudaErrorStreamCaptureUnsupported", "not in a graph")

    monkeypatch.setattr(session, "real_cp", session.cp)
    monkeypatch.setattr(runs.Run, "as_graph", refuse)
    record = gl.collective(gpus=2, size_bytes=4 * 101).record
    assert record.in_one_go_ns == 0
    assert record.time_ns == record.from_host_ns > 0


def test_a_modelled_step_is_its_messages_and_its_sums() -> None:
    """Bytes are those that crossed; a copy whose place is being read goes by a box, and a kernel moves it."""
    said: list[Any] = []
    crossings = [
        SimpleNamespace(source=0, target=1, size_bytes=40, over="NVLink"),
        SimpleNamespace(source=1, target=0, size_bytes=80, over="PCIe"),
    ]
    side: Any = SimpleNamespace(
        port_recorder=lambda: SimpleNamespace(
            start=lambda: said.append("start"),
            stop=lambda: said.append("stop") or SimpleNamespace(crossings=crossings),
        ),
        step_ns=lambda *what: said.append(what) or (100.4, 121.6),
    )
    run: Any = SimpleNamespace(
        give=lambda step: said.append("give"), wait=lambda: said.append("wait"), bounds=[0, 10, 30, 60]
    )
    moves = [Move(0, 1, 0, True), Move(1, 0, 1), Move(0, 1, 1), Move(0, 1, 2)]
    step, passed = collective._modelled(side, run, moves)
    assert said == [
        "start",
        "give",
        "wait",
        "stop",
        ([(0, 1, 40, True), (1, 0, 80, False)], [(1, 40), (0, 80), (1, 200)]),
    ]
    assert (step.moves, step.time_ns, step.copies_ns, passed) == (tuple(moves), 122, 100, crossings)


def test_how_real_gpus_are_joined_follows_from_who_reaches_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "backend", lambda: SimpleNamespace(provenance=ORIGIN))
    every = {(a, b) for a in range(3) for b in range(3) if a != b}
    assert collective._origin(None, every, 3) == (ORIGIN, "nvswitch")
    assert collective._origin(None, {(0, 1), (1, 0)}, 3) == (ORIGIN, "pairs")
    assert collective._origin(None, set(), 3) == (ORIGIN, "host")


@pytest.mark.parametrize(
    ("operation", "size_bytes", "elements"), [("all-gather", 4 * 101, 100), ("broadcast", 4 * 101, 101)]
)
def test_nccl_on_real_gpus_is_one_call_with_a_rings_bytes(
    operation: str, size_bytes: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gl.use_device("virtual:H200", count=2)
    calls: list[Any] = []
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)
    monkeypatch.setattr(session, "real_cp", session.cp)
    monkeypatch.setattr(nccl, "called", lambda *what: calls.append(what) or ((True, False), 77))
    record = gl.collective(operation, "nccl", gpus=2, size_bytes=size_bytes).record
    assert calls == [(None, operation, 2, elements)]
    assert (record.right, record.time_ns, record.begins, record.opaque) == ((True, False), 77, (0,), True)
    assert [(s.moves, s.time_ns, s.copies_ns) for s in record.steps] == [((), 77, 0)]
    assert (record.operation, record.algorithm) == (operation, "NCCL")
    assert record.bytes_are == "computed as of a ring, while NVLink SHARP (NVLS) would need fewer"
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    record = gl.collective(operation, "nccl", gpus=2, size_bytes=size_bytes).record
    assert record.bytes_are == "computed as of a ring"
    assert {(c.name, c.over) for c in record.traffic.crossings} == {("NCCL", "NVLink")}


# NCCL ---------------------------------------------------------------------------------------------------


def test_real_ranks_are_processes_that_find_each_other_by_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Group:
        def __init__(self, devices: list[str], limit_s: float) -> None:
            asked.append((devices, limit_s))

        def __enter__(self) -> Group:
            return self

        def __exit__(self, *_: object) -> None:
            asked.append("ended")

        def ask(self, function: Any, *args: Any) -> list[Any]:
            asked.append((function, *args))
            return (
                ["key 0", "key 1", "key 2"] if function is nccl._key else [(True, 5), (False, 9), (True, 7)]
            )

    monkeypatch.setattr(nccl, "Group", Group)
    assert nccl.called(None, "reduce", 3, 100) == ((True, False, True), 9)
    assert asked == [
        (["cuda:0", "cuda:1", "cuda:2"], 60.0),
        (nccl._key,),
        (nccl._rank, "key 0", 3, "reduce", 100, 7, 20),
        "ended",
    ]
    nccl.called(None, "reduce", 3, 100, 2.5)
    assert asked[4][1] == 2.5


def test_a_key_is_rank_0s_and_each_rank_opens_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    library = SimpleNamespace(available=True, get_unique_id=lambda: b"\x01\x02")
    device = SimpleNamespace(synchronize=lambda: said.append("opened"))
    monkeypatch.setattr(
        session, "cp", lambda: SimpleNamespace(cuda=SimpleNamespace(nccl=library, Device=lambda: device))
    )
    assert nccl._key(said.append, 0) == ([1, 2], True)
    assert said == ["cp.cuda.Device(0)", "opened", "get_unique_id()"]
    assert nccl._key(said.append, 1) == ([], True)
    library.get_unique_id = lambda: (3, 4)  # of older versions
    assert nccl._key(said.append, 0) == ([3, 4], False)
    for missing in (SimpleNamespace(), SimpleNamespace(available=False)):
        library = missing
        with pytest.raises(GpulabError, match="CuPy finds no NCCL here: install nvidia-nccl-cu13"):
            nccl._key(said.append, 0)


class Device:
    """A GPU that is made up: it notes calls of NCCL, and events that are recorded."""

    def __init__(self, holds: Any, times_ms: list[float]) -> None:
        self.said: list[Any] = []
        self.times_ms = times_ms
        own = SimpleNamespace(data=SimpleNamespace(ptr=1000), get=lambda: holds)
        self.cp = SimpleNamespace(
            asarray=lambda array: self.said.append(("takes", array.tolist())) or own,
            cuda=SimpleNamespace(
                nccl=SimpleNamespace(NCCL_INT32=2, NCCL_SUM=0, NcclCommunicator=self.communicator),
                Stream=self.stream,
                Event=self.event,
                get_elapsed_time=self.elapsed,
                Device=lambda: SimpleNamespace(synchronize=lambda: self.said.append("device")),
            ),
        )

    def communicator(self, *how: Any) -> Any:
        self.said.append(how)
        names = ("allReduce", "reduce", "broadcast", "allGather", "reduceScatter")
        return SimpleNamespace(**{name: partial(self.call, name) for name in names})

    def call(self, *what: Any) -> None:
        self.said.append(what)

    def stream(self, non_blocking: bool = False) -> Any:
        assert non_blocking
        return SimpleNamespace(ptr=99, synchronize=lambda: self.said.append("stream"))

    def event(self) -> Any:
        made = SimpleNamespace(waited=False, recorded=False)
        made.record = lambda stream: self.said.append("event") or setattr(made, "recorded", stream.ptr == 99)
        made.synchronize = lambda: setattr(made, "waited", True)
        return made

    def elapsed(self, begin: Any, end: Any) -> float:
        assert begin.recorded
        assert end.recorded
        assert end.waited
        return self.times_ms.pop(0)


CALLS: dict[Operation, tuple[Any, ...]] = {
    "all-reduce": ("allReduce", 1000, 1000, 11, 2, 0, 99),
    "reduce": ("reduce", 1000, 1000, 11, 2, 0, 0, 99),
    "broadcast": ("broadcast", 1000, 1000, 11, 2, 0, 99),
    "all-gather": ("allGather", 1000 + 4 * 3, 1000, 3, 2, 99),
    "reduce-scatter": ("reduceScatter", 1000, 1000 + 4 * 3, 3, 2, 0, 99),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_rank_calls_once_to_see_and_then_to_time(operation: Operation) -> None:
    own = input_arrays(3, 11)
    total: Any = np.sum(own, axis=0)
    parts = [own[rank][rank * 11 // 3 : (rank + 1) * 11 // 3] for rank in range(3)]
    ends = {"broadcast": own[0], "reduce": own[1], "all-gather": np.concatenate(parts)}
    device = Device(ends.get(operation, total), [8.0, 2.0, 3.0])
    at: list[str] = []
    rank = partial(nccl._rank, at.append, 1, ([1, 2], True), 3, operation, 11)
    assert rank(3, 4, device.cp) == (True, 750_000)  # 3 ms is the median, of four calls in a row
    call = CALLS[operation]
    told = [call, "event", *[call] * 4, "event"]
    assert device.said == [
        (3, b"\x01\x02", 1),
        ("takes", own[1].tolist()),
        "device",
        call,
        "stream",
        *told * 3,
    ]
    name = call[0]
    assert at == ["NcclCommunicator(3, id, 1)", f"{name}(11 x int32)", f"{name}(11 x int32), timed"]


def test_a_rank_says_what_is_wrong_and_takes_keys_of_older_versions() -> None:
    wrong = Device(np.zeros(2000, np.int32), [1.0])
    at: list[str] = []
    assert nccl._rank(at.append, 0, ([1, 2], False), 2, "all-reduce", 2000, 1, 1, wrong.cp) == (False, 10**6)
    assert wrong.said[0] == (2, (1, 2), 0)
    assert at[1] == "allReduce(2,000 x int32)"


def test_virtual_ranks_are_threads_on_devices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Any] = []

    def rank(at: Any, number: int, key: Any, *what: Any) -> tuple[bool, int]:
        device = int(what[-1].cuda.Device().id)
        used.append((number, device, key[1], bytes(key[0]) != b"", what[:-1]))
        return number != 1, 10 - number

    monkeypatch.setattr(nccl, "_rank", rank)
    with several.gpus(3) as made:
        assert nccl.called(made.cp, "reduce", 3, 50) == ((True, False, True), 10)
    assert sorted(used) == [(n, n, True, True, (3, "reduce", 50, 1, 1)) for n in range(3)]


def test_a_virtual_call_takes_what_one_takes() -> None:
    """Not several in a row, whose times would be modelled alike."""
    with several.gpus(2) as made:
        key = list(made.cp.cuda.nccl.get_unique_id()), True

        def rank(number: int) -> tuple[bool, int]:
            made.cp.cuda.Device(number).use()
            return nccl._rank(str, number, key, 2, "all-reduce", 100, 1, 1, made.cp)

        with ThreadPoolExecutor(2) as pool:
            told = list(pool.map(rank, range(2)))
        assert [right for right, _ in told] == [True, True]
        assert nccl.called(made.cp, "all-reduce", 2, 100)[1] == pytest.approx(
            max(ns for _, ns in told), rel=0.5
        )


# Moves --------------------------------------------------------------------------------------------------


def steps_of(*steps: list[Any], gpus: int = 3) -> Any:
    return schedules.schedule_of("all-reduce", list(steps), gpus)


def test_a_schedule_of_ones_own_becomes_moves() -> None:
    assert steps_of([(0, 2, 0, "add"), [2, 0, 7, "copy"]], []) == (
        "your schedule",
        [[Move(0, 2, 0, True), Move(2, 0, 7, False)], []],
    )
    many = [(0, 1, 0, "add"), (2, 1, 0, "add"), (0, 1, 1, "copy"), (0, 2, 0, "copy")]
    assert len(steps_of(many)[1][0]) == 4  # sums come together, and other chunks, and other GPUs

    def mine(n: int) -> Any:
        return ((move for move in [(0, n - 1, 0, "copy")]) for _ in range(2))

    assert schedules.schedule_of("reduce", mine, 4) == ("mine", [[Move(0, 3, 0)]] * 2)
    nameless = partial(lambda unused, n: [[(0, n - 1, 0, "copy")]], None)
    assert schedules.schedule_of("reduce", nameless, 3) == ("your schedule", [[Move(0, 2, 0)]])
    assert schedules.schedule_of("reduce", "naive", 3) == ("naive", star_or_tree("reduce", 3, "naive"))
    assert schedules.schedule_of("reduce", "ring", 3)[1] != schedules.schedule_of("reduce", "tree", 3)[1]
    assert schedules.check_operation("reduce") == "reduce"


@pytest.mark.parametrize(
    ("move", "said"),
    [
        (((0, 1, 0)), "a move is .source, target, chunk, 'add' or 'copy'., not .0, 1, 0"),
        ((0, 1, 0, "add", 5), "a move is"),
        ((0, 1, 0, "put"), "a move is"),
        ("0120", "a move is"),
        (7, "a move is"),
        ((-1, 1, 0, "add"), "names no two different GPUs from 0 to 2, or no chunk"),
        ((3, 1, 0, "add"), "no two different"),
        ((0, -1, 0, "add"), "no two different"),
        ((0, 3, 0, "add"), "no two different"),
        ((0, 1, -1, "add"), "no chunk"),
        ((2, 2, 0, "add"), "no two different"),
    ],
)
def test_a_move_that_is_none_is_named_with_its_step(move: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"^Step 2: .*{said}"):
        steps_of([], [(0, 1, 0, "add"), move])


@pytest.mark.parametrize(("first", "then"), [("copy", "add"), ("add", "copy"), ("copy", "copy")])
def test_what_nobody_knows_the_order_of_is_refused(first: str, then: str) -> None:
    said = "Step 1: chunk 5 of GPU 1 is overwritten while another move writes it, too"
    with pytest.raises(ValueError, match=said):
        steps_of([(0, 1, 5, first), (2, 1, 5, then)])


ONE = (0, 1, 0, "add")


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ([[ONE]] * 20_000, "Step 1001: a schedule has at most 1,000 steps"),
        (lambda _: repeat([ONE]), "Step 1001: a schedule has at most 1,000 steps"),
        ([[ONE], repeat(ONE)], "Step 2: a schedule has at most 10,000 moves"),
        ([[(0, 1, 10**9, "add")]], "Step 1: .* steps times GPUs times chunks are at most 200,000"),
        ([[(0, 1, float("inf"), "add")]], "Step 1: source, target and chunk are integers"),
        ([[(0, 1.5, 0, "add")]], "Step 1: source, target and chunk are integers"),
        ([[(0, 1, 0, [])]], "Step 1: a move is"),
        ([5], "Step 1: a step is a list"),
        (5, "A schedule is a list of steps"),
    ],
)
def test_a_schedule_without_an_end_or_a_form_is_refused(schedule: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schedules.schedule_of("all-reduce", schedule, 3)


def test_the_words_that_there_are_stand_in_the_refusal() -> None:
    with pytest.raises(
        ValueError, match="no operation 'sum'; there are 'all-reduce', 'broadcast', 'reduce', 'all"
    ):
        schedules.check_operation("sum")
    with pytest.raises(
        ValueError, match="no algorithm 'star'; there are 'ring', 'tree', 'naive', or your own"
    ):
        schedules.schedule_of("reduce", "star", 2)


def test_chunks_are_cut_into_slices_of_eight_mebibytes_and_no_more_than_two() -> None:
    mebi = 1 << 20  # four of them make 16 MiB
    cut = [
        ([0, 1], 1),
        ([0, 4 * mebi - 1], 1),
        ([0, 4 * mebi], 2),
        ([0, 100 * mebi], 2),
        ([0, 1, 4 * mebi + 1, 4 * mebi + 2], 2),
        ([5, 4 * mebi], 1),
        ([0, 0], 1),
    ]
    for bounds, slices in cut:
        assert runs.slices_of(bounds) == slices, bounds


def test_beside_an_array_lies_what_comes_in_at_once_and_no_more() -> None:
    """Two sums come into GPU 0 at a time; copies go straight into their places."""
    with several.gpus(3) as made:
        run = runs.Run(made.cp, 3, [0, 64, 128])

        def held() -> list[int]:
            found = []
            for gpu in range(3):
                with made.cp.cuda.Device(gpu):
                    found.append(made.cp.get_default_memory_pool().used_bytes() // 512)
            return found

        assert held() == [1, 1, 1]
        run.give([Move(0, 1, 0), Move(0, 2, 1)])
        assert held() == [1, 1, 1]
        run.give([Move(1, 0, 0, True), Move(2, 0, 0, True), Move(1, 0, 1, True)])
        run.wait()
        assert held() == [3, 1, 1]
        own = input_arrays(3, 128)
        wanted = own[0].copy()
        wanted[:64] += own[0][:64] + own[2][:64]
        wanted[64:] += own[1][64:]
        np.testing.assert_array_equal(run._array(0).get(), wanted)
        run.begin_again()
        assert [(run._array(gpu).get() == own[gpu]).all() for gpu in range(3)] == [True] * 3
        assert run.right("broadcast") == (True, False, False)


def test_neighbouring_chunks_are_one_message_unless_they_are_sliced() -> None:
    """Of what lies between, each byte is sent once; other work of the GPUs holds up neither."""
    moves = [Move(0, 1, 0), Move(0, 1, 1), Move(0, 1, 2), Move(1, 0, 3)]
    with several.gpus(2) as made:
        run = runs.Run(made.cp, 2, [0, 10, 31, 70, 100])
        own = input_arrays(2, 100)
        for slices, sizes in ((1, [4 * 70, 4 * 30]), (2, [20, 20, 40, 44, 76, 80, 60, 60])):
            run.begin_again()
            seen = made.side.timeline_recorder()
            seen.start()
            with made.cp.cuda.Device(0):
                made.cp.zeros(1 << 22).sum()  # on another stream, for as long as it takes
            run.give(moves, slices)
            run.wait()
            work = seen.stop().activities
            copies = [a for a in work if a.copy_kind == "PtoP"]
            assert sorted(a.size_bytes for a in copies) == sorted(sizes)
            assert min(a.start_ns for a in copies) < max(a.end_ns for a in work if a.copy_kind is None)
            np.testing.assert_array_equal(run._array(1).get(), [*own[0][:70], *own[1][70:]])
            np.testing.assert_array_equal(run._array(0).get(), [*own[0][:70], *own[1][70:]])


def test_when_it_has_waited_nothing_runs_any_more() -> None:
    with several.gpus(2) as made:
        run = runs.Run(made.cp, 2, [0, 1 << 21])
        streams = [stream for pair in run._streams for stream in pair]
        run.give([Move(0, 1, 0, True), Move(1, 0, 0, True)])
        run.wait()
        assert all(stream.done for stream in streams)


def test_who_reaches_whom_is_asked_of_pairs() -> None:
    asked: list[tuple[int, int]] = []
    runtime = SimpleNamespace(deviceCanAccessPeer=lambda a, b: asked.append((a, b)) or a < b)
    assert runs.reachable(runtime, 3) == {(0, 1), (0, 2), (1, 2)}
    assert all(a != b for a, b in asked)


# Peers and records --------------------------------------------------------------------------------------


def test_peers_are_a_table_from_row_to_column(monkeypatch: pytest.MonkeyPatch) -> None:
    reach = {(0, 0): False, (0, 1): True, (1, 0): False, (1, 1): False}
    real = Peers(reach, {}, "measured")
    table = real._table
    assert (table.title, table.headings) == ("From row to column: 2 GPUs, measured", ("", "GPU 0", "GPU 1"))
    assert table.cells == (("GPU 0", "–", "direct"), ("GPU 1", "by the host", "–"))
    assert real.record is reach
    assert real._sentence in repr(real)
    assert "by the host" in real._repr_html_()
    rated = Peers(reach, {True: 395.2, False: 38.2}, "modelled")._table
    assert rated.title == "From row to column, GB/s of large copies: 2 GPUs, modelled"
    assert rated.cells == (("GPU 0", "–", "395"), ("GPU 1", "38.2, host", "–"))

    gl.use_device("virtual:H200", count=2)
    assert gl.peers().record == {(0, 0): False, (0, 1): True, (1, 0): True, (1, 1): False}
    assert "GB/s" in repr(gl.peers())
    monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(kind="cuda"))
    assert gl.peers()._table.cells[0] == ("GPU 0", "–", "direct")
    monkeypatch.undo()
    gl.use_device("virtual:T4")
    assert gl.peers()._table.cells == (("GPU 0", "–"),)


def test_records_are_of_a_gpu_by_name_and_of_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    every = tuple(
        {"gpu": gpu, "gpus": gpus, "n": n}
        for n, (gpu, gpus) in enumerate(
            [("H200", 2), ("H200", 4), ("H100", 2), ("H200", 2), ("H200", 3), ("H200", 1)]
        )
    )
    monkeypatch.setattr(records, "records", lambda: every)
    assert [each["n"] for each in records.records_of("virtual H200")] == [0, 3]
    assert [each["n"] for each in records.records_of("NVIDIA H200", 4)] == [1]
    assert records.records_of("H20") == ()


def test_every_record_that_ships_is_read() -> None:
    known = [(each["gpu"], each["gpus"], each["ranks"]) for each in records.records()]
    assert len(known) == len({*known}) >= 2
    assert {gpus for _, gpus, _ in known} >= {2, 4}
