"""Watch expressions and stops as they are written: read by Python's `ast`, and refused where they do more."""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass
from typing import Literal

from virtualgpu.errors import WatchError

COORDINATES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
# 2.5f becomes an imaginary number, which C has not and which stands for a float; 3u and 3LL become names.
_LONG = "_gpulab_"
_C_TO_PYTHON = (
    (re.compile(r"&&"), " and "),
    (re.compile(r"\|\|"), " or "),
    (re.compile(r"!(?!=)"), " not "),
    (re.compile(r"->"), "."),
    (re.compile(r"\btrue\b"), "True"),
    (re.compile(r"\bfalse\b"), "False"),
    (re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)([uUlL]+)\b"), rf"{_LONG}\2_\1"),
    (re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)[fF]\b"), r"\1j"),
)
# Names in C that are words of Python's: they get an end that no name has.
_WORDS = re.compile(rf"\b({'|'.join(sorted({*keyword.kwlist} - {'and', 'or', 'not'}))})\b")
_END = "_gpulab_c_"
_ALLOWED = (
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Subscript,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)
_NO_C = (ast.FloorDiv, ast.Pow, ast.MatMult, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_REMEDY = "Write a C expression of variables, as in x[i] * 2 or tile[threadIdx.x]."
_MOST_NODES = 400
_TOO_LONG = "`{}…` is too long to be a watch: split it, for several may be watched."
_STOP = re.compile(r"(line|write|any|all)\b\s*(.*)", re.S)
_HOW_TO_STOP = (
    'Write a line (stop="line 12"), a condition over lanes ("any(i >= n)", "all(...)") or a write '
    '("write y[3]").'
)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression as it was written, and its tree."""

    text: str
    tree: ast.expr

    @property
    def names(self) -> frozenset[str]:
        """What must be known of the kernel."""
        found = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        return frozenset(name for name in found - {*COORDINATES, "warpSize"} if suffixed(name) is None)


@dataclass(frozen=True, slots=True)
class Stop:
    """Where to stop: at a line, where a condition over lanes becomes true, or where a place is written."""

    text: str
    kind: Literal["line", "any", "all", "write"]
    line: int = 0
    of: Expression | None = None


def suffixed(name: str) -> tuple[str, int] | None:
    """Of a name that stands for a number such as ``3u`` its kind and its value."""
    if not name.startswith(_LONG):
        return None
    suffix, _, number = name.removeprefix(_LONG).lower().partition("_")
    value = int(number, 0)
    letter = "u" if "u" in suffix else "s"
    wide = "l" in suffix or value >= 1 << 32
    return f"{letter}{64 if wide else 32}", value


def expression(text: str) -> Expression:
    """Read an expression.

    Raises
    ------
    WatchError
        If it is no text, no expression, or does what no watch may do.
    """
    if not isinstance(text, str):
        raise WatchError(
            f'A watch expression is a text, as in watch=["i", "x[i] * 2"], not {type(text).__name__}.'
        )
    python = _WORDS.sub(rf"\1{_END}", text)
    for c, word in _C_TO_PYTHON:
        python = c.sub(word, python)
    try:
        tree = ast.parse(python.strip(), mode="eval").body
    except (RecursionError, MemoryError):
        raise WatchError(_TOO_LONG.format(text[:40])) from None
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        said = "a pointer's element is p[0], not *p. " if text.lstrip().startswith("*") else ""
        raise WatchError(f"`{text}` cannot be read ({reason}): {said}{_REMEDY}") from None
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise WatchError(_TOO_LONG.format(text[:40]))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = node.id.removesuffix(_END)
        if isinstance(node, ast.Attribute):
            node.attr = node.attr.removesuffix(_END)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            raise WatchError(
                f"`{text}` calls `{ast.unparse(node.func)}`, and watches call nothing: watch what it is "
                "given, or the variable that its result goes to."
            )
        if isinstance(node, _NO_C) or not isinstance(node, _ALLOWED):
            raise WatchError(f"`{text}` uses {_named(node)}, which C has not, or watches have not. {_REMEDY}")
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value >= 1 << 64:
            raise WatchError(
                f"`{text}`: no C type holds {node.value}; the largest number is {(1 << 64) - 1}."
            )
        if isinstance(node, ast.Constant) and not isinstance(node.value, (bool, int, float, complex)):
            raise WatchError(f"`{text}` holds {node.value!r}, which is no number. {_REMEDY}")
    return Expression(text, tree)


def _named(node: ast.AST) -> str:
    names = {"FloorDiv": "//", "Pow": "**", "Tuple": "a comma (write x[i][j])", "Slice": "a slice"}
    return names.get(type(node).__name__, f"`{type(node).__name__}`")


def stop(text: str) -> Stop:
    """Read where to stop.

    Raises
    ------
    WatchError
        If it is no text, or none of the kinds there are.
    """
    if not isinstance(text, str):
        raise WatchError(f"`stop` is a text, or a list of texts, not {type(text).__name__}. {_HOW_TO_STOP}")
    found = _STOP.fullmatch(text.strip())
    if found is None:
        raise WatchError(f"`{text}` says of no line, lanes or write where to stop. {_HOW_TO_STOP}")
    kind = found[1]
    rest = found[2].strip()
    if kind == "line":
        if not rest.isdigit():
            raise WatchError(f"`{text}` names no line: write its number, as in line 12.")
        return Stop(text, "line", int(rest))
    if kind == "write":
        return Stop(text, "write", of=expression(rest))
    inner = rest[1:-1] if rest.startswith("(") and rest.endswith(")") else ""
    if not inner.strip():
        raise WatchError(f"`{text}` holds no condition: write {kind}(i >= n).")
    return Stop(text, "any" if kind == "any" else "all", of=expression(inner))
