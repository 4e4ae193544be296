"""Streams and events: the order that CUDA promises, on the modelled clock."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest

import virtualgpu.cp as cp
from virtualgpu import cupyx
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as slot
from virtualgpu.model.clock import MAX_ACTIVITIES, HostClock, Schedule
from virtualgpu.model.machine import Machine
from virtualgpu.records import Activity

MS = 1_000_000


@pytest.fixture
def schedule() -> Schedule:
    return Schedule(HostClock(), copy_engines=2)


def overlap(a: tuple[int, int], b: tuple[int, int]) -> int:
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))


class TestSchedule:
    def test_one_copy_engine_runs_copies_in_both_directions(self) -> None:
        schedule = Schedule(HostClock(), copy_engines=1)
        to_device = schedule.place_operation(schedule.create_queue(True, 0), "to device", MS)
        to_host = schedule.place_operation(schedule.create_queue(True, 0), "to host", MS)
        assert overlap(to_device, to_host) == 0

    def test_only_small_kernels_share_the_sms(self, schedule: Schedule) -> None:
        def run(share: float) -> tuple[int, int]:
            return schedule.place_operation(schedule.create_queue(True, 0), "compute", MS, sm_share=share)

        assert overlap(run(0.5), run(0.5)) == MS
        assert overlap(run(0.6), run(0.6)) == 0

    def test_synchronize_waits_for_work_of_a_destroyed_queue(self, schedule: Schedule) -> None:
        queue = schedule.create_queue(True, 0)
        schedule.place_operation(queue, "compute", MS)
        schedule.destroy_queue(queue)
        assert schedule.ready_ns(0) == MS
        schedule.synchronize()
        assert schedule.clock.now_ns == MS


@pytest.mark.usefixtures("machine")
class TestStreams:
    def test_current_stream(self) -> None:
        assert cp.cuda.get_current_stream() is cp.cuda.Stream.null
        outer = cp.cuda.Stream()
        inner = cp.cuda.Stream(non_blocking=True, priority=-1)
        with outer:
            with inner:
                assert cp.cuda.get_current_stream() == inner
            assert cp.cuda.get_current_stream() == outer
        assert cp.cuda.get_current_stream() == cp.cuda.Stream(null=True)
        assert (inner.is_non_blocking, inner.priority) == (True, -1)
        assert (outer.is_non_blocking, outer.priority) == (False, 0)
        assert len({outer.ptr, inner.ptr, 0}) == 3
        outer.use()
        assert cp.cuda.get_current_stream() == outer
        cp.cuda.Stream.null.use()

    @pytest.mark.parametrize("first", [cp.cuda.Stream.null, cp.cuda.Stream.ptds], ids=["null", "ptds"])
    def test_leaving_a_with_statement_restores_the_outer_stream(self, first: Any) -> None:
        """As in CuPy (cupy#5143); the outermost block restores the default stream."""
        one, other, inner = (cp.cuda.Stream() for _ in range(3))
        first.use()
        with one:
            other.use()
            assert cp.cuda.get_current_stream() == other
            with inner:
                assert cp.cuda.get_current_stream() == inner
            assert cp.cuda.get_current_stream() == one
        assert cp.cuda.get_current_stream() == cp.cuda.Stream.null

    def test_arrays_submit_to_the_current_stream(self, machine: Machine) -> None:
        stream = cp.cuda.Stream()
        with stream:
            a = cp.arange(1 << 20, dtype=cp.float32)
            b = a * 2
        assert not stream.done
        stream.synchronize()
        assert stream.done
        activities = list(machine.devices[0].work_queue.log)
        assert {activity.stream_id for activity in activities} == {stream.ptr}
        assert activities[-1].name == "cupy_multiply__float32_int_float32"
        assert activities[-1].size_bytes == a.nbytes + b.nbytes

    def test_a_polling_loop_ends(self) -> None:
        stream = cp.cuda.Stream()
        with stream:
            cp.ones(1 << 24).sum()
        event = stream.record()
        polls = 0
        while not event.done:
            polls += 1
        assert 0 < polls < 10_000

    def test_small_elementwise_kernels_overlap_and_large_ones_do_not(self, machine: Machine) -> None:
        def at_once(elements: int) -> bool:
            arrays = [cp.zeros(elements, dtype=cp.float32) for _ in range(2)]
            streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
            cp.cuda.Device().synchronize()
            copied = cp.zeros(1 << 20, dtype=cp.float32)
            copied.set(cupyx.zeros_pinned(1 << 20, cp.float32))  # on the default stream: nobody may begin
            ready = cp.cuda.Stream.null.record()
            for array, stream in zip(arrays, streams, strict=True):
                stream.wait_event(ready)
                with stream:
                    cp.add(array, 1, out=array)
            cp.cuda.Device().synchronize()
            first, second = [a for a in machine.devices[0].work_queue.log if a.kind == "CONCURRENT_KERNEL"][
                -2:
            ]
            return overlap((first.start_ns, first.end_ns), (second.start_ns, second.end_ns)) > 0

        assert not at_once(1 << 24)
        assert at_once(1 << 14)

    def test_the_machine_can_change_inside_a_with_statement(self, machine: Machine) -> None:
        with cp.cuda.Stream(), cp.cuda.Device(0):
            slot.use(Machine([machine.devices[0].info]))
            assert cp.cuda.get_current_stream() is cp.cuda.Stream.null
        assert float(cp.ones(3).sum()) == 3

    def test_streams_belong_to_devices(self, two_gpus: Machine) -> None:
        stream = cp.cuda.Stream()
        assert stream.device_id == 0
        with cp.cuda.Device(1), pytest.raises(RuntimeError, match="does not match"), stream:
            pass
        with cp.cuda.Device(1):
            assert cp.cuda.get_current_stream() is cp.cuda.Stream.null


@pytest.mark.usefixtures("machine")
class TestEvents:
    def test_elapsed_time_equals_the_work_between_two_events(self, machine: Machine) -> None:
        a = cp.ones(1 << 26, dtype=cp.float32)
        cp.cuda.Device().synchronize()
        start = cp.cuda.Event()
        end = cp.cuda.Event()
        start.record()
        b = a + 1
        end.record()
        end.synchronize()
        milliseconds = cp.cuda.get_elapsed_time(start, end)
        activity: Activity = machine.devices[0].work_queue.log[-1]
        assert milliseconds == pytest.approx((activity.end_ns - activity.start_ns) / 1e6, rel=0.1)
        bandwidth = (a.nbytes + b.nbytes) / (milliseconds * 1e6)
        assert 0.5 < bandwidth / (machine.devices[0].info.memory_bandwidth_gbps or 0) < 1

    def test_a_wait_for_an_unrecorded_event_returns_at_once(self) -> None:
        event = cp.cuda.Event()
        cp.cuda.Stream().wait_event(event)
        event.synchronize()
        assert event.done

    def test_misused_events_raise_cudas_errors(self) -> None:
        start = cp.cuda.Event()
        end = cp.cuda.Event()
        with pytest.raises(CUDARuntimeError, match="never recorded") as error:
            cp.cuda.get_elapsed_time(start, end)
        assert error.value.status == 400
        start.record()
        cp.ones(1 << 26)
        end.record()
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="cudaErrorNotReady") as error:
            cp.cuda.get_elapsed_time(start, end)
        assert error.value.status == 600
        silent = cp.cuda.Event(disable_timing=True)
        silent.record()
        with pytest.raises(CUDARuntimeError, match="disable_timing"):
            cp.cuda.get_elapsed_time(start, silent)
        with pytest.raises(ValueError, match="Timing must be disabled"):
            cp.cuda.Event(interprocess=True)

    def test_external_streams(self) -> None:
        stream = cp.cuda.Stream()
        wrapped = cp.cuda.Stream.from_external(stream)
        assert wrapped == stream
        with pytest.raises(TypeError, match="__cuda_stream__"):
            cp.cuda.Stream.from_external(object())
        answers = {
            7: "2-tuple",
            (0, 1, 2): "2-tuple",
            (0, "1"): r"\(int, str\)",
            (1, 7): "unsupported version 1",
        }
        for answer, message in answers.items():
            foreign = type("Foreign", (), {"__cuda_stream__": lambda _, answer=answer: answer})()
            with pytest.raises(TypeError, match=message):
                cp.cuda.Stream.from_external(foreign)
        handle = stream.ptr
        reference = weakref.ref(stream)
        wrapped = cp.cuda.Stream.from_external(stream)
        del stream
        assert reference() is not None  # or its handle would mean nothing
        assert wrapped.ptr == handle
        stream = reference()
        with pytest.warns(DeprecationWarning, match="from_external"):
            assert cp.cuda.ExternalStream(stream.ptr) == stream


