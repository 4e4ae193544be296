"""Cliques (the ranks of one communicator): queues of calls, and errors for calls that never match.

Each rank's calls wait in a queue. A collective call runs when it is at the head of every queue; sends and
receives run when their counterparts are at the head. NCCL hangs if that never happens. Here it is an error
that names ranks and calls, and the communicators cannot be used afterwards, as after ``ncclCommAbort``.
"""

from __future__ import annotations

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
    INVALID_ARGUMENT_STATUS,
    INVALID_USAGE_STATUS,
    REMOTE_STATUS,
    UNHANDLED_CUDA_STATUS,
    CommunicatorMember,
    ExchangeBatch,
    NcclCall,
    NcclError,
    QueuedItem,
)
from virtualgpu.model.machine import VirtualDevice, current

# Interval of the checks whether the other ranks can still call.
_POLL_INTERVAL_S = 0.02
# A rank's thread may be computing, so the others wait for this multiple of the kernels' time limit.
_TIMEOUT_FACTOR = 3.0
THREAD_REMEDY = "The ranks of virtual GPUs are threads of one process, not processes. Start a thread per rank"
GROUP_REMEDY = "If one thread makes the calls of several ranks, put them between groupStart() and groupEnd()"


class NcclWorld:
    """The state of NCCL on one machine. The state contains a dictionary of the communicators by their ids,
    and one lock for all of them.
    """

    def __init__(self) -> None:
        self.change_condition = threading.Condition(threading.RLock())
        self.cliques: dict[bytes, Clique] = {}
        self.group_ids: dict[object, bytes] = {}  # ids of the process groups of cupyx.distributed
        self.id_numbers = count(1)
        self.clique_numbers = count(1)  # numbers of communicators in messages
        self.waiting_ranks: dict[threading.Thread, WaitingRank] = {}
        # Threads such as those of a notebook, which do other work and call nothing here.
        self.background_threads = weakref.WeakSet(thread for thread in threading.enumerate() if thread.daemon)

    def list_other_threads(self) -> list[threading.Thread]:
        """Return the other threads of the program that may still make NCCL calls."""
        this_thread = threading.current_thread()
        background_threads = () if this_thread in self.background_threads else self.background_threads
        return [
            thread
            for thread in threading.enumerate()
            if thread is not this_thread
            and thread not in background_threads
            and not thread.name.startswith("gpulab")
        ]


@dataclass(frozen=True, slots=True)
class WaitingRank:
    """A record of a thread that waits for other ranks, with the condition that ends its wait."""

    is_done: Callable[[], bool]
    clique: Clique
    activity: str
    find_missing_ranks: Callable[[], Sequence[int]]


def get_world() -> NcclWorld:
    """Return the state of NCCL on the current machine."""
    return current().get_component(NcclWorld)


