"""Launches that time tensor cores, asynchronous copies and chains of addresses.

`PROBES` calibrate the clock. `PROGRAMS` only judge it: none of their times was used for a constant. Each
program has a check, which compares its result with NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.timing.launches import Arguments, TimedLaunch

Array = npt.NDArray[Any]
SMS = 132  # of an H200
SIDES = (256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Check:
    """The expected result of a program: the index of the output argument, and a function for NumPy.

    The largest difference may be ``tolerance`` of the largest expected value.
    """

    output: int
    expected: Callable[..., Array]
    tolerance: float = 1e-3

    def error(self, inputs: Sequence[Any], output: Array) -> float:
        """Return the largest difference from the expected result, as a share of its largest value."""
        expected = np.asarray(self.expected(*inputs), np.float64).reshape(output.shape)
        return float(np.abs(output - expected).max() / max(float(np.abs(expected).max()), 1e-30))


@dataclass(frozen=True, slots=True)
class Program(TimedLaunch):
    """A launch that is kept from calibration, with the check of its result."""

    check: Check | None = None

    @property
    def is_kept(self) -> bool:
        """Return True, because no program is used for calibration."""
        return True


# --- probes --------------------------------------------------------------------------------------
def _make_zero_arrays(dtype: str, *sizes: int) -> Arguments:
    return lambda cp: tuple(cp.zeros(size, dtype) for size in sizes)


def _add_integers(make_args: Arguments, *integers: int) -> Arguments:
    """Return a function that creates the arguments of another one and some integers after them."""
    return lambda cp: (*make_args(cp), *(np.int32(integer) for integer in integers))


def _probe(name: str, file: str, kernel: str, grid: int, block: int, make_args: Arguments) -> TimedLaunch:
    return TimedLaunch(
        name, name.partition(",")[0], file, kernel, (grid,), (block,), make_args, is_probe=True
    )


def _make_tensor_probes() -> Iterator[TimedLaunch]:
    for type_name in ("f16", "bf16", "tf32", "s8", "f16_sum", "f16_k8"):
        for sum_count in (1, 2, 4, 8):
            for warps in (1, 4, 8, 16):
                args = _add_integers(
                    _make_zero_arrays("uint32", 32 * warps + 8, 32 * warps), 1024 // sum_count
                )
                name = f"mma {type_name}, {sum_count} sums, {warps} warps"
                yield _probe(name, "tensor_probes", f"mma_{type_name}_{sum_count}", 1, 32 * warps, args)
    args = _add_integers(_make_zero_arrays("uint32", SMS * 512 + 8, SMS * 512), 128)
    yield _probe("mma f16, 4 sums, all SMs", "tensor_probes", "mma_f16_4", SMS, 512, args)
    for type_name, dtype in (("f32", "float32"), ("f16", "float16")):
        for sum_count in (1, 2, 4):
            for warps in (1, 4, 16):
                args = _add_integers(
                    _make_arrays_of_zeros(("float16", 256), (dtype, 256 * warps)), 512 // sum_count
                )
                name = f"wmma {type_name}, {sum_count} sums, {warps} warps"
                yield _probe(name, "tensor_probes", f"wmma_{type_name}_{sum_count}", 1, 32 * warps, args)
    for load_form in ("1", "2", "4", "4_trans", "4_conflicts"):
        for load_count in (1, 4):
            for warps in (1, 4, 16):
                args = _add_integers(_make_zero_arrays("uint32", 32 * warps), 256 // load_count)
                name = f"ldmatrix {load_form}, {load_count} chains, {warps} warps"
                yield _probe(name, "tensor_probes", f"ldmatrix_{load_form}_{load_count}", 1, 32 * warps, args)
    for a, b in ((1, 1), (2, 2), (4, 2), (4, 4)):
        for warps in (1, 2, 4, 8, 16) if a * b < 8 else (1, 4, 8):
            for load_form in ("warp_tile", "warp_tile_sync"):
                args = _add_integers(_make_zero_arrays("uint32", 32 * warps), 64, 3)
                name = f"{load_form.replace('_', ' ')}, {16 * a} x {16 * b}, {warps} warps"
                yield _probe(name, "tensor_probes", f"{load_form}_{a}_{b}", 1, 32 * warps, args)
    for a in (1, 2):
        for warps in (1, 4, 16):
            for memory_space in ("global", "shared"):
                args = _add_integers(
                    _make_arrays_of_zeros(("float16", 64 * 72), ("float32", 1024 * warps)), 64, 3
                )
                name = f"wmma from {memory_space}, {16 * a} x {16 * a}, {warps} warps"
                yield _probe(name, "tensor_probes", f"wmma_{memory_space}_{a}_{a}", 1, 32 * warps, args)
    for stage_count in (1, 2, 3):
        for warps in (4, 16):
            for blocks in (1, SMS, 2 * SMS):
                args = _add_integers(
                    _make_arrays_of_zeros(("uint32", SMS * 16384), ("uint32", blocks * 32 * warps)), 16, 3
                )
                name = f"pipeline of {stage_count} stages, {blocks} blocks of {warps} warps"
                yield TimedLaunch(
                    name,
                    "pipeline",
                    "tensor_probes",
                    f"pipeline_{stage_count}",
                    (blocks,),
                    (32 * warps,),
                    args,
                    stage_count * 16384,
                    is_probe=True,
                )
    for warps in (1, 4, 16):
        args = _add_integers(_make_zero_arrays("uint32", 32 * warps), 128, 3)
        yield _probe(f"mma of words, {warps} warps", "tensor_probes", "mma_words", 1, 32 * warps, args)
        args = _add_integers(_make_zero_arrays("float32", 1032, 32 * warps), 64)
        yield _probe(f"softmax step, {warps} warps", "tensor_probes", "softmax_step", 1, 32 * warps, args)


def _make_arrays_of_zeros(*shapes: tuple[str, int]) -> Arguments:
    return lambda cp: tuple(cp.zeros(size, dtype) for dtype, size in shapes)


def _make_copy_probes() -> Iterator[TimedLaunch]:
    step_count = 128
    for size_bytes in (4, 8, 16):
        for stage_count in (1, 2, 3, 4):
            for operation_count in (0, 32, 128, 512):
                args = _add_integers(
                    _make_zero_arrays("float32", step_count * 128 * size_bytes // 4, 128),
                    step_count,
                    operation_count,
                )
                name = f"copies of {size_bytes} bytes, {stage_count} stages, {operation_count} operations"
                yield _probe(name, "copy_probes", f"copies_{size_bytes}_{stage_count}", 1, 128, args)
    for size_bytes in (4, 16):
        for copy_method, title in enumerate(("asynchronous", "by registers", "loads")):
            for blocks in (1, SMS):
                for warps in (4, 8):
                    args = _add_integers(
                        _make_zero_arrays("float32", blocks * 1024 * size_bytes, blocks * 32 * warps), 32, 3
                    )
                    name = f"tiles of {size_bytes} bytes, {title}, {blocks} blocks of {warps} warps"
                    kernel = f"copy_rate_{size_bytes}_{copy_method}"
                    yield _probe(name, "copy_probes", kernel, blocks, 32 * warps, args)
    step_count = 32
    for stage_count in (1, 2, 4):
        for operation_count in (0, 128):
            for blocks in (SMS, 8 * SMS):
                args = _add_integers(
                    _make_zero_arrays("float32", blocks * step_count * 256 * 4, blocks * 256),
                    step_count,
                    operation_count,
                )
                name = (
                    f"copies of 16 bytes, {stage_count} stages, {operation_count} operations, {blocks} blocks"
                )
                yield _probe(name, "copy_probes", f"copies_16_{stage_count}", blocks, 256, args)


def _make_cycle_args(kib: int, threads: int) -> Arguments:
    """Return a closed chain through all lines of 128 bytes of an array, and evenly spaced starts."""

    def make(cp: Any) -> tuple[Any, ...]:
        visit_order = 32 * np.random.default_rng(1).permutation(kib * 8).astype(np.int32)
        next_indices = np.zeros(kib * 256, np.int32)
        next_indices[visit_order] = np.roll(visit_order, -1)
        start_indices = visit_order[np.arange(threads) * (len(visit_order) // threads)]
        return cp.asarray(next_indices), cp.asarray(start_indices), cp.zeros(threads, cp.int32)

    return make


def _make_chase_probes() -> Iterator[TimedLaunch]:
    for kib, memory_level, step_count in ((16, "L1", 1024), (8192, "L2", 512), (1 << 18, "memory", 512)):
        for lanes in (1, 2, 4, 8, 32):
            args = _add_integers(_make_cycle_args(kib, 32), step_count, lanes)
            yield _probe(f"chase {memory_level}, {lanes} lanes", "copy_probes", "chase_lanes", 1, 32, args)


def _make_offsets(pattern: str) -> npt.NDArray[np.int32]:
    """Return the offset in words of each lane: contiguous words, rows of a fragment, or scattered words.

    ``rows of 32 by 128 bytes`` are rows of 32 bytes, whose starts are 128 bytes apart.
    """
    lanes = np.arange(32, dtype=np.int32)
    byte_counts = [int(word) for word in pattern.split() if word.isdigit()]
    if pattern.startswith("rows"):
        row_words, stride_words = (byte_count // 4 for byte_count in byte_counts)
        words_per_lane = row_words // 4  # four lanes for each row
        return lanes // 4 * stride_words + lanes % 4 * words_per_lane
    if pattern.startswith("words"):
        return lanes * (byte_counts[0] // 4)
    return np.random.default_rng(3).permutation(1024)[:32].astype(np.int32) * 4  # scattered vectors


def _make_memory_probes() -> Iterator[TimedLaunch]:
    def probe(name: str, kernel: str, grid: int, block: int, make_args: Arguments) -> TimedLaunch:
        return _probe(name, "memory_probes", kernel, grid, block, make_args)

    for words_per_lane, pattern in (
        *((1, f"words by {stride} bytes") for stride in (4, 8, 16, 64, 128, 132, 516)),
        *((1, f"rows of 16 by {stride} bytes") for stride in (32, 64, 128, 144, 256, 2048)),
        (1, "scattered"),
        *((2, f"rows of 32 by {stride} bytes") for stride in (64, 80, 128, 160, 1024)),
        *((4, f"words by {stride} bytes") for stride in (16, 144, 128)),
        (4, "scattered"),
    ):
        for warps in (1, 16):
            args = _add_integers(
                lambda cp, pattern=pattern, warps=warps: (  # type: ignore[misc]
                    cp.zeros(1 << 14, "float32"),
                    cp.asarray(_make_offsets(pattern)),
                    cp.zeros(32 * warps, "float32"),
                ),
                128,
                3,
            )
            yield probe(
                f"L1 vectors of {4 * words_per_lane}, {pattern}, {warps} warps",
                f"l1_loads_{words_per_lane}",
                1,
                32 * warps,
                args,
            )
    for words_per_lane, pattern, step_words, tile_words in (
        (1, "words by 4 bytes", 32, 256),
        (2, "words by 8 bytes", 64, 512),
        (4, "words by 16 bytes", 128, 1024),
        (2, "rows of 32 by 256 bytes", 8, 512),
        (2, "rows of 32 by 64 bytes", 128, 1024),
        (1, "rows of 16 by 256 bytes", 8, 512),
        (1, "rows of 16 by 64 bytes", 128, 1024),
        (1, "words by 8 bytes", 64, 512),
        (1, "words by 32 bytes", 256, 2048),
        (2, "words by 64 bytes", 512, 4096),
        (4, "words by 64 bytes", 512, 4096),
        (4, "words by 32 bytes", 256, 2048),
    ):
        for blocks, kib in ((1, 64), (SMS, 16), (SMS, 64), (8 * SMS, 4), (8 * SMS, 8)):
            if kib * 256 < tile_words:
                continue
            args = _add_integers(
                lambda cp, pattern=pattern, blocks=blocks, kib=kib: (  # type: ignore[misc]
                    cp.asarray(_make_offsets(pattern)),
                    cp.zeros(4 * blocks * kib * 256 + 1024, "float32"),
                ),
                kib * 256 // tile_words,
                step_words,
                tile_words,
            )
            name = f"stores of {4 * words_per_lane}, {pattern}, {kib} KiB per warp, {blocks} blocks"
            yield probe(name, f"stores_{words_per_lane}", blocks, 128, args)
    for warps in (1, 4, 8, 16):
        args = _add_integers(_make_zero_arrays("float32", 2048, 512 * warps), 128, 1)
        yield probe(f"wmma TF32 from shared, {warps} warps", "wmma_tf32", 1, 32 * warps, args)
    for kernel, title in (("fill_words", "words"), ("fill_tf32", "rounded words")):
        for blocks, warps in ((1, 8), (1, 4), (SMS, 8), (3 * SMS, 8)):
            args = _add_integers(_make_zero_arrays("float32", 1 << 15, blocks * 32 * warps), 32, 3, 256)
            yield probe(
                f"tiles of {title}, {blocks} blocks of {warps} warps", kernel, blocks, 32 * warps, args
            )
    for blocks, warps in ((1, 1), (1, 4), (8, 4), (SMS, 4), (2 * SMS, 4), (8 * SMS, 4)):
        args = _add_integers(_make_nodes(1 << 20, blocks * 32 * warps), 32)
        yield probe(f"walk, {blocks} blocks of {warps} warps", "walk", blocks, 32 * warps, args)
    for words_per_load in (1, 8):
        for blocks, warps in ((1, 1), (1, 16), (SMS, 16), (4 * SMS, 16)):
            for kib in (16, 16384):
                args = _add_integers(
                    _make_zero_arrays("float32", 256 * kib, 32 * blocks * warps),
                    16,
                    256 * kib // words_per_load - 1,
                )
                name = (
                    f"gather from {kib} KiB by {4 * words_per_load} bytes, {blocks} blocks of {warps} warps"
                )
                yield probe(name, f"gather_{words_per_load}", blocks, 32 * warps, args)
    for warps in (1, 4, 8):
        args = _add_integers(_make_zero_arrays("float32", 2048, 32 * warps), 64, 15)
        yield probe(f"attention step, {warps} warps", "attend_step", 1, 32 * warps, args)
    for kernel in ("swizzled", "swizzled_sync"):
        for blocks, warps in ((1, 1), (1, 4), (2 * SMS, 4)):
            args = _add_integers(_make_zero_arrays("float32", blocks * warps * 512), 16)
            title = "swizzled tiles with barriers" if "sync" in kernel else "swizzled tiles"
            yield probe(f"{title}, {blocks} blocks of {warps} warps", kernel, blocks, 32 * warps, args)


def _make_nodes(count: int, threads: int) -> Arguments:
    """Return a closed chain through nodes of 16 bytes in random order, and evenly spaced starts."""

    def make(cp: Any) -> tuple[Any, ...]:
        visit_order = np.random.default_rng(1).permutation(count).astype(np.int32)
        nodes = np.zeros((count, 4), np.int32)
        nodes[visit_order, 0] = np.roll(visit_order, -1)
        start_indices = visit_order[np.arange(threads) * (count // threads)]
        return cp.asarray(nodes), cp.asarray(start_indices), cp.zeros(threads, cp.int32)

    return make


PROBES: tuple[TimedLaunch, ...] = (
    *_make_tensor_probes(),
    *_make_copy_probes(),
    *_make_chase_probes(),
    *_make_memory_probes(),
)


# --- programs ------------------------------------------------------------------------------------
def _read_kernels(notebook: str, *files: str) -> str:
    folder = resources.files(f"gpulab_course.content.{notebook}") / "kernels"
    return "\n".join((folder / file).read_text(encoding="utf-8") for file in files)


def _make_random_array(dtype: str, *shape: int, seed: int = 0) -> Callable[[Any], Any]:
    def make(cp: Any) -> Any:
        return cp.asarray((np.random.default_rng(seed).random(shape) - 0.5).astype(dtype))

    return make


def _make_random_bytes(*shape: int, seed: int = 0) -> Callable[[Any], Any]:
    return lambda cp: cp.asarray(np.random.default_rng(seed).integers(-9, 9, shape, dtype=np.int8))


def _empty_array(dtype: str, *shape: int) -> Callable[[Any], Any]:
    return lambda cp: cp.zeros(shape, dtype)


def _make_args_from(*argument_makers: Callable[[Any], Any] | int) -> Arguments:
    """Return a function that creates arrays by the given functions, and passes integers unchanged."""
    return lambda cp: tuple(
        np.int32(make_or_integer) if isinstance(make_or_integer, int) else make_or_integer(cp)
        for make_or_integer in argument_makers
    )


def _multiply(a: Array, b: Array, *_: Any) -> Array:
    return np.asarray(np.matmul(a.astype(np.float32), b.astype(np.float32)))


def _make_products() -> Iterator[Program]:
    from gpulab_course.content.n18_tensor_cores.versions import VERSIONS

    for side_length in SIDES:
        args = _make_args_from(
            _make_random_array("float16", side_length, side_length, seed=1),
            _make_random_array("float16", side_length, side_length, seed=2),
            _empty_array("float32", side_length, side_length),
            side_length,
            side_length,
            side_length,
        )
        for version in VERSIONS:
            options = tuple(f"-D{macro}={value}" for macro, value in version.macros.items())
            kernel, grid, block, shared_bytes = {
                "naive": ("product_naive", (side_length // 16, side_length // 16), (16, 16), 0),
                "wmma": ("product_wmma", (side_length // 64, side_length // 16), (128,), 0),
                "large": ("hgemm_async", ((side_length // 128) ** 2,), (128,), 3 * 256 * 32 * 2),
            }.get(
                version.name,
                (
                    "product",
                    (side_length // 64, side_length // 64),
                    (32 * (64 // version.macros.get("WARP", 64)) ** 2,),
                    0,
                ),
            )
            text = (
                _read_kernels("n18_tensor_cores", *version.files)
                if version.files
                else (resources.files("gpulab_course.content.kernels") / "tensor_cores.cu").read_text(
                    encoding="utf-8"
                )
            )
            yield Program(
                f"notebook 18, {version.name}, {side_length}",
                f"notebook 18, {version.name}",
                "",
                kernel,
                grid,
                block,
                args,
                shared_bytes,
                code=text,
                options=options,
                check=Check(2, _multiply),
            )
    for side_length in (256, 512):
        args = _make_args_from(
            _make_random_array("float16", side_length, side_length, seed=1),
            _make_random_array("float16", side_length, side_length, seed=2),
            _empty_array("float32", side_length, side_length),
            side_length,
            side_length,
        )
        yield Program(
            f"notebook 18, exercise on stages, {side_length}",
            "notebook 18, stages",
            "",
            "product",
            (side_length // 32, side_length // 32),
            (128,),
            args,
            code=_read_kernels("n18_tensor_cores", "stages.cu"),
            check=Check(2, _multiply),
        )


def _attend(q: Array, k: Array, v: Array, *_: Any) -> Array:
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Array = exponentials / exponentials.sum(axis=-1, keepdims=True) @ v
    return result


def _attend_masked(q: Array, k: Array, v: Array, *_: Any) -> Array:
    scores = q.astype(np.float64) @ k.astype(np.float64).T / np.sqrt(q.shape[-1])
    scores[np.triu_indices(len(q), 1)] = -np.inf
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Array = exponentials / exponentials.sum(axis=-1, keepdims=True) @ v.astype(np.float64)
    return result


def _make_attention() -> Iterator[Program]:
    forward_code = _read_kernels("n19_attention", "forward.cu")
    for token_count, head_size, lanes in (
        (1024, 64, 1),
        (1024, 64, 4),
        (1024, 64, 8),
        (1024, 128, 4),
        (4096, 64, 4),
    ):
        query_count = min(token_count, 1024)
        args = _make_args_from(
            _make_random_array("float32", query_count, head_size, seed=1),
            _make_random_array("float32", token_count, head_size, seed=2),
            _make_random_array("float32", token_count, head_size, seed=3),
            _empty_array("float32", query_count, head_size),
            query_count,
            token_count,
        )
        yield Program(
            f"notebook 19, forward, {token_count} keys of {head_size}, {lanes} lanes",
            "notebook 19, forward",
            "",
            f"forward<{head_size}, {lanes}, 16>",
            (query_count // 32,),
            (32 * lanes,),
            args,
            code=forward_code,
            check=Check(3, _attend),
        )
    token_count = 1024
    args = _make_args_from(
        *(_make_random_array("float32", token_count, 64, seed=seed) for seed in (1, 2, 3)),
        _empty_array("float32", token_count, 64),
        token_count,
        token_count,
    )
    yield Program(
        f"notebook 19, masked, {token_count}",
        "notebook 19, masked",
        "",
        "masked",
        (token_count // 64,),
        (64,),
        args,
        code=_read_kernels("n19_attention", "masked.cu"),
        check=Check(3, _attend_masked),
    )
    head_count = 32
    args = _make_args_from(
        _make_random_array("float32", head_count, 4, 64, seed=1),
        *(_make_random_array("float32", head_count, token_count, 64, seed=seed) for seed in (2, 3)),
        _empty_array("float32", head_count, 4, 64),
        token_count,
    )
    yield Program(
        f"notebook 19, grouped, {head_count} heads",
        "notebook 19, grouped",
        "",
        "grouped",
        (head_count,),
        (128,),
        args,
        code=_read_kernels("n19_attention", "grouped.cu"),
        check=Check(3, _attend),
    )
    for head_count, token_count in ((1, 512), (8, 512), (16, 1024)):
        args = _make_args_from(
            *(_make_random_array("float16", head_count, token_count, 64, seed=seed) for seed in (1, 2, 3)),
            _empty_array("float32", head_count, token_count, 64),
            token_count,
        )
        yield Program(
            f"flash attention, {head_count} heads of {token_count}",
            "flash attention",
            "tensor_programs",
            "flash",
            (token_count // 64, head_count),
            (128,),
            args,
            check=Check(3, _attend, 1e-2),
        )


def _convolve(pixels: Array, weights: Array, *_: Any) -> Array:
    side_length = pixels.shape[0] - 2
    wide_pixels = pixels.astype(np.float32)
    result: Array = sum(
        wide_pixels[y : y + side_length, x : x + side_length] @ weights[3 * y + x].astype(np.float32)
        for y in range(3)
        for x in range(3)
    )
    return result


def _smooth_values(values: Array, _: Any, tiles: int) -> Array:
    result_count = len(values) - 8
    result: Array = sum(values[j : j + result_count].astype(np.float64) for j in range(9)) / 9  # type: ignore[assignment]
    return result


NODE = np.dtype([("next", np.int32), ("key", np.int32), ("value", np.float32), ("length", np.int32)])


def _make_list_args(list_count: int, mean_length: int) -> Arguments:
    """Return the arguments of ``lists``: lists of about `mean_length` nodes, which are scattered."""

    def make(cp: Any) -> tuple[Any, ...]:
        random = np.random.default_rng(7)
        list_lengths = random.integers(mean_length // 2, mean_length + mean_length // 2, list_count)
        nodes = np.zeros(1 << 20, NODE)
        node_order = random.permutation(len(nodes))[: list_lengths.sum()].astype(np.int32)
        nodes["key"] = random.integers(0, 100, len(nodes))
        nodes["value"] = random.random(len(nodes)) - 0.5
        nodes["next"][node_order[:-1]] = node_order[1:]
        list_ends = np.cumsum(list_lengths)
        nodes["next"][node_order[list_ends - 1]] = -1
        first_nodes = node_order[list_ends - list_lengths]
        return (
            cp.asarray(nodes.view(np.int32)),
            cp.asarray(first_nodes),
            cp.zeros(list_count, cp.float32),
            np.int32(list_count),
        )

    return make


def _sum_lists(words: Array, first_nodes: Array, *_: Any) -> Array:
    """Return the sum of the values in each linked list."""
    nodes = words.view(NODE)
    sums = np.zeros(len(first_nodes))
    for i, first_node in enumerate(first_nodes):
        node_index = int(first_node)
        while node_index >= 0:
            node = nodes[node_index]
            sums[i] += -float(node["value"]) if node["key"] & 1 else float(node["value"])
            node_index = int(node["next"])
    return sums


def _find_leaves(keys: Array, search_keys: Array, _: Any, levels: int, count: int) -> Array:
    """Return the leaf of a search tree that each key reaches."""
    tree_index = np.zeros(len(search_keys), np.int64)
    for _level in range(levels):
        tree_index = 2 * tree_index + 1 + (search_keys >= keys[tree_index])
    return tree_index


def _make_other_programs() -> Iterator[Program]:
    for batch_size in (132, 1056, 4096):
        args = _make_args_from(
            _make_random_array("float16", batch_size, 64, 64, seed=1),
            _make_random_array("float16", batch_size, 64, 64, seed=2),
            _empty_array("float32", batch_size, 64, 64),
        )
        yield Program(
            f"batched product, {batch_size}",
            "batched product",
            "tensor_programs",
            "batched",
            (batch_size,),
            (128,),
            args,
            check=Check(2, _multiply),
        )
    for side_length in (64, 256):
        args = _make_args_from(
            _make_random_array("float16", side_length + 2, side_length + 2, 32, seed=1),
            _make_random_array("float16", 9, 32, 32, seed=2),
            _empty_array("float32", side_length, side_length, 32),
            side_length,
        )
        yield Program(
            f"convolution, {side_length}",
            "convolution",
            "tensor_programs",
            "convolution",
            (side_length * side_length // 64,),
            (128,),
            args,
            check=Check(2, _convolve),
        )
    for side_length in (256, 1024):
        args = _make_args_from(
            _make_random_bytes(side_length, side_length, seed=1),
            _make_random_bytes(side_length, side_length, seed=2),
            _empty_array("int32", side_length, side_length),
            side_length,
            side_length,
        )
        yield Program(
            f"integer product, {side_length}",
            "integer product",
            "tensor_programs",
            "integers",
            (side_length // 32, side_length // 64),
            (128,),
            args,
            check=Check(2, lambda a, b, *_: _multiply(a, b.T)),
        )
        args = _make_args_from(
            _make_random_array("float32", side_length, side_length, seed=1),
            _make_random_array("float32", side_length, side_length, seed=2),
            _empty_array("float32", side_length, side_length),
            side_length,
            side_length,
        )
        yield Program(
            f"TF32 product, {side_length}",
            "TF32 product",
            "tensor_programs",
            "single",
            (side_length // 64, side_length // 64),
            (256,),
            args,
            check=Check(2, _multiply, 2e-3),
        )
    for blocks, tile_count in ((132, 16), (528, 16), (2112, 8)):
        item_count = blocks * tile_count * 1024
        args = _make_args_from(
            _make_random_array("float32", item_count + 8), _empty_array("float32", item_count), tile_count
        )
        yield Program(
            f"double-buffered smoothing, {blocks} blocks",
            "double-buffered smoothing",
            "tensor_programs",
            "smooth",
            (blocks,),
            (256,),
            args,
            check=Check(1, _smooth_values),
        )
    for item_count, mean_length in ((1, 400), (4, 400), (32, 200), (1024, 100), (32768, 20)):
        yield Program(
            f"lists, {item_count} of {mean_length}",
            "lists",
            "tensor_programs",
            "lists",
            (-(-item_count // 128),),
            (min(item_count, 128),),
            _make_list_args(item_count, mean_length),
            check=Check(2, _sum_lists),
        )
    for item_count, level_count in ((8, 16), (4096, 16), (65536, 20)):
        args = _make_args_from(
            _make_random_array("float32", (1 << level_count) - 1, seed=1),
            _make_random_array("float32", item_count, seed=2),
            _empty_array("int32", item_count),
            level_count,
            item_count,
        )
        yield Program(
            f"search tree, {item_count} keys in {level_count} levels",
            "search tree",
            "tensor_programs",
            "descend",
            (-(-item_count // 128),),
            (min(item_count, 128),),
            args,
            check=Check(2, _find_leaves, 0.0),
        )


@functools.cache
def make_programs() -> tuple[Program, ...]:
    """Return the programs that test the model of the clock."""
    return (*_make_products(), *_make_attention(), *_make_other_programs())
