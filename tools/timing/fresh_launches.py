"""Programs that test the time model after its development: tensor cores, asynchronous copies and chains.

Their author had not read the model's code, and the programs were recorded before any of them was compared
with the model. Each program has a check, which compares its result with NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tools.timing.launches import Arguments
from tools.timing.tensor_launches import Array, Check, Program

Maker = Callable[[Any], Any]
ENTRY = np.dtype([("key", np.int32), ("value", np.int32), ("next", np.int32), ("unused", np.int32)])
TYPES = {"bfloat16": ("bf16", 2), "float16": ("half", 2), "float32": ("float", 4), "int8": ("char", 1)}
# The largest error of a product by the formats of its factors and its result.
TOLERANCES = {("float16", "float16"): 6e-4, ("float32", "float32"): 1e-3}


# --- arguments and checks ------------------------------------------------------------------------
def _make_random_array(dtype: str, *shape: int, seed: int = 0, triangular: bool = False) -> Maker:
    """Return a maker of a random array; ``bfloat16`` is stored as the upper half of each float's bits."""

    def make(cp: Any) -> Any:
        random = np.random.default_rng(seed)
        if dtype == "int8":
            return cp.asarray(random.integers(-9, 10, shape, dtype=np.int8))
        values = random.random(shape, np.float32) - np.float32(0.5)
        if triangular:
            values = np.tril(values)
        if dtype == "bfloat16":
            return cp.asarray((values.view(np.uint32) + np.uint32(0x8000) >> np.uint32(16)).astype(np.uint16))
        return cp.asarray(values.astype(dtype))

    return make


def _make_zeros(dtype: str, *shape: int) -> Maker:
    return lambda cp: cp.zeros(shape, "uint16" if dtype == "bfloat16" else dtype)


def _make_arguments(*makers: Maker | int) -> Arguments:
    """Return a function that creates arrays with the given makers, and passes integers unchanged."""
    return lambda cp: tuple(np.int32(maker) if isinstance(maker, int) else maker(cp) for maker in makers)


def _to_floats(array: Array) -> Array:
    """Return the values of an array as floats; 16-bit integers are the bits of ``bfloat16`` values."""
    if array.dtype == np.uint16:
        return np.asarray((array.astype(np.uint32) << np.uint32(16)).view(np.float32))
    return array.astype(np.float32)


def _multiply_by_rows(a: Array, b: Array, *_: Any) -> Array:
    return np.asarray(_to_floats(a) @ _to_floats(b))


def _multiply_by_columns(a: Array, b: Array, *_: Any) -> Array:
    return np.asarray(_to_floats(a) @ np.swapaxes(_to_floats(b), -1, -2))


def _compute_gelu(a: Array, b: Array, _: Any, bias: Array, *sizes: Any) -> Array:
    x = _multiply_by_columns(a, b) + _to_floats(bias)
    result: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


def _add_residual(a: Array, b: Array, _: Any, residual: Array, *sizes: Any) -> Array:
    return _multiply_by_columns(a, b) + _to_floats(residual)


def _quantize(a: Array, b: Array, *_: Any) -> Array:
    return np.asarray(np.clip((_multiply_by_columns(a, b).astype(np.int64) + 128) >> 8, -128, 127))


def _multiply_parts(a: Array, b: Array, parts: Array, *_: Any) -> Array:
    """Return the products of each part of k."""
    left_parts, right_parts = (
        np.swapaxes(_to_floats(array).reshape(len(array), len(parts), -1), 0, 1) for array in (a, b)
    )
    return _multiply_by_columns(left_parts, right_parts)


RESULTS = {
    "GELU": _compute_gelu,
    "RESIDUAL": _add_residual,
    "QUANTIZE": _quantize,
    "PARTIAL": _multiply_parts,
}


