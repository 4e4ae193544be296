"""A memory hook that prints the calls of the memory pool."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from virtualgpu.cp.cuda.memory_hook import MemoryHook


class DebugPrintHook(MemoryHook):
    """A memory hook that prints one line of JSON after every ``alloc``, ``malloc`` and ``free``.

    Parameters
    ----------
    file
        Target of the output; by default the present standard output.
    flush
        Whether to flush `file` after each line.
    """

    name = "DebugPrintHook"

    def __init__(self, file: TextIO | None = None, flush: bool = True) -> None:
        self.file = sys.stdout if file is None else file
        self.flush = flush

    def _print_record(self, hook: str, values: dict[str, Any], *keys: str) -> None:
        record: dict[str, Any] = {"hook": hook, **{key: values[key] for key in keys}}
        if "pmem_id" in record:
            record["pmem_id"] = hex(record["pmem_id"])
        self.file.write(json.dumps(record, separators=(",", ":")) + "\n")
        if self.flush:
            self.file.flush()

    def alloc_postprocess(self, **kwargs: Any) -> None:
        self._print_record("alloc", kwargs, "device_id", "mem_size", "mem_ptr")

    def malloc_postprocess(self, **kwargs: Any) -> None:
        self._print_record("malloc", kwargs, "device_id", "size", "mem_size", "mem_ptr", "pmem_id")

    def free_postprocess(self, **kwargs: Any) -> None:
        self._print_record("free", kwargs, "device_id", "mem_size", "mem_ptr", "pmem_id")
