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
_NON_CODE_TOKENS = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
# What of JavaScript or CSS may hold "//" or "/*" without being a comment goes first.
_SCRIPT_PATTERN = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|//[^\n]*|/\*.*?\*/""", re.S
)


def count_code_lines(text: str, kind: str) -> int:
    """Count the lines of code in a file, without empty lines, comments and docstrings.

    Parameters
    ----------
    text
        The file's contents.
    kind
        ``".py"``, ``".js"`` or ``".css"``.
    """
    if kind != ".py":
        scripts_only = _SCRIPT_PATTERN.sub(
            lambda match: match["text"] or re.sub(r"[^\n]", "", match[0]), text
        )
        return sum(bool(line.strip()) for line in scripts_only.splitlines())
    code_line_numbers: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NON_CODE_TOKENS:
            code_line_numbers.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first_statement = node.body[0] if node.body else None
            if isinstance(first_statement, ast.Expr) and isinstance(
                getattr(first_statement.value, "value", None), str
            ):
                code_line_numbers.difference_update(
                    range(first_statement.lineno, (first_statement.end_lineno or first_statement.lineno) + 1)
                )
    return len(code_line_numbers)


def count_by_folder(package: Path) -> dict[str, Counter[str]]:
    """Count lines of code by folder and kind of file: path -> ``{".py": 120, "files": 3}``."""
    counts_by_folder: dict[str, Counter[str]] = {}
    for path in sorted(package.rglob("*")):
        if path.suffix in KINDS and path.is_file():
            folder_counts = counts_by_folder.setdefault(
                path.parent.relative_to(package.parent).as_posix(), Counter()
            )
            folder_counts[path.suffix] += count_code_lines(path.read_text(encoding="utf-8"), path.suffix)
            folder_counts["files"] += 1
    return counts_by_folder


def main() -> None:
    """Print lines of code per folder and package."""
    print(f"{'room':38}{'files':>6}{'py':>8}{'js':>7}{'css':>7}")
    for package in PACKAGES:
        counts_by_folder = count_by_folder(ROOT / package)
        counts_by_folder[f"{package} in all"] = sum(counts_by_folder.values(), Counter())
        for name, folder_counts in counts_by_folder.items():
            print(
                f"{name:38}{folder_counts['files']:6}{folder_counts['.py']:8,}{folder_counts['.js']:7,}{folder_counts['.css']:7,}"
            )
        print()


if __name__ == "__main__":
    main()