# --- products with mma.sync ----------------------------------------------------------------------
def _make_product(
    title: str,
    dtype: str,
    sizes: tuple[int, int, int],
    tile: tuple[int, int, int, int],
    stages: int,
    end: str = "STORE",
    *,
    by_rows: bool = False,
    batch: int = 1,
    splits: int = 1,
) -> Program:
    """Return a product of m x n x k; `tile` is the size of the tile of a block and of a warp."""
    m, n, k = sizes
    block_rows, block_columns, warp_rows, warp_columns = tile
    in_type, size_bytes = TYPES[dtype]
    sum_dtype = "int32" if dtype == "int8" else "float32"
    out_dtype = dtype if end in ("GELU", "RESIDUAL", "QUANTIZE") else sum_dtype
    extra_shape = {"GELU": (n,), "RESIDUAL": (m, n)}.get(end, (8,))
    product_count = splits if end == "PARTIAL" else batch
    leading_shape = () if product_count == 1 else (product_count,)
    in_leading_shape = () if batch == 1 else (batch,)
    chunk_elements = 16 // size_bytes
    b_size = (
        4 * chunk_elements * (block_columns + chunk_elements)
        if by_rows
        else 5 * chunk_elements * block_columns
    )
    return Program(
        title,
        "fresh product",
        "fresh_mma",
        f"product<{in_type}, {', '.join(map(str, tile))}, {stages}, {end}, {str(by_rows).lower()}>",
        (-(-n // block_columns), -(-m // block_rows), max(batch, splits)),
        (block_rows // warp_rows * (block_columns // warp_columns) * 32,),
        _make_arguments(
            _make_random_array(dtype, *in_leading_shape, m, k, seed=1, triangular=end == "TRIANGULAR"),
            _make_random_array(dtype, *in_leading_shape, *((k, n) if by_rows else (n, k)), seed=2),
            _make_zeros(out_dtype, *leading_shape, m, n),
            _make_random_array(dtype, *extra_shape, seed=3),
            m,
            n,
            k,
        ),
        stages * (5 * chunk_elements * block_rows + b_size) * size_bytes,
        check=Check(
            2,
            RESULTS.get(end, _multiply_by_rows if by_rows else _multiply_by_columns),
            TOLERANCES.get((dtype, out_dtype), 1e-5),
        ),
    )


def _make_products() -> Iterator[Program]:
    half_dtype = "float16"
    yield _make_product("FP16, 2 stages, 64 x 64", half_dtype, (1024, 1024, 1024), (64, 64, 32, 32), 2)
    yield _make_product("FP16, 3 stages, 128 x 128", half_dtype, (2048, 1024, 1024), (128, 128, 64, 32), 3)
    yield _make_product(
        "FP16, 4 stages, 128 x 128, 4 warps", half_dtype, (2304, 2304, 1536), (128, 128, 64, 64), 4
    )
    yield _make_product("FP16, ragged, 1000", half_dtype, (1000, 1000, 1000), (64, 128, 32, 64), 3)
    yield _make_product(
        "FP16 by rows, 96 x 64", half_dtype, (1536, 1024, 768), (96, 64, 48, 32), 3, by_rows=True
    )
    yield _make_product("BF16, 4 stages, 128 x 64", "bfloat16", (2048, 1024, 1024), (128, 64, 32, 32), 4)
    yield _make_product("TF32, 2 stages, 128 x 64", "float32", (1024, 1024, 1024), (128, 64, 32, 32), 2)
    yield _make_product("TF32, 4 stages, ragged", "float32", (900, 700, 500), (64, 64, 32, 32), 4)
    yield _make_product("INT8, 3 stages, 128 x 128", "int8", (3072, 3072, 1024), (128, 128, 64, 32), 3)
    yield _make_product(
        "INT8, quantized, 64 x 64", "int8", (512, 1024, 4096), (64, 64, 32, 16), 2, "QUANTIZE"
    )
    yield _make_product("FP16, bias and GELU", half_dtype, (1024, 3072, 768), (128, 128, 32, 64), 3, "GELU")
    yield _make_product("FP16, residual", half_dtype, (1024, 768, 3072), (64, 128, 32, 64), 4, "RESIDUAL")
    yield _make_product(
        "FP16, gradient of weights, split by atomics",
        half_dtype,
        (256, 256, 32768),
        (128, 128, 64, 32),
        3,
        "ATOMIC",
        splits=64,
    )
    yield _make_product(
        "FP16, 16 tokens, split by atomics",
        half_dtype,
        (16, 4096, 4096),
        (16, 64, 16, 16),
        4,
        "ATOMIC",
        splits=4,
    )
    yield _make_product(
        "BF16, 32 tokens, parts", "bfloat16", (32, 2048, 8192), (32, 128, 32, 32), 4, "PARTIAL", splits=8
    )
    yield _make_product("FP16, tall, 65536 x 64", half_dtype, (65536, 64, 64), (128, 64, 32, 32), 2)
    yield _make_product("FP16, batch of scores", half_dtype, (256, 256, 64), (64, 64, 32, 32), 2, batch=96)
    yield _make_product(
        "FP16, batch of 200 x 72", half_dtype, (200, 72, 200), (64, 80, 16, 80), 3, by_rows=True, batch=192
    )
    yield _make_product(
        "FP16, triangular", half_dtype, (1536, 768, 1536), (64, 64, 32, 32), 3, "TRIANGULAR", by_rows=True
    )


# --- products with wmma --------------------------------------------------------------------------
def _make_wmma_products() -> Iterator[Program]:
    side_length = 1152
    yield Program(
        f"wmma FP16 from global memory, {side_length}",
        "fresh wmma",
        "fresh_wmma",
        "direct",
        (side_length // 128, side_length // 32),
        (128,),
        _make_arguments(
            _make_random_array("float16", side_length, side_length, seed=1),
            _make_random_array("float16", side_length, side_length, seed=2),
            _make_zeros("float32", side_length, side_length),
            side_length,
            side_length,
        ),
        check=Check(2, _multiply_by_rows, 1e-5),
    )
    for title, dtype, type_arguments, out_dtype, (m, n, k) in (
        ("BF16", "bfloat16", "bf16, bf16, float, 16", "float32", (1024, 1024, 1024)),
        ("FP16 with FP16 sums", "float16", "half, half, half, 16", "float16", (2048, 1024, 512)),
        ("TF32", "float32", "tf32, float, float, 8", "float32", (512, 1024, 1024)),
        ("INT8", "int8", "signed char, signed char, int, 16", "int32", (1024, 1024, 2048)),
    ):
        yield Program(
            f"wmma {title}, {m} x {n} x {k}",
            "fresh wmma",
            "fresh_wmma",
            f"tiled<{type_arguments}>",
            (n // 64, m // 64),
            (128,),
            _make_arguments(
                _make_random_array(dtype, m, k, seed=1),
                _make_random_array(dtype, k, n, seed=2),
                _make_zeros(out_dtype, m, n),
                n,
                k,
            ),
            check=Check(
                2,
                _multiply_by_rows,
                4e-3 if out_dtype == "float16" else TOLERANCES.get((dtype, out_dtype), 1e-5),
            ),
        )
    row_count, n = 2048, 1024
    yield Program(
        f"Gram matrix, {row_count} x {n}",
        "fresh Gram matrix",
        "fresh_wmma",
        "gram",
        (n // 64, n // 64),
        (256,),
        _make_arguments(
            _make_random_array("float16", row_count, n, seed=1), _make_zeros("float32", n, n), n, row_count
        ),
        check=Check(1, _lower_gram, 1e-4),
    )
    for image_count, side_length, in_channels, out_channels in ((4, 56, 64, 64), (8, 28, 128, 128)):
        yield Program(
            f"convolution, {image_count} images of {side_length} x {side_length} x {in_channels}",
            "fresh convolution",
            "fresh_wmma",
            f"convolution<{in_channels}>",
            (out_channels // 64, image_count * side_length * side_length // 64),
            (128,),
            _make_arguments(
                _make_random_array("float16", image_count, side_length, side_length, in_channels, seed=1),
                _make_random_array("float16", 9, in_channels, out_channels, seed=2),
                _make_zeros("float32", image_count, side_length, side_length, out_channels),
                side_length,
                out_channels,
            ),
            check=Check(2, _convolve, 1e-5),
        )


def _lower_gram(x: Array, *_: Any) -> Array:
    """Return the blocks of the Gram matrix on and below the diagonal."""
    block_indices = np.arange(x.shape[1]) // 64
    return _to_floats(x).T @ _to_floats(x) * (block_indices[:, None] >= block_indices)


def _convolve(pixels: Array, weights: Array, *_: Any) -> Array:
    side_length = pixels.shape[1]
    padded_pixels = np.pad(_to_floats(pixels), ((0, 0), (1, 1), (1, 1), (0, 0)))
    result = np.zeros((*pixels.shape[:3], weights.shape[2]), np.float32)
    for tap_index, tap_weights in enumerate(_to_floats(weights)):
        y, x = divmod(tap_index, 3)
        result += padded_pixels[:, y : y + side_length, x : x + side_length] @ tap_weights
    return result


# --- attention -----------------------------------------------------------------------------------
def _attend(q: Array, k: Array, v: Array, *, causal: bool = False) -> Array:
    """Return the attention of heads x tokens x elements."""
    scores = _to_floats(q) @ np.swapaxes(_to_floats(k), -1, -2) / np.sqrt(np.float32(q.shape[-1]))
    if causal:
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Array = exponentials / exponentials.sum(axis=-1, keepdims=True) @ _to_floats(v)
    return result


def _forward(q: Array, k: Array, v: Array, _: Any, tokens: int, group: int, *, causal: bool) -> Array:
    return _attend(q, np.repeat(k, group, 0), np.repeat(v, group, 0), causal=causal)


def _decode(q: Array, k: Array, v: Array, out: Array, _: Any, tokens: int, group: int) -> Array:
    """Return the attention of one token with each part of the keys."""
    k, v = (np.repeat(array, group, 0).reshape(*out.shape[:2], -1, 128) for array in (k, v))
    return _attend(np.broadcast_to(q[:, None, None], (*out.shape[:2], 1, 128)), k, v)


def _make_attention() -> Iterator[Program]:
    for head_count, token_count, head_size, is_causal, heads_per_key in (
        (32, 1024, 64, False, 1),
        (8, 2048, 64, True, 1),
        (32, 512, 128, False, 4),
        (8, 1024, 128, True, 1),
    ):
        yield Program(
            f"attention{', causal' if is_causal else ''}, {head_count} heads of {token_count} x {head_size}",
            "fresh attention",
            "fresh_mma",
            f"attention<{head_size}, {str(is_causal).lower()}>",
            (token_count // 64, head_count),
            (128,),
            _make_arguments(
                _make_random_array("float16", head_count, token_count, head_size, seed=1),
                *(
                    _make_random_array(
                        "float16", head_count // heads_per_key, token_count, head_size, seed=seed
                    )
                    for seed in (2, 3)
                ),
                _make_zeros("float16", head_count, token_count, head_size),
                token_count,
                heads_per_key,
            ),
            check=Check(3, functools.partial(_forward, causal=is_causal), 2e-3),
        )
    for head_count, token_count, heads_per_key, part_count in ((64, 2048, 1, 1), (32, 8192, 4, 16)):
        yield Program(
            f"decoding, {head_count} heads, {token_count} tokens in {part_count} parts",
            "fresh decoding",
            "fresh_copies",
            "decode",
            (part_count, head_count),
            (128,),
            _make_arguments(
                _make_random_array("float16", head_count, 128, seed=1),
                *(
                    _make_random_array("float16", head_count // heads_per_key, token_count, 128, seed=seed)
                    for seed in (2, 3)
                ),
                _make_zeros("float32", head_count, part_count, 128),
                _make_zeros("float32", head_count, part_count),
                token_count,
                heads_per_key,
            ),
            check=Check(3, _decode, 1e-5),
        )


# --- copies and chains ---------------------------------------------------------------------------
def _compute_heat(plane: Array, *_: Any) -> Array:
    padded_plane = np.pad(plane, 1)
    neighbour_sums = (
        padded_plane[:-2, 1:-1] + padded_plane[2:, 1:-1] + padded_plane[1:-1, :-2] + padded_plane[1:-1, 2:]
    )
    result: Array = plane + np.float32(0.2) * (neighbour_sums - 4 * plane)
    return result


def _compute_norms(rows: Array, *_: Any) -> Array:
    result: Array = np.sqrt((rows.astype(np.float64) ** 2).mean(axis=1))
    return result


def _make_copies() -> Iterator[Program]:
    for width, height, block_rows in ((2048, 2048, 32), (4096, 1000, 16)):
        yield Program(
            f"heat, {width} x {height}",
            "fresh heat",
            "fresh_copies",
            "heat",
            (width // 256, -(-height // block_rows)),
            (64,),
            _make_arguments(
                _make_random_array("float32", height, width),
                _make_zeros("float32", height, width),
                width,
                height,
                block_rows,
            ),
            check=Check(1, _compute_heat, 1e-5),
        )
    for stage_count, row_count, column_count in ((2, 4096, 1024), (4, 1000, 20000)):
        yield Program(
            f"norms of {row_count} rows of {column_count}, {stage_count} stages",
            "fresh norms",
            "fresh_copies",
            f"norms<{stage_count}>",
            (row_count,),
            (256,),
            _make_arguments(
                _make_random_array("float32", row_count, column_count),
                _make_zeros("float32", row_count),
                column_count,
            ),
            check=Check(1, _compute_norms, 1e-5),
        )
    element_count, n, split_count = 512 * 512, 512, 16
    yield Program(
        f"sum of {split_count} parts and a bias",
        "fresh split sum",
        "fresh_copies",
        "finish",
        (element_count // 256,),
        (256,),
        _make_arguments(
            _make_random_array("float32", split_count, element_count, seed=1),
            _make_random_array("float32", n, seed=2),
            _make_zeros("float32", element_count),
            element_count,
            n,
            split_count,
        ),
        check=Check(
            2, lambda parts, bias, *_: np.tanh(parts.sum(axis=0) + np.tile(bias, element_count // n)), 1e-5
        ),
    )


def _make_hash_table(exponent: int, threads: int, steps: int, lanes: int) -> Arguments:
    """Return the arguments of ``lookups``: a hash table of 2^exponent entries in random order."""

    def make(cp: Any) -> tuple[Any, ...]:
        random, table_size = np.random.default_rng(5), 1 << exponent
        entries = np.zeros(table_size, ENTRY)
        entries["key"] = random.permutation(table_size)
        entries["value"] = random.permutation(table_size)
        buckets = (entries["key"].astype(np.uint32) * np.uint32(2654435761) >> np.uint32(7)) % table_size
        bucket_order = np.argsort(buckets, kind="stable")
        is_last = np.append(np.diff(buckets[bucket_order]) != 0, True)
        entries["next"][bucket_order] = np.where(is_last, -1, np.roll(bucket_order, -1))
        heads = np.full(table_size, -1, np.int32)
        heads[buckets[bucket_order[::-1]]] = bucket_order[::-1]
        first_keys = random.integers(0, table_size, threads, dtype=np.int32)
        arrays = map(cp.asarray, (heads, entries.view(np.int32), first_keys, np.zeros_like(first_keys)))
        return (*arrays, np.int32(table_size - 1), np.int32(steps), np.int32(lanes))

    return make


def _look_up(heads: Array, words: Array, first: Array, _: Any, mask: int, steps: int, lanes: int) -> Array:
    entries = words.view(ENTRY)
    values = np.empty(len(entries), np.int32)
    values[entries["key"]] = entries["value"]
    keys = first
    for _step in range(steps):
        keys = values[keys]
    return keys


def _make_forest(exponent: int, count: int) -> Arguments:
    """Return the arguments of ``roots``: a random forest with 16 roots, whose nodes are in random order."""

    def make(cp: Any) -> tuple[Any, ...]:
        random, node_count = np.random.default_rng(6), 1 << exponent
        parents = (random.random(node_count) * np.arange(node_count)).astype(np.int32)
        parents[:16] = np.arange(16)
        labels = random.permutation(node_count).astype(np.int32)
        shuffled_parents = np.empty(node_count, np.int32)
        shuffled_parents[labels] = labels[parents]
        nodes = random.integers(0, node_count, count, dtype=np.int32)
        return (*map(cp.asarray, (shuffled_parents, nodes, np.zeros_like(nodes))), np.int32(count))

    return make


def _find_roots(parents: Array, nodes: Array, *_: Any) -> Array:
    while (parents[nodes] != nodes).any():
        nodes = parents[nodes]
    return nodes


def _make_chains() -> Iterator[Program]:
    for exponent, warps, lanes, step_count in ((18, 1, 1, 400), (18, 132, 4, 200), (22, 16, 2, 1000)):
        yield Program(
            f"hash table of 2^{exponent}, {warps} warps with {lanes} lanes",
            "fresh hash table",
            "fresh_copies",
            "lookups",
            (warps,),
            (32,),
            _make_hash_table(exponent, warps * lanes, step_count, lanes),
            check=Check(3, _look_up, 0.0),
        )
    for exponent, node_count in ((20, 8), (22, 100_000)):
        yield Program(
            f"roots of {node_count} nodes of 2^{exponent}",
            "fresh roots",
            "fresh_copies",
            "roots",
            (-(-node_count // 128),),
            (min(node_count, 128),),
            _make_forest(exponent, node_count),
            check=Check(2, _find_roots, 0.0),
        )


@functools.cache
def make_fresh_programs() -> tuple[Program, ...]:
    """Return the programs of the recording ``h200_fresh``."""
    return (*_make_products(), *_make_wmma_products(), *_make_attention(), *_make_copies(), *_make_chains())
