"""The attention layer of the running example: its launches, and the same computation with NumPy.

``out = gelu(softmax(h hᵀ / √d) h)`` with ``h = layer_norm(x)``: attention in which a token's query, key and
value are the same, so that no trained weights are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab_course.content.kernels.work import Step
from gpulab_course.content.story.rungs import list_versions
from gpulab_course.content.story.sources import find_covering_grid, read_source

# The one size of the course: tokens, and features of each.
TOKENS = 128
FEATURES = 64
ROW_BLOCK = (64,)
TILE_BLOCK = (16, 16)
# Of tiled attention: the lanes that share a row, and the most features that they can keep.
LANES_PER_ROW = 16
MAX_TILED_FEATURES = 128
ARRAY_NAMES = ("x", "normed", "scores", "weights", "mixed", "out")
Floats = npt.NDArray[np.float32]


def steps(
    cp: Any, n: int = TOKENS, d: int = FEATURES, seed: int = 0, *, rung: str = "00"
) -> tuple[dict[str, Step], dict[str, Any]]:
    """Return the steps of the attention layer without running them, and the arrays that they use.

    Parameters
    ----------
    cp
        CuPy, or the virtual GPU's module.
    n, d
        Tokens (rows) and features (columns).
    seed
        Seed of the input.
    rung
        The number of the notebook up to which changes are included: ``"05"`` uses the kernels of 05.

    Returns
    -------
    dict of Step
        By the kernel's name: ``layer_norm``, ``matmul_transposed``, ``softmax``, ``matmul``, ``gelu``. From
        rung ``"12"`` on there is no ``gelu``, because ``matmul`` includes it. In rung ``"19"`` there are
        ``layer_norm`` and ``attention``, which includes the other four.
    dict of array
        ``x`` (n, d), ``normed`` (n, d), ``scores`` (n, n), ``weights`` (n, n), ``mixed`` (n, d) and
        ``out`` (n, d), float32; all but ``x`` are empty until the steps ran. From rung ``"10"`` on some share
        their memory, from ``"13"`` on ``normed``, ``scores`` and ``weights`` hold BF16, its bits as uint16.
        In ``"19"`` there are no ``scores`` and ``weights``.

    Raises
    ------
    ValueError
        If `d` is larger than 128 in rung ``"19"``.
    """
    versions = list_versions(rung)
    is_tiled = any(version.is_tiled for version in versions)
    if is_tiled and d > MAX_TILED_FEATURES:
        raise ValueError(f"Version 19 keeps at most {MAX_TILED_FEATURES} features in registers, not {d}.")
    owner_names = {
        name: memory_owner for version in versions for name, memory_owner in version.memory_owners.items()
    }
    bf16_names = {name for version in versions for name in version.bf16_arrays}
    arrays = {"x": cp.asarray(tokens(n, d, seed))}
    for name, shape in (
        ("normed", (n, d)),
        ("scores", (n, n)),
        ("weights", (n, n)),
        ("mixed", (n, d)),
        ("out", (n, d)),
    ):
        if is_tiled and name in ("scores", "weights"):
            continue
        arrays[name] = (
            arrays[owner_names[name]]
            if name in owner_names
            else cp.empty(shape, dtype="uint16" if name in bf16_names else "float32")
        )
    x, normed, scores, weights, mixed, out = (arrays.get(name) for name in ARRAY_NAMES)
    row_count = np.int32(n)
    column_count = np.int32(d)
    score_scale = np.float32(d**-0.5)
    lanes_per_row = max(version.lanes_per_row or 1 for version in versions)
    row_grid = find_covering_grid((n * lanes_per_row,), ROW_BLOCK)
    launches = {
        "layer_norm": (row_grid, ROW_BLOCK, (x, normed, row_count, column_count)),
        "matmul_transposed": (
            find_covering_grid((n, n), TILE_BLOCK),
            TILE_BLOCK,
            (normed, normed, scores, row_count, row_count, column_count, score_scale),
        ),
        "softmax": (row_grid, ROW_BLOCK, (scores, weights, row_count, row_count)),
        "matmul": (
            find_covering_grid((d, n), TILE_BLOCK),
            TILE_BLOCK,
            (weights, normed, mixed, row_count, column_count, row_count),
        ),
        "gelu": (find_covering_grid((n * d,), (256,)), (256,), (mixed, out, np.int32(n * d))),
    }
    if is_tiled:
        launches["attention"] = (
            find_covering_grid((n * LANES_PER_ROW,), (128,)),
            (128,),
            (normed, out, row_count, column_count, score_scale),
        )
    kernel_texts: dict[str, str] = {}
    for version in versions:
        if version.kernel_file:
            source_text = read_source(version.kernel_file)
            kernel_texts |= {name: source_text for name in launches if f" {name}(" in source_text}
    fused_names = {name for version in versions for name in version.fused_kernels}
    steps = {
        n: Step(cp.RawKernel(kernel_texts[n], n), *launch)
        for n, launch in launches.items()
        if n not in fused_names
    }
    return steps, arrays


def run(cp: Any, n: int = TOKENS, d: int = FEATURES, seed: int = 0, *, rung: str = "00") -> dict[str, Any]:
    """Run the attention layer on `n` tokens of `d` features, and return all of its arrays by name."""
    launches, arrays = steps(cp, n, d, seed, rung=rung)
    for step in launches.values():
        step()
    return arrays


def tokens(n: int, d: int, seed: int = 0) -> Floats:
    """Return random input (n, d) for the attention layer, with a different scale and offset for each row."""
    rng = np.random.default_rng(seed)
    row_scales = rng.uniform(0.5, 2.0, (n, 1))
    row_offsets = rng.uniform(-1.0, 1.0, (n, 1))
    return (row_scales * rng.standard_normal((n, d)) + row_offsets).astype(np.float32)


def reference(x: npt.ArrayLike) -> dict[str, Floats]:
    """Compute the attention layer for the input `x` (n, d) with NumPy in float64. Return the results of all
    steps under the names that `run` uses.
    """
    x = np.asarray(x, dtype=np.float64)
    centred_x = x - x.mean(axis=1, keepdims=True)
    normed = centred_x / np.sqrt((centred_x**2).mean(axis=1, keepdims=True) + 1e-5)
    scores = normed @ normed.T / np.sqrt(x.shape[1])
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=1, keepdims=True)
    mixed = weights @ normed
    gelu_output = 0.5 * mixed * (1 + np.tanh(0.79788456 * (mixed + 0.044715 * mixed**3)))
    results = {
        "x": x,
        "normed": normed,
        "scores": scores,
        "weights": weights,
        "mixed": mixed,
        "out": gelu_output,
    }
    return {name: array.astype(np.float32) for name, array in results.items()}
