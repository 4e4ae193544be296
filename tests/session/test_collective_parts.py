"""Operations of several GPUs in parts: arguments, NCCL's calls, rounds and their times, moves, peers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.links import collective, nccl, runs, schedules
from gpulab_course.teach.judge.python import several
from virtualgpu.errors import GpulabError
from virtualgpu.records.origin import Provenance
from virtualgpu.records.traffic.collective import Move, make_input_arrays
from virtualgpu.records.traffic.schedules import make_star_or_tree_schedule

ORIGIN = Provenance("measured", "GPU of ours")


@pytest.fixture(autouse=True)
def h200() -> None:
    gl.use_device("virtual:H200")


# Arguments ----------------------------------------------------------------------------------------------


class Called(Exception):
    """The arguments of a call that is not carried out."""


@pytest.fixture
def gpus_for(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, ...]]:
    """Return the GPUs, the real ones among them and the links of a call, without making arrays."""

    def stop(*arguments: Any) -> None:
        raise Called(*arguments)

    monkeypatch.setattr(collective, "_use_gpus", stop)

    def call(*arguments: Any, real: int = 0, **options: Any) -> tuple[Any, ...]:
        runtime = SimpleNamespace(getDeviceCount=lambda: real)
        cp = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)) if real else None
        monkeypatch.setattr(session, "real_cp", lambda: cp)
        with pytest.raises(Called) as error:
            gl.collective(*arguments, **options)
        return error.value.args

    return call


def test_default_is_8_virtual_gpus_or_all_real_gpus(gpus_for: Callable[..., tuple[Any, ...]]) -> None:
    assert gpus_for() == (8, 0, None)
    assert gpus_for(real=1) == (8, 1, None)
    assert gpus_for(real=2) == (2, 2, None)
    assert gpus_for(real=3, gpus=16) == (16, 3, None)
    assert gpus_for(real=3, links="pairs") == (8, 0, "pairs")
    assert gpus_for("all-reduce", "nccl", real=2, gpus=2) == (2, 2, None)
    assert gpus_for("all-reduce", "nccl", real=3) == (3, 3, None)


def test_nccl_with_too_few_real_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, words in ((1, "there is 1 real GPU here"), (2, "there are 2 real GPUs here")):
        runtime = SimpleNamespace(getDeviceCount=lambda count=count: count)
        real = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        monkeypatch.setattr(session, "real_cp", lambda real=real: real)
        with pytest.raises(
            GpulabError, match=rf"NCCL on 3 GPUs needs 3 real GPUs, but {words}\. Use fewer GPUs, or call gl"
        ):
            gl.collective("reduce", "nccl", gpus=3)


def test_virtual_gpus_are_used_if_real_gpus_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "real_cp", session.cp)
    record = gl.collective(gpus=2, size_bytes=64).record
    assert record.provenance.detail == "this computer has 1 of 2 GPUs"
    linked = gl.collective(gpus=2, size_bytes=64, links="host").record
    assert (linked.provenance.detail, linked.links) == ("", "host")


# Rounds and their times ---------------------------------------------------------------------------------


class MadeUpRun:
    """A run that notes its calls, and whose results are right or wrong in a fixed order."""

    last: MadeUpRun

    def __init__(self, cp: Any, gpus: int, bounds: Any) -> None:
        self.slice_count = 5
        self.direct_pairs = {(0, 1), (1, 0)}
        self.calls: list[Any] = []
        self.results = [(True, True), (True, False), (True, True)]
        MadeUpRun.last = self

    def capture_graph(self, steps: Any, slices: int) -> Callable[[], int]:
        self.calls.append(("graph", len(steps), slices))
        times_ns = iter([10**9, 5, 9, 7, *[7] * 10])
        return lambda: self.calls.append("launch") or next(times_ns)

    def submit_step(self, step: Any, slices: int = 1) -> None:
        self.calls.append((step[0].chunk, slices))

    def wait(self) -> None:
        self.calls.append("wait")

    def restore_arrays(self) -> None:
        self.calls.append("again")

    def check_results(self, operation: str) -> tuple[bool, bool]:
        self.calls.append(operation)
        return self.results.pop(0)


@pytest.mark.parametrize(
    ("time_ns", "rounds"), [(100, 10), (125_000_000, 8), (499_999_999, 3), (500_000_000, 2), (10**10, 2)]
)
def test_real_gpus_run_ten_rounds_or_for_a_second(
    time_ns: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round is not counted, and each step is timed by itself afterwards."""
    ticks = iter(n * time_ns for n in range(1000))
    monkeypatch.setattr(collective, "ScheduleRun", MadeUpRun)
    monkeypatch.setattr(collective, "time", SimpleNamespace(perf_counter_ns=lambda: next(ticks)))
    steps = [[Move(0, 1, 0, True)], [Move(1, 0, 1), Move(0, 1, 1)]]
    record = collective.run_schedule(None, "reduce", "mine", 2, [0, 10, 30], steps)
    single_round = [(0, 5), (1, 5), "wait"]
    graph = [("graph", 2, 5), "launch", "reduce", "launch"]
    alone = ["again", (0, 1), "wait", (1, 1), "wait", "reduce"]
    assert MadeUpRun.last.calls == [
        *single_round,
        "reduce",
        *single_round * (rounds - 1),
        "again",
        *graph,
        *alone,
    ]
    assert record.right == (True, False)
    assert record.from_host_ns == time_ns
    assert record.in_one_go_ns == record.time_ns == 5
    assert [(s.moves, s.time_ns, s.copies_ns) for s in record.steps] == [
        (tuple(step), time_ns, 0) for step in steps
    ]
    assert record.begins == (0, 1)
    assert [(c.size_bytes, c.over) for c in record.traffic.crossings] == [
        (size_bytes, "NVLink") for size_bytes in (40, 80, 80)
    ]
    assert (record.operation, record.algorithm, record.links) == ("reduce", "mine", "nvswitch")