class Clique:
    """The ranks of one communicator.

    Parameters
    ----------
    size
        Number of ranks.

    Raises
    ------
    NcclError
        Status 4 for more ranks than the machine has GPUs.
    """

    def __init__(self, size: int) -> None:
        device_count = len(current().devices)
        if size > device_count:
            raise NcclError(
                INVALID_ARGUMENT_STATUS,
                f"{size:,} ranks need {size:,} GPUs, but this machine has "
                f"{words.count(device_count, 'virtual GPU')}. This argument is the number "
                "of ranks, not of elements. Call use_device(name, count=n) for more "
                "virtual GPUs.",
            )
        self.world = get_world()
        self.number = next(self.world.clique_numbers)
        self.size = size
        self.members: dict[int, CommunicatorMember] = {}
        self.queues: list[deque[QueuedItem]] = [deque() for _ in range(size)]
        self.error: NcclError | None = None

    # Ranks

    def join(
        self, rank: int, size: int, device: VirtualDevice, has_called: bool = True
    ) -> CommunicatorMember:
        """Add a rank to the communicator.

        Raises
        ------
        NcclError
            Status 5, if it does not fit the ranks that have joined.
        """
        mismatch_reason = ""
        if size != self.size:
            mismatch_reason = (
                f"rank {rank} was created for {size} ranks, but another rank was created for {self.size}"
            )
        elif rank in self.members:
            mismatch_reason = f"rank {rank} already exists: each rank must have a different number"
        for member in self.members.values():
            if member.device is device and not mismatch_reason:
                mismatch_reason = (
                    f"duplicate GPU: ranks {member.rank} and {rank} are both on device "
                    f"{device.id}. Each rank needs its own GPU: call "
                    "cp.cuda.Device(rank).use() first"
                )
        if mismatch_reason:
            raise self.fail(INVALID_USAGE_STATUS, f"{mismatch_reason[0].upper()}{mismatch_reason[1:]}.")
        member = self.members[rank] = CommunicatorMember(rank, device, threading.current_thread(), has_called)
        self.world.change_condition.notify_all()
        return member

    @property
    def is_complete(self) -> bool:
        return len(self.members) == self.size

    # Calls

    def enqueue(self, rank: int, items: Iterable[QueuedItem]) -> None:
        """Add NCCL calls of a rank to the rank's queue."""
        member = self.members[rank]
        member.thread = threading.current_thread()
        member.has_called = True
        self.queues[rank].extend(items)

    def run_matching_calls(self) -> None:
        """Run the queued calls for which the matching calls of other ranks have arrived."""
        while self.error is None and (self._run_collective() or self._run_exchange()):
            self.world.change_condition.notify_all()

    def _run_collective(self) -> bool:
        first_items = [queue[0] for queue in self.queues if queue]
        calls = [first_item for first_item in first_items if isinstance(first_item, NcclCall)]
        for call in calls[1:]:
            if call.signature != calls[0].signature:
                raise self.fail(
                    INVALID_USAGE_STATUS,
                    f"rank {calls[0].rank} calls {calls[0].description}, but rank "
                    f"{call.rank} calls {call.description}: all ranks must make the same "
                    "calls in the same order. (NCCL itself would hang or mix up data.)",
                )
        if len(calls) < self.size:
            return False
        call_rows = self._find_matching_calls()
        if calls[0].name == "commSplit":
            split_communicator(calls)
        elif calls[0].name != "barrier":
            work.run_collective(call_rows)
        for call_row in call_rows:
            for queue, call in zip(self.queues, call_row, strict=True):
                queue.popleft()
                call.is_done = True
        return True

    def _find_matching_calls(self) -> list[list[NcclCall]]:
        """Return the calls at the heads of all queues, and the following calls that share their kernel."""
        matching_rows: list[list[NcclCall]] = []
        for queued_items in zip(*self.queues, strict=False):
            matching_row = [queued_item for queued_item in queued_items if isinstance(queued_item, NcclCall)]
            is_complete_row = len(matching_row) == self.size and all(
                call.signature == matching_row[0].signature for call in matching_row
            )
            if not is_complete_row or (
                matching_rows
                and any(
                    first_call.kernel_key != call.kernel_key
                    for first_call, call in zip(matching_rows[0], matching_row, strict=True)
                )
            ):
                break
            matching_rows.append(matching_row)
            if matching_row[0].group_token is None:
                break
        return matching_rows

    def _run_exchange(self) -> bool:
        """Run sends and receives of connected ranks, and return whether any ran."""
        for rank, queue in enumerate(self.queues):
            if queue and isinstance(queue[0], ExchangeBatch):
                batches = self._find_connected_batches(rank)
                if batches is None:
                    continue
                call_pairs = self._pair_calls(batches)
                if not call_pairs:
                    waiting_ranks = "; ".join(
                        f"rank {rank_number} waits in {self.queues[rank_number][0].description}"
                        for rank_number in sorted(batches)
                    )
                    raise self.fail(
                        INVALID_USAGE_STATUS,
                        f"no send has a matching receive: {waiting_ranks}. Each "
                        "send(peer) needs a recv by that peer. Put the calls that a rank "
                        "makes at the same time between groupStart() and groupEnd().",
                    )
                calls = [call for call_pair in call_pairs for call in call_pair]
                ranks = sorted({call.rank for call in calls})
                work.run_exchange(call_pairs)
                for call in calls:
                    call.is_done = True
                for rank_number in ranks:
                    batch = self.queues[rank_number][0]
                    assert isinstance(batch, ExchangeBatch)
                    batch.calls = [call for call in batch.calls if not call.is_done]
                    if batch.is_done:
                        self.queues[rank_number].popleft()
                return True
        return False

    def _find_connected_batches(self, rank: int) -> dict[int, ExchangeBatch] | None:
        """Return the batches of all ranks with which a rank exchanges data, directly or indirectly.

        None if one of these ranks has not called yet.
        """
        batches: dict[int, ExchangeBatch] = {}
        pending_ranks = [rank]
        while pending_ranks:
            rank = pending_ranks.pop()
            if rank in batches:
                continue
            if not self.queues[rank]:
                return None
            first_item = self.queues[rank][0]
            if isinstance(first_item, NcclCall):
                partner_rank = next(
                    batch_rank
                    for batch_rank, batch in batches.items()
                    if any(call.other_rank == rank for call in batch.calls)
                )
                raise self.fail(
                    INVALID_USAGE_STATUS,
                    f"rank {partner_rank} calls {batches[partner_rank].description}, but rank {rank} "
                    f"calls {first_item.description}: the two calls do not match.",
                )
            batches[rank] = first_item
            pending_ranks += [call.other_rank for call in first_item.calls if call.other_rank is not None]
        return batches

    def _pair_calls(self, batches: dict[int, ExchangeBatch]) -> list[tuple[NcclCall, NcclCall]]:
        call_pairs = []
        for rank, batch in batches.items():
            receives_by_peer: dict[int, list[NcclCall]] = {
                peer: [
                    peer_call
                    for peer_call in peer_batch.calls
                    if peer_call.name == "recv" and peer_call.other_rank == rank
                ]
                for peer, peer_batch in batches.items()
            }
            for call in batch.calls:
                if call.name != "send" or call.other_rank is None or not receives_by_peer[call.other_rank]:
                    continue
                receive = receives_by_peer[call.other_rank].pop(0)
                if (call.count, call.dtype) != (receive.count, receive.dtype):
                    raise self.fail(
                        INVALID_USAGE_STATUS,
                        f"rank {rank} calls {call.description}, but rank "
                        f"{call.other_rank} calls {receive.description}: the counts and "
                        "types of a send and its receive must be equal.",
                    )
                call_pairs.append((call, receive))
        return call_pairs

    # Waiting

    def fail(self, status: int, reason: str) -> NcclError:
        """Make the communicator unusable for all ranks, and return the error to raise."""
        if self.error is None:
            self.error = NcclError(status, f"{reason[0].upper()}{reason[1:]}")
        self.world.change_condition.notify_all()
        return NcclError(status, f"{reason[0].upper()}{reason[1:]}")

    def make_repeated_error(self) -> NcclError:
        """Return the error for a further call on an unusable communicator."""
        assert self.error is not None
        error = NcclError(self.error.status)
        error.args = (f"{self.error} This communicator can no longer be used. Create new ones.",)
        return error

    def wait_for_ranks(
        self,
        is_done: Callable[[], bool],
        activity: str,
        find_missing_ranks: Callable[[], Sequence[int]],
        remedy: str = GROUP_REMEDY,
    ) -> None:
        """Wait in the calling thread for calls of other ranks. If these calls can never occur, the error
        message contains the advice `remedy`.

        Raises
        ------
        NcclError
            If they do not call, or cannot call any more.
        """
        thread = threading.current_thread()
        start_s = time.monotonic()
        self.world.waiting_ranks[thread] = WaitingRank(is_done, self, activity, find_missing_ranks)
        try:
            while not is_done():
                if self.error is not None:
                    raise self.make_repeated_error()
                status, reason = self._find_failure(find_missing_ranks(), time.monotonic() - start_s, remedy)
                if reason:
                    raise self._fail_cliques(status, f"{activity}: {reason}")
                self.world.change_condition.wait(_POLL_INTERVAL_S)
        except KeyboardInterrupt:
            self.fail(REMOTE_STATUS, f"{activity}, and the program was interrupted.")
            raise
        finally:
            del self.world.waiting_ranks[thread]

    def _fail_cliques(self, status: int, reason: str) -> NcclError:
        """Make this clique, and all cliques in which its missing ranks wait, unusable; return the error."""
        for member in self.members.values():
            waiting_rank = self.world.waiting_ranks.get(member.thread)
            if waiting_rank is not None and waiting_rank.clique is not self and not waiting_rank.is_done():
                waiting_rank.clique.fail(status, reason)
        return self.fail(status, reason)

    def _find_failure(self, missing_ranks: Sequence[int], waited_s: float, remedy: str) -> tuple[int, str]:
        """Return NCCL's status, and why the missing ranks can no longer call ("" if they still can)."""
        this_thread = threading.current_thread()
        for rank in missing_ranks:
            member = self.members.get(rank)
            if member is None:
                continue
            if member.has_called and member.thread is not this_thread and not member.thread.is_alive():
                return (
                    REMOTE_STATUS,
                    f"rank {rank} has not called, and its thread ({member.thread.name}) has ended.",
                )
            if member.end_state:
                return REMOTE_STATUS, f"rank {rank} was {member.end_state} and makes no more calls."
        rank_names = ", ".join(map(str, missing_ranks))
        not_called_sentence = (
            f"ranks {rank_names} have not called"
            if len(missing_ranks) > 1
            else f"rank {rank_names} has not called"
        )
        if self._is_deadlocked(missing_ranks):
            remedy = "All ranks must make the same calls in the same order, even on different communicators"
            reason = (
                f"{not_called_sentence}, and waits for this rank."
                f"{self._describe_threads(missing_ranks)} {remedy}."
            )
            return INVALID_USAGE_STATUS, reason
        waiting_threads = {
            thread
            for thread, waiting_rank in list(self.world.waiting_ranks.items())
            if not waiting_rank.is_done()
        }
        if not any(thread not in waiting_threads for thread in self.world.list_other_threads()):
            reason = f"{not_called_sentence}, and no other thread is running that could make the call."
            return INVALID_USAGE_STATUS, f"{reason}{self._describe_threads(missing_ranks)} {remedy}."
        if waited_s > _TIMEOUT_FACTOR * current().current_device.watchdog_s:
            reason = (
                f"{not_called_sentence} within {waited_s:.3g} s."
                f"{self._describe_threads(missing_ranks)} {remedy}."
            )
            lock_note = "A rank never calls if it waits for a lock that another rank holds during the call."
            return REMOTE_STATUS, f"{reason} {lock_note}"
        return 0, ""

    def _find_threads(self, ranks: Sequence[int]) -> list[threading.Thread]:
        """Return the threads that are known to make the calls of these ranks."""
        members = [self.members[rank] for rank in ranks if rank in self.members]
        return [member.thread for member in members if member.has_called]

    def _is_deadlocked(self, missing_ranks: Sequence[int]) -> bool:
        """Return whether a missing rank's thread waits for the calling thread, directly or indirectly."""
        this_thread = threading.current_thread()
        pending_threads = [
            thread for thread in self._find_threads(missing_ranks) if thread is not this_thread
        ]
        visited_threads = set()
        while pending_threads:
            thread = pending_threads.pop()
            if thread is this_thread:
                return True
            waiting_rank = self.world.waiting_ranks.get(thread)
            if thread not in visited_threads and waiting_rank is not None and not waiting_rank.is_done():
                visited_threads.add(thread)
                pending_threads += waiting_rank.clique._find_threads(waiting_rank.find_missing_ranks())
        return False

    def _describe_threads(self, missing_ranks: Sequence[int]) -> str:
        """Return sentences about what the threads of missing ranks do now, if it is known."""
        this_thread = threading.current_thread()
        sentences = []
        for rank in missing_ranks:
            member = self.members.get(rank)
            if member is None or not member.has_called or member.thread is this_thread:
                continue
            waiting_rank = self.world.waiting_ranks.get(member.thread)
            frame = _find_program_frame(member.thread)
            if waiting_rank is not None and waiting_rank.clique is not self:
                clique_number = waiting_rank.clique.number
                sentences.append(
                    f"{waiting_rank.activity} of communicator {clique_number} "
                    f"(this is communicator {self.number})"
                )
            elif frame is not None:
                sentences.append(f"rank {rank} is at line {frame.f_lineno} of {frame.f_code.co_name}()")
        return "".join(f" {sentence[0].upper()}{sentence[1:]}." for sentence in sentences)