@pytest.mark.usefixtures("machine")
class TestPerThreadDefault:
    def test_each_thread_has_its_own_default_stream(self, machine: Machine) -> None:
        def work() -> None:
            with cp.cuda.Stream.ptds:
                cp.zeros(1 << 20)

        for _ in range(2):
            threads = [threading.Thread(target=work) for _ in range(2)]
            [thread.start() for thread in threads]  # type: ignore[func-returns-value]
            [thread.join() for thread in threads]  # type: ignore[func-returns-value]
        work()
        work()
        ids = [a.stream_id for a in machine.devices[0].work_queue.log]
        assert ids[-1] == ids[-2]
        assert ids[-1] not in ids[:-2]
        assert 0 not in ids

    def test_the_per_thread_stream_waits_for_the_legacy_stream(self, machine: Machine) -> None:
        cp.zeros(1 << 26)
        with cp.cuda.Stream.ptds:
            cp.zeros(1)
        first, second = list(machine.devices[0].work_queue.log)[-2:]
        assert second.start_ns >= first.end_ns

    @pytest.mark.parametrize(("value", "ptr"), [(None, 0), ("0", 0), ("1", 2)])
    def test_an_environment_variable_selects_the_per_thread_stream(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch, value: str | None, ptr: int
    ) -> None:
        monkeypatch.delenv("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", raising=False)
        if value is not None:
            monkeypatch.setenv("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", value)
        slot.use(Machine([machine.devices[0].info]))
        assert cp.cuda.get_current_stream().ptr == ptr
        with cp.cuda.Stream():
            assert cp.cuda.get_current_stream().ptr not in (0, 2)
        assert cp.cuda.get_current_stream().ptr == ptr


