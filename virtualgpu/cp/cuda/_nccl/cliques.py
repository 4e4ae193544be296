"""Ranks that call together: whose turn it is, who is missing, and what does not fit.

Each rank's calls wait in a queue. A collective call runs when it is at the head of every queue, sends and
receives when their counterparts are. NCCL hangs where that never comes; here it is an error that names ranks
and calls, and the communicators are of no use afterwards, as after ``ncclCommAbort``.
"""

from __future__ import annotations

import linecache
import re
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from types import FrameType

from virtualgpu import words
from virtualgpu.cp.cuda._nccl import work
from virtualgpu.cp.cuda._nccl.calls import (
    INVALID_ARGUMENT,
    INVALID_USAGE,
    REMOTE,
    UNHANDLED_CUDA,
    Batch,
    Call,
    Item,
    Member,
    NcclError,
)
from virtualgpu.model.machine import VirtualDevice, current

# Between two looks at the others; and of looks that have to agree where one may deceive.
_LOOK_S = 0.02
_LOOKS = 50
# What a line says that takes a lock or waits for an event; a thread within one call in C may be computing.
_WAITS = re.compile(r"\bwith\b|\.(?:acquire|wait|get|join)\(")
# Of a rank whose thread lives, times the watchdog's seconds: it may be computing.
_PATIENCE = 3.0
THREADS = "The ranks of virtual GPUs are threads of one process, not processes: start one for each"
GROUPED = "In one thread the calls of several ranks go between groupStart() and groupEnd()"


class World:
    """What NCCL keeps of one machine: its cliques by their ids, and the one lock of all."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.cliques: dict[bytes, Clique] = {}
        self.groups: dict[object, bytes] = {}  # of cupyx.distributed: the id that ranks meet by
        self.numbers = count(1)
        self.made = count(1)  # communicators, in messages
        self.waiting: dict[threading.Thread, Waiting] = {}
        # Of a notebook, say: they serve others, and call nothing here.
        self.servants = weakref.WeakSet(thread for thread in threading.enumerate() if thread.daemon)

    def others(self) -> list[threading.Thread]:
        """The threads beside this one that may call."""
        me = threading.current_thread()
        servants = () if me in self.servants else self.servants
        return [
            thread
            for thread in threading.enumerate()
            if thread is not me and thread not in servants and not thread.name.startswith("gpulab")
        ]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a thread waits for: an end of waiting, in which clique, and in words."""

    done: Callable[[], bool]
    clique: Clique
    what: str


def world() -> World:
    """That of the current machine."""
    return current().own(World)


