"""The patterns of ``data/barriers.cu``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Barrier:
    """A kernel ``k(int* out, int n)`` with barriers, and what a check has to say of it."""

    name: str
    grid: int
    block: tuple[int, ...]
    verdict: str
    code: str

    @property
    def wrong(self) -> bool:
        return self.verdict != "clean"


def _patterns() -> Iterator[Barrier]:
    text = (Path(__file__).parent / "data" / "barriers.cu").read_text(encoding="utf-8")
    for part in text.split("//! ")[1:]:
        head, code = part.split("\n", 1)
        name, shape, verdict = (field.strip() for field in head.split("|"))
        grid, block = shape.split()
        yield Barrier(name, int(grid), tuple(map(int, block.split("x"))), verdict, code)


ALL = tuple(_patterns())
BY_NAME = {pattern.name: pattern for pattern in ALL}
