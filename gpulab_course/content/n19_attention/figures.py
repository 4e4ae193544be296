"""Figures of notebook 19: traffic of attention, tiles under a mask, parts of a sequence, and pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from gpulab import session
from gpulab.lab.kernels import count
from gpulab.lab.run import launch
from gpulab.views.parts.palette import find_hex
from gpulab.views.tables import Table
from gpulab.words import duration, size
from gpulab_course.content import story
from gpulab_course.content.n18_tensor_cores import versions
from gpulab_course.teach.drawing import draw_arrow, draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture
from virtualgpu.records import KernelCounters
from virtualgpu.records.kernel import SECTOR_BYTES

TILE = 16
ROWS_PER_TENSOR_BLOCK = 64  # rows of a block of tensor.cuh
FLOAT_BYTES = 4


def source(file: str) -> str:
    """Return the CUDA C++ source in one file of the folder ``kernels``."""
    return (resources.files(__package__) / "kernels" / file).read_text(encoding="utf-8")


def forward(d: int, lanes: int, tile: int = TILE) -> Any:
    """Return the kernel of ``forward.cu`` for rows of `d` numbers with `lanes` threads per row."""
    kernel_name = f"forward<{d}, {lanes}, {tile}>"
    module = session.cp().RawModule(
        code=source("forward.cu"), options=("-std=c++17",), name_expressions=[kernel_name]
    )
    return module.get_function(kernel_name)


def tensors(n: int, d: int, seed: int = 19, heads: int = 1, dtype: str = "float32") -> list[Any]:
    """Return the random arrays q, k and v with `n` rows of `d` numbers per head, and an empty result
    array.
    """
    cp = session.cp()
    rng = np.random.default_rng(seed)
    shape = (heads, n, d) if heads > 1 else (n, d)
    arrays = [cp.asarray(rng.standard_normal(shape, dtype=np.float32).astype(dtype)) for _ in range(3)]
    return [*arrays, cp.empty_like(arrays[0])]


def tensor_launch(q: Any, k: Any, v: Any, out: Any, causal: bool = False) -> dict[str, Any]:
    """Return the launch of attention on tensor cores for float16 arrays of the shape (n, d) or (heads, n, d).

    Parameters
    ----------
    q, k, v, out
        Queries, keys, values and the result, in C order; d is 64 or 128.
    causal
        Whether row i sees the keys 0 to i only.
    """
    n, d = q.shape[-2:]
    kernel_name = f"attention<{d}, {str(causal).lower()}>"
    code = versions.source("multiply.cu", "loads.cu") + source("tensor.cuh")
    module = session.cp().RawModule(code=code, options=("-std=c++17",), name_expressions=[kernel_name])
    grid = -(-n // ROWS_PER_TENSOR_BLOCK), q.size // (n * d)
    args = (q, k, v, out, np.int32(n))
    return {"kernel": module.get_function(kernel_name), "grid": grid, "block": (128,), "args": args}


def scores(q: Any, k: Any) -> Any:
    """Compute the scores q kᵀ / √d with NumPy in float64."""
    cp = session.cp()
    wide_q, wide_k = (cp.asnumpy(array).astype(np.float64) for array in (q, k))
    return wide_q @ wide_k.T / np.sqrt(wide_q.shape[1])


def softmax(values: Any) -> Any:
    """Compute the softmax of each row with NumPy."""
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attend(q: Any, k: Any, v: Any) -> Any:
    """Compute attention with NumPy in float64, as the softmax of the scores multiplied by v."""
    return softmax(scores(q, k)) @ session.cp().asnumpy(v).astype(np.float64)


def tile_bytes(counters: KernelCounters, file: str = "forward.cu") -> int:
    """Return how many bytes of the arrays k and v the blocks of a kernel load."""
    lines = source(file).splitlines()
    tile_line_numbers = {
        line_number for line_number, line in enumerate(lines, 1) if "= k[" in line or "= v[" in line
    }
    tile_loads = [
        access
        for access in counters.accesses
        if access.space == "global" and access.line in tile_line_numbers
    ]
    return SECTOR_BYTES * sum(access.sectors for access in tile_loads)


def layer_traffic(n: int, d: int) -> Table:
    """Return a table of the bytes that each kernel of an attention layer with stored scores loads and
    stores.
    """
    layer_steps, _ = story.steps(session.cp(), n=n, d=d, rung="06")
    kernel_rows = []
    for kernel_name in ("matmul_transposed", "softmax", "matmul"):
        kernel_step = layer_steps[kernel_name]
        kernel_step()
        counters = launch(**kernel_step).count().record
        sectors = [counters.total("sectors", "global", access_kind) for access_kind in ("load", "store")]
        kernel_rows.append((kernel_name, *(size(SECTOR_BYTES * sector_count) for sector_count in sectors)))
    scores_text = f"the n × n scores have {size(FLOAT_BYTES * n * n)}"
    title = f"n = {n:,}, d = {d}: {scores_text}; counted on {counters.provenance.device}"
    return Table(title, ("kernel", "loaded by the SMs", "stored"), tuple(kernel_rows))


def memory_table(lengths: Sequence[int], d: int) -> Table:
    """Return a table of the sizes of q, k, v, the result and stored scores for several sequence lengths."""
    length_rows = []
    for n in lengths:
        arrays, stored_scores = FLOAT_BYTES * 4 * n * d, FLOAT_BYTES * n * n
        length_rows.append((f"{n:,}", size(arrays), size(stored_scores), f"{stored_scores / arrays:,.0f} ×"))
    headings = "tokens n", "q, k, v and the result", "scores, if stored", "ratio"
    return Table(f"One head with d = {d}, float32, computed", headings, tuple(length_rows))


def traffic_table(lengths: Sequence[int], heights: Sequence[int], d: int = 64, lanes: int = 4) -> Table:
    """Return a table of the bytes of k and v that tiled attention loads, measured by counters and computed by
    a formula.
    """
    traffic_rows = []
    for tile_rows in heights:
        for n in lengths:
            counted_bytes = count_tiles(n, tile_rows, d, lanes)
            formula_bytes = -(-n // tile_rows) * n * 2 * d * FLOAT_BYTES
            traffic_rows.append(
                (f"{tile_rows}", f"{n:,}", size(counted_bytes), size(formula_bytes), size(FLOAT_BYTES * n))
            )
    title = f"Tiled attention with d = {d}: bytes of k and v that the SMs load"
    headings = "rows in a tile of q", "tokens n", "counted", "formula", "extra memory for training"
    return Table(title, headings, tuple(traffic_rows))


def count_tiles(n: int, height: int, d: int = 64, lanes: int = 4) -> int:
    """Run tiled attention with `height` rows per block, and return the number of bytes of k and v that it
    loads.
    """
    kernel = forward(d, lanes)
    args = (*tensors(n, d), np.int32(n), np.int32(n))
    return tile_bytes(count(kernel, -(-n // height), height * lanes, args).record)


def running_largest(row: Any) -> Picture:
    """Draw the scores of one row, and the running maximum of the scores.

    Parameters
    ----------
    row
        The scores of one row of q with all keys.
    """
    running_maxima = np.maximum.accumulate(row)
    change_positions = np.flatnonzero(np.diff(running_maxima, prepend=-np.inf) > 0)
    figure = Figure(figsize=(7.6, 2.9), dpi=100)
    axes = figure.add_axes((0.1, 0.2, 0.88, 0.72))
    axes.scatter(np.arange(row.size), row, s=8, color=find_hex("other"), label="score")
    axes.step(
        np.arange(row.size), running_maxima, where="post", color=find_hex("accent"), label="largest so far"
    )
    axes.scatter(
        change_positions,
        running_maxima[change_positions],
        s=40,
        color=find_hex("tail"),
        zorder=3,
        label="change: rescale",
    )
    axes.set_xlabel("key")
    axes.set_ylabel("score")
    axes.legend(loc="lower right", fontsize=9, ncols=3)
    axes.spines[["top", "right"]].set_visible(False)
    change_texts = ", ".join(str(int(change_position)) for change_position in change_positions)
    return Picture.of(
        figure,
        f"The scores of one row with {row.size} keys, and the largest score so far. It changes at the keys "
        f"{change_texts}: {len(change_positions)} times.",
    )


def mask_tiles(n: int, height: int, tile: int, window: int | None = None) -> Picture:
    """Draw the tiles of scores that a causal mask leaves empty, full or partly filled.

    Parameters
    ----------
    n
        The number of tokens.
    height, tile
        The rows of a block, and the keys of a tile.
    window
        The number of keys that a row sees; without one, a row sees all earlier keys.
    """
    tile_states = find_tile_states(n, height, tile, window)
    row_count, column_count = tile_states.shape
    figure, axes = make_empty_axes(
        0.45 * row_count + 1.2, (-2.6, column_count + 0.1), (-1.1, row_count + 1.6)
    )
    draw_text(axes, column_count / 2, -0.6, f"tiles of {tile} keys", ha="center")
    colours_by_state = {0: "other-pale", 1: "warn", 2: "good"}
    for i in range(row_count):
        draw_text(axes, -2.55, i + 0.5, f"block {i}")
        for j in range(column_count):
            draw_box(axes, j, i, 1, 1, colours_by_state[int(tile_states[i, j])], edge_colour="bg")
    tile_counts = [int((tile_states == tile_state).sum()) for tile_state in range(3)]
    legend = ((2, "full"), (1, "cut by the mask"), (0, "skipped"))
    for legend_index, (tile_state, state_text) in enumerate(legend):
        x = legend_index * column_count / 3
        draw_box(axes, x, row_count + 0.5, 0.8, 0.8, colours_by_state[tile_state], edge_colour="bg")
        draw_text(axes, x + 1.1, row_count + 0.9, f"{tile_counts[tile_state]} {state_text}")
    window_end = "" if window is None else f", and a window of {window} keys"
    return Picture.of(
        figure,
        f"{row_count} blocks of {height} rows and {column_count} tiles of {tile} keys, with a causal "
        f"mask{window_end}: {tile_counts[2]} tiles are full, {tile_counts[1]} are cut by the mask, and "
        f"{tile_counts[0]} are skipped.",
    )


def find_tile_states(n: int, height: int, tile: int, window: int | None = None) -> Any:
    """Return for each block and tile whether the mask keeps no score (0), some scores (1) or all scores
    (2).
    """
    key_distance = np.arange(n)[:, None] - np.arange(n)
    is_visible = (key_distance >= 0) & (key_distance < (n if window is None else window))
    row_count, column_count = -(-n // height), -(-n // tile)
    tile_states = np.zeros((row_count, column_count), int)
    for i in range(row_count):
        for j in range(column_count):
            tile_mask = is_visible[i * height : (i + 1) * height, j * tile : (j + 1) * tile]
            tile_states[i, j] = 2 if tile_mask.all() else int(tile_mask.any())
    return tile_states


def masked_launch(file: str, n: int, height: int, window: int) -> dict[str, Any]:
    """Return the launch of a kernel in ``masked.cu`` or ``masked_naive.cu``, with `height` rows per block."""
    kernel = session.cp().RawKernel(source(file), "masked")
    args = (*tensors(n, 64), np.int32(n), np.int32(window))
    return {"kernel": kernel, "grid": (-(-n // height),), "block": (height,), "args": args}


def recorded() -> list[dict[str, Any]]:
    """Load the times that were recorded on GPUs with ``python -m tools.recordings.attention``."""
    recording_text = (resources.files(__package__) / "recorded.json").read_text(encoding="utf-8")
    records: list[dict[str, Any]] = json.loads(recording_text)
    return records


def recorded_speeds() -> Table:
    """Return a table of the recorded speeds of attention on CUDA cores, on tensor cores and in PyTorch."""
    record = recorded()[0]
    kernel_rows = []
    kind_of_kernel = {
        kernel_name: kernel_name.partition(", ")[2] for kernel_name in record["tflops"]["d = 64"]
    }
    for kernel_name, kind in kind_of_kernel.items():
        speeds_tflops = [tflops_of_kernel[kernel_name] for tflops_of_kernel in record["tflops"].values()]
        library_shares = [
            tflops_of_kernel[kernel_name] / tflops_of_kernel[f"PyTorch, {kind}"]
            for tflops_of_kernel in record["tflops"].values()
        ]
        is_library = kernel_name.startswith("PyTorch")
        speed_pairs = zip(speeds_tflops, library_shares, strict=True)
        kernel_rows.append(
            (
                kernel_name,
                *(
                    f"{speed_tflops:.1f} TFLOP/s" + ("" if is_library else f", {library_share:.0%}")
                    for speed_tflops, library_share in speed_pairs
                ),
            )
        )
    size_text = f"{record['heads']} heads of {record['tokens']:,} tokens"
    title = f"{size_text}, {_describe_origin(record)}; {record['library']}"
    headings = ("kernel", *(f"{d}, share of PyTorch" for d in record["tflops"]))
    return Table(title, headings, tuple(kernel_rows))


def recorded_times() -> Table:
    """Return a table of the recorded times of this notebook's other kernels."""
    record = recorded()[0]
    n = f"n = {record['tokens']:,}"
    names_and_times_us = [
        (f"causal mask, {n}, {name}", time_us) for name, time_us in record["mask_us"].items()
    ]
    names_and_times_us += [
        (f"decoding, {n}, blocks: {blocks}", time_us) for blocks, time_us in record["decode_us"].items()
    ]
    names_and_times_us += [
        (f"attention layer, {name}", time_us) for name, time_us in record["layer_us"].items()
    ]
    table_rows = tuple((name, duration(1e3 * time_us)) for name, time_us in names_and_times_us)
    return Table(f"One head, {_describe_origin(record)}", ("kernel", "time"), table_rows)


