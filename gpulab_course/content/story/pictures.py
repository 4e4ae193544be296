"""Three programs that compute pictures, with kernels of one thread per pixel or with NumPy.

The first argument of each function is the array module: CuPy, the virtual GPU's module, or NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab_course.content.kernels.work import Step
from gpulab_course.content.story.sources import find_covering_grid, read_source

PIXEL_BLOCK = (16, 16)


def mandelbrot(xp: Any, width: int = 384, height: int = 288, limit: int = 100) -> Any:
    """Compute the number of iterations in which z stays near 0, for each pixel of a picture of the Mandelbrot
    set.
    """
    if xp is np:
        x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
        c = (np.float32(-2.2) + np.float32(3.2) * x / width) + 1j * (
            np.float32(-1.2) + np.float32(2.4) * y / height
        )
        z = np.zeros_like(c)
        iterations = np.zeros(c.shape, np.int32)
        for _ in range(limit):
            is_near = z.real**2 + z.imag**2 < 4
            z = np.where(is_near, z * z + c, z)
            iterations += is_near
        return iterations
    iterations = xp.empty((height, width), dtype=xp.int32)
    step(xp, "mandelbrot", width, height, iterations, np.int32(width), np.int32(height), np.int32(limit))()
    return iterations


def life(xp: Any, board: Any, generations: int = 1) -> Any:
    """Compute generations of the Game of Life on a torus, beginning with `board` (height, width; uint8)."""
    height, width = board.shape
    for _ in range(generations):
        if xp is np:
            neighbour_shifts = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]
            alive_neighbours = sum(np.roll(board, shift, axis=(0, 1)) for shift in neighbour_shifts)
            board = ((alive_neighbours == 3) | ((alive_neighbours == 2) & (board == 1))).astype(np.uint8)
            continue
        next_board = xp.empty_like(board)
        step(xp, "life", width, height, board, next_board, np.int32(width), np.int32(height))()
        board = next_board
    return board


def generations(
    cp: Any, count: int = 5, board_side: int = 64, seed: int = 0, *, alternate_boards: bool = False
) -> tuple[list[Step], list[Any]]:
    """Return the launches of `count` generations of the Game of Life without running them, and the boards.

    Parameters
    ----------
    alternate_boards
        Whether the generations alternate between two boards; otherwise each generation has its own board.
    """
    first_board = np.random.default_rng(seed).integers(0, 2, (board_side, board_side), dtype=np.uint8)
    boards = [cp.asarray(first_board)]
    boards += [cp.empty_like(boards[0]) for _ in range(1 if alternate_boards else count)]
    launches = [
        step(
            cp,
            "life",
            board_side,
            board_side,
            boards[k % len(boards)],
            boards[(k + 1) % len(boards)],
            np.int32(board_side),
            np.int32(board_side),
        )
        for k in range(count)
    ]
    return launches, boards


def blur(xp: Any, image: Any, radius: int = 2) -> Any:
    """Compute the mean of the pixels around each pixel of an image (height, width; float32).

    At the edges, only pixels inside the image are averaged.
    """
    height, width = image.shape
    if xp is np:
        padded_image = np.pad(image.astype(np.float64), radius)
        pixel_mask = np.pad(np.ones(image.shape), radius)
        pixel_sums = np.zeros(image.shape)
        pixel_counts = np.zeros(image.shape)
        for dy in range(2 * radius + 1):
            for dx in range(2 * radius + 1):
                pixel_sums += padded_image[dy : dy + height, dx : dx + width]
                pixel_counts += pixel_mask[dy : dy + height, dx : dx + width]
        return (pixel_sums / pixel_counts).astype(np.float32)
    out = xp.empty_like(image)
    step(xp, "blur", width, height, image, out, np.int32(width), np.int32(height), np.int32(radius))()
    return out


def step(cp: Any, name: str, width: int, height: int, *args: Any) -> Step:
    """Return the launch of a kernel with one thread per pixel, without running it."""
    return Step(
        cp.RawKernel(read_source("pictures.cu"), name),
        find_covering_grid((width, height), PIXEL_BLOCK),
        PIXEL_BLOCK,
        args,
    )
