"""Ranks in processes of their own: all answer, or all end, and who failed where is said."""

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
from gpulab.processes.group import Group
from gpulab.processes.tree import descendants
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


def test_ranks_answer_in_their_order_as_often_as_asked() -> None:
    with Group(THREE, 60) as ranks:
        assert ranks.ask(adds, 5) == [5, 6, 7]
        assert ranks.ask(adds, 8) == [8, 9, 10]


@pytest.mark.parametrize(
    ("work", "limit_s", "said"),
    [
        (dies, 600.0, ["Rank 1 failed in allReduce of 1: it crashed Python (SIGKILL)."]),
        (
            stays_away,
            6.0,
            [
                "Not done after 6 s. Rank 0 is in allReduce; rank 1 is in its own affairs. All",
                "the same calls in the same order",
            ],
        ),
        (
            raises,
            600.0,
            [
                "Rank 1 failed in get_unique_id(): it raised ValueError: no number 1.",
                "Rank 2 failed in get_unique_id(): it raised ValueError: no number 2.",
            ],
        ),
    ],
)
def test_who_failed_or_did_not_come_is_said_and_all_end(work: Any, limit_s: float, said: list[str]) -> None:
    with Group(THREE, 60) as ranks:
        ranks.ask(adds, 1)  # what starts processes stays
    before = set(descendants(os.getpid()))
    with Group(THREE, limit_s) as ranks:
        assert len(set(descendants(os.getpid())) - before) >= len(THREE)
        with pytest.raises(GpulabError) as error:
            ranks.ask(work)
    for part in said:
        assert part in str(error.value)
    until = time.monotonic() + 30
    while (left := set(descendants(os.getpid())) - before) and time.monotonic() < until:
        time.sleep(0.02)
    assert not left


def test_without_a_gpu_each_rank_says_so() -> None:
    with pytest.raises(GpulabError, match=r"Rank 0 failed in cp.cuda.Device\(0\): it raised CudaUnavail"):
        nccl.called(None, "all-reduce", 2, 100)


def test_a_limit_is_a_number_of_seconds() -> None:
    with pytest.raises(ValueError, match="above 0, not 0"):
        Group(THREE, 0)


# By lines to no process


class Played:
    """Stands for a `Talk`: what is asked runs here, in the thread that asks."""

    made: tuple[Played, ...] = ()
    falls = ""

    def __init__(self, device: str, *limits: float) -> None:
        self.device = device
        self.limits = limits
        self.ended = threading.Event()
        self.stands = False
        Played.made += (self,)

    def __enter__(self) -> None:
        self.stands = True
        if self.device == Played.falls:
            raise ProcessError("it could not start.")

    def __exit__(self, *_: object) -> None:
        self.stands = False

    def ask(self, shown: str, function: Callable[..., Any], *arguments: Any) -> Any:
        assert shown == ""
        return function(None, *arguments)

    def printed(self) -> tuple[str, int]:
        self.ended.set()
        return "", 0


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A clock of the test's own, and how long a group has waited by it."""
    seen = SimpleNamespace(now=100.0, waits=[])
    monkeypatch.setattr(Played, "made", ())
    monkeypatch.setattr(group, "Talk", Played)
    monkeypatch.setattr(group, "time", SimpleNamespace(monotonic=lambda: seen.now))
    wait = group.wait
    monkeypatch.setattr(
        group, "wait", lambda asked, s, *when: (seen.waits.append(s), wait(asked, 0.02, *when))
    )
    yield seen
    assert not any(talk.stands for talk in Played.made)


def goes(at: At, rank: int, *how: str) -> int:
    """Do what is said of each rank: return, raise, or wait until it is ended, in a call or before any."""
    if "call" in how[rank]:
        at(f"call {rank}")
    if "raises" in how[rank]:
        raise ProcessError(f"it raised {rank}.")
    if "waits" in how[rank]:
        Played.made[rank].ended.wait(30)
    return rank


ALL_ENDED = "All ranks have been ended"
LATE = f"{ALL_ENDED}: each has to come to the same calls in the same order, or all others wait."


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            ["call waits", "raises"],
            f"Rank 1 failed in its start: it raised 1. Rank 0 is in call 0. {ALL_ENDED}.",
        ),
        (
            ["call raises", "call raises"],
            f"Rank 0 failed in call 0: it raised 0. Rank 1 failed in call 1: it raised 1. {ALL_ENDED}.",
        ),
        (
            ["", "call waits", "waits"],
            f"Not done after 2.5 s. Rank 1 is in call 1; rank 2 is in its start. {LATE}",
        ),
        (["waits"], f"Not done after 2.5 s. Rank 0 is in its start. {LATE}"),
    ],
)
def test_the_words_of_each_end(played: SimpleNamespace, how: list[str], said: str) -> None:
    with Group([f"device {rank}" for rank in range(len(how))], 2.5) as ranks:
        with pytest.raises(GpulabError) as error:
            ranks.ask(goes, *how)
        assert all(talk.ended.is_set() for talk in Played.made) or "waits" not in "".join(how)
    assert str(error.value) == said


def test_ranks_have_one_limit_together_from_when_all_stand(played: SimpleNamespace) -> None:
    with Group(["a", "b"], 2.5) as ranks:
        assert [(talk.device, *talk.limits) for talk in Played.made] == [
            ("a", 5.0, 5.0, 24 << 30),
            ("b", 5.0, 5.0, 24 << 30),
        ]
        folder = ranks._note(0).parent
        assert ranks.ask(goes, "", "call") == [0, 1]
        assert (folder / "1").read_text() == "call 1"
        played.now += 1.5
        assert ranks.ask(goes, "", "") == [0, 1]
        played.now += 1.5
        assert ranks.ask(goes, "", "") == [0, 1], "who is done may be late"
        assert not any(talk.ended.is_set() for talk in Played.made)
        with pytest.raises(GpulabError, match=r"^Not done after 2\.5 s\."):
            ranks.ask(goes, "", "waits")
    assert played.waits == [2.5, 1.0, 0.0, 0.0, group._GRACE_S]
    assert not folder.exists()


def test_where_one_cannot_stand_none_is_left(
    played: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Played, "falls", "b")
    monkeypatch.setattr(group.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ProcessError, match="could not start"), Group(["a", "b", "c"], 1):
        pass
    assert [talk.device for talk in Played.made] == ["a", "b"]
    assert not list(tmp_path.iterdir())
