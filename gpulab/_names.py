"""Public names that load on first use, each declared once: by the import that type checkers read."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


def declared(package: str) -> dict[str, str]:
    """The names that a package's file imports for type checkers alone, and their homes.

    Such lines are indented: ``from home import name as name`` under ``if TYPE_CHECKING:``.
    """
    lines = Path(package).read_text(encoding="utf-8").splitlines()
    found = [line.split() for line in lines if line.startswith("    from ")]
    return {words[3]: words[1] for words in found if words[4:] == ["as", words[3]]}


def load(home: str, name: str) -> Any:
    """What `name` means in the module `home`, or its submodule of that name."""
    module = import_module(home)
    return getattr(module, name) if hasattr(module, name) else import_module(f"{home}.{name}")
