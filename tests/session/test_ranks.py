"""Ranks in processes of their own: all answer, or all end, and who failed where is said."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpulab.lab.links import nccl
from gpulab.teach.judge.process.group import Group
from gpulab.teach.judge.process.tree import descendants
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
        (stays_away, 6.0, ["Not done after 6 s. Rank 0 is in allReduce; rank 1 is in its own affairs. All",
                           "the same calls in the same order"]),
        (raises, 600.0, ["Rank 1 failed in get_unique_id(): it raised ValueError: no number 1.",
                         "Rank 2 failed in get_unique_id(): it raised ValueError: no number 2."]),
    ],
)  # fmt: skip
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
