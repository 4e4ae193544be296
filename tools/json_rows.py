"""JSON of recordings with one line per record, which is short and still easy to compare."""

from __future__ import annotations

import json
from typing import Any


def json_rows(value: Any, depth: int) -> str:
    """Return JSON that gives each entry of objects and lists a line of its own, down to `depth` levels."""
    if depth == 0 or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, dict):
        rows = [f"{json.dumps(key)}: {json_rows(item, depth - 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + "\n}"
    return "[\n" + ",\n".join(json_rows(item, depth - 1) for item in value) + "\n]"