def _describe_origin(record: Mapping[str, Any]) -> str:
    return f"recorded on {record['device']}, {record['date']}, driver {record['driver']}"


def decode_launch(keys: int, blocks: int, warps: int = 4) -> dict[str, Any]:
    """Return the launch of the kernel in ``decode.cu`` for one query, with the keys divided among `blocks`
    blocks.
    """
    cp = session.cp()
    kernel = cp.RawKernel(source("decode.cu"), "decode")
    _, k, v, _ = tensors(keys, 64)
    split_count = blocks * warps
    scratch_arrays = (
        cp.empty(split_count, "float32"),
        cp.empty(split_count, "float32"),
        cp.empty((split_count, 64), "float32"),
    )
    q = cp.asarray(np.random.default_rng(5).standard_normal(64, dtype=np.float32))
    args = (q, k, v, *scratch_arrays, cp.zeros(1, "uint32"), cp.empty(64, "float32"), np.int32(keys))
    return {"kernel": kernel, "grid": (blocks,), "block": (32 * warps,), "args": args}


def parts(row: Any, splits: int) -> Picture:
    """Draw a row of scores in several parts, with the maxima and the sums of the parts and of the row.

    Parameters
    ----------
    row
        The scores of one query.
    splits
        The number of parts.
    """
    scores_by_part = np.array_split(np.asarray(row, float), splits)
    part_maxima = [float(part_scores.max()) for part_scores in scores_by_part]
    part_sums = [float(np.exp(part_scores - part_scores.max()).sum()) for part_scores in scores_by_part]
    row_maximum = max(part_maxima)
    row_sum = sum(
        part_sum * np.exp(part_maximum - row_maximum)
        for part_maximum, part_sum in zip(part_maxima, part_sums, strict=True)
    )
    figure, axes = make_empty_axes(2.6, (-2.6, 12.1), (-0.3, 5.6))
    part_width = 12 / splits
    for y, row_label in ((0.5, "scores"), (2.2, "of each part"), (4.8, "of all")):
        draw_text(axes, -2.55, y, row_label)
    for part_index, (part_scores, part_maximum, part_sum) in enumerate(
        zip(scores_by_part, part_maxima, part_sums, strict=True)
    ):
        x = part_index * part_width
        scores_text = "  ".join(f"{score:.0f}" for score in part_scores)
        draw_box(axes, x + 0.1, 0, part_width - 0.2, 1, "accent-2", scores_text)
        draw_box(
            axes,
            x + 0.1,
            1.6,
            part_width - 0.2,
            1.2,
            "warn",
            f"largest {part_maximum:.0f}\nsum {part_sum:.3f}",
            fontsize=9,
        )
        draw_text(
            axes,
            x + part_width / 2,
            3.3,
            f"× exp({part_maximum:.0f} − {row_maximum:.0f})",
            ha="center",
            fontsize=9,
        )
        draw_arrow(axes, (x + part_width / 2, 3.6), (6 + 0.6 * (part_index - (splits - 1) / 2), 4.3), "muted")
    draw_box(axes, 3.5, 4.3, 5, 1, "good", f"largest {row_maximum:.0f}, sum {row_sum:.3f}")
    parts_text = "; ".join(
        f"largest {m:.0f}, sum {s:.3f}" for m, s in zip(part_maxima, part_sums, strict=True)
    )
    return Picture.of(
        figure,
        f"{len(row)} scores in {splits} parts. Each part has its own pair: {parts_text}. Each sum is "
        f"multiplied by exp of its largest score minus {row_maximum:.0f}, and then they are added: "
        f"{row_sum:.3f}.",
    )


