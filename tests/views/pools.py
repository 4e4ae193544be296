"""Memory maps of random traces, for tests of the view."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gpulab.views.allocator.maps import Maps, Panel
from gpulab.views.allocator.view import AllocatorView
from tests.allocators.traces import MIB, random_requests, random_rows, trace_of
from tests.views.synthetic import MODELLED
from virtualgpu.allocators import steps
from virtualgpu.allocators.cupy.model import CuPyAllocator
from virtualgpu.allocators.fragments import fragmentation
from virtualgpu.allocators.replay import replay
from virtualgpu.allocators.torch.allocator import TorchAllocator
from virtualgpu.records.memory import AllocatorTrace


def panel(trace: AllocatorTrace, name: str = "", after: np.ndarray | None = None) -> Panel:
    lives = steps.history(replace(trace, provenance=MODELLED))
    figures = partial(fragmentation, capacity_bytes=trace.capacity_bytes)
    return Panel(lives, name or trace.allocator, partial(steps.at, lives), figures, after)


def one(events: int = 300, seed: int = 2) -> AllocatorView:
    """A pool with two streams, refusals and blocks that wait."""
    return AllocatorView(Maps([panel(trace_of(random_rows(seed, events), limit_bytes=40 * MIB))]))


def two(count: int = 200, seed: int = 3, settings: str = "") -> AllocatorView:
    """CuPy's and PyTorch's allocators with the same requests."""
    asked = [replace(r, time_ns=at) for at, r in enumerate(random_requests(seed, count), 1)]
    panels = []
    for model in (CuPyAllocator(capacity_bytes=150 * MIB), TorchAllocator(settings, 150 * MIB)):
        trace = replay(asked, model)
        after = np.searchsorted(trace.events.time_ns, np.arange(len(asked) + 1), side="right")
        panels.append(panel(trace, after=after))
    return AllocatorView(Maps(panels, asked))
