"""Texts and pictures that a person has looked at, and tests that compare with them.

``pytest --update-snapshots`` writes the files again. Do that after a change that is meant, and review them.
"""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

TILE_PX = 20
MOVE_PX = 6
MOST_PER_TILE = 8.0
"""Of 255, for the mean colours of a tile. Other letters differ by less, a missing label by more."""


class Snapshots:
    """Compares with the files of a folder, or writes them."""

    def __init__(self, update: bool) -> None:
        self.update = update

    def text(self, path: Path, text: str) -> None:
        """Check that a file has this text."""
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"There is no {path.name}; write it with --update-snapshots."
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), (
            "If that is meant: pytest --update-snapshots, and review the files."
        )

    def picture(self, path: Path, png: bytes) -> None:
        """Check that a file shows this picture, with other letters at most."""
        picture = small(png)
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
        assert path.exists(), f"There is no {path.name}; write it with --update-snapshots."
        worst = difference(picture, Image.open(path).convert("RGB"))
        assert worst <= MOST_PER_TILE, (
            f"{path.name} differs by {worst:.0f} of 255 in a tile, more than {MOST_PER_TILE:.0f}. "
            "If that is meant: pytest --update-snapshots, and look at the picture."
        )


def small(png: bytes) -> Image.Image:
    """A picture at its nominal size, half of its pixels."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    return picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BOX)


def difference(actual: Image.Image, other: Image.Image) -> float:
    """The largest difference of the mean colours of a tile in two pictures; infinite for other sizes.

    Mean colours hardly change where letters are hinted differently. Each tile may be moved by up to
    `MOVE_PX`, as other widths of letters move what is next to them.
    """
    if actual.size != other.size:
        return float("inf")
    expected = _tiles(np.asarray(other, np.float64))
    pixels = np.asarray(actual, np.float64)
    moves = itertools.product((-2, 0, 2), range(-MOVE_PX, MOVE_PX + 1, 2))
    moved = [np.abs(_tiles(np.roll(pixels, move, (0, 1))) - expected).max(axis=2) for move in moves]
    return float(np.min(moved, axis=0).max())


def _tiles(pixels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The mean colour of each tile."""
    rows, columns = (size // TILE_PX for size in pixels.shape[:2])
    whole = pixels[: rows * TILE_PX, : columns * TILE_PX]
    return whole.reshape(rows, TILE_PX, columns, TILE_PX, 3).mean(axis=(1, 3))


@pytest.fixture
def snapshots(request: pytest.FixtureRequest) -> Snapshots:
    """Files that a person has reviewed."""
    return Snapshots(request.config.getoption("--update-snapshots"))
