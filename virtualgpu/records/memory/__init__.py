"""What allocators and memory say of themselves: blocks, events, requests."""

from __future__ import annotations

from virtualgpu.records.memory.blocks import Block, BlockMap, BlockState, Segment
from virtualgpu.records.memory.events import ACTIONS, Action, AllocatorEvents, AllocatorTrace, Frame, Stack
from virtualgpu.records.memory.requests import Request, RequestKind

__all__ = [
    "ACTIONS",
    "Action",
    "AllocatorEvents",
    "AllocatorTrace",
    "Block",
    "BlockMap",
    "BlockState",
    "Frame",
    "Request",
    "RequestKind",
    "Segment",
    "Stack",
]
