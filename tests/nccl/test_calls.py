"""NCCL's calls: results against NumPy, bytes moved, and modelled times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.nccl.conftest import Gpus, in_threads, on
from virtualgpu import cp
from virtualgpu.model.links import rings
from virtualgpu.records.traffic.ports import Crossing

nccl = cp.cuda.nccl
TYPES = "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64"
NUMBERS = {name: getattr(nccl, f"NCCL_{name.upper()}") for name in TYPES.split()}
OPS = {"sum": nccl.NCCL_SUM, "prod": nccl.NCCL_PROD, "max": nccl.NCCL_MAX, "min": nccl.NCCL_MIN}
SIZES = [1, 2, 3, 7, 8, 1000, 1001]


def on_devices(hosts: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
    """Copy each array to its own device."""
    return [on(n, lambda host=host: cp.asarray(host)) for n, host in enumerate(hosts)]


def in_group(comms: Sequence[Any], call: Any) -> None:
    """Make one call of all ranks in a group."""
    nccl.groupStart()
    for rank, comm in enumerate(comms):
        call(rank, comm)
    nccl.groupEnd()


def all_reduce(comms: Sequence[Any], arrays: Sequence[Any], kind: int = nccl.NCCL_FLOAT, op: int = 0) -> None:
    """Sum whole arrays in place, in a group."""
    addresses = [array.data.ptr for array in arrays]
    size = arrays[0].size
    in_group(comms, lambda r, c: c.allReduce(addresses[r], addresses[r], size, kind, op, 0))


def random_arrays(ranks: int, size: int, dtype: str, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Return arrays of small integers, whose sums are exact in every type."""
    rng = np.random.default_rng([seed, ranks, size])
    return [rng.integers(0 if dtype[0] == "u" else -2, 3, size).astype(dtype) for _ in range(ranks)]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", OPS)
def test_all_reduce_equals_numpy(gpus: Gpus, dtype: str, op: str) -> None:
    gpus(3)
    comms = nccl.NcclCommunicator.initAll(3)
    for size in SIZES:
        hosts = random_arrays(3, size, dtype)
        arrays = on_devices(hosts)
        results = on_devices([np.zeros_like(h) for h in hosts])
        in_group(
            comms,
            lambda r, c, x=arrays, y=results, n=size: c.allReduce(
                x[r].data.ptr, y[r].data.ptr, n, NUMBERS[dtype], OPS[op], 0
            ),
        )
        expected = getattr(np, op)(
            np.stack(hosts), axis=0, **({"dtype": dtype} if op in ("sum", "prod") else {})
        )
        for array, result, host in zip(arrays, results, hosts, strict=True):
            np.testing.assert_array_equal(result.get(), expected)
            np.testing.assert_array_equal(array.get(), host)


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
@pytest.mark.parametrize("links", ["nvswitch", "pairs", "host"])
def test_other_collectives_equal_numpy(gpus: Gpus, ranks: int, links: Any) -> None:
    gpus(ranks, links)
    comms = nccl.NcclCommunicator.initAll(ranks)
    size = 13
    root = ranks - 1
    for call, reference in {
        "reduce": lambda hosts: [sum(hosts) if r == root else np.zeros(size) for r in range(ranks)],
        "broadcast": lambda hosts: [hosts[root]] * ranks,
        "bcast": lambda hosts: [hosts[root]] * ranks,
        "allGather": lambda hosts: [np.concatenate(hosts)] * ranks,
        "reduceScatter": lambda hosts: list(sum(hosts).reshape(ranks, size)),
    }.items():
        hosts = random_arrays(ranks, size * (ranks if call == "reduceScatter" else 1), "float64")
        arrays = on_devices(hosts)
        results = on_devices([np.zeros(size * (ranks if call == "allGather" else 1))] * ranks)

        def one(r: int, c: Any, call: str = call, x: Any = arrays, y: Any = results) -> None:
            a = x[r].data.ptr
            b = y[r].data.ptr
            kind = nccl.NCCL_DOUBLE
            if call == "reduce":
                c.reduce(a, b, size, kind, nccl.NCCL_SUM, root, 0)
            elif call == "bcast":
                c.bcast(a, size, kind, root, 0)
            elif call == "broadcast":
                c.broadcast(a if r == root else 0, b, size, kind, root, 0)
            elif call == "allGather":
                c.allGather(a, b, size, kind, 0)
            else:
                c.reduceScatter(a, b, size, kind, nccl.NCCL_SUM, 0)

        in_group(comms, one)
        for result, expected in zip(arrays if call == "bcast" else results, reference(hosts), strict=True):
            np.testing.assert_array_equal(result.get(), expected, err_msg=call)


