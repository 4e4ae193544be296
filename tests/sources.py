"""Python sources as syntax trees."""

from __future__ import annotations

import ast
import functools


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> ast.Module:
    """Parse a source; once more where CPython below 3.11.8 trips over a collection meanwhile (gh-106905)."""
    try:
        return ast.parse(text)
    except SystemError:
        return ast.parse(text)
