"""Disassembler of a cubin to machine code (SASS), with the PTX line of each instruction.

With ``-lineinfo`` NVRTC stores the PTX line of each instruction in the cubin;
``nvdisasm`` (PyPI ``nvidia-cuda-nvdisasm``) prints it. Neither needs a GPU.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from virtualgpu.errors import GpulabError, ToolMissingError

_SECTION_PATTERN = re.compile(r"\.text\.([\w$]+):")
_LINE_PATTERN = re.compile(r'//## File "\.nv_debug_ptx_txt", line (\d+)')
_INSTRUCTION_PATTERN = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?)(U?P[\dT]+)\s+)?([A-Z][\w.]*)\s*([^;]*)")
_TIMEOUT_S = 60.0

_SPACE_OF_ROOT = {
    "LDG": "global",
    "STG": "global",
    "ATOMG": "global",
    "REDG": "global",
    "RED": "global",
    "LDS": "shared",
    "STS": "shared",
    "ATOMS": "shared",
    "LDL": "local",
    "STL": "local",
    "LD": "generic",
    "ST": "generic",
    "ATOM": "generic",
}
_BRANCH_ROOTS = ("BRA", "BRX", "JMP", "JMX", "EXIT", "RET")


class NvdisasmMissingError(ToolMissingError):
    """Error for an operation that needs NVIDIA's disassembler when it is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "not available: install nvidia-cuda-nvdisasm (`pip install "
            "nvidia-cuda-nvdisasm`), which is NVIDIA's disassembler, to see the machine "
            "code"
        )


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """A machine instruction. The attribute ``ptx_line`` is the instruction's line in the PTX text (from 1),
    or 0 if unknown.
    """

    address: int
    opcode: str
    guarded: bool
    operands: str
    ptx_line: int

    @property
    def root(self) -> str:
        """Mnemonic of the instruction without suffixes, such as ``LDS``."""
        return self.opcode.split(".")[0]

    @property
    def space(self) -> str:
        """Name of the state space that the instruction accesses. The name is empty if the instruction does
        not access memory.
        """
        return _SPACE_OF_ROOT.get(self.root, "")

    @property
    def kind(self) -> str:
        """Kind of the instruction's memory access: load, store or atomic. The string is empty if the
        instruction does not access memory.
        """
        if not self.space:
            return ""
        return {"LD": "load", "ST": "store"}.get(self.root[:2], "atomic")

    @property
    def size_bytes(self) -> int:
        """Number of bytes that each lane accesses with the instruction."""
        modifiers = self.opcode.split(".")[1:]
        for modifier, accessed_bytes in (
            ("256", 32),
            ("128", 16),
            ("64", 8),
            ("U16", 2),
            ("S16", 2),
            ("U8", 1),
            ("S8", 1),
        ):
            if modifier in modifiers:
                return accessed_bytes
        return 4

    @property
    def is_conditional_branch(self) -> bool:
        """Return whether the instruction is a branch or an exit that only some lanes may take."""
        if ".DIV" in self.opcode:  # tests whether the warp has diverged, with the same result in all lanes
            return False
        return self.root in _BRANCH_ROOTS and (self.guarded or self.root in ("BRX", "JMX"))


def is_available() -> bool:
    """Return whether NVIDIA's disassembler is installed on this machine."""
    return _find_nvdisasm() is not None


def disassemble(cubin: bytes) -> dict[str, tuple[SassInstruction, ...]]:
    """Disassemble a cubin, and return the machine instructions of every function by its (mangled) name.

    Raises
    ------
    NvdisasmMissingError
        If ``nvdisasm`` is not installed.
    GpulabError
        If it cannot read the cubin.
    """
    nvdisasm_path = _find_nvdisasm()
    if nvdisasm_path is None:
        raise NvdisasmMissingError
    return parse_disassembly(_run_nvdisasm(nvdisasm_path, cubin))


def parse_disassembly(text: str) -> dict[str, tuple[SassInstruction, ...]]:
    """Parse the output of ``nvdisasm -gp -c``, and return the machine instructions of every function."""
    functions: dict[str, list[SassInstruction]] = {}
    function_instructions: list[SassInstruction] = []
    ptx_line = 0
    for text_line in text.splitlines():
        if match := _SECTION_PATTERN.match(text_line):
            function_instructions = functions.setdefault(match[1], [])
            ptx_line = 0
        elif match := _LINE_PATTERN.search(text_line):
            ptx_line = int(match[1])
        elif match := _INSTRUCTION_PATTERN.search(text_line):
            is_guarded = match[3] is not None and not match[3].endswith("T")
            function_instructions.append(
                SassInstruction(int(match[1], 16), match[4], is_guarded, match[5].strip(), ptx_line)
            )
    return {name: tuple(instructions) for name, instructions in functions.items() if instructions}


def _run_nvdisasm(nvdisasm_path: str, cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        cubin_path = Path(folder) / "kernel.cubin"
        cubin_path.write_bytes(cubin)
        completed_process = subprocess.run(
            [nvdisasm_path, "-gp", "-c", str(cubin_path)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if completed_process.returncode:
        error_lines = (completed_process.stderr or completed_process.stdout).strip().splitlines()
        raise GpulabError(
            f"nvdisasm cannot read this machine code: {error_lines[-1] if error_lines else 'no reason'}."
        )
    return completed_process.stdout


@functools.cache
def _find_nvdisasm() -> str | None:
    from cuda.pathfinder import find_nvidia_binary_utility

    try:
        nvdisasm_path = find_nvidia_binary_utility("nvdisasm")
    except Exception:
        return None
    return str(nvdisasm_path) if nvdisasm_path else None
