"""Memory requests of a program: a trace that several allocators can replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RequestKind = Literal["alloc", "free", "record_stream", "complete", "empty_cache", "set_limit"]


@dataclass(frozen=True, slots=True)
class Request:
    """An action that a program requests from an allocator, such as an allocation or a free.

    Parameters
    ----------
    kind
        ``alloc`` of ``size_bytes`` for ``stream``; ``free`` of the allocation ``number``; ``record_stream``:
        ``stream`` uses the allocation, too; ``complete``: all work of ``stream`` so far has ended;
        ``empty_cache``; ``set_limit`` to ``size_bytes`` (0: none).
    number
        Number of the allocation; live allocations have different numbers.
    stack
        Number of the stack trace in its trace, -1 for none.
    """

    kind: RequestKind
    number: int = -1
    size_bytes: int = 0
    stream: int = 0
    time_ns: int = 0
    stack: int = -1
