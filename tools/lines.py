"""Lines of Python, JavaScript and CSS a room: ``python -m tools.lines`` prints the table.

A room is a folder; empty lines and comments count, data files do not. The course's own folders stand apart
from the helper that shows them, whose budget is below, and so does the judge, which grows with them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gpulab", "virtualgpu", "tools", "tests")
KINDS = (".py", ".js", ".css")
# What `gpulab/` may hold without `gpulab/course/` and the judge of its exercises.
HELPER_LINES = 14_000


def rooms(package: Path) -> dict[str, Counter[str]]:
    """Lines by kind of file, a room: its path from the repository's root -> ``{".py": 120, "files": 3}``."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(package.rglob("*")):
        if path.suffix in KINDS and path.is_file():
            room = found.setdefault(path.parent.relative_to(package.parent).as_posix(), Counter())
            room[path.suffix] += len(path.read_text(encoding="utf-8").splitlines())
            room["files"] += 1
    return found


def helper_lines(root: Path = ROOT) -> int:
    """Lines of ``gpulab/`` without the course's own folders and the judge of its exercises."""
    return sum(
        room[kind]
        for name, room in rooms(root / "gpulab").items()
        if not f"{name}/".startswith(("gpulab/course/", "gpulab/teach/judge/"))
        for kind in KINDS
    )


def main() -> None:
    """Print lines a room and a package."""
    print(f"{'room':34}{'files':>6}{'py':>8}{'js':>7}{'css':>7}")
    for package in PACKAGES:
        found = rooms(ROOT / package)
        for name, room in found.items():
            print(f"{name:34}{room['files']:6}{room['.py']:8,}{room['.js']:7,}{room['.css']:7,}")
        total = sum(found.values(), Counter())
        print(
            f"{package + ' in all':34}{total['files']:6}{total['.py']:8,}{total['.js']:7,}{total['.css']:7,}"
        )
        print()
    print(f"gpulab without course and judge: {helper_lines():,} lines of at most {HELPER_LINES:,}")


if __name__ == "__main__":
    main()
