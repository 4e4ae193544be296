"""One launch as a value: what `gl.launch`, `gl.sanitize` and their kin take."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple


class Step(NamedTuple):
    """A kernel with its grid, block and arguments; ``gl.launch(*step)`` shows it, ``step()`` runs it."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Any, ...]

    def __call__(self) -> None:
        self.kernel(self.grid, self.block, self.args)


def source(file: str) -> str:
    """CUDA C++ of the story: ``block.cu`` or ``pictures.cu``."""
    return (Path(__file__).parent / "kernels" / file).read_text(encoding="utf-8")


def cover(size: tuple[int, ...], block: tuple[int, ...]) -> tuple[int, ...]:
    """The smallest grid whose threads cover `size`."""
    return tuple(-(-length // threads) for length, threads in zip(size, block, strict=True))