def test_host_time_is_used_if_capture_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device("virtual:H200", count=2)
    error = session.cp().cuda.runtime.CUDARuntimeError

    def refuse(*_: Any) -> Any:
        raise error(900, "cudaErrorStreamCaptureUnsupported", "not in a graph")

    monkeypatch.setattr(session, "real_cp", session.cp)
    monkeypatch.setattr(runs.ScheduleRun, "capture_graph", refuse)
    record = gl.collective(gpus=2, size_bytes=4 * 101).record
    assert record.in_one_go_ns == 0
    assert record.time_ns == record.from_host_ns > 0


def test_modelled_step_time_counts_messages_and_sums() -> None:
    """Bytes are those that crossed; a copy to a chunk that is being read takes a buffer and a kernel."""
    calls: list[Any] = []
    crossings = [
        SimpleNamespace(source=0, target=1, size_bytes=40, over="NVLink"),
        SimpleNamespace(source=1, target=0, size_bytes=80, over="PCIe"),
    ]
    recorder = SimpleNamespace(start=lambda: None, stop=lambda: SimpleNamespace(crossings=crossings))
    side: Any = SimpleNamespace(
        port_recorder=lambda: recorder, step_ns=lambda *load: calls.append(load) or (100.4, 121.6)
    )
    run: Any = SimpleNamespace(submit_step=lambda step: None, wait=lambda: None, chunk_bounds=[0, 10, 30, 60])
    moves = [Move(0, 1, 0, True), Move(1, 0, 1), Move(0, 1, 1), Move(0, 1, 2)]
    step, messages = collective._run_modelled(side, run, moves)
    assert calls == [([(0, 1, 40, True), (1, 0, 80, False)], [(1, 40), (0, 80), (1, 200)])]
    assert (step.moves, step.time_ns, step.copies_ns, messages) == (tuple(moves), 122, 100, crossings)


def test_links_of_real_gpus_follow_from_their_peer_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "backend", lambda: SimpleNamespace(provenance=ORIGIN))
    every = {(a, b) for a in range(3) for b in range(3) if a != b}
    assert collective._find_origin(None, every, 3) == (ORIGIN, "nvswitch")
    assert collective._find_origin(None, {(0, 1), (1, 0)}, 3) == (ORIGIN, "pairs")
    assert collective._find_origin(None, set(), 3) == (ORIGIN, "host")


