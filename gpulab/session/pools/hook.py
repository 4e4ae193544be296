"""Recording of a memory pool's events through hooks, as columns, with the lines of the program.

The hook is CuPy's `MemoryHook`, which real and virtual GPUs support. CuPy has separate hooks per thread, so a
recorder records only the allocations of the threads in which it was started.
"""

from __future__ import annotations

import struct
import sys
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import Any, Self

import numpy as np

from gpulab.session import current
from gpulab.words import count, noun
from virtualgpu.records.memory import ACTIONS, AllocatorEvents, Frame, Stack
from virtualgpu.records.timeline import SourceLine

ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, OOM = (
    ACTIONS.index(name) for name in ("alloc", "free_requested", "free_completed", "segment_alloc", "oom")
)
MAX_FRAMES = 64
MAX_STACKS = 20_000  # the lines of later ones are not kept
MAX_FOREIGN_FRAMES = 16  # a stack ends where so many frames in a row are not the program's
_COLUMN_COUNT = 8
_ROW_STRUCT = struct.Struct(f"{_COLUMN_COUNT}q")

Row = tuple[int, int, int, int, int, int, int, int]
"""Action, address, size, requested bytes, stream, time, stack and device of an event."""


class AllocationRecorder:
    """A recorder of the events of the current memory pool, in the order in which they occur.

    The events are ``alloc``, ``free_requested``, ``free_completed``, ``segment_alloc`` and ``oom``. As in
    CuPy's pool, ``free_completed`` directly follows ``free_requested``.

    An event costs a few microseconds. CuPy calls no hook if a pool returns memory to the device, in other
    threads, for memory without a pool, and for `MemoryAsyncPool`. If another thread frees a block, the free
    is recorded when the address is allocated again.

    Parameters
    ----------
    max_events
        The minimum number of recent events that are kept. By default, all events are kept.
    device
        The device whose bytes `held_bytes` counts.
    before_event
        A function that is called before each allocation and each free, in the program's thread. It must be
        fast.

    Examples
    --------
    >>> with AllocationRecorder() as seen:
    ...     x = cp.zeros(1000)
    >>> seen.events().size_bytes[-1]
    8192
    """

    def __init__(
        self, max_events: int | None = None, device: int = 0, before_event: Callable[[], None] | None = None
    ) -> None:
        self._cp = current.cp()
        self._get_stream: Callable[[], Any] = self._cp.cuda.get_current_stream
        self.before_event = before_event
        self._max_events = max_events
        self._rows = array("q")  # the events' columns, row after row
        self._dropped_events = 0  # events
        self._lock = threading.RLock()
        self._live_blocks: dict[tuple[int, int], tuple[int, int]] = {}  # (device, address): requested, stream
        self._program_lines = current.make_program_lines()
        self._frame_kinds: dict[int, int] = {}  # by the id of a code object, see _classify_frame
        self._code_objects: list[CodeType] = []  # those, kept alive
        self._stack_number_of_code: dict[tuple[int, ...], int] = {}  # by code and place in it
        self._stack_number_of_lines: dict[Stack, int] = {}  # by lines
        self.stacks: list[Stack] = []
        self.source_lines: list[SourceLine] = []
        self.missed_frees = self.failed_events = 0
        self._has_no_pool = False
        self._device = device
        self.held_bytes = self.most_held_bytes = 0
        """Bytes allocated less bytes freed on the device since the start, and the most that it has been."""
        self._hooks: list[Any] = []

    # Recording

    def start(self) -> None:
        """Record the allocations of the calling thread from now on. A second call in the same thread has no
        effect.
        """
        allocator = getattr(self._cp.cuda.get_allocator(), "__self__", None)
        self._has_no_pool = not isinstance(allocator, self._cp.cuda.MemoryPool)
        hook = self._make_hook()
        if hook is not None:
            self._hooks.append(hook)

    def _make_hook(self) -> Any | None:
        """Return a new hook for the calling thread, or None if it has one; remove unused hooks."""
        hooks = self._cp.cuda.memory_hook.get_memory_hooks()
        for name, hook in list(hooks.items()):
            if isinstance(name, _HookName) and hook.recorder() is None:
                del hooks[name]
            elif isinstance(name, _HookName) and hook.recorder() is self:
                return None
        hook = _make_hook(self._cp.cuda.MemoryHook, self)
        hooks[hook.name] = hook
        return hook

    def stop(self) -> object:
        """Stop the recording of allocations in all threads."""
        for hook in self._hooks:
            hook.recorder = _find_no_recorder
        self._hooks.clear()
        # Only of this thread: another one may be going through its hooks.
        hooks = self._cp.cuda.memory_hook.get_memory_hooks()
        for name in [n for n, hook in hooks.items() if isinstance(n, _HookName) and hook.recorder() is None]:
            del hooks[name]
        return None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @contextmanager
    def record_this_thread(self) -> Iterator[None]:
        """Record the allocations that the current thread makes in a ``with`` block, for example in a widget
        callback.
        """
        hook = self._make_hook()
        try:
            yield
        finally:
            if hook is not None:
                self._cp.cuda.memory_hook.get_memory_hooks().pop(hook.name, None)

    # What the hook says

    def on_request(self) -> None:
        if self.before_event is not None:
            self.before_event()

    def on_allocation(self, device: int, requested: int, size: int, address: int, succeeded: bool) -> None:
        if not size:
            return  # a block of no bytes is none
        stack_index = self._find_stack_index()
        now_ns = time.perf_counter_ns()
        stream = self._get_stream().ptr
        if not succeeded:
            free_bytes = self._cp.cuda.runtime.memGetInfo()[0]
            self._add_events((OOM, free_bytes, size, requested, stream, now_ns, stack_index, device))
            return
        block_key = device, address
        if block_key in self._live_blocks:
            self.missed_frees += 1
            self._record_free(device, address, size, now_ns, -1)
        self._live_blocks[block_key] = requested, stream
        if device == self._device:
            self.held_bytes += size
            self.most_held_bytes = max(self.held_bytes, self.most_held_bytes)
        self._add_events((ALLOC, address, size, requested, stream, now_ns, stack_index, device))

    def on_free(self, device: int, size: int, address: int) -> None:
        self._record_free(device, address, size, time.perf_counter_ns(), self._find_stack_index())

    def on_segment_allocation(self, device: int, size: int, address: int) -> None:
        stack_index = self._find_stack_index()
        now_ns = time.perf_counter_ns()
        stream = self._get_stream().ptr
        self._add_events((SEGMENT_ALLOC, address, size, 0, stream, now_ns, stack_index, device))

    def _record_free(self, device: int, address: int, size: int, time_ns: int, stack: int) -> None:
        requested_bytes, stream = self._live_blocks.pop((device, address), (0, 0))
        if device == self._device:
            self.held_bytes -= size
        self._add_events(
            (FREE_REQUESTED, address, size, requested_bytes, stream, time_ns, stack, device),
            (FREE_COMPLETED, address, size, requested_bytes, stream, time_ns, stack, device),
        )

    def _add_events(self, *rows: Row) -> None:
        for event_row in rows:
            # One call, in which no other thread runs, nor the garbage collector, which may come in here.
            self._rows.frombytes(_ROW_STRUCT.pack(*event_row))
        if self._max_events is not None and len(self._rows) > 2 * _COLUMN_COUNT * self._max_events:
            with self._lock:
                excess_events = max(0, len(self._rows) // _COLUMN_COUNT - self._max_events)
                del self._rows[: excess_events * _COLUMN_COUNT]
                self._dropped_events += excess_events

    # Stack traces

    def _find_stack_index(self) -> int:
        """Return the index of the calling thread's stack of program lines, or -1 if it has none."""
        stack_key: list[int] = []
        frames: list[FrameType] = []
        frame_kinds = self._frame_kinds
        foreign_frames = 0
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            code_object = frame.f_code
            frame_kind = frame_kinds.get(id(code_object), -1)
            if frame_kind < 0:
                frame_kind = self._classify_frame(frame)
            if frame_kind:
                stack_key += (id(code_object), frame.f_lasti)
                frames.append(frame)
                if frame_kind == 2 or len(stack_key) >= 2 * MAX_FRAMES:
                    break
                foreign_frames = 0
            elif stack_key:
                foreign_frames += 1
                if foreign_frames > MAX_FOREIGN_FRAMES:
                    break
            frame = frame.f_back
        if not stack_key:
            return -1
        stack_number = self._stack_number_of_code.get(tuple(stack_key))
        if stack_number is not None:
            return stack_number
        return self._add_stack(tuple(stack_key), frames) if len(self.stacks) < MAX_STACKS else -1

    def _classify_frame(self, frame: FrameType) -> int:
        """Return 0 for a library's frame, 1 for a frame of the program, 2 for its outermost frame."""
        code_object = frame.f_code
        frame_kind = int(
            self._program_lines.is_program_file(code_object.co_filename, str(frame.f_globals.get("__name__")))
        )
        # The code of a function is optimized, that of a module or a cell is not.
        if (
            frame_kind
            and not code_object.co_flags & CO_OPTIMIZED
            and frame.f_globals.get("__name__") == "__main__"
        ):
            frame_kind = 2
        self._code_objects.append(code_object)
        self._frame_kinds[id(code_object)] = frame_kind
        return frame_kind

    def _add_stack(self, key: tuple[int, ...], frames: list[FrameType]) -> int:
        source_lines = [self._program_lines.find_line(frame) for frame in frames]
        stack = tuple(
            Frame(source_line.file, source_line.line, frame.f_code.co_name)
            for source_line, frame in zip(source_lines, frames, strict=True)
        )
        with self._lock:
            stack_number = self._stack_number_of_lines.setdefault(stack, len(self.stacks))
            if stack_number == len(self.stacks):
                self.source_lines.append(source_lines[0])
                self.stacks.append(stack)
            self._stack_number_of_code[key] = stack_number
        return stack_number

    # What was seen

    def __len__(self) -> int:
        """Return the number of events, including events that are no longer kept."""
        with self._lock:
            return self._dropped_events + len(self._rows) // _COLUMN_COUNT

    def events(self, since: int = 0, device: int | None = None) -> AllocatorEvents:
        """Return the stored events, starting with number `since`, for all devices or for one device."""
        return self.events_and_next(since, device)[0]

    def events_and_next(self, since: int, device: int | None = None) -> tuple[AllocatorEvents, int]:
        """Return the events starting with number `since`, and the number of the next event."""
        with self._lock:
            first_number = max(since, self._dropped_events)
            row_bytes = self._rows[(first_number - self._dropped_events) * _COLUMN_COUNT :].tobytes()
        event_table = np.frombuffer(row_bytes, np.int64).reshape(-1, _COLUMN_COUNT)
        next_number = first_number + len(event_table)
        if device is not None:
            event_table = event_table[event_table[:, 7] == device]
        actions, address, size_bytes, requested_bytes, stream, time_ns, stacks = event_table.T[:7].copy()
        events = AllocatorEvents(
            actions=actions.astype(np.uint8),
            addresses=address,
            size_bytes=size_bytes,
            requested_bytes=requested_bytes,
            streams=stream,
            time_ns=time_ns,
            stacks=stacks.astype(np.int32),
        )
        return events, next_number

    @property
    def note(self) -> str:
        """Return a note about events that could not be recorded, or an empty string if there are none."""
        note_sentences = []
        if self._has_no_pool:
            note_sentences.append(
                "Allocations do not use a MemoryPool here, and only the allocations of "
                "memory pools can be recorded."
            )
        if self.missed_frees:
            missed_text = f"{count(self.missed_frees, 'block')} {noun(self.missed_frees, 'was', 'were')}"
            note_sentences.append(
                f"{missed_text} freed by another thread. The chart shows this only from the "
                "time when the address was used again."
            )
        if self.failed_events:
            note_sentences.append(f"{count(self.failed_events, 'event')} could not be recorded.")
        return " ".join(note_sentences)


class _HookName(str):
    """The unique name of a hook. A name of this type shows that the hook belongs to gpulab."""


def _find_no_recorder() -> None:
    return None


def _make_hook(hook_class: Any, recorder: AllocationRecorder) -> Any:
    """Return a `MemoryHook` for the given CuPy module that reports to a recorder while the recorder exists.

    Errors of the recorder do not reach the program.
    """

    def call_recorder(method: str, *args: Any) -> None:
        live_recorder = hook.recorder()
        if live_recorder is not None:
            try:
                getattr(live_recorder, method)(*args)
            except Exception:
                live_recorder.failed_events += 1

    class Hook(hook_class):  # type: ignore[misc]
        recorder: Callable[[], AllocationRecorder | None]

        def malloc_preprocess(self, **_: Any) -> None:
            call_recorder("on_request")

        free_preprocess = malloc_preprocess

        def malloc_postprocess(
            self, device_id: int, size: int, mem_size: int, mem_ptr: int, pmem_id: int
        ) -> None:
            call_recorder("on_allocation", device_id, size, mem_size, mem_ptr, bool(pmem_id))

        def alloc_postprocess(self, device_id: int, mem_size: int, mem_ptr: int) -> None:
            if mem_ptr:
                call_recorder("on_segment_allocation", device_id, mem_size, mem_ptr)

        def free_postprocess(self, device_id: int, mem_size: int, mem_ptr: int, pmem_id: int) -> None:
            call_recorder("on_free", device_id, mem_size, mem_ptr)

    hook = Hook()
    hook.recorder = weakref.ref(recorder)
    hook.name = _HookName(f"gpulab recorder {id(hook)}")
    return hook