class Clique:
    """The ranks of one communicator.

    Parameters
    ----------
    size
        How many.

    Raises
    ------
    NcclError
        Status 4 for more ranks than the machine has GPUs: they could never all come.
    """

    def __init__(self, size: int) -> None:
        there = len(current().devices)
        if size > there:
            raise NcclError(
                INVALID_ARGUMENT,
                f"{size:,} ranks need a GPU each, but this machine has {words.count(there, 'virtual GPU')}. "
                "This is the number of ranks, not of elements; gl.use_device(name, count=n) gives more "
                "virtual GPUs.",
            )
        self.world = world()
        self.number = next(self.world.made)
        self.size = size
        self.members: dict[int, Member] = {}
        self.queues: list[deque[Item]] = [deque() for _ in range(size)]
        self.broken: NcclError | None = None

    # Ranks come

    def join(self, rank: int, size: int, device: VirtualDevice, used: bool = True) -> Member:
        """A rank comes.

        Raises
        ------
        NcclError
            Status 5, if it does not fit to those that are there.
        """
        wrong = ""
        if size != self.size:
            wrong = f"rank {rank} says that there are {size} ranks, another one that there are {self.size}"
        elif rank in self.members:
            wrong = f"there is a rank {rank} already: each rank has a number of its own"
        for member in self.members.values():
            if member.device is device and not wrong:
                wrong = (
                    f"duplicate GPU: ranks {member.rank} and {rank} are both on device {device.id}. Each "
                    "rank needs a GPU of its own: cp.cuda.Device(rank).use() first"
                )
        if wrong:
            raise self.fail(INVALID_USAGE, f"{wrong[0].upper()}{wrong[1:]}.")
        member = self.members[rank] = Member(rank, device, threading.current_thread(), used)
        self.world.changed.notify_all()
        return member

    @property
    def complete(self) -> bool:
        return len(self.members) == self.size

    # Calls

    def post(self, rank: int, items: Iterable[Item]) -> None:
        """A rank calls."""
        member = self.members[rank]
        member.thread = threading.current_thread()
        member.used = True
        self.queues[rank].extend(items)

    def advance(self) -> None:
        """Run what can run."""
        while self.broken is None and (self._collective() or self._exchange()):
            self.world.changed.notify_all()

    def _collective(self) -> bool:
        heads = [queue[0] for queue in self.queues if queue]
        calls = [head for head in heads if isinstance(head, Call)]
        for call in calls[1:]:
            if call.what != calls[0].what:
                raise self.fail(
                    INVALID_USAGE,
                    f"rank {calls[0].rank} calls {calls[0].sentence}, but rank {call.rank} calls "
                    f"{call.sentence}: all ranks make the same calls in the same order. (NCCL itself hangs, "
                    "or mixes data up.)",
                )
        if len(calls) < self.size:
            return False
        rows = self._rows()
        if calls[0].name == "commSplit":
            split(calls)
        elif calls[0].name != "barrier":
            work.collective(rows)
        for row in rows:
            for queue, call in zip(self.queues, row, strict=True):
                queue.popleft()
                call.done = True
        return True

    def _rows(self) -> list[list[Call]]:
        """The calls at the heads, and those behind them that run in one kernel with them."""
        rows: list[list[Call]] = []
        for items in zip(*self.queues, strict=False):
            row = [item for item in items if isinstance(item, Call)]
            fits = len(row) == self.size and all(call.what == row[0].what for call in row)
            if not fits or (rows and any(a.kind != b.kind for a, b in zip(rows[0], row, strict=True))):
                break
            rows.append(row)
            if row[0].group is None:
                break
        return rows

    def _exchange(self) -> bool:
        """Match sends and receives of ranks that need no others."""
        for rank, queue in enumerate(self.queues):
            if queue and isinstance(queue[0], Batch):
                among = self._reached(rank)
                if among is None:
                    continue
                pairs = self._pairs(among)
                if not pairs:
                    waits = "; ".join(
                        f"rank {r} waits in {self.queues[r][0].sentence}" for r in sorted(among)
                    )
                    raise self.fail(
                        INVALID_USAGE,
                        f"no send has its receive: {waits}. Each send(peer) needs a recv of that peer; what "
                        "a rank sends and receives at once goes between groupStart() and groupEnd().",
                    )
                ends = [end for pair in pairs for end in pair]
                ranks = sorted({end.rank for end in ends})
                work.exchange(pairs)
                for end in ends:
                    end.done = True
                for r in ranks:
                    batch = self.queues[r][0]
                    assert isinstance(batch, Batch)
                    batch.calls = [call for call in batch.calls if not call.done]
                    if batch.done:
                        self.queues[r].popleft()
                return True
        return False

    def _reached(self, rank: int) -> dict[int, Batch] | None:
        """The batches of all ranks that hang together with one's; None while one of them has none."""
        found: dict[int, Batch] = {}
        todo = [rank]
        while todo:
            rank = todo.pop()
            if rank in found:
                continue
            if not self.queues[rank]:
                return None
            head = self.queues[rank][0]
            if isinstance(head, Call):
                asks = next(r for r, b in found.items() if any(c.other == rank for c in b.calls))
                raise self.fail(
                    INVALID_USAGE,
                    f"rank {asks} calls {found[asks].sentence}, but rank {rank} calls {head.sentence}: "
                    "neither comes to the other.",
                )
            found[rank] = head
            todo += [call.other for call in head.calls if call.other is not None]
        return found

    def _pairs(self, among: dict[int, Batch]) -> list[tuple[Call, Call]]:
        pairs = []
        for rank, batch in among.items():
            open_to: dict[int, list[Call]] = {
                peer: [c for c in other.calls if c.name == "recv" and c.other == rank]
                for peer, other in among.items()
            }
            for call in batch.calls:
                if call.name != "send" or call.other is None or not open_to[call.other]:
                    continue
                pair = call, open_to[call.other].pop(0)
                if (call.count, call.dtype) != (pair[1].count, pair[1].dtype):
                    raise self.fail(
                        INVALID_USAGE,
                        f"rank {rank} calls {call.sentence}, but rank {call.other} calls {pair[1].sentence}: "
                        "what is sent and what is received have the same count and type.",
                    )
                pairs.append(pair)
        return pairs

    # Waiting

    def fail(self, status: int, why: str) -> NcclError:
        """Break the communicators of all ranks, and return the error."""
        if self.broken is None:
            self.broken = NcclError(status, f"{why[0].upper()}{why[1:]}")
        self.world.changed.notify_all()
        return NcclError(status, f"{why[0].upper()}{why[1:]}")

    def again(self) -> NcclError:
        """The error that broke them, for another who asks."""
        assert self.broken is not None
        error = NcclError(self.broken.status)
        error.args = (f"{self.broken} This communicator is of no use any more: make new ones.",)
        return error

    def wait(
        self, done: Callable[[], bool], what: str, missing: Callable[[], Sequence[int]], remedy: str = GROUPED
    ) -> None:
        """Let the calling thread wait for other ranks; `remedy` says what to do if none can come.

        Raises
        ------
        NcclError
            If they do not come.
        """
        me = threading.current_thread()
        since = time.monotonic()
        alike = 0
        still: tuple[object, float] = (), since
        self.world.waiting[me] = Waiting(done, self, what)
        try:
            while not done():
                if self.broken is not None:
                    raise self.again()
                now = time.monotonic()
                ranks = missing()
                here = self._standing(ranks)
                if here is None or here != still[0]:
                    still = here, now
                status, why, sure = self._lost(ranks, now - since, now - still[1], remedy)
                alike = alike + 1 if why else 0
                if why and (sure or alike > _LOOKS):
                    raise self._fail_all(status, f"{what}: {why}")
                self.world.changed.wait(_LOOK_S)
        except KeyboardInterrupt:
            self.fail(REMOTE, f"{what}, and was interrupted.")
            raise
        finally:
            del self.world.waiting[me]

    def _fail_all(self, status: int, why: str) -> NcclError:
        """Break this clique and those in which its missing ranks wait, and return the error."""
        for member in self.members.values():
            other = self.world.waiting.get(member.thread)
            if other is not None and other.clique is not self and not other.done():
                other.clique.fail(status, why)
        return self.fail(status, why)

    def _standing(self, missing: Sequence[int]) -> object:
        """Where the threads of missing ranks wait for a lock or an event; None if one may be computing."""
        found = []
        for rank in missing:
            member = self.members.get(rank)
            top = _frame(member.thread) if member is not None and member.used else None
            if top is None or any(_ours(frame) for frame in _stack(top)):
                return None
            if not _WAITS.search(linecache.getline(top.f_code.co_filename, top.f_lineno)):
                return None
            found.append((id(top), top.f_lasti))
        return tuple(found)

    def _where(self, missing: Sequence[int]) -> str:
        """What the threads of missing ranks do instead, as sentences; empty if that is not known."""
        me = threading.current_thread()
        told = []
        for rank in missing:
            member = self.members.get(rank)
            if member is None or not member.used or member.thread is me:
                continue
            elsewhere = self.world.waiting.get(member.thread)
            if elsewhere is not None and elsewhere.clique is not self:
                number = elsewhere.clique.number
                told.append(f"{elsewhere.what} of communicator {number} (this is communicator {self.number})")
            elif (top := _frame(member.thread)) is not None:
                frame = next((each for each in _stack(top) if not _waits_in(each)), top)
                told.append(f"rank {rank} is at line {frame.f_lineno} of {frame.f_code.co_name}()")
        return "".join(f" {each[0].upper()}{each[1:]}." for each in told)

    def _lost(
        self, missing: Sequence[int], waited_s: float, still_s: float, remedy: str
    ) -> tuple[int, str, bool]:
        """Why ranks that are missing will not come, NCCL's status for it, and whether that can be told by one
        look; empty if they may."""
        me = threading.current_thread()
        for rank in missing:
            member = self.members.get(rank)
            if member is None:
                continue
            if member.used and member.thread is not me and not _acts(member.thread):
                why = f"rank {rank} has not called, and its thread ({member.thread.name}) has ended."
                return REMOTE, why, not member.thread.is_alive()
            if member.ended:
                return REMOTE, f"rank {rank} was {member.ended} and calls no more.", True
        names = ", ".join(map(str, missing))
        have = f"rank{'s' * (len(missing) > 1)} {names} {'have' if len(missing) > 1 else 'has'}"
        stuck = {thread for thread, other in list(self.world.waiting.items()) if not other.done()}
        crossed = any(self.members[rank].thread in stuck - {me} for rank in missing if rank in self.members)
        if crossed:
            remedy = "All ranks make the same calls in the same order, whatever communicator they are of"
        others = [thread for thread in self.world.others() if thread not in stuck]
        if not any(_acts(thread) for thread in others):
            why = f"{have} not called, and no other thread runs that could.{self._where(missing)} {remedy}."
            return INVALID_USAGE, why, not others
        watchdog_s = current().current_device.watchdog_s
        if waited_s > _PATIENCE * watchdog_s or still_s > watchdog_s:
            why = f"{have} not called within {waited_s:.0f} s.{self._where(missing)}"
            if not crossed and still_s > watchdog_s:
                remedy = "A rank that waits for a lock that another rank holds in this call never comes to it"
            return REMOTE, f"{why} {remedy}.", True
        return 0, "", False


