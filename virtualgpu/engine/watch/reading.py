"""Parser of watch expressions and stop conditions.

Python's `ast` parses them, and only C expressions are allowed.
"""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass
from typing import Literal

from virtualgpu.errors import WatchError

COORDINATES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
# 2.5f becomes an imaginary number, which C does not have; it represents a float. 3u and 3LL become names.
_LITERAL_PREFIX = "_gpulab_"
_PYTHON_REPLACEMENTS = (
    (re.compile(r"&&"), " and "),
    (re.compile(r"\|\|"), " or "),
    (re.compile(r"!(?!=)"), " not "),
    (re.compile(r"->"), "."),
    (re.compile(r"\btrue\b"), "True"),
    (re.compile(r"\bfalse\b"), "False"),
    (re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)([uUlL]+)\b"), rf"{_LITERAL_PREFIX}\2_\1"),
    (re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)[fF]\b"), r"\1j"),
)
# C names that are Python keywords get a suffix that no other name has.
_PYTHON_KEYWORD_PATTERN = re.compile(rf"\b({'|'.join(sorted({*keyword.kwlist} - {'and', 'or', 'not'}))})\b")
_KEYWORD_SUFFIX = "_gpulab_c_"
_ALLOWED_NODES = (
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
_PYTHON_ONLY_OPERATORS = (ast.FloorDiv, ast.Pow, ast.MatMult, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_EXPRESSION_REMEDY = "Write a C expression of variables, as in x[i] * 2 or tile[threadIdx.x]."
_MAX_NODES = 400
_TOO_LONG_MESSAGE = "`{}…` is too long for a watch expression: split it into several ones."
_STOP_PATTERN = re.compile(r"(line|write|any|all)\b\s*(.*)", re.S)
_STOP_REMEDY = (
    'Write a line (stop="line 12"), a condition over lanes ("any(i >= n)", "all(...)") or a write '
    '("write y[3]").'
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A watch expression and its syntax tree."""

    text: str
    tree: ast.expr

    @property
    def names(self) -> frozenset[str]:
        """Names that the expression uses, without built-in variables and literals."""
        used_names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        return frozenset(
            name for name in used_names - {*COORDINATES, "warpSize"} if parse_literal(name) is None
        )


@dataclass(frozen=True, slots=True)
class StopCondition:
    """A condition at which a warp stops. The condition is a source line, an expression, or a write to
    memory.
    """

    text: str
    kind: Literal["line", "any", "all", "write"]
    line: int = 0
    expression: Expression | None = None


def parse_literal(name: str) -> tuple[str, int] | None:
    """Return the type and value of the C literal that a name represents, such as ``3u``."""
    if not name.startswith(_LITERAL_PREFIX):
        return None
    suffix, _, number_text = name.removeprefix(_LITERAL_PREFIX).lower().partition("_")
    value = int(number_text, 0)
    type_letter = "u" if "u" in suffix else "s"
    is_64_bit = "l" in suffix or value >= 1 << 32
    return f"{type_letter}{64 if is_64_bit else 32}", value


def parse_expression(text: str) -> Expression:
    """Parse the text of a watch expression.

    Raises
    ------
    WatchError
        If it is not a string or not an expression, or contains an operation that is not allowed.
    """
    if not isinstance(text, str):
        raise WatchError(
            f"A watch expression must be a str, but got {type(text).__name__}. Write for example "
            'watch=["i", "x[i] * 2"].'
        )
    python_text = _PYTHON_KEYWORD_PATTERN.sub(rf"\1{_KEYWORD_SUFFIX}", text)
    for pattern, replacement in _PYTHON_REPLACEMENTS:
        python_text = pattern.sub(replacement, python_text)
    try:
        tree = ast.parse(python_text.strip(), mode="eval").body
    except (RecursionError, MemoryError):
        raise WatchError(_TOO_LONG_MESSAGE.format(text[:40])) from None
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        hint = "a pointer's element is p[0], not *p. " if text.lstrip().startswith("*") else ""
        raise WatchError(f"`{text}` cannot be read ({reason}): {hint}{_EXPRESSION_REMEDY}") from None
    if sum(1 for _ in ast.walk(tree)) > _MAX_NODES:
        raise WatchError(_TOO_LONG_MESSAGE.format(text[:40]))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = node.id.removesuffix(_KEYWORD_SUFFIX)
        if isinstance(node, ast.Attribute):
            node.attr = node.attr.removesuffix(_KEYWORD_SUFFIX)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            raise WatchError(
                f"`{text}` calls `{ast.unparse(node.func)}`, and watch expressions cannot "
                "call functions. Watch its arguments, or the variable that receives its "
                "result."
            )
        if isinstance(node, _PYTHON_ONLY_OPERATORS) or not isinstance(node, _ALLOWED_NODES):
            raise WatchError(
                f"`{text}` uses {_describe_node(node)}, which C or watch expressions do "
                f"not support. {_EXPRESSION_REMEDY}"
            )
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value >= 1 << 64:
            raise WatchError(
                f"`{text}`: {node.value} is too large for C. The largest number is {(1 << 64) - 1}."
            )
        if isinstance(node, ast.Constant) and not isinstance(node.value, (bool, int, float, complex)):
            raise WatchError(f"`{text}` contains {node.value!r}, which is not a number. {_EXPRESSION_REMEDY}")
    return Expression(text, tree)


def _describe_node(node: ast.AST) -> str:
    names = {"FloorDiv": "//", "Pow": "**", "Tuple": "a comma (write x[i][j])", "Slice": "a slice"}
    return names.get(type(node).__name__, f"`{type(node).__name__}`")


def parse_stop(text: str) -> StopCondition:
    """Parse the text of a stop condition.

    Raises
    ------
    WatchError
        If it is not a string, or of an unknown kind.
    """
    if not isinstance(text, str):
        raise WatchError(f"`stop` must be a str or a list of str, not {type(text).__name__}. {_STOP_REMEDY}")
    match = _STOP_PATTERN.fullmatch(text.strip())
    if match is None:
        raise WatchError(f"`{text}` is not a stop condition. {_STOP_REMEDY}")
    stop_kind = match[1]
    condition = match[2].strip()
    if stop_kind == "line":
        if not condition.isdigit():
            raise WatchError(f"`{text}` has no line number. Write one, as in line 12.")
        return StopCondition(text, "line", int(condition))
    if stop_kind == "write":
        return StopCondition(text, "write", expression=parse_expression(condition))
    inner_text = condition[1:-1] if condition.startswith("(") and condition.endswith(")") else ""
    if not inner_text.strip():
        raise WatchError(f"`{text}` has no condition. Write {stop_kind}(i >= n).")
    return StopCondition(
        text, "any" if stop_kind == "any" else "all", expression=parse_expression(inner_text)
    )
