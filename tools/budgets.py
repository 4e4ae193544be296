"""What each part of the repository may hold in lines of code: ``python -m tools.budgets`` compares.

The limits stand in ``tools/budgets.tsv``, a line each with the reason of its last rise. A part is
the helper without course, judge and views, its views, what teaches, the course's machinery, the views' own
JavaScript, or a folder of ``virtualgpu``, ``tools`` and ``tests`` with all below it.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.lines import ROOT, code_lines

LIMITS = Path("tools/budgets.tsv")
# What a notebook consists of, rather than what it is built with.
_MATTER = frozenset({"exercises", "answers", "mutants", "predictions", "quiz", "figures", "cards"})


@dataclass(frozen=True)
class Budget:
    """What a part may hold, and why it may hold that much."""

    lines: int
    why: str


def limits(root: Path = ROOT) -> dict[str, Budget]:
    """The limits by part.

    Raises
    ------
    ValueError
        For a line without a reason.
    """
    with (root / LIMITS).open(encoding="utf-8", newline="") as file:
        rows = {
            row["part"]: Budget(int(row["lines"]), row["why"] or "")
            for row in csv.DictReader(file, delimiter="\t")
        }
    for part, budget in rows.items():
        if not budget.why.strip():
            raise ValueError(f"{LIMITS} gives no reason for the lines of {part}.")
    return rows


def held(root: Path = ROOT) -> Counter[str]:
    """Lines of code that each part holds now."""
    found: Counter[str] = Counter()
    for part, path in _files(root):
        text = path.read_text(encoding="utf-8")
        found[part] += len(text.splitlines()) if path.suffix == ".js" else code_lines(text, path.suffix)
    return found


def over(root: Path = ROOT) -> list[str]:
    """A sentence for each part that holds more than it may, or has no limit."""
    allowed, found = limits(root), held(root)
    told = []
    for part, lines in found.items():
        if part not in allowed:
            told.append(f"{part} has no limit in {LIMITS}.")
        elif lines > (most := allowed[part].lines):
            told.append(
                f"{part} holds {lines:,} lines of code of at most {most:,}: take out what is not needed, or "
                f"raise its limit in {LIMITS} and give the reason there."
            )
    return told + [f"{LIMITS} has a limit for {part}, which is no more." for part in allowed.keys() - found]


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted((root / "gpulab").rglob("*.py")):
        room = path.relative_to(root / "gpulab").parts[0]
        if room in ("views", "teach"):
            yield f"gpulab/{room}", path
        elif room != "course":
            yield "gpulab without course, teach, views", path
        elif not _MATTER.intersection((*path.parts, path.stem)):
            yield "gpulab/course: machinery", path
    for path in sorted((root / "gpulab" / "views").rglob("*.js")):
        if "parts" not in path.parts:
            yield "gpulab/views: JavaScript outside parts (all lines)", path
    for package in ("virtualgpu", "tools", "tests"):
        for path in sorted((root / package).rglob("*.py")):
            below = path.relative_to(root / package).parts
            yield f"{package}/{below[0]}" if len(below) > 1 else package, path


def main() -> None:
    """Print what each part holds and may hold."""
    allowed = limits()
    for part, lines in sorted(held().items()):
        budget = allowed.get(part, Budget(0, "no limit"))
        print(f"{part:52}{lines:8,}{budget.lines:8,}  {budget.why}")


if __name__ == "__main__":
    main()
