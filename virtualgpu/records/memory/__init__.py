"""Records of allocators and memory: blocks, events, requests, statistics."""

from __future__ import annotations

from virtualgpu.records.memory.blocks import Block, BlockMap, BlockState, Segment
from virtualgpu.records.memory.events import ACTIONS, Action, AllocatorEvents, AllocatorTrace, Frame, Stack
from virtualgpu.records.memory.fragmentation import Arena, Fragmentation
from virtualgpu.records.memory.history import AllocatorHistory, BlockLives, RangeLives, SegmentLives
from virtualgpu.records.memory.ladder import CacheCapacity, LevelBandwidth, MemoryLadder
from virtualgpu.records.memory.report import AliveBlocks, FailedRequest, MemoryReport, Room
from virtualgpu.records.memory.requests import Request, RequestKind
from virtualgpu.records.memory.samples import MemoryMarks, MemoryReading, MemorySamples
from virtualgpu.records.memory.statistics import AllocatorStatistics, Figure

__all__ = [
    "ACTIONS",
    "Action",
    "AliveBlocks",
    "AllocatorEvents",
    "AllocatorHistory",
    "AllocatorStatistics",
    "AllocatorTrace",
    "Arena",
    "Block",
    "BlockLives",
    "BlockMap",
    "BlockState",
    "CacheCapacity",
    "FailedRequest",
    "Figure",
    "Fragmentation",
    "Frame",
    "LevelBandwidth",
    "MemoryLadder",
    "MemoryMarks",
    "MemoryReading",
    "MemoryReport",
    "MemorySamples",
    "RangeLives",
    "Request",
    "RequestKind",
    "Room",
    "Segment",
    "SegmentLives",
    "Stack",
]