def split(calls: Sequence[Call]) -> None:
    """Make new cliques of ranks with one color, in the order of their keys."""
    colors: dict[int, list[Call]] = {}
    for call in calls:
        colors.setdefault(call.given[0], []).append(call)
    for color, group in colors.items():
        clique = Clique(len(group))
        for rank, call in enumerate(sorted(group, key=lambda call: (call.given[1], call.rank))):
            member = None
            if color >= 0:
                member = clique.join(rank, clique.size, call.member.device)
                member.thread = call.member.thread
            call.given = None if member is None else (clique, member)


def _frame(thread: threading.Thread) -> FrameType | None:
    """Where a thread is; None if it has ended."""
    return sys._current_frames().get(thread.ident or 0) if thread.is_alive() else None


def _stack(top: FrameType) -> Iterable[FrameType]:
    """A frame and those that called it."""
    frame: FrameType | None = top
    while frame is not None:
        yield frame
        frame = frame.f_back


def _ours(frame: FrameType) -> bool:
    """Whether a frame runs code of the virtual GPU."""
    return bool(frame.f_globals.get("__name__", "").startswith(f"{__name__.partition('.')[0]}."))


def _waits_in(frame: FrameType) -> bool:
    """Whether a frame is of Python's own modules for threads."""
    path = frame.f_code.co_filename.replace("\\", "/")
    return path.endswith("/threading.py") or "/concurrent/futures/" in path


