"""What a program asks of an allocator, whichever one it is: the trace that two of them are fed with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RequestKind = Literal["alloc", "free", "record_stream", "complete", "empty_cache", "set_limit"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Parameters
    ----------
    kind
        ``alloc`` of ``size_bytes`` for ``stream``; ``free`` of the allocation ``number``; ``record_stream``:
        ``stream`` uses the allocation, too; ``complete``: all work given to ``stream`` so far is over;
        ``empty_cache``; ``set_limit`` to ``size_bytes`` (0: none).
    number
        Which allocation, counted by the program: one number lives once at a time.
    stack
        Number of the stack trace in the trace that it comes from, -1 for none.
    """

    kind: RequestKind
    number: int = -1
    size_bytes: int = 0
    stream: int = 0
    time_ns: int = 0
    stack: int = -1
