"""A memory hook that adds up allocations by source line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from virtualgpu.cp.cuda.memory_hook import MemoryHook

# Modules that are compiled in CuPy and therefore in no traceback: the core of arrays, the CUDA interface,
# pools.
_CUDA_FOLDER = Path(__file__).resolve().parent.parent
_HIDDEN_FOLDERS = (
    str(_CUDA_FOLDER),
    str(_CUDA_FOLDER.parent / "_core"),
    str(_CUDA_FOLDER.parents[1] / "allocators"),
)


@dataclass(slots=True)
class _CallNode:
    """A node of the call tree: a source line, and the bytes that it and its callees allocated."""

    used_bytes: int = 0
    acquired_bytes: int = 0
    callees: dict[tuple[str, int | None, str], _CallNode] = field(default_factory=dict)

    def add_bytes(self, used_bytes: int, acquired_bytes: int) -> None:
        self.used_bytes += used_bytes
        self.acquired_bytes += acquired_bytes

    def format_lines(self, name: str, depth: int = 0) -> Iterator[str]:
        yield f"{'  ' * depth}{name} ({_format_size(self.used_bytes)}, {_format_size(self.acquired_bytes)})\n"
        for (filename, line_number, function), callee_node in self.callees.items():
            yield from callee_node.format_lines(f"{filename}:{line_number}:{function}", depth + 1)


class LineProfileHook(MemoryHook):
    """A memory hook that adds up allocations by source line. The method `print_report` prints the totals as a
    call tree.

    Each line of the report ends in ``(used, acquired)``: the bytes of blocks taken from the pool, and the
    bytes that the pool took from the device for them.

    Parameters
    ----------
    max_depth
        Maximum depth of the tree, including the root; 0 for no limit.
    """

    name = "LineProfileHook"

    def __init__(self, max_depth: int = 0) -> None:
        self._root = _CallNode()
        self._max_depth = max_depth

    def malloc_preprocess(self, **kwargs: Any) -> None:
        self._add_allocation(kwargs["mem_size"], 0)

    def alloc_preprocess(self, **kwargs: Any) -> None:
        self._add_allocation(0, kwargs["mem_size"])

    def _add_allocation(self, used_bytes: int, acquired_bytes: int) -> None:
        call_node = self._root
        call_node.add_bytes(used_bytes, acquired_bytes)
        frames = [
            stack_frame
            for stack_frame in traceback.extract_stack()
            if not stack_frame.filename.startswith(_HIDDEN_FOLDERS)
        ]
        for frame in frames[: self._max_depth - 1 if self._max_depth > 0 else None]:
            call_node = call_node.callees.setdefault((frame.filename, frame.lineno, frame.name), _CallNode())
            call_node.add_bytes(used_bytes, acquired_bytes)

    def print_report(self, file: TextIO | None = None) -> None:
        """Write the report to `file`. The default file is the standard output."""
        file = sys.stdout if file is None else file
        file.writelines(self._root.format_lines("_root"))
        file.flush()


def _format_size(size_bytes: float) -> str:
    for unit_prefix in ("", "K", "M", "G", "T", "P", "E"):
        if size_bytes < 1024:
            return f"{size_bytes:.2f}{unit_prefix}B"
        size_bytes /= 1024
    return f"{size_bytes:.2f}ZB"
