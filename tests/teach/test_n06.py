"""What notebook 06 says of the race holds on other GPUs than the one that it was run on."""

from __future__ import annotations

import numpy as np
import pytest

import gpulab as gl
from gpulab_course.content import kernels
from gpulab_course.content.n06_patterns import figures


@pytest.mark.parametrize("device", ["virtual:T4", "virtual:H100"])
def test_each_version_is_faster_and_the_last_is_as_fast_as_a_copy(device: str) -> None:
    gl.use_device(device)
    race = figures.race(elements=1 << 22)
    times = [lap.busy_ns for lap in race.record]
    assert times == sorted(times, reverse=True)
    assert figures.among("06-race", race.of_the_copy(-1), (0.3, 0.8)) == "all of it, more or less"
    assert [lap.limiter for lap in race.record][:2] == ["idle lanes", "bank conflicts"]


@pytest.mark.parametrize(("n", "threads"), [(128, 32), (256, 32), (256, 128)])
def test_attention_in_tiles_is_right_and_each_block_reads_all_of_k_and_v(n: int, threads: int) -> None:
    counts, arrays = figures.attend(n, threads)
    q, k, v, out = (array.get().astype(np.float64) for array in arrays)
    weights = np.exp(q @ k.T)
    assert np.allclose(out, weights / weights.sum(axis=1, keepdims=True) @ v, atol=1e-5)
    assert figures.tile_bytes(counts) == (n // threads) * (k.size + v.size) * 4
    # From DRAM each comes once, and q: no scores.
    assert counts.caches is not None
    assert counts.caches.dram_read_bytes == 3 * q.size * 4


@pytest.mark.parametrize("device", ["virtual:T4", "virtual:A100"])
def test_online_softmax_reads_fewer_sectors_and_no_fewer_bytes_of_dram(device: str) -> None:
    gl.use_device(device)
    headings = (table := figures.passes()).headings
    rows = table.rows
    sectors = headings.index("sectors")
    dram = headings.index("read from DRAM")
    three, online, once = (int(row[sectors].replace(",", "")) for row in rows)
    assert (3 * three, 2 * three) == (4 * online, 4 * once)  # reads and the one write of a row
    assert len({row[dram] for row in rows}) == 1


@pytest.mark.parametrize("series", ["reduction", "scan", "histogram", "stencil", "softmax"])
def test_a_listing_shows_the_whole_file_with_each_kernel_under_its_name(series: str) -> None:
    opened = kernels.ladder(series).best.name
    listing = figures.listing(series, opened)
    parts = {rung.name: code for rung, code in listing.parts}
    assert list(parts) == [rung.name for rung in kernels.ladder(series).rungs]
    assert all(f"{name}(const" in code for name, code in parts.items())
    assert "".join("".join(parts.values()).split()) == "".join(kernels.source(f"{series}.cu").split())
    assert listing._repr_html_().count("<details open><summary><code>" + opened) == 1