@pytest.mark.parametrize(
    ("operation", "size_bytes", "elements"), [("all-gather", 4 * 101, 100), ("broadcast", 4 * 101, 101)]
)
def test_nccl_on_real_gpus_runs_once_and_reports_ring_bytes(
    operation: str, size_bytes: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gl.use_device("virtual:H200", count=2)
    calls: list[Any] = []
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)
    monkeypatch.setattr(session, "real_cp", session.cp)
    monkeypatch.setattr(
        nccl, "run_collective", lambda *arguments: calls.append(arguments) or ((True, False), 77)
    )
    record = gl.collective(operation, "nccl", gpus=2, size_bytes=size_bytes).record
    assert calls == [(None, operation, 2, elements)]
    assert (record.right, record.time_ns, record.begins, record.opaque) == ((True, False), 77, (0,), True)
    assert [(s.moves, s.time_ns, s.copies_ns) for s in record.steps] == [((), 77, 0)]
    assert (record.operation, record.algorithm) == (operation, "NCCL")
    assert "NVLink SHARP (NVLS)" in record.bytes_are
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    record = gl.collective(operation, "nccl", gpus=2, size_bytes=size_bytes).record
    assert record.bytes_are == "computed as for a ring"
    assert {(c.name, c.over) for c in record.traffic.crossings} == {("NCCL", "NVLink")}


# NCCL ---------------------------------------------------------------------------------------------------


def test_real_ranks_are_processes_with_the_key_of_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Group:
        def __init__(self, devices: list[str], limit_s: float) -> None:
            calls.append((devices, limit_s))

        def __enter__(self) -> Group:
            return self

        def __exit__(self, *_: object) -> None:
            calls.append("ended")

        def ask(self, function: Any, *args: Any) -> list[Any]:
            calls.append((function, *args))
            keys = ["key 0", "key 1", "key 2"]
            return keys if function is nccl._make_nccl_id else [(True, 5), (False, 9), (True, 7)]

    monkeypatch.setattr(nccl, "ProcessGroup", Group)
    assert nccl.run_collective(None, "reduce", 3, 100) == ((True, False, True), 9)
    assert calls == [
        (["cuda:0", "cuda:1", "cuda:2"], 60.0),
        (nccl._make_nccl_id,),
        (nccl._run_rank, "key 0", 3, "reduce", 100, 7, 20),
        "ended",
    ]


def test_rank_0_makes_the_key_and_each_rank_opens_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    library = SimpleNamespace(available=True, get_unique_id=lambda: b"\x01\x02")
    device = SimpleNamespace(synchronize=lambda: steps.append("opened"))
    monkeypatch.setattr(
        session, "cp", lambda: SimpleNamespace(cuda=SimpleNamespace(nccl=library, Device=lambda: device))
    )
    assert nccl._make_nccl_id(steps.append, 0) == ([1, 2], True)
    assert steps == ["cp.cuda.Device(0)", "opened", "get_unique_id()"]
    assert nccl._make_nccl_id(steps.append, 1) == ([], True)
    library.get_unique_id = lambda: (3, 4)  # of older versions
    assert nccl._make_nccl_id(steps.append, 0) == ([3, 4], False)
    for missing in (SimpleNamespace(), SimpleNamespace(available=False)):
        library = missing
        with pytest.raises(GpulabError, match=r"CuPy cannot find NCCL here\. Install nvidia-nccl-cu13"):
            nccl._make_nccl_id(steps.append, 0)


