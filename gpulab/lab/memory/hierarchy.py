"""Measurement of the memory hierarchy: latency by pointer chasing, bandwidth by kernels that read one level.

The same kernels run on a real GPU and, with less data and a modelled clock, on a virtual one. Times are
measured between two events. Where the cost of a launch would matter, the time is the difference between a
long and a short launch. The methods follow nvbandwidth (several copies in a row between two events, the
median of a few rounds) and the usual pointer chase (Mei and Chu, "Dissecting GPU memory hierarchy through
microbenchmarking").
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab import session
from gpulab.words import size
from virtualgpu.errors import GpulabError, UnknownDeviceError
from virtualgpu.records import DeviceInfo, Provenance
from virtualgpu.records.kernel import LINE_BYTES
from virtualgpu.records.memory import CacheCapacity, LevelBandwidth, MemoryLadder

VECTOR_BYTES = 16
WARM_UP_LOADS = 8192  # more lines than any L1 holds
CHASE_METHOD = (
    "One thread follows a random cycle of addresses that are 128 bytes apart. Each load "
    "needs the result of the previous load, and the addresses have no regular pattern. "
    "The working set is read once before the measurement. The latency is computed from "
    "the difference between two chains of different lengths, so the time of the launch "
    "itself does not count."
)
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _MeasurementSizes:
    """The sizes of the measurements: large on a real GPU, small on a virtual one, which runs on the CPU."""

    repeats: int
    max_bytes: int
    steps_per_octave: int
    chain_loads: int
    loop_rounds: int
    stream_bytes: int
    copy_count: int
    blocks_per_sm: int
    window_lines: int | None = None
    """Consecutive lines that a chain visits, in random order, before others; None: all lines."""


_REAL_GPU_SIZES = _MeasurementSizes(3, 1 << 30, 2, 4096, 2048, 1 << 30, 8, 4)
_WINDOW_LINES = 1 << 13  # 1 MiB: a chain through more would wait for the memory of the computer


def measure_hierarchy() -> MemoryLadder:
    """Measure the memory hierarchy of the device in use. On a virtual GPU, the values are modelled.

    Returns
    -------
    MemoryLadder
        The results for working sets up to 1 GiB or a quarter of the free memory. On a virtual GPU, the
        largest working set is twice the size of L2.
    """
    info = session.backend().device_info()
    is_virtual = session.which_device().kind == "virtual"
    largest_set_bytes = 1 << (2 * info.l2_bytes - 1).bit_length()
    measurement_sizes = _REAL_GPU_SIZES
    if is_virtual:
        measurement_sizes = _MeasurementSizes(
            1, largest_set_bytes, 1, info.l2_bytes // 40, 32, 2 * largest_set_bytes, 3, 1, _WINDOW_LINES
        )
    bench = _Bench(info, measurement_sizes)
    with session.show_steps(bench.working_set_bytes.size + 1, "gl.memory_hierarchy") as begin_step:
        latencies_ns = bench.measure_latencies(begin_step)
        begin_step()
        bandwidths = tuple(bench.measure_bandwidths())
    return MemoryLadder(
        info.as_virtual if is_virtual else Provenance("measured", info.name),
        bench.working_set_bytes,
        latencies_ns,
        CHASE_METHOD,
        bandwidths,
        tuple(_find_capacities(info)),
    )


class _Bench:
    """The kernels of the measurements, with functions that measure their time."""

    def __init__(self, info: DeviceInfo, measurement_sizes: _MeasurementSizes) -> None:
        self.cp = session.cp()
        self.info = info
        self.measurement_sizes = measurement_sizes
        kernel_code = (resources.files("gpulab.lab.memory") / "ladder.cu").read_text(encoding="utf-8")
        self.kernels = {
            name: self.cp.RawKernel(kernel_code, name)
            for name in ("chase", "registers", "shared_memory", "l1", "reads")
        }
        self.out, self.end = self.cp.zeros(1, self.cp.float32), self.cp.zeros(1, self.cp.uint64)
        free_bytes = self.cp.cuda.runtime.memGetInfo()[0]
        available_bytes = 1 << (int(free_bytes // 4).bit_length() - 1)
        if available_bytes < MIB:
            raise GpulabError(
                "The GPU has less than 4 MiB of free memory, which is too little for gl.memory_hierarchy. "
                "Free some memory first."
            )
        self.max_bytes = min(measurement_sizes.max_bytes, available_bytes)
        self.stream_bytes = min(measurement_sizes.stream_bytes, available_bytes)
        log2_sizes = np.arange(10, np.log2(self.max_bytes) + 0.01, 1 / measurement_sizes.steps_per_octave)
        # Working sets of the chains, in bytes.
        self.working_set_bytes = np.unique((2**log2_sizes).astype(np.int64) // LINE_BYTES * LINE_BYTES)

    def measure_ns(self, run: Callable[[], Any], prepare: Callable[[], Any] | None = None) -> float:
        """Return the median time of the function `run` in ns, measured with CUDA events. The time of the
        function `prepare` is not included.
        """
        begin_event = self.cp.cuda.Event()
        end_event = self.cp.cuda.Event()
        times_ns = []
        for _ in range(self.measurement_sizes.repeats):
            if prepare is not None:
                prepare()
            self.cp.cuda.Device().synchronize()  # so that every launch finds the GPU idle
            begin_event.record()
            run()
            end_event.record()
            end_event.synchronize()
            times_ns.append(1e6 * self.cp.cuda.get_elapsed_time(begin_event, end_event))
        return float(statistics.median(times_ns))

    def measure_difference_ns(
        self,
        run: Callable[[int], Any],
        long_size: int,
        short_size: int,
        prepare: Callable[[], Any] | None = None,
    ) -> float:
        """Return the time in ns by which ``run`` takes longer with ``long_size`` than with ``short_size``.
        The difference does not contain the launch overhead.
        """
        longer_ns, shorter_ns = (
            self.measure_ns(partial(run, iteration_count), prepare)
            for iteration_count in (long_size, short_size)
        )
        return longer_ns - shorter_ns

    # --- latency ------------------------------------------------------------------------------------
    def measure_latencies(self, begin_step: Callable[[], None]) -> npt.NDArray[np.float64]:
        """Return the latency of one dependent load in ns for each size of the working set."""
        rng = np.random.default_rng(1)
        chain_array = self.cp.empty(int(self.working_set_bytes[-1]) // 8, self.cp.uint64)
        latencies_ns = []
        for size_bytes in self.working_set_bytes:
            begin_step()
            latencies_ns.append(self._measure_latency(chain_array, int(size_bytes) // LINE_BYTES, rng))
        return np.array(latencies_ns)

    def _measure_latency(self, chain_array: Any, line_count: int, rng: np.random.Generator) -> float:
        cp = self.cp
        chase_kernel = self.kernels["chase"]
        start_address = int(chain_array.data.ptr)
        shuffle_windows = np.arange(line_count, dtype=np.uint64).reshape(
            -1, min(line_count, self.measurement_sizes.window_lines or line_count)
        )
        line_offsets = rng.permuted(shuffle_windows, axis=1).ravel() * np.uint64(LINE_BYTES)
        next_lines = np.empty(line_count, np.uint64)
        next_lines[line_offsets // LINE_BYTES] = np.roll(line_offsets, -1) + np.uint64(start_address)
        chain_array[: line_count * 16 : 16] = cp.asarray(next_lines)
        warm_up_count = min(line_count, WARM_UP_LOADS)
        exceeds_l2 = line_count * LINE_BYTES > self.info.l2_bytes
        load_count = (
            self.measurement_sizes.chain_loads
            if exceeds_l2
            else min(self.measurement_sizes.chain_loads, 4096)
        )

        def read_working_set() -> None:
            self._launch_reads(chain_array, line_count * LINE_BYTES // VECTOR_BYTES, 1)

        def chase_pointers(count: int) -> None:
            chase_kernel((1,), (1,), (chain_array, self.end, np.int32(warm_up_count), np.int32(count)))

        chase_pointers(16)
        return self.measure_difference_ns(chase_pointers, 16 + load_count, 16, read_working_set) / load_count

    def _launch_reads(self, array: Any, vector_count: int, repeats: int) -> None:
        grid = max(1, min(8 * self.info.sm_count, vector_count // 256))
        args = (array, self.out, np.int64(vector_count), np.int32(repeats))
        self.kernels["reads"]((grid,), (256,), args)

    # --- bandwidth ----------------------------------------------------------------------------------
    def measure_bandwidths(self) -> Iterator[LevelBandwidth]:
        """Return the bandwidth of each memory level, from registers to device memory."""
        info = self.info
        sm_count = self.info.sm_count
        repeats = self.measurement_sizes.loop_rounds
        clock_ghz = (info.boost_clock_mhz or 0) / 1e3
        published_rates = _find_published_rates(info)
        register_gbps = 16 * (info.fp32_lanes_per_sm * sm_count * clock_ghz)
        warp_gbps = 128 * sm_count * clock_ghz
        guide_name = "CUDA C++ Programming Guide and boost clock"

        def measure_loop(kernel: str, *args: Any, loads: int) -> float:
            grid = self.measurement_sizes.blocks_per_sm * sm_count
            block = 512
            if kernel == "l1":
                args = (self.cp.zeros((grid, 2048 * 4), self.cp.uint32), *args)

            def run(count: int) -> None:
                self.kernels[kernel]((grid,), (block,), (*args, np.int32(count)))

            run(2)
            loop_ns = self.measure_difference_ns(run, 2 * repeats, repeats)
            # Four registers are 16 bytes, too.
            gbps: float = grid * block * loads * VECTOR_BYTES * repeats / loop_ns
            return gbps

        gbps = measure_loop("registers", self.out, np.float32(0.5), np.float32(1), loads=64)
        yield LevelBandwidth(
            "registers",
            gbps,
            "All SMs multiply and add: each lane reads three registers and writes one.",
            register_gbps or None,
            f"four operands per lane and clock: {guide_name}",
        )
        gbps = measure_loop("shared_memory", self.out, loads=4)
        yield LevelBandwidth(
            "shared memory",
            gbps,
            "Every warp reads 16 bytes per lane without bank conflicts.",
            warp_gbps or None,
            f"32 banks of 4 bytes per clock: {guide_name}",
        )
        gbps = measure_loop("l1", self.out, loads=4)
        yield LevelBandwidth(
            "L1",
            gbps,
            "Each block reads its own 32 KiB repeatedly.",
            warp_gbps or None,
            f"128 bytes per clock: {guide_name}",
        )
        yield self._measure_l2()
        yield from self._measure_memory(published_rates)
        yield from self._measure_host(published_rates)
        yield self._measure_peer(published_rates)

    def _measure_l2(self) -> LevelBandwidth:
        size_bytes = 1 << ((self.info.l2_bytes // 4).bit_length() - 1)
        array = self.cp.zeros(size_bytes // 4, self.cp.float32)
        repeats = max(16, self.measurement_sizes.loop_rounds // 4)
        vector_count = size_bytes // VECTOR_BYTES
        self._launch_reads(array, vector_count, 1)
        loop_ns = self.measure_difference_ns(
            partial(self._launch_reads, array, vector_count), 2 * repeats, repeats
        )
        description = f"All SMs read the same {size(size_bytes)} repeatedly, and the loads bypass L1."
        return LevelBandwidth("L2", size_bytes * repeats / loop_ns, description)

    def _measure_memory(
        self, published_rates: dict[str, tuple[float | None, str]]
    ) -> Iterator[LevelBandwidth]:
        element_count = self.stream_bytes // 4
        array = self.cp.zeros(element_count, self.cp.float32)
        vector_count = array.nbytes // VECTOR_BYTES
        time_ns = self.measure_difference_ns(partial(self._launch_reads, array, vector_count), 2, 1)
        description = (
            f"All SMs read {size(array.nbytes)}. The time is the difference between reading "
            "twice and reading once."
        )
        yield LevelBandwidth("memory, read", array.nbytes / time_ns, description, *published_rates["memory"])
        half_bytes = array.nbytes // 2
        source_half = array[: element_count // 2]
        target_half = array[element_count // 2 :]
        time_ns = self._measure_copies_ns(
            lambda: target_half.data.copy_from_device_async(source_half.data, half_bytes)
        )
        yield LevelBandwidth(
            "memory, copy",
            2 * half_bytes / time_ns,
            f"cudaMemcpy of {size(half_bytes)} from the device to itself; bytes read and written count.",
            *published_rates["memory"],
        )

    def _measure_host(self, published_rates: dict[str, tuple[float | None, str]]) -> Iterator[LevelBandwidth]:
        size_bytes = self.stream_bytes // 4
        pinned_array = np.frombuffer(self.cp.cuda.alloc_pinned_memory(size_bytes), np.uint8, size_bytes)
        array = self.cp.zeros(size_bytes, self.cp.uint8)
        stream = self.cp.cuda.get_current_stream()
        description = f"Copies of {size(size_bytes)} from pinned memory by a copy engine."
        time_ns = self._measure_copies_ns(lambda: array.set(pinned_array, stream=stream))
        yield LevelBandwidth("host to device", size_bytes / time_ns, description, *published_rates["host"])
        time_ns = self._measure_copies_ns(lambda: array.get(stream=stream, out=pinned_array, blocking=False))
        yield LevelBandwidth(
            "device to host",
            size_bytes / time_ns,
            description.replace(" from", " to"),
            *published_rates["host"],
        )

    def _measure_peer(self, published_rates: dict[str, tuple[float | None, str]]) -> LevelBandwidth:
        size_bytes = self.stream_bytes // 4
        description = f"Copies of {size(size_bytes)} to another GPU, with peer access if the GPUs have it."
        device_id = self.cp.cuda.Device().id
        gpu_count = self.cp.cuda.runtime.getDeviceCount()
        if gpu_count == 1:
            return LevelBandwidth("peer", None, description, *published_rates["peer"], why="there is one GPU")
        source_array = self.cp.zeros(size_bytes, self.cp.uint8)
        with self.cp.cuda.Device((device_id + 1) % gpu_count):
            target_array = self.cp.zeros(size_bytes, self.cp.uint8)
        with self.cp.cuda.Stream(non_blocking=True) as stream:
            time_ns = self._measure_copies_ns(
                lambda: target_array.data.copy_from_device_async(source_array.data, size_bytes, stream)
            )
        return LevelBandwidth("peer", size_bytes / time_ns, description, *published_rates["peer"])

    def _measure_copies_ns(self, submit_copy: Callable[[], Any]) -> float:
        """Return the mean time per copy in ns, measured over several copies in a row."""

        def run() -> None:
            for _ in range(self.measurement_sizes.copy_count):
                submit_copy()

        submit_copy()
        return self.measure_ns(run) / self.measurement_sizes.copy_count


def _find_published_rates(info: DeviceInfo) -> dict[str, tuple[float | None, str]]:
    """Return published rates of memory, the bus to the host and links to GPUs, in GB/s per direction."""
    with suppress(UnknownDeviceError):
        info = session.find_table_info(info.name)
    document_name = info.provenance.detail if info.provenance.source == "published" else "the driver's clocks"
    link_gbps = info.nvlink_gbps / 2 if info.nvlink_gbps else info.pcie_gbps
    published_gbps = {"memory": info.memory_bandwidth_gbps, "host": info.pcie_gbps, "peer": link_gbps}
    return {name: (gbps, document_name) for name, gbps in published_gbps.items()}


def _find_capacities(info: DeviceInfo) -> Iterator[CacheCapacity]:
    guide_name = "CUDA C++ Programming Guide: L1 and shared memory together"
    yield CacheCapacity("L1", session.compute_l1_bytes(info), guide_name)
    yield CacheCapacity("L2", info.l2_bytes, info.provenance.detail or "the driver")
