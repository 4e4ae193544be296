"""Three pictures by kernels of one thread a pixel, and the same by NumPy.

Each function takes the array module first: CuPy or the virtual GPU's run the kernel, NumPy its own way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab_course.content.kernels.work import Step
from gpulab_course.content.story.sources import cover, source

TILE = (16, 16)


def mandelbrot(xp: Any, width: int = 384, height: int = 288, limit: int = 100) -> Any:
    """Compute the Mandelbrot set: the iterations, up to `limit`, in which a pixel stays near 0 (int32)."""
    if xp is np:
        x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
        c = (np.float32(-2.2) + np.float32(3.2) * x / width) + 1j * (
            np.float32(-1.2) + np.float32(2.4) * y / height
        )
        z = np.zeros_like(c)
        turns = np.zeros(c.shape, np.int32)
        for _ in range(limit):
            near = z.real**2 + z.imag**2 < 4
            z = np.where(near, z * z + c, z)
            turns += near
        return turns
    turns = xp.empty((height, width), dtype=xp.int32)
    step(xp, "mandelbrot", width, height, turns, np.int32(width), np.int32(height), np.int32(limit))()
    return turns


def life(xp: Any, board: Any, generations: int = 1) -> Any:
    """The game of life from `board` (height, width; uint8, 1 is alive) on; edges meet the opposite ones."""
    height, width = board.shape
    for _ in range(generations):
        if xp is np:
            around = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]
            alive = sum(np.roll(board, shift, axis=(0, 1)) for shift in around)
            board = ((alive == 3) | ((alive == 2) & (board == 1))).astype(np.uint8)
            continue
        following = xp.empty_like(board)
        step(xp, "life", width, height, board, following, np.int32(width), np.int32(height))()
        board = following
    return board


def generations(
    cp: Any, count: int = 5, side: int = 64, seed: int = 0, *, take_turns: bool = False
) -> tuple[list[Step], list[Any]]:
    """The launches of so many generations of Life, none of them run, and the boards.

    Parameters
    ----------
    take_turns
        Whether two boards are enough, each of which is the other one's successor; otherwise each generation
        has a board of its own.
    """
    first = np.random.default_rng(seed).integers(0, 2, (side, side), dtype=np.uint8)
    boards = [cp.asarray(first)]
    boards += [cp.empty_like(boards[0]) for _ in range(1 if take_turns else count)]
    launches = [
        step(
            cp,
            "life",
            side,
            side,
            boards[k % len(boards)],
            boards[(k + 1) % len(boards)],
            np.int32(side),
            np.int32(side),
        )
        for k in range(count)
    ]
    return launches, boards


def blur(xp: Any, image: Any, radius: int = 2) -> Any:
    """The mean around each pixel of `image` (height, width; float32); at the edges, of what there is."""
    height, width = image.shape
    if xp is np:
        padded = np.pad(image.astype(np.float64), radius)
        inside = np.pad(np.ones(image.shape), radius)
        total = np.zeros(image.shape)
        pixels = np.zeros(image.shape)
        for dy in range(2 * radius + 1):
            for dx in range(2 * radius + 1):
                total += padded[dy : dy + height, dx : dx + width]
                pixels += inside[dy : dy + height, dx : dx + width]
        return (total / pixels).astype(np.float32)
    out = xp.empty_like(image)
    step(xp, "blur", width, height, image, out, np.int32(width), np.int32(height), np.int32(radius))()
    return out


def step(cp: Any, name: str, width: int, height: int, *args: Any) -> Step:
    """The launch of one of the kernels over a picture."""
    return Step(cp.RawKernel(source("pictures.cu"), name), cover((width, height), TILE), TILE, args)
