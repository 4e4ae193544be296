"""Ranks in processes of their own: all answer, or all end and the failed ones are named."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpulab.lab.links import nccl
from gpulab.processes import group
from gpulab.processes.errors import ProcessError
from gpulab.processes.group import ProcessGroup
from gpulab.processes.tree import find_descendants
from virtualgpu.errors import GpulabError

At = Callable[[str], object]
THREE = ["virtual"] * 3


def adds(at: At, rank: int, number: int) -> int:
    at("adds")
    return rank + number


def dies(at: At, rank: int) -> None:
    at(f"allReduce of {rank}")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)


def stays_away(at: At, rank: int) -> int:
    if rank == 1:
        at("its own affairs")
        time.sleep(1000)
    at("allReduce")
    time.sleep(1000 if rank == 0 else 0)
    return rank


def raises(at: At, rank: int) -> int:
    at("get_unique_id()")
    if rank:
        raise ValueError(f"no number {rank}")
    return 7


def test_repeated_requests_return_results_in_rank_order() -> None:
    with ProcessGroup(THREE, 60) as ranks:
        assert ranks.ask(adds, 5) == [5, 6, 7]
        assert ranks.ask(adds, 8) == [8, 9, 10]


@pytest.mark.parametrize(
    ("work", "limit_s", "parts"),
    [
        (dies, 600.0, ["Rank 1 failed in allReduce of 1: it crashed Python (SIGKILL)."]),
        (
            stays_away,
            5.0,
            [
                "Not finished after 5 s",
                "Rank 0 is in allReduce",
                "rank 1 is in its own affairs",
                "same calls",
            ],
        ),
        (
            raises,
            600.0,
            [
                f"Rank {rank} failed in get_unique_id(): it raised ValueError: no number {rank}."
                for rank in (1, 2)
            ],
        ),
    ],
)
def test_failed_and_missing_ranks_are_named_and_all_processes_end(
    work: Any, limit_s: float, parts: list[str]
) -> None:
    with ProcessGroup(THREE, 60) as ranks:
        ranks.ask(adds, 1)  # the process that forks the others stays
    before = set(find_descendants(os.getpid()))
    with ProcessGroup(THREE, limit_s) as ranks:
        assert len(set(find_descendants(os.getpid())) - before) >= len(THREE)
        with pytest.raises(GpulabError) as error:
            ranks.ask(work)
    for part in (*parts, "All ranks have been ended"):
        assert part in str(error.value)
    end_s = time.monotonic() + 30
    while (others := set(find_descendants(os.getpid())) - before) and time.monotonic() < end_s:
        time.sleep(0.02)
    assert not others


def test_ranks_without_a_gpu_name_the_reason() -> None:
    with pytest.raises(GpulabError, match=r"Rank 0 failed in cp.cuda.Device\(0\): it raised CudaUnavail"):
        nccl.run_collective(None, "all-reduce", 2, 100)


def test_nonpositive_time_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="above 0, not 0"):
        ProcessGroup(THREE, 0)


# Without processes


class Played:
    """Replacement for a `RequestProcess` whose requests run here, in the calling thread."""

    made: tuple[Played, ...] = ()
    failing_device = ""

    def __init__(self, device: str, *limits: float) -> None:
        self.device = device
        self.limits = limits
        self.ended = threading.Event()
        self.running = False
        Played.made += (self,)

    def __enter__(self) -> None:
        self.running = True
        if self.device == Played.failing_device:
            raise ProcessError("it could not start.")

    def __exit__(self, *_: object) -> None:
        self.running = False

    def ask(self, shown: str, function: Callable[..., Any], *arguments: Any) -> Any:
        assert shown == ""
        return function(None, *arguments)

    def end_and_read_output(self) -> tuple[str, int]:
        self.ended.set()
        return "", 0


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A clock that the test sets, the times that a group has waited, and how long it really waits at most."""
    clock = SimpleNamespace(now=100.0, waits=[], real_s=30.0)
    monkeypatch.setattr(Played, "made", ())
    monkeypatch.setattr(group, "RequestProcess", Played)
    monkeypatch.setattr(group, "time", SimpleNamespace(monotonic=lambda: clock.now))
    wait = group.wait
    monkeypatch.setattr(
        group, "wait", lambda asked, s, *when: (clock.waits.append(s), wait(asked, clock.real_s, *when))
    )
    yield clock
    assert not any(talk.running for talk in Played.made)


def work(at: At, rank: int, *tasks: str) -> int:
    """Do the task of the rank: wait until it is ended, or return."""
    if tasks[rank] == "wait":
        Played.made[rank].ended.wait(30)
    at(f"call {rank}")
    return rank


def test_time_limit_is_shared_and_starts_when_all_are_ready(played: SimpleNamespace) -> None:
    with ProcessGroup(["a", "b"], 2.5) as ranks:
        assert [(talk.device, *talk.limits) for talk in Played.made] == [
            (device, 5.0, 5.0, 24 << 30) for device in "ab"
        ]
        folder = ranks._note_path(0).parent
        assert ranks.ask(work, "", "") == [0, 1]
        assert (folder / "1").read_text() == "call 1"
        played.now += 1.5
        assert ranks.ask(work, "", "") == [0, 1]
        played.now += 1.5
        assert ranks.ask(work, "", "") == [0, 1], "a rank that is done may be late"
        assert not any(talk.ended.is_set() for talk in Played.made)
        played.real_s = 0.5
        with pytest.raises(GpulabError, match=r"^Not finished after 2\.5 s\. Rank 1 is in "):
            ranks.ask(work, "", "wait")
    assert played.waits == [2.5, 1.0, 0.0, 0.0, group._ANSWER_GRACE_S]
    assert not folder.exists()


def test_if_one_rank_cannot_start_all_are_ended(
    played: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Played, "failing_device", "b")
    monkeypatch.setattr(group.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ProcessError, match="could not start"), ProcessGroup(["a", "b", "c"], 1):
        pass
    assert [talk.device for talk in Played.made] == ["a", "b"]
    assert not list(tmp_path.iterdir())