def page_table(lengths: Sequence[int], page: int, seed: int = 2) -> Picture:
    """Draw sequences of tokens, their rows of the page table, and the pages of the cache.

    Parameters
    ----------
    lengths
        The number of tokens of each sequence.
    page
        The number of tokens in a page.
    seed
        Seed of the random order of pages.
    """
    page_counts = [-(-length // page) for length in lengths]
    page_count = sum(page_counts) + 2
    free_pages = list(np.random.default_rng(seed).permutation(page_count))
    page_table_rows = [
        [int(free_pages.pop()) for _ in range(row_page_count)] for row_page_count in page_counts
    ]
    colour_names = ("accent-2", "warn", "good")
    max_page_count = max(page_counts)
    figure, axes = make_empty_axes(3.4, (-3.2, page_count * 1.3 + 0.2), (-0.9, len(lengths) * 1.1 + 3.4))
    draw_text(axes, 0, -0.5, "page table: one row per sequence")
    cache_y = len(lengths) * 1.1 + 1.5
    owner_and_tokens: dict[int, tuple[int, int]] = {}
    for sequence_index, row_pages in enumerate(page_table_rows):
        draw_text(axes, -3.15, 1.1 * sequence_index + 0.45, f"{lengths[sequence_index]} tokens")
        for page_index in range(max_page_count):
            page_text = str(row_pages[page_index]) if page_index < len(row_pages) else "−"
            colour_name = colour_names[sequence_index % 3] if page_index < len(row_pages) else "panel"
            draw_box(axes, 1.3 * page_index, 1.1 * sequence_index, 1.2, 0.9, colour_name, page_text)
            if page_index < len(row_pages):
                owner_and_tokens[row_pages[page_index]] = (
                    sequence_index,
                    min(page, lengths[sequence_index] - page_index * page),
                )
    draw_text(axes, -3.15, cache_y + 0.5, "cache")
    for page_number in range(page_count):
        sequence_index, token_count = owner_and_tokens.get(page_number, (0, 0))
        x = 1.3 * page_number
        draw_box(axes, x, cache_y, 1.2, 1, "panel")
        if token_count:
            draw_box(axes, x, cache_y, 1.2 * token_count / page, 1, colour_names[sequence_index % 3])
        draw_text(axes, x + 0.6, cache_y + 1.4, f"{page_number}", ha="center", fontsize=9)
    pages_text = "; ".join(
        f"{length} tokens in pages {row_pages}"
        for length, row_pages in zip(lengths, page_table_rows, strict=True)
    )
    return Picture.of(
        figure,
        f"A cache of {page_count} pages of {page} tokens, and a page table with one row per sequence: "
        f"{pages_text}. Only the last page of a sequence is partly used.",
    )
