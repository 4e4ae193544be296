"""Streams of different priority: urgent kernels overtake the blocks of others."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import virtualgpu.cp as cp
from virtualgpu.model.clock import HIGHEST_PRIORITY, LOWEST_PRIORITY
from virtualgpu.model.machine import Machine
from virtualgpu.model.priorities import PlannedWork, plan_works
from virtualgpu.model.recording.timeline import Recording


def work(number: int, duration: int, **options: Any) -> PlannedWork:
    values: dict[str, Any] = {"queue_id": number, "engine": "compute", "requested_share": 1.0, "waves": 1}
    values |= {"priority": 0, "earliest_start_ns": 0, "after": ()} | options
    return PlannedWork(number=number, duration_ns=duration, **values)


def spans(*works: PlannedWork) -> list[tuple[int, int]]:
    plan_works(works)
    return [(one.start_ns, one.end_ns) for one in works]


class TestPlan:
    def test_an_urgent_kernel_starts_at_the_end_of_a_wave(self) -> None:
        long = work(1, 100, waves=10)
        assert spans(long, work(2, 7, priority=-1, earliest_start_ns=34)) == [(0, 107), (40, 47)]

    def test_an_overtaken_kernel_continues_on_the_remaining_sms(self) -> None:
        long = work(1, 100, waves=10)
        urgent = work(2, 20, requested_share=0.25, priority=-5, earliest_start_ns=30)
        assert spans(long, urgent) == [(0, 105), (30, 50)]  # 20 at three quarters, then at full speed

    def test_copies_ignore_priority(self) -> None:
        works = [work(n, 10, engine="to device", priority=-n) for n in range(1, 4)]
        assert spans(*works) == [(0, 10), (10, 20), (20, 30)]

    def test_work_starts_when_other_load_leaves_enough_capacity(self) -> None:
        one = work(1, 10, requested_share=0.5)
        plan_works([one], {"compute": [(0, 40, 0.75)]})
        assert (one.start_ns, one.end_ns) == (40, 50)


WORKS = st.lists(
    st.tuples(
        st.integers(1, 5),  # waves
        st.integers(1, 9),  # ns of each
        st.integers(-2, 0),
        st.integers(0, 60),
        st.sets(st.integers(0, 9), max_size=2),
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=300, deadline=None)
@given(WORKS)
def test_the_plan_equals_a_step_by_step_clock(given_works: list[Any]) -> None:
    """For kernels that fill the device, simulated wave by wave."""
    works = [
        work(
            n,
            waves * ns,
            waves=waves,
            priority=priority,
            earliest_start_ns=floor_ns,
            after=tuple(a for a in after if a < n),
        )
        for n, (waves, ns, priority, floor_ns, after) in enumerate(given_works)
    ]
    plan_works(works)
    left = {one.number: one.waves for one in works}
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    time = free_at = 0
    running: PlannedWork | None = None
    while len(ends) < len(works):
        if time >= free_at:
            if running is not None and not left[running.number]:
                ends[running.number] = time
            ready = [
                one
                for one in works
                if left[one.number] and one.earliest_start_ns <= time and all(a in ends for a in one.after)
            ]
            running = min(ready, key=lambda w: (w.priority, w.number not in starts, w.number), default=None)
            if running is not None:
                starts.setdefault(running.number, time)
                left[running.number] -= 1
                free_at = time + running.duration_ns // running.waves
        time += 1
    assert {one.number: (one.start_ns, one.end_ns) for one in works} == {
        n: (starts[n], ends[n]) for n in starts
    }


SPIN = r"""
extern "C" __global__ void spin(float* x, int rounds) {
    float v = threadIdx.x;
    for (int i = 0; i < rounds; ++i) v = v * 1.0001f + 0.5f;
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
"""
RESIDENT_BLOCKS = 8 * 108  # of 256 threads on an A100


def submit(stream: Any, blocks: int, us: float) -> None:
    """Submit the model of a kernel with so many blocks and microseconds."""
    stream.enqueue(
        "CONCURRENT_KERNEL",
        "spin",
        lambda: 1000 * us,
        sm_share=min(1, blocks / RESIDENT_BLOCKS),
        waves=-(-blocks // RESIDENT_BLOCKS),
    )


@pytest.mark.usefixtures("machine")
class TestUrgentStreams:
    @pytest.mark.parametrize("urgent", [False, True])
    def test_an_urgent_stream_does_not_wait_for_queued_kernels(self, machine: Machine, urgent: bool) -> None:
        spin = cp.RawKernel(SPIN, "spin")
        x = cp.empty(1 << 20, dtype=cp.float32)
        background = cp.cuda.Stream(non_blocking=True)
        front = cp.cuda.Stream(non_blocking=True, priority=-1 if urgent else 0)
        cp.cuda.Device().synchronize()
        for _ in range(4):
            spin((2000,), (256,), (x, np.int32(2000)), stream=background)
        spin((8,), (256,), (x, np.int32(20)), stream=front)
        front.synchronize()
        synchronized_ns = machine.clock.now_ns
        cp.cuda.Device().synchronize()
        log = list(machine.devices[0].work_queue.log)[-5:]
        assert (log[-1].end_ns < log[1].start_ns) == urgent
        assert synchronized_ns == log[-1].end_ns
        assert [a.start_ns for a in log[:4]] == sorted(a.start_ns for a in log[:4])

    def test_times_of_synchronized_work_do_not_change(self, machine: Machine) -> None:
        background = cp.cuda.Stream()
        front = cp.cuda.Stream(non_blocking=True, priority=-5)
        for _ in range(3):
            submit(background, 2000, 10)
        middle = background.record()
        submit(background, 2000, 10)
        middle.synchronize()
        spans = [(a.start_ns, a.end_ns) for a in list(machine.devices[0].work_queue.log)[-4:-1]]
        middle_ns = middle.time_ns
        for _ in range(20):
            submit(front, 8, 2)
        cp.cuda.Device().synchronize()
        log = list(machine.devices[0].work_queue.log)
        assert [(a.start_ns, a.end_ns) for a in log[-24:-21]] == spans
        assert middle.time_ns == middle_ns == spans[-1][1]

    def test_events_and_the_default_stream_keep_their_order(self, machine: Machine) -> None:
        rng = np.random.default_rng(7)
        streams = [cp.cuda.Stream.null, cp.cuda.Stream(), cp.cuda.Stream(priority=-1)]
        streams += [cp.cuda.Stream(non_blocking=True, priority=p) for p in (-5, 0)]
        for _ in range(120):
            one, two = (streams[i] for i in rng.integers(0, 5, 2))
            submit(one, int(rng.choice([8, 900, 2000])), int(rng.integers(2, 30)))
            if rng.random() < 0.4:
                two.wait_event(one.record())
            if rng.random() < 0.1:
                one.synchronize()
                assert one.done
        cp.cuda.Device().synchronize()
        log = list(machine.devices[0].work_queue.log)
        ends = {a.correlation_id: a.end_ns for a in log}
        assert all(ends[n] <= a.start_ns for a in log for n in a.after)
        assert machine.clock.now_ns >= max(ends.values())

    def test_priorities_are_clamped_to_the_range_of_cuda(self) -> None:
        priorities = [cp.cuda.Stream(priority=p).priority for p in (3, 0, -2, -5, -9)]
        assert priorities == [LOWEST_PRIORITY, 0, -2, HIGHEST_PRIORITY, HIGHEST_PRIORITY]

    def test_a_timeline_has_the_final_times(self, machine: Machine) -> None:
        background, front = (cp.cuda.Stream(non_blocking=True, priority=p) for p in (0, -1))
        recording = Recording(machine)
        recording.start()
        for work_arguments in ((background, 2000, 100), (background, 2000, 100), (front, 8, 10)):
            submit(*work_arguments)
        activities = {a.correlation_id: a for a in recording.stop().activities}
        log = list(machine.devices[0].work_queue.log)[-3:]
        assert [activities[a.correlation_id] for a in log] == log
        assert log[2].end_ns < log[1].start_ns

    @pytest.mark.parametrize("block_count", [2000, 200])
    def test_a_long_backlog_is_planned_in_parts(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch, block_count: int
    ) -> None:
        """Work with a final plan keeps its times, and later work does not overlap it."""
        monkeypatch.setattr("virtualgpu.model.clock._MAX_PENDING", 7)
        streams = [cp.cuda.Stream(non_blocking=True, priority=p) for p in (0, -1)]
        marks = []
        for number in range(60):
            submit(streams[number % 2], *((block_count, 25), (8, 10))[number % 2])
            marks.append(streams[number % 2].record())
        cp.cuda.Device().synchronize()
        log = list(machine.devices[0].work_queue.log)[-60:]
        assert [mark.time_ns for mark in marks] == [a.end_ns for a in log]
        for stream_log in (log[::2], log[1::2]):
            assert all(b.start_ns >= a.end_ns for a, b in pairwise(stream_log))
        assert log[-1].end_ns < log[-2].end_ns
        assert machine.clock.now_ns == max(a.end_ns for a in log)
