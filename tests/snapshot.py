"""Texts and pictures that a person has looked at, and tests that compare with them.

``pytest --update-snapshots`` writes the files again. Do that after a change that is meant, and review them.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

TILE_PX = 20
MOST_PER_TILE = 24.0
"""Of 255, the mean difference in one tile: other letters differ by less, a missing label by more."""


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
        small = _small(png)
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            small.quantize(128).save(path, optimize=True)
        assert path.exists(), f"There is no {path.name}; write it with --update-snapshots."
        worst = difference(small, Image.open(path).convert("RGB"))
        assert worst <= MOST_PER_TILE, (
            f"{path.name} differs by {worst:.0f} of 255 in a tile, more than {MOST_PER_TILE:.0f}. "
            "If that is meant: pytest --update-snapshots, and look at the picture."
        )


def _small(png: bytes) -> Image.Image:
    """A picture at its nominal size, half of its pixels."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    return picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BOX)


def difference(one: Image.Image, other: Image.Image) -> float:
    """The mean difference of two pictures in the tile where it is largest; infinite for other sizes."""
    if one.size != other.size:
        return float("inf")
    pixels = np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).mean(axis=2)
    height, width = (size // TILE_PX * TILE_PX for size in pixels.shape)
    tiles = pixels[:height, :width].reshape(height // TILE_PX, TILE_PX, width // TILE_PX, TILE_PX)
    return float(tiles.mean(axis=(1, 3)).max())


@pytest.fixture
def snapshots(request: pytest.FixtureRequest) -> Snapshots:
    """Files that a person has reviewed."""
    return Snapshots(request.config.getoption("--update-snapshots"))