def test_calls_in_place(gpus: Gpus) -> None:
    """reduceScatter and allGather in place use the rank's own part of the long array, as NCCL documents."""
    gpus(3)
    comms = nccl.NcclCommunicator.initAll(3)
    hosts = random_arrays(3, 12, "int32")
    arrays = on_devices(hosts)
    part = lambda x, r: x.data.ptr + 16 * r  # noqa: E731
    in_group(
        comms, lambda r, c: c.reduceScatter(arrays[r].data.ptr, part(arrays[r], r), 4, nccl.NCCL_INT, 0, 0)
    )
    in_group(comms, lambda r, c: c.allGather(part(arrays[r], r), arrays[r].data.ptr, 4, nccl.NCCL_INT, 0))
    for array in arrays:
        np.testing.assert_array_equal(array.get(), sum(hosts))


def test_averages_are_rounded_to_the_data_type(gpus: Gpus) -> None:
    gpus(2)
    comms = nccl.NcclCommunicator.initAll(2)
    for dtype, hosts, expected in (
        ("int32", [[-3, 5], [0, 4]], [-1, 4]),
        ("float32", [[-3, 5], [0, 4]], [-1.5, 4.5]),
    ):
        arrays = on_devices([np.array(h, dtype) for h in hosts])
        all_reduce(comms, arrays, NUMBERS[dtype], nccl.NCCL_AVG)
        assert arrays[1].get().tolist() == expected
    arrays = on_devices([bfloat16_bits(values) for values in ([3, -1.5], [1, 2.5])])
    all_reduce(comms, arrays, nccl.NCCL_BFLOAT16, nccl.NCCL_AVG)
    assert float32_values(arrays[1]).tolist() == [2, 0.5]


def bfloat16_bits(values: list[float]) -> np.ndarray[Any, Any]:
    return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def float32_values(array: Any) -> np.ndarray[Any, Any]:
    return (array.get().astype(np.uint32) << 16).view(np.float32)


def test_bfloat16_sums_are_rounded_to_bfloat16(gpus: Gpus) -> None:
    """With 8 significant bits and ties to even, 256 + 1 is 256. In float32, 256 + 1 + 1 would be 258."""
    gpus(3)
    comms = nccl.NcclCommunicator.initAll(3)
    arrays = on_devices([bfloat16_bits(v) for v in ([256, 1.5, np.nan], [1, 2.25, 1], [1, 0.25, 1])])
    all_reduce(comms, arrays, nccl.NCCL_BFLOAT16)
    result = float32_values(arrays[0])
    assert result[:2].tolist() == [256, 4]
    assert np.isnan(result[2])


def test_floats_are_added_in_ring_order(gpus: Gpus) -> None:
    """Chunk c is added from rank c on, so all ranks have the same bits, unlike in other orders."""
    gpus(4)
    comms = nccl.NcclCommunicator.initAll(4)
    rng = np.random.default_rng(5)
    hosts = [
        (rng.standard_normal(1000) * 10.0 ** rng.integers(-6, 6, 1000)).astype(np.float32) for _ in range(4)
    ]
    arrays = on_devices(hosts)
    all_reduce(comms, arrays)
    expected = np.concatenate(
        [
            (
                (hosts[c][250 * c : 250 * (c + 1)] + hosts[(c + 1) % 4][250 * c : 250 * (c + 1)])
                + hosts[(c + 2) % 4][250 * c : 250 * (c + 1)]
            )
            + hosts[(c + 3) % 4][250 * c : 250 * (c + 1)]
            for c in range(4)
        ]
    )
    for array in arrays:
        np.testing.assert_array_equal(array.get(), expected)
    assert (expected != hosts[0] + hosts[1] + hosts[2] + hosts[3]).any()


# Ports