class Device:
    """A GPU that notes calls of NCCL and recorded events."""

    def __init__(self, result: Any, times_ms: list[float]) -> None:
        self.calls: list[Any] = []
        self.times_ms = times_ms
        own = SimpleNamespace(data=SimpleNamespace(ptr=1000), get=lambda: result)
        self.cp = SimpleNamespace(
            asarray=lambda array: own,
            cuda=SimpleNamespace(
                nccl=SimpleNamespace(NCCL_INT32=2, NCCL_SUM=0, NcclCommunicator=self.communicator),
                Stream=self.stream,
                Event=self.event,
                get_elapsed_time=self.elapsed,
                Device=lambda: SimpleNamespace(synchronize=lambda: self.calls.append("device")),
            ),
        )

    def communicator(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return SimpleNamespace(allReduce=lambda *call: self.calls.append(call))

    def stream(self, non_blocking: bool = False) -> Any:
        assert non_blocking
        return SimpleNamespace(ptr=99, synchronize=lambda: self.calls.append("stream"))

    def event(self) -> Any:
        event = SimpleNamespace(complete=False, stream=None)
        event.record = lambda stream: self.calls.append("event") or setattr(event, "stream", stream.ptr)
        event.synchronize = lambda: setattr(event, "complete", True)
        return event

    def elapsed(self, begin: Any, end: Any) -> float:
        assert begin.stream == end.stream == 99
        assert end.complete
        return self.times_ms.pop(0)


@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_rank_calls_once_to_check_and_then_to_time(as_bytes: bool) -> None:
    total: Any = np.sum(make_input_arrays(3, 11), axis=0)
    device = Device(total, [8.0, 2.0, 3.0])
    steps: list[str] = []
    rank = nccl._run_rank(steps.append, 1, ([1, 2], as_bytes), 3, "all-reduce", 11, 3, 4, device.cp)
    assert rank == (True, 750_000)  # 3 ms is the median, of four calls in a row
    call = (1000, 1000, 11, 2, 0, 99)
    timed = ["event", *[call] * 4, "event"]
    assert device.calls == [
        (3, b"\x01\x02" if as_bytes else (1, 2), 1),
        "device",
        call,
        "stream",
        *[call, *timed] * 3,
    ]
    name = "allReduce(11 x int32)"
    assert steps == ["NcclCommunicator(3, id, 1)", name, f"{name}, timed"]
    wrong = Device(np.zeros(11, np.int32), [1.0])
    assert nccl._run_rank(str, 0, ([1, 2], True), 2, "all-reduce", 11, 1, 1, wrong.cp) == (False, 10**6)


# Moves --------------------------------------------------------------------------------------------------


def steps_of(*steps: list[Any], gpus: int = 3) -> Any:
    return schedules.make_schedule("all-reduce", list(steps), gpus)


def test_custom_schedules_are_converted_to_moves() -> None:
    assert steps_of([(0, 2, 0, "add"), [2, 0, 7, "copy"]], []) == (
        "your schedule",
        [[Move(0, 2, 0, True), Move(2, 0, 7, False)], []],
    )
    several_moves = [(0, 1, 0, "add"), (2, 1, 0, "add"), (0, 1, 1, "copy"), (0, 2, 0, "copy")]
    assert len(steps_of(several_moves)[1][0]) == 4  # sums come together, and other chunks, and other GPUs

    def mine(n: int) -> Any:
        return ((move for move in [(0, n - 1, 0, "copy")]) for _ in range(2))

    assert schedules.make_schedule("reduce", mine, 4) == ("mine", [[Move(0, 3, 0)]] * 2)
    nameless = partial(lambda unused, n: [[(0, n - 1, 0, "copy")]], None)
    assert schedules.make_schedule("reduce", nameless, 3) == ("your schedule", [[Move(0, 2, 0)]])
    assert schedules.make_schedule("reduce", "naive", 3) == (
        "naive",
        make_star_or_tree_schedule("reduce", 3, "naive"),
    )
    assert schedules.make_schedule("reduce", "ring", 3)[1] != schedules.make_schedule("reduce", "tree", 3)[1]
    assert schedules.check_operation("reduce") == "reduce"


@pytest.mark.parametrize(
    ("move", "message"),
    [
        *((move, "a move must be") for move in ((0, 1, 0), (0, 1, 0, "add", 5), (0, 1, 0, "put"), "0120", 7)),
        ((-1, 1, 0, "add"), "must contain two different GPUs from 0 to 2, and the number of a chunk"),
        ((3, 1, 0, "add"), "two different"),
        ((0, -1, 0, "add"), "two different"),
        ((0, 3, 0, "add"), "two different"),
        ((0, 1, -1, "add"), "the number of a chunk"),
        ((2, 2, 0, "add"), "two different"),
    ],
)
def test_a_wrong_move_is_named_with_its_step(move: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^Step 2: .*{message}"):
        steps_of([], [(0, 1, 0, "add"), move])


@pytest.mark.parametrize(("first", "second"), [("copy", "add"), ("add", "copy"), ("copy", "copy")])
def test_moves_without_a_defined_order_are_refused(first: str, second: str) -> None:
    with pytest.raises(ValueError, match="Step 1: a copy overwrites chunk 5 of GPU 1, and another move"):
        steps_of([(0, 1, 5, first), (2, 1, 5, second)])


ONE = (0, 1, 0, "add")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ([[ONE]] * 20_000, "Step 1001: a schedule has at most 1,000 steps"),
        (lambda _: repeat([ONE]), "Step 1001: a schedule has at most 1,000 steps"),
        ([[ONE], repeat(ONE)], "Step 2: a schedule has at most 10,000 moves"),
        ([[(0, 1, 10**9, "add")]], "Step 1: .* steps times GPUs times chunks must be at most 200,000"),
        ([[(0, 1, float("inf"), "add")]], "must be integers"),
        ([[(0, 1.5, 0, "add")]], "must be integers"),
        ([[(0, 1, 0, [])]], "Step 1: a move must be"),
        ([5], "Step 1: a step must be a list"),
        (5, "A schedule must be a list of steps"),
    ],
)
def test_infinite_and_malformed_schedules_are_refused(schedule: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedules.make_schedule("all-reduce", schedule, 3)


def test_buffers_are_allocated_only_for_simultaneous_sums() -> None:
    """Two sums come into GPU 0 at a time; copies go directly to their chunks."""
    with several.open_gpu_machine(3) as machine:
        run = runs.ScheduleRun(machine.cp, 3, [0, 64, 128])

        def blocks() -> list[int]:
            counts = []
            for gpu in range(3):
                with machine.cp.cuda.Device(gpu):
                    counts.append(machine.cp.get_default_memory_pool().used_bytes() // 512)
            return counts

        assert blocks() == [1, 1, 1]
        run.submit_step([Move(0, 1, 0), Move(0, 2, 1)])
        assert blocks() == [1, 1, 1]
        run.submit_step([Move(1, 0, 0, True), Move(2, 0, 0, True), Move(1, 0, 1, True)])
        run.wait()
        assert blocks() == [3, 1, 1]
        own = make_input_arrays(3, 128)
        expected = own[0].copy()
        expected[:64] += own[0][:64] + own[2][:64]
        expected[64:] += own[1][64:]
        np.testing.assert_array_equal(run._find_array(0).get(), expected)
        run.restore_arrays()
        assert [(run._find_array(gpu).get() == own[gpu]).all() for gpu in range(3)] == [True] * 3
        assert run.check_results("broadcast") == (True, False, False)


def test_adjacent_chunks_are_one_message_unless_sliced() -> None:
    """Each byte is sent once, and other work of the GPUs delays neither message."""
    moves = [Move(0, 1, 0), Move(0, 1, 1), Move(0, 1, 2), Move(1, 0, 3)]
    with several.open_gpu_machine(2) as machine:
        run = runs.ScheduleRun(machine.cp, 2, [0, 10, 31, 70, 100])
        own = make_input_arrays(2, 100)
        for slices, sizes in ((1, [4 * 70, 4 * 30]), (2, [20, 20, 40, 44, 76, 80, 60, 60])):
            run.restore_arrays()
            recorder = machine.side.timeline_recorder()
            recorder.start()
            with machine.cp.cuda.Device(0):
                machine.cp.zeros(1 << 22).sum()  # on another stream, for as long as it takes
            run.submit_step(moves, slices)
            run.wait()
            work = recorder.stop().activities
            copies = [a for a in work if a.copy_kind == "PtoP"]
            assert sorted(a.size_bytes for a in copies) == sorted(sizes)
            assert min(a.start_ns for a in copies) < max(a.end_ns for a in work if a.copy_kind is None)
            np.testing.assert_array_equal(run._find_array(1).get(), [*own[0][:70], *own[1][70:]])
            np.testing.assert_array_equal(run._find_array(0).get(), [*own[0][:70], *own[1][70:]])


# Peers and records --------------------------------------------------------------------------------------


def test_peers_have_the_links_and_rates_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device("virtual:H200", count=4, links="pairs")
    chart = gl.peers()
    assert {pair for pair, is_direct in chart.record.items() if is_direct} == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert chart.link == "NVLink"
    assert chart.rates[True] > 5 * chart.rates[False]
    gl.use_device("virtual:H200", count=8)
    assert gl.peers().link == "NVSwitch"
    monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(kind="cuda", links=""))
    assert "GB/s" not in repr(gl.peers()), "no bandwidth is published for this GPU"