def split_communicator(calls: Sequence[NcclCall]) -> None:
    """Create a communicator for the ranks of each color. The ranks in each communicator are ordered by their
    keys.
    """
    calls_by_color: dict[int, list[NcclCall]] = {}
    for call in calls:
        calls_by_color.setdefault(call.split_data[0], []).append(call)
    for color, color_calls in calls_by_color.items():
        clique = Clique(len(color_calls))
        for rank, call in enumerate(sorted(color_calls, key=lambda call: (call.split_data[1], call.rank))):
            member = None
            if color >= 0:
                member = clique.join(rank, clique.size, call.member.device)
                member.thread = call.member.thread
            call.split_data = None if member is None else (clique, member)


def _find_program_frame(thread: threading.Thread) -> FrameType | None:
    """Return a thread's innermost frame outside of Python's threading modules; None if it has ended."""
    frame = sys._current_frames().get(thread.ident or 0) if thread.is_alive() else None
    while frame is not None and frame.f_back is not None and _is_threading_code(frame):
        frame = frame.f_back
    return frame


def _is_threading_code(frame: FrameType) -> bool:
    """Return whether a frame runs code of Python's own modules for threads."""
    path = frame.f_code.co_filename.replace("\\", "/")
    return path.endswith("/threading.py") or "/concurrent/futures/" in path


