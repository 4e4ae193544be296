"""Claims of notebooks 06a and 06b are also true on other GPUs; their pictures."""

from __future__ import annotations

import numpy as np
import pytest

import gpulab as gl
from gpulab_course.content import kernels
from gpulab_course.content.n06_patterns import figures, pictures


@pytest.mark.parametrize("device", ["virtual:T4", "virtual:H100"])
def test_reduction_versions_get_faster_up_to_the_speed_of_a_copy(device: str) -> None:
    gl.use_device(device)
    race = figures.race(elements=1 << 22)
    times = [lap.busy_ns for lap in race.record]
    assert times == sorted(times, reverse=True)
    assert figures.among("06-race", race.of_the_copy(-1), (0.3, 0.8)) == "all of it, more or less"
    assert [lap.limiter for lap in race.record][:2] == ["idle lanes", "bank conflicts"]


@pytest.mark.parametrize(("n", "threads"), [(128, 32), (256, 32), (256, 128)])
def test_tiled_attention_is_correct_and_each_block_reads_all_k_and_v(n: int, threads: int) -> None:
    counts, arrays = figures.attend(n, threads)
    q, k, v, out = (array.get().astype(np.float64) for array in arrays)
    weights = np.exp(q @ k.T)
    assert np.allclose(out, weights / weights.sum(axis=1, keepdims=True) @ v, atol=1e-5)
    assert figures.tile_bytes(counts) == (n // threads) * (k.size + v.size) * 4
    # q, k and v are read once from DRAM. Scores are not read.
    assert counts.caches is not None
    assert counts.caches.dram_read_bytes == 3 * q.size * 4


@pytest.mark.parametrize("device", ["virtual:T4", "virtual:A100"])
def test_online_softmax_reads_fewer_sectors_but_equal_dram_bytes(device: str) -> None:
    gl.use_device(device)
    headings = (table := figures.passes()).headings
    rows = table.rows
    sectors = headings.index("sectors")
    dram = headings.index("read from DRAM")
    three, online, once = (int(row[sectors].replace(",", "")) for row in rows)
    assert (3 * three, 2 * three) == (4 * online, 4 * once)  # reads and the one write of a row
    assert len({row[dram] for row in rows}) == 1


@pytest.mark.parametrize("series", ["reduction", "scan", "histogram", "stencil", "softmax"])
def test_a_listing_shows_the_whole_file_in_named_kernel_sections(series: str) -> None:
    opened = kernels.ladder(series).best.name
    listing = figures.listing(series, opened)
    parts = {rung.name: code for rung, code in listing.parts}
    assert list(parts) == [rung.name for rung in kernels.ladder(series).rungs]
    assert all(f"{name}(const" in code for name, code in parts.items())
    assert "".join("".join(parts.values()).split()) == "".join(kernels.source(f"{series}.cu").split())
    assert listing._repr_html_().count("<details open><summary><code>" + opened) == 1


def test_the_steps_of_a_scan_end_with_the_prefix_sums() -> None:
    values = [3, 1, 7, 0, 4, 1, 6, 3]
    caption = repr(pictures.scan_steps(values))
    assert caption.startswith("3 steps for 8 numbers.")
    assert caption.endswith(f" At the end: {', '.join(map(str, np.cumsum(values)))}.")


@pytest.mark.parametrize(("known", "terms"), [(2, "4 + 1 + 15"), (0, "4 + 1 + 8 + 2 + 5"), (4, "20")])
def test_decoupled_look_back_sums_all_previous_tiles(known: int, terms: str) -> None:
    caption = repr(pictures.look_back([5, 2, 8, 1, 4, 6], known))
    assert f"to tile {known}, the first one with a sum from the start" in caption
    assert caption.endswith(f"adds {terms} = 20.")
    assert sum(map(int, terms.split(" + "))) == 20


def test_private_bins_add_up_to_the_histogram() -> None:
    values = [0, 2, 1, 2, 2, 0, 3, 2]
    caption = repr(pictures.private_bins(values, blocks=2))
    assert "Each block counts its 4 elements in 4 bins" in caption
    total = ", ".join(f"{count} times {value}" for value, count in enumerate(np.bincount(values)))
    assert caption.endswith(f"global memory: {total}.")
