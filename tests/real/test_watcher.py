"""Calls that CUPTI tells of and the stand-in of a GPU never makes: which acts they are. With `--fake-gpu`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from tests.real import fake_gpu
from virtualgpu.records.acts import (
    HOST,
    Act,
    Allocation,
    EventRecord,
    EventWait,
    GraphLaunch,
    GraphMade,
    HostUse,
    HostWait,
    NewStream,
    Release,
    Work,
)

pytestmark = pytest.mark.gpu
# streams
A = 0x1110
B = 0x2220
C = 0x3330
# events
E = 0x77
F = 0x78


class Watch(NamedTuple):
    """Reports calls to the watcher, keeps the acts that result, and ends the check."""

    tell: Callable[..., None]
    acts: list[Act]
    stop: Callable[[], str]


pointers: list[Any] = []


@pytest.fixture
def x() -> int:
    """The address of an array on the device."""
    pytest.importorskip("cupy")
    assert gl.use_device("auto").kind == "cuda"
    array = gl.cp.zeros(256, gl.cp.uint8)
    pointers.append(array)
    return int(array.data.ptr)


@pytest.fixture
def watch(request: pytest.FixtureRequest, x: int) -> Iterator[Watch]:
    fake = request.config.stash.get(fake_gpu.CUPTI, None)
    if fake is None:
        pytest.skip("tells a stand-in what to tell")
    acts: list[Act] = []
    watcher = session.backend().stream_watcher()
    watcher.start(acts.append)
    ended = False

    def stop() -> str:
        nonlocal ended
        ended = True
        return watcher.stop()

    yield Watch(fake.callbacks.tell, acts, stop)
    if not ended:
        watcher.stop()
    gl.use_device("auto")


def pointer(value: int) -> int:
    """The address of a handle, as calls are given one to fill in."""
    handle = ctypes.c_void_p(value)
    pointers.append(handle)
    return ctypes.addressof(handle)


def work(act: Work) -> tuple[Any, ...]:
    return (
        act.name,
        act.stream_id,
        *(tuple((r.memory, r.start, r.end) for r in used) for used in (act.reads, act.writes)),
    )


def test_a_graph_has_the_nodes_and_edges_of_its_capture(watch: Watch, x: int) -> None:
    tell = watch.tell
    acts = watch.acts
    tell("cudaStreamBeginCapture", A, 0)
    tell("cudaMemsetAsync", x, 0, 8, A)
    tell("cudaEventRecord", E, A)
    tell("cudaStreamWaitEvent", B, E, 0)
    tell("cudaMemsetAsync", x, 0, 16, B)
    tell("cudaMemsetAsync", x, 0, 24, A)
    tell("cudaMemsetAsync", x, 0, 99, C)  # of no capture
    tell("cudaEventRecord", F, B)
    tell("cudaStreamWaitEvent", A, F, 0)
    tell("cudaMemsetAsync", x, 0, 32, A)
    tell("cudaStreamEndCapture", A, pointer(0x500))
    tell("cudaMemsetAsync", x, 0, 40, A)
    tell("cudaGraphInstantiate", pointer(0x600), 0x500)
    tell("cudaGraphInstantiate", pointer(0x601), 0x501)  # of a graph that was made before
    for graph in (0x600, 0x601):
        tell("cudaGraphLaunch", graph, C)
    (graph_made,) = (act for act in acts if isinstance(act, GraphMade))
    (graph_launch,) = (act for act in acts if isinstance(act, GraphLaunch))
    assert graph_launch.graph_id == graph_made.graph_id
    assert (graph_launch.device_id, graph_launch.stream_id) == (0, C)
    sizes = [(node.writes[0].end - x, node.stream_id) for node in graph_launch.nodes]
    assert sizes == [(8, A), (16, B), (24, A), (32, A)]
    assert sorted(graph_launch.edges) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    eager = [act for act in acts if isinstance(act, Work)]
    assert [act.writes[0].end - x for act in eager] == [99, 40]
    assert not [act for act in acts if isinstance(act, EventRecord | EventWait)]
    tell("cudaMemcpy", x, x + 128, 8, 3)
    *_, copy, wait = acts
    assert isinstance(copy, Work)
    assert isinstance(wait, HostWait)
    assert copy.number == wait.number == 6 + len(graph_launch.nodes) + 1
    tell("cudaStreamBeginCapture", A, 0)
    tell("cudaEventRecord", E, A)
    tell("cudaEventRecord", E, B)  # outside: the capture's is no more
    tell("cudaStreamWaitEvent", C, E, 0)
    assert [type(act) for act in acts[-2:]] == [EventRecord, EventWait]
    tell("cudaStreamDestroy", A)
    tell("cudaMemsetAsync", x, 0, 8, A)
    assert isinstance(acts[-1], Work)


def test_copies_have_the_regions_of_source_and_target(watch: Watch, x: int) -> None:
    tell = watch.tell
    acts = watch.acts
    locked = gl.cp.cuda.alloc_pinned_memory(64).ptr
    pageable = ctypes.addressof(ctypes.create_string_buffer(64))
    device_region = ((0, x, x + 16),)
    host_region = ((HOST, locked, locked + 16),)
    for target, source, name, reads, writes in (
        (x, locked, "Memcpy HtoD", host_region, device_region),
        (x, pageable, "Memcpy HtoD", (), device_region),
        (locked, x, "Memcpy DtoH", device_region, host_region),
        (pageable, x, "Memcpy DtoH", device_region, ()),
        (x, x, "Memcpy DtoD", device_region, device_region),
    ):
        acts.clear()
        tell("cudaMemcpyAsync", target, source, 16, 4, A)
        copy = next(act for act in acts if isinstance(act, Work))
        assert work(copy) == (name, A, reads, writes)
        # Of what was sent to pageable memory, the call itself waits for the end.
        waits = [(w.scope, w.number) for w in acts if isinstance(w, HostWait)]
        assert waits == ([("work", copy.number)] if target == pageable else [])
        acts.clear()
        tell("cudaMemcpy", target, source, 16, 4)
        at_once = next(act for act in acts if isinstance(act, Work))
        assert work(at_once) == (name, 0, reads, writes)
        assert isinstance(acts[-1], HostWait)
        assert (acts[-1].scope, acts[-1].number) == ("work", copy.number + 1)
    acts.clear()
    for call in ("cudaMemcpyAsync", "cudaMemcpy"):
        tell(call, x, locked, 0, *((4, A) if call.endswith("Async") else (4,)))
    tell("cudaMemsetAsync", x, 0, 0, A)
    assert not [act for act in acts if isinstance(act, Work)]
    tell("cudaMemcpyPeerAsync", x, 1, x + 64, 0, 16, B)
    assert isinstance(acts[-1], Work)
    assert acts[-1].is_peer_copy
    assert work(acts[-1]) == ("Memcpy PtoP", B, ((0, x + 64, x + 80),), device_region)


def test_buffer_changed_by_a_copy_or_callback_is_not_a_host_use(watch: Watch) -> None:
    tell = watch.tell
    acts = watch.acts
    x = gl.cp.zeros(256, gl.cp.uint8)
    locked = gl.cp.cuda.alloc_pinned_memory(64).ptr
    address = locked + 8
    buffer = (ctypes.c_uint8 * 16).from_address(address)

    def changed_after(*calls: tuple[Any, ...]) -> bool:
        tell("cudaMemcpyAsync", x.data.ptr, address, 16, 1, A)
        acts.clear()
        for call in calls:
            tell(*call)
        buffer[3] += 1
        tell("cudaDeviceSynchronize")
        return any(isinstance(act, HostUse) for act in acts)

    assert changed_after()
    assert not changed_after(("cudaMemcpyAsync", locked, x.data.ptr, 16, 2, B))
    assert changed_after(("cudaMemcpyAsync", locked + 32, x.data.ptr, 16, 2, B))
    assert not changed_after(("cudaLaunchHostFunc", B, None, None))
    assert not changed_after(("cudaFreeHost", locked))
    assert [(act.region.memory, act.region.start) for act in acts if isinstance(act, Release)] == [
        (HOST, locked)
    ]


def test_reused_handles_are_treated_as_new_objects(watch: Watch, x: int) -> None:
    tell = watch.tell
    acts = watch.acts
    for create, blocking in (
        (("cudaStreamCreateWithPriority", pointer(A), 0, 0), True),
        (("cudaStreamCreateWithPriority", pointer(A), 1, 0), False),
    ):
        tell(*create)
        tell("cudaMemsetAsync", x, 0, 8, A)
        new, used = acts[-2:]
        assert isinstance(new, NewStream)
        assert isinstance(used, Work)
        assert (new.stream_id, new.blocking) == (used.stream_id, blocking)
    first, second = (act.stream_id for act in acts if isinstance(act, Work))
    assert (first, second != first) == (A, True)
    acts.clear()
    for handle, stream in ((None, 0), (1, 0), (2, 2)):
        tell("cudaMemsetAsync", x, 0, 8, handle)
        assert isinstance(acts[-1], Work)
        assert acts[-1].stream_id == stream
    for handle, stream in ((B, B), (None, 0)):
        tell("cudaLaunchHostFunc", handle, None, None)
        assert isinstance(acts[-1], Work)
        assert work(acts[-1]) == ("host function", stream, (), ())
    tell("cudaEventRecord", E, A)
    tell("cudaEventQuery", E)
    tell("cudaStreamQuery", A)
    recorded, *waits = acts[-3:]
    assert isinstance(recorded, EventRecord)
    assert recorded.stream_id == second
    assert [(w.scope, w.event_id, w.stream_id) for w in waits if isinstance(w, HostWait)] == [
        ("event", recorded.event_id, 0),
        ("stream", 0, second),
    ]
    tell("cudaEventDestroy", E)
    tell("cudaEventRecord", E, A)
    assert isinstance(acts[-1], EventRecord)
    assert acts[-1].event_id != recorded.event_id


def test_allocations_and_releases_become_acts(watch: Watch) -> None:
    tell = watch.tell
    acts = watch.acts
    tell("cudaMalloc", pointer(0x9000), 512)
    tell("cudaFree", 0x9000)
    tell("cudaMallocAsync", pointer(0xA000), 256, B)
    tell("cudaFreeAsync", 0xA000, C)
    allocated, waited, freed, in_order, given_back = acts
    for act, place, size, stream in (
        (allocated, 0x9000, 512, None),
        (freed, 0x9000, 512, None),
        (in_order, 0xA000, 256, B),
        (given_back, 0xA000, 256, C),
    ):
        assert isinstance(act, Allocation | Release)
        assert (act.region.start, act.region.end, act.stream_id) == (place, place + size, stream)
    assert isinstance(waited, HostWait)
    acts.clear()
    tell("cudaFree", None)
    tell("cudaFreeAsync", 0xA000, C)  # again, or of before the check
    assert acts == []
    tell("cudaFree", 0x9000)
    assert [(w.scope, w.device_id) for w in acts if isinstance(w, HostWait)] == [("device", 0)]


def test_library_kernel_writes_the_array_allocated_on_its_line(watch: Watch, x: int) -> None:
    tell = watch.tell
    acts = watch.acts
    values = pointer(0)
    config = (ctypes.c_uint8 * 64)()
    ctypes.c_void_p.from_address(ctypes.addressof(config) + 32).value = B
    y = gl.cp.empty(64, gl.cp.uint8)
    launch = ("cuLaunchKernel", 5, *(1,) * 7, A, values, None)
    tell(*launch, symbol="gemm")
    assert work(acts[-1]) == ("gemm", A, (), ())
    tell("cuLaunchKernelEx", ctypes.addressof(config), 5, values, None, symbol="gemm_ex")
    tell("cuLaunchCooperativeKernel", 5, *(1,) * 7, C, values, symbol="reduce")
    works = [work(act)[:2] for act in acts if isinstance(act, Work)]
    assert works[1:] == [("gemm_ex", B), ("reduce", C)]
    # The array belongs to the launch because one line makes both.
    z, told_now = gl.cp.empty(64, gl.cp.uint8), tell(*launch, symbol="gemm")
    written = acts[-1]
    assert isinstance(written, Work)
    assert [region.start for region in written.writes] == [z.data.ptr]
    del y, told_now
    count = len(acts)
    tell("cuLaunchKernel", 5, *(1,) * 7, A, None, None, symbol="gemm")  # arguments in one piece
    tell("cudaMemsetAsync", x, 0, 8, A, status=700)
    assert len(acts) == count
    assert "4 kernels of libraries" in watch.stop()


def test_unreadable_call_is_counted_and_does_not_raise(watch: Watch) -> None:
    watch.tell("cudaMalloc", None, 512)
    watch.tell("cudaMallocAsync", None, 512, A)
    note = watch.stop()
    assert "2 calls could not be read (cudaMalloc: ValueError('NULL pointer access'))." in note
    assert "libraries" not in note


def test_changes_by_a_device_to_host_copy_are_not_a_host_use(watch: Watch, x: int) -> None:
    pinned = gl.cp.cuda.alloc_pinned_memory(64)
    buffer = np.frombuffer(pinned, np.uint8, 64)
    tell = watch.tell
    address = buffer.ctypes.data
    tell("cudaMemcpyAsync", address, x, 64, 2, A)
    tell("cudaEventRecord", E, A)
    tell("cudaMemcpyAsync", x, address, 64, 1, A)
    buffer[:] = 2  # as the first copy would
    tell("cudaEventSynchronize", E)
    tell("cudaMemcpyAsync", x, address, 64, 1, A)
    assert not [act for act in watch.acts if isinstance(act, HostUse)]
    buffer[:] = 3
    tell("cudaStreamSynchronize", A)
    assert [act.name for act in watch.acts if isinstance(act, HostUse)] == ["changed a buffer"]