# Groups of a thread


class CallGroup:
    """The NCCL calls that one thread makes between `groupStart` and `groupEnd`."""

    def __init__(self) -> None:
        self.nesting_depth = 0
        self.calls: list[tuple[Clique, NcclCall]] = []
        self.new_members: list[tuple[Clique, CommunicatorMember]] = []


def get_thread_group() -> CallGroup:
    """Return the group of NCCL calls that belongs to the calling thread."""
    attributes = current().thread_state.__dict__
    if "nccl_group" not in attributes:
        attributes["nccl_group"] = CallGroup()
    thread_group: CallGroup = attributes["nccl_group"]
    return thread_group


def run_calls(calls: Sequence[tuple[Clique, NcclCall]]) -> None:
    """Queue the NCCL calls of one thread, and wait until all of them have run.

    Raises
    ------
    NcclError
        If a call does not fit those of other ranks, or other ranks do not call.
    """
    if not calls:
        return
    with calls[0][0].world.change_condition:
        cliques = list(dict.fromkeys(clique for clique, _ in calls))
        for clique in cliques:
            if clique.error is not None:
                raise clique.make_repeated_error()
        enqueued_items: list[tuple[Clique, QueuedItem, NcclCall]] = []
        group_token = object()
        for clique in cliques:
            clique_calls = [call for owner, call in calls if owner is clique]
            for call in clique_calls:
                call.group_token = group_token if len(clique_calls) > 1 else None
            for rank in dict.fromkeys(call.rank for call in clique_calls):
                rank_calls = [call for call in clique_calls if call.rank == rank]
                rank_items: list[QueuedItem] = [
                    call for call in rank_calls if call.name not in ("send", "recv")
                ]
                batch = ExchangeBatch([call for call in rank_calls if call.name in ("send", "recv")])
                rank_items += [batch] if batch.calls else []
                clique.enqueue(rank, rank_items)
                enqueued_items += [(clique, item, rank_calls[0]) for item in rank_items]
        for clique in cliques:
            try:
                clique.run_matching_calls()
            except Exception as error:
                if clique.error is None:  # so that the other ranks do not wait for this call
                    clique.fail(
                        UNHANDLED_CUDA_STATUS, f"{calls[0][1].name} of rank {calls[0][1].rank}: {error}"
                    )
                raise
        for clique, item, first_call in enqueued_items:
            activity = f"rank {first_call.rank} waits in {item.description}"

            def find_missing_ranks(clique: Clique = clique, item: QueuedItem = item) -> list[int]:
                if isinstance(item, NcclCall):
                    return [rank for rank, queue in enumerate(clique.queues) if not queue]
                peers = {call.other_rank for call in item.calls if call.other_rank is not None}
                return sorted(peer for peer in peers if not clique.queues[peer]) or [
                    rank for rank, queue in enumerate(clique.queues) if not queue
                ]

            clique.wait_for_ranks(lambda item=item: item.is_done, activity, find_missing_ranks)  # type: ignore[misc]


def leave_communicator(member: CommunicatorMember, clique: Clique, end_state: str) -> None:
    """Mark the communicator of a rank as ended. The function takes no lock, because the garbage collector can
    call it.
    """
    member.end_state = end_state
    with suppress(KeyError):
        if all(other_member.end_state for other_member in clique.members.values()):
            for key in [
                key
                for key, registered_clique in list(clique.world.cliques.items())
                if registered_clique is clique
            ]:
                del clique.world.cliques[key]
