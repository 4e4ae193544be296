"""The PTX instructions that the virtual GPU does: ``python -m tools.instructions`` prints them.

Only first words are listed; which types and modifiers an instruction takes is in
``virtualgpu/compile/ptx/operands.py``.
"""

from __future__ import annotations

import textwrap

from virtualgpu.engine.lower.function import list_supported_roots


def list_instructions() -> str:
    """Return text that lists the supported PTX instructions by module."""
    instructions = {module: " ".join(sorted(roots)) for module, roots in list_supported_roots().items()}
    return "\n".join(
        textwrap.fill(roots, 100, initial_indent=f"{module:15}", subsequent_indent=15 * " ")
        for module, roots in instructions.items()
    )


if __name__ == "__main__":
    print(list_instructions())
