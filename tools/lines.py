"""Lines of code a room: ``python -m tools.lines`` prints the table.

A room is a folder. Docstrings, comments and empty lines do not count (nor do data files), or else good
documentation would be punished. ``tests/test_budgets.py`` holds what the parts may have.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gpulab", "gpulab_course", "virtualgpu", "tools", "tests")
KINDS = (".py", ".js", ".css")
_NOT_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
# What of JavaScript or CSS may hold "//" or "/*" without being a comment goes first.
_SCRIPT = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|//[^\n]*|/\*.*?\*/""", re.S
)


def code_lines(text: str, kind: str) -> int:
    """Lines of a file that hold code: neither empty nor only comment or docstring.

    Parameters
    ----------
    text
        The file's contents.
    kind
        ``".py"``, ``".js"`` or ``".css"``.
    """
    if kind != ".py":
        bare = _SCRIPT.sub(lambda found: found["text"] or re.sub(r"[^\n]", "", found[0]), text)
        return sum(bool(line.strip()) for line in bare.splitlines())
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                held.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(held)


def rooms(package: Path) -> dict[str, Counter[str]]:
    """Lines of code by kind of file, a room: its path from the root -> ``{".py": 120, "files": 3}``."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(package.rglob("*")):
        if path.suffix in KINDS and path.is_file():
            room = found.setdefault(path.parent.relative_to(package.parent).as_posix(), Counter())
            room[path.suffix] += code_lines(path.read_text(encoding="utf-8"), path.suffix)
            room["files"] += 1
    return found


def main() -> None:
    """Print lines a room and a package."""
    print(f"{'room':38}{'files':>6}{'py':>8}{'js':>7}{'css':>7}")
    for package in PACKAGES:
        found = rooms(ROOT / package)
        found[f"{package} in all"] = sum(found.values(), Counter())
        for name, room in found.items():
            print(f"{name:38}{room['files']:6}{room['.py']:8,}{room['.js']:7,}{room['.css']:7,}")
        print()


if __name__ == "__main__":
    main()