@pytest.mark.usefixtures("machine")
class TestHostFunctions:
    def test_host_functions_run_in_order_and_take_time(self, machine: Machine) -> None:
        stream = cp.cuda.Stream()
        numbers = list[int]()
        for number in range(3):
            stream.launch_host_func(numbers.append, number)
        stream.synchronize()
        assert numbers == [0, 1, 2]
        spans = [(a.start_ns, a.end_ns) for a in machine.devices[0].work_queue.log]
        assert all(later[0] >= earlier[1] > earlier[0] for earlier, later in pairwise(spans))

    @pytest.mark.parametrize(
        "call",
        [
            lambda x: x.get(),
            lambda x: x.fill(1),
            lambda x: cp.zeros(1 << 20),
            lambda x: cp.cuda.Device().synchronize(),
            lambda x: cp.cuda.get_current_stream().synchronize(),
            lambda x: cp.cuda.Event().record(),
        ],
    )
    def test_host_functions_must_not_call_cuda(self, call: Callable[[Any], object]) -> None:
        x = cp.zeros(3)
        stream = cp.cuda.Stream()
        with pytest.raises(CUDARuntimeError, match="must not call CUDA") as error:
            stream.launch_host_func(call, x)
        assert error.value.status == 800
        assert float(x.sum()) == 0  # afterwards all is as ever


@pytest.mark.usefixtures("machine")
class TestForbiddenSynchronisation:
    @pytest.mark.filterwarnings("ignore:cupyx.allow_synchronize")
    @pytest.mark.parametrize(
        ("call", "noticed"),
        [
            (lambda x: x.get(), True),
            (lambda x: float(x[0]), True),
            (lambda x: str(x), True),
            (lambda x: bool(x.any()), True),
            (lambda x: cp.cuda.Device().synchronize(), True),
            (lambda x: x + 1, False),
            (lambda x: cp.cuda.get_current_stream().synchronize(), False),
            (lambda x: cp.cuda.Event().synchronize(), False),
        ],
    )
    def test_forbidden_synchronization_raises(self, call: Callable[[Any], object], noticed: bool) -> None:
        x = cp.zeros(3)
        with cupyx.allow_synchronize(False):
            with pytest.raises(cupyx.DeviceSynchronized) if noticed else nullcontext():
                call(x)
            with cupyx.allow_synchronize(True):
                call(x)
        call(x)


class TestLog:
    def test_the_log_has_a_limit(self, machine: Machine) -> None:
        log = machine.devices[0].work_queue.log
        x = cp.zeros(1)
        for _ in range(MAX_ACTIVITIES // 1024):
            log.extend([log[-1]] * 1024)  # type: ignore[attr-defined]
        x.fill(1)
        assert len(log) == MAX_ACTIVITIES
        assert log[-1].name == "cupy_fill__float64"