@pytest.mark.parametrize(("ranks", "size"), [(8, 8000), (8, 8003), (4, 1000), (3, 7), (2, 1001), (8, 29)])
def test_ring_all_reduce_moves_the_minimum_bytes_per_port(gpus: Gpus, ranks: int, size: int) -> None:
    """Each port sends and receives 2 (n - 1) / n of the data, within one chunk."""
    machine = gpus(ranks)
    comms = nccl.NcclCommunicator.initAll(ranks)
    arrays = on_devices(random_arrays(ranks, size, "float32"))
    with machine.links.collect_crossings() as crossings:
        all_reduce(comms, arrays)
    chunk = 4 * -(-size // ranks)
    for rank in range(ranks):
        out = sum(c.size_bytes for c in crossings if c.source == rank)
        into = sum(c.size_bytes for c in crossings if c.target == rank)
        for moved in (out, into):
            assert abs(moved - 2 * (ranks - 1) / ranks * 4 * size) <= chunk
    assert {(c.source, c.target) for c in crossings} <= {(r, (r + 1) % ranks) for r in range(ranks)}
    assert sum(c.size_bytes for c in crossings) == 2 * (ranks - 1) * 4 * size


def play(call: Any, ranks: int, count: int, root: int, data: Any) -> Any:
    """Run the ring's steps on the host."""
    data = [list(row) for row in data]
    steps = rings.make_steps(call, ranks, count, root)
    for step in sorted({s.step for s in steps}):
        now = [(s, data[s.source][s.start : s.end]) for s in steps if s.step == step]
        for s, values in now:
            target_values = data[s.target][s.start : s.end]
            data[s.target][s.start : s.end] = (
                [a + b for a, b in zip(target_values, values, strict=True)] if s.adds else values
            )
    return data


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("count", [1, 5, 8, 13])
def test_ring_steps_compute_the_result_of_each_collective(ranks: int, count: int) -> None:
    rng = np.random.default_rng(ranks)
    whole = rng.integers(0, 100, (ranks, count))
    assert play("allReduce", ranks, count, 0, whole) == [whole.sum(0).tolist()] * ranks
    assert play("reduce", ranks, count, 1, whole)[1] == whole.sum(0).tolist()
    assert play("broadcast", ranks, count, 1, whole) == [whole[1].tolist()] * ranks
    long = rng.integers(0, 100, (ranks, ranks * count))
    scattered = play("reduceScatter", ranks, count, 0, long)
    gathered = play("allGather", ranks, count, 0, long)
    for rank in range(ranks):
        part = slice(rank * count, (rank + 1) * count)
        assert scattered[rank][part] == long.sum(0)[part].tolist()
        expected = np.concatenate([long[r, r * count : (r + 1) * count] for r in range(ranks)])
        assert gathered[rank] == expected.tolist()


@pytest.mark.parametrize(
    ("links", "over"),
    [("nvswitch", ["NVLink"] * 4), ("pairs", ["NVLink", "PCIe"] * 2), ("host", ["PCIe"] * 4)],
)
def test_ring_uses_nvlink_where_available(gpus: Gpus, links: Any, over: list[str]) -> None:
    """The ring neither needs nor enables peer access."""
    machine = gpus(4, links)
    comms = nccl.NcclCommunicator.initAll(4)
    arrays = on_devices(random_arrays(4, 400, "float32"))
    with machine.links.collect_crossings() as crossings:
        all_reduce(comms, arrays)
    assert [c.over for c in sorted(crossings, key=lambda c: c.source)] == over
    assert not any(machine.links.has_access(a, b) for a in range(4) for b in range(4))


# Times


@pytest.mark.parametrize(("links", "step_ns"), [("nvswitch", 600), ("host", 1000)])
def test_time_grows_with_the_number_of_ring_steps(gpus: Gpus, links: Any, step_ns: int) -> None:
    """2 (n - 1) steps with the latencies of NCCL's own model."""
    times_ns = []
    for ranks in (2, 8):
        machine = gpus(ranks, links)
        comms = nccl.NcclCommunicator.initAll(ranks)
        arrays = on_devices([np.zeros(8, np.float32)] * ranks)
        for array in arrays:
            array.device.synchronize()
        all_reduce(comms, arrays)
        times_ns.append(machine.devices[-1].work_queue.log[-1].duration_ns)
    assert times_ns[1] - times_ns[0] == pytest.approx(12 * step_ns, abs=10)


@pytest.mark.parametrize(("size", "recorded_us"), [(4096, 9.8), (1 << 20, 15.6), (16 << 20, 75.0)])
def test_repeated_calls_take_the_recorded_time(gpus: Gpus, size: int, recorded_us: float) -> None:
    gpus(2)
    comms = nccl.NcclCommunicator.initAll(2)
    arrays = on_devices([np.zeros(size // 4, np.float32)] * 2)
    begin = cp.cuda.Event()
    end = cp.cuda.Event()
    rounds = 20
    begin.record()
    for _ in range(rounds):
        all_reduce(comms, arrays)
    end.record()
    end.synchronize()
    assert 1e3 * cp.cuda.get_elapsed_time(begin, end) / rounds == pytest.approx(recorded_us, rel=0.4)


def test_kernels_end_together_after_the_last_rank_arrives(gpus: Gpus) -> None:
    machine = gpus(4)
    comms = nccl.NcclCommunicator.initAll(4)
    arrays = on_devices([np.zeros(1 << 20, np.float32)] * 4)
    for array in arrays:
        array.device.synchronize()
    long = lambda: cp.cuda.Stream.null.enqueue("CONCURRENT_KERNEL", "long", lambda: 200_000.0)  # noqa: E731
    on(2, long)
    long_kernel = machine.devices[2].work_queue.log[-1]
    all_reduce(comms, arrays)
    kernels = [device.work_queue.log[-1] for device in machine.devices]
    assert len({kernel.end_ns for kernel in kernels}) == 1
    assert min(kernel.end_ns for kernel in kernels) > long_kernel.end_ns + 20_000
    assert kernels[0].start_ns < long_kernel.end_ns, "it waits on its device"
    assert {kernel.name for kernel in kernels} == {"ncclDevKernel_AllReduce_Sum_f32_RING_LL"}
    sums = on(1, lambda: arrays[1].__iadd__(1))
    assert machine.devices[1].work_queue.log[-1].start_ns >= kernels[1].end_ns
    assert float(sums[0]) == 1


def test_peer_copy_waits_while_a_ring_uses_the_ports(gpus: Gpus) -> None:
    machine = gpus(2)
    comms = nccl.NcclCommunicator.initAll(2)
    arrays = on_devices([np.zeros(1 << 20, np.float32)] * 2)
    cp.cuda.runtime.deviceEnablePeerAccess(1)
    streams = [on(n, lambda: cp.cuda.Stream(non_blocking=True)) for n in range(2)]
    other = cp.cuda.Stream(non_blocking=True)
    with machine.links.collect_crossings() as crossings:
        in_group(
            comms,
            lambda r, c: c.allReduce(
                arrays[r].data.ptr, arrays[r].data.ptr, 1 << 20, nccl.NCCL_FLOAT, 0, streams[r].ptr
            ),
        )
        cp.cuda.runtime.memcpyPeerAsync(arrays[1].data.ptr, 1, arrays[0].data.ptr, 0, 4096, other.ptr)
    rings_end = [c.end_ns for c in crossings if c.name.startswith("nccl")]
    copy = next(c for c in crossings if c.name.startswith("Memcpy"))
    assert isinstance(copy, Crossing)
    assert copy.start_ns >= rings_end[0]


def test_calls_of_one_kind_in_a_group_share_a_kernel(gpus: Gpus) -> None:
    """As NCCL aggregates them: a broadcast of many arrays costs little more than one of as many bytes."""
    machine = gpus(3)
    comms = nccl.NcclCommunicator.initAll(3)
    sizes = [100, 1, 1000, 37]
    hosts = [np.arange(size, dtype=np.float32) + size for size in sizes]
    arrays = [on_devices([host if rank == 1 else 0 * host for rank in range(3)]) for host in hosts]
    launches = machine.kernel_launches
    with machine.links.collect_crossings() as crossings:
        nccl.groupStart()
        for rank, comm in enumerate(comms):
            for rank_arrays, size in zip(arrays, sizes, strict=True):
                address = rank_arrays[rank].data.ptr
                comm.broadcast(address, address, size, nccl.NCCL_FLOAT, 1, 0)
            comm.allReduce(arrays[0][rank].data.ptr, arrays[0][rank].data.ptr, 100, nccl.NCCL_FLOAT, 0, 0)
        nccl.groupEnd()
    assert machine.kernel_launches == launches + 6
    for rank_arrays, host in zip(arrays, hosts, strict=True):
        for array in rank_arrays:
            np.testing.assert_array_equal(array.get(), host * (3 if rank_arrays is arrays[0] else 1))
    assert [(c.source, c.target, c.size_bytes) for c in crossings if "Broadcast" in c.name] == [
        (1, 2, 4 * sum(sizes)),
        (2, 0, 4 * sum(sizes)),
    ]


def test_ranks_can_group_their_calls_differently(gpus: Gpus) -> None:
    gpus(2)
    uid = nccl.get_unique_id()

    def rank(r: int) -> Any:
        comm = nccl.NcclCommunicator(2, uid, r)
        x = cp.full(4, r + 1.0)
        if r:
            nccl.groupStart()
        for k in range(4):
            comm.allReduce(x.data.ptr + 8 * k, x.data.ptr + 8 * k, 1, nccl.NCCL_DOUBLE, nccl.NCCL_SUM, 0)
        if r:
            nccl.groupEnd()
        return x.get().tolist()

    assert in_threads(2, rank) == [[3, 3, 3, 3]] * 2


# Sends and receives


def test_all_to_all_in_one_group(gpus: Gpus) -> None:
    machine = gpus(4)
    comms = nccl.NcclCommunicator.initAll(4)
    rows = on_devices([10.0 * r + np.arange(4) for r in range(4)])
    columns = on_devices([np.zeros(4)] * 4)
    with machine.links.collect_crossings() as crossings:
        nccl.groupStart()
        for r, c in enumerate(comms):
            for peer in range(4):
                c.send(rows[r].data.ptr + 8 * peer, 1, nccl.NCCL_DOUBLE, peer, 0)
                c.recv(columns[r].data.ptr + 8 * peer, 1, nccl.NCCL_DOUBLE, peer, 0)
        nccl.groupEnd()
    for r in range(4):
        assert columns[r].get().tolist() == [10.0 * peer + r for peer in range(4)]
    assert {(c.source, c.target, c.size_bytes) for c in crossings} == {
        (a, b, 8) for a in range(4) for b in range(4) if a != b
    }
    assert len({c.start_ns for c in crossings}) == 1, "in one go"


def test_all_streams_of_a_group_wait_for_it(gpus: Gpus) -> None:
    machine = gpus()
    comms, (x, y) = nccl.NcclCommunicator.initAll(2), on_devices([np.ones(1 << 16), np.zeros(1 << 16)])
    streams = [[on(r, lambda: cp.cuda.Stream(non_blocking=True)) for _ in range(2)] for r in range(2)]
    half = 1 << 15
    nccl.groupStart()
    for k in range(2):
        comms[0].send(x.data.ptr + 8 * half * k, half, nccl.NCCL_DOUBLE, 1, streams[0][k].ptr)
        comms[1].recv(y.data.ptr + 8 * half * k, half, nccl.NCCL_DOUBLE, 0, streams[1][k].ptr)
    nccl.groupEnd()
    ends = {device.id: device.work_queue.log[-1].end_ns for device in machine.devices}
    for r, array in enumerate((x, y)):
        for stream in streams[r]:
            with cp.cuda.Device(r), stream:
                array += 1
            assert machine.devices[r].work_queue.log[-1].start_ns >= ends[r]
    assert (y.get() == 3).all()


def test_group_of_two_receives_matches_two_single_sends(gpus: Gpus) -> None:
    gpus(2)
    uid = nccl.get_unique_id()

    def rank(r: int) -> Any:
        comm = nccl.NcclCommunicator(2, uid, r)
        x = cp.arange(2.0) if r else cp.full(2, 9.0)
        if r:
            comm.send(x.data.ptr + 8, 1, nccl.NCCL_DOUBLE, 0, 0)
            comm.send(x.data.ptr, 1, nccl.NCCL_DOUBLE, 0, 0)
        else:
            nccl.groupStart()
            for k in range(2):
                comm.recv(x.data.ptr + 8 * k, 1, nccl.NCCL_DOUBLE, 1, 0)
            nccl.groupEnd()
        return x.get().tolist()

    assert in_threads(2, rank)[0] == [1, 0]


def test_comm_split_makes_one_communicator_per_color(gpus: Gpus) -> None:
    gpus(4)
    uid = nccl.get_unique_id()

    def rank(r: int) -> Any:
        whole = nccl.NcclCommunicator(4, uid, r, nccl.NcclConfig(split_share=1))
        part = whole.commSplit(-1 if r == 3 else r % 2, -r)
        if part is None:
            return None
        x = cp.full(1, r, cp.int32)
        part.allReduce(x.data.ptr, x.data.ptr, 1, nccl.NCCL_INT, nccl.NCCL_SUM, 0)
        return int(x[0]), part.rank_id(), part.size()

    assert in_threads(4, rank) == [(2, 1, 2), (1, 0, 1), (2, 0, 2), None]