def _acts(thread: threading.Thread) -> bool:
    """Whether a thread may still call: it lives, and waits neither for threads nor for a pool's next task.

    A thread that is about to go on looks for a moment as if it still waited. One that waits for threads of
    our own, which compile or run a kernel for it, acts.
    """
    top = _frame(thread)
    if top is None:
        return False
    waits = False
    for frame in _stack(top):
        path = frame.f_code.co_filename.replace("\\", "/")
        name = frame.f_code.co_name
        if path.endswith("/concurrent/futures/thread.py"):
            if name == "_worker" and frame is top:
                return False
        elif path.endswith("/concurrent/futures/_base.py"):
            waits = waits or name in ("exception", "result", "wait")
        elif path.endswith("/threading.py"):
            waits = waits or name == "join"
        else:
            return not waits or _ours(frame)
    return not waits


# Groups of a thread


class Group:
    """Calls between groupStart and groupEnd of one thread."""

    def __init__(self) -> None:
        self.depth = 0
        self.calls: list[tuple[Clique, Call]] = []
        self.joined: list[tuple[Clique, Member]] = []


def group() -> Group:
    """The calling thread's."""
    kept = current().thread.__dict__
    if "nccl_group" not in kept:
        kept["nccl_group"] = Group()
    found: Group = kept["nccl_group"]
    return found


def give(calls: Sequence[tuple[Clique, Call]]) -> None:
    """Post calls of one thread, together, and wait until all are over.

    Raises
    ------
    NcclError
        If one does not fit to those of other ranks, or these do not come.
    """
    if not calls:
        return
    with calls[0][0].world.changed:
        cliques = list(dict.fromkeys(clique for clique, _ in calls))
        for clique in cliques:
            if clique.broken is not None:
                raise clique.again()
        posted: list[tuple[Clique, Item, Call]] = []
        together = object()
        for clique in cliques:
            mine = [call for at, call in calls if at is clique]
            for call in mine:
                call.group = together if len(mine) > 1 else None
            for rank in dict.fromkeys(call.rank for call in mine):
                of_rank = [call for call in mine if call.rank == rank]
                items: list[Item] = [call for call in of_rank if call.name not in ("send", "recv")]
                batch = Batch([call for call in of_rank if call.name in ("send", "recv")])
                items += [batch] if batch.calls else []
                clique.post(rank, items)
                posted += [(clique, item, of_rank[0]) for item in items]
        for clique in cliques:
            try:
                clique.advance()
            except Exception as error:
                if clique.broken is None:  # the others do not wait for what does not come
                    clique.fail(UNHANDLED_CUDA, f"{calls[0][1].name} of rank {calls[0][1].rank}: {error}")
                raise
        for clique, item, first in posted:
            what = f"rank {first.rank} waits in {item.sentence}"

            def missing(clique: Clique = clique, item: Item = item) -> list[int]:
                if isinstance(item, Call):
                    return [rank for rank, queue in enumerate(clique.queues) if not queue]
                peers = {call.other for call in item.calls if call.other is not None}
                return sorted(peer for peer in peers if not clique.queues[peer]) or [
                    rank for rank, queue in enumerate(clique.queues) if not queue
                ]

            clique.wait(lambda item=item: item.done, what, missing)  # type: ignore[misc]


def leave(member: Member, clique: Clique, how: str) -> None:
    """A rank ends its communicator. Takes no lock: the garbage collector may come at any time."""
    member.ended = how
    with suppress(KeyError):
        if all(each.ended for each in clique.members.values()):
            for key in [key for key, known in list(clique.world.cliques.items()) if known is clique]:
                del clique.world.cliques[key]
