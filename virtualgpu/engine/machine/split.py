"""Division of a long kernel's LLVM text into two modules: its own code, and the functions that it calls.

LLVM's time grows with the kernel's own code, which may be thousands of wide operations written out. In
two halves that code is little but calls (see `split_kernel`), translated quickly; the functions are few,
short and translated well. The results are the same, and the kernel runs 20 to 40 % more slowly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtualgpu.engine.machine.by_address import RowFunctions, UnreadableLineError, rewrite_by_address
from virtualgpu.engine.machine.pieces import make_declaration

_WARP_FUNCTION_START = "define internal i32 @warp_"
_OWN_FUNCTION_PATTERN = re.compile(r"define (?:internal )?\w+ @(?:warp_\d+|run_blocks?)\(")
_ROW_PATTERN = re.compile(r"<(\d+) x ([a-z]+)(\d*)>")
_TYPE_BITS = {"half": 16, "float": 32, "double": 64, "ptr": 64}
# Translating a machine instruction of a wide operation, measured on kernels of 3,000 to 12,000 operations.
_S_PER_INSTRUCTION = 120e-6


@dataclass(frozen=True, slots=True)
class KernelHalves:
    """The LLVM text of a kernel in two modules. One module contains the kernel itself, and the other one
    contains the functions that it calls.
    """

    kernel_text: str
    support_text: str
    function_names: tuple[str, ...]


def estimate_translation_s(text: str, register_bytes: int) -> float:
    """Return the estimated processor time in seconds for translating a kernel as a single module."""
    instruction_count = 0.0
    in_warp_function = False
    for line in text.split("\n"):
        if line.startswith("define "):
            in_warp_function = line.startswith(_WARP_FUNCTION_START)
        if in_warp_function and (" = " in line or " store" in line or " call" in line):
            match = _ROW_PATTERN.search(line)
            if match is not None:
                element_bits = _TYPE_BITS.get(match[2]) or int(match[3] or 1)
                instruction_count += max(1, int(match[1]) * element_bits / 8 / register_bytes)
    return instruction_count * _S_PER_INSTRUCTION


def split_kernel(text: str) -> KernelHalves | None:
    """Split the LLVM text of a kernel into two modules. The result is None if the text contains an
    unsupported line.
    """
    kernel_lines: list[str] = []
    support_lines: list[str] = []
    declarations: dict[str, str] = {}
    common_declarations: list[str] = []
    row_functions = RowFunctions()
    warp_function_lines: list[str] = []
    target_lines = support_lines
    for line in text.split("\n"):
        if line.startswith("declare "):
            common_declarations.append(line)
            continue
        if line.startswith("define "):
            target_lines = support_lines
            if line.startswith(_WARP_FUNCTION_START):
                target_lines = warp_function_lines
            elif _OWN_FUNCTION_PATTERN.match(line):
                target_lines = kernel_lines
            if target_lines is support_lines and line.startswith("define internal "):
                name, declarations[name] = make_declaration(line)
                line = line.replace("define internal", "define", 1)
        target_lines.append(line)
        if line == "}":
            if target_lines is warp_function_lines:
                try:
                    kernel_lines += rewrite_by_address(warp_function_lines, row_functions)
                except UnreadableLineError:
                    return None
                warp_function_lines = []
            target_lines = support_lines
    called_names = set(re.findall(r"@([\w.]+)", "\n".join(kernel_lines)))
    function_names = [name for name in declarations if name in called_names]
    head_lines = [
        *common_declarations,
        *(declarations[name] for name in function_names),
        *row_functions.declarations,
        *row_functions.make_constant_definitions(),
    ]
    return KernelHalves(
        "\n".join([*head_lines, *kernel_lines]),
        "\n".join([*common_declarations, *support_lines, *row_functions.definition_texts]),
        (*function_names, *row_functions.function_names.values()),
    )
