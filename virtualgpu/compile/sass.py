"""Machine code (SASS) of a cubin, with the PTX line that each instruction was made of.

NVRTC with ``-lineinfo`` puts into the cubin which line of the PTX an instruction comes from;
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

_SECTION = re.compile(r"\.text\.([\w$]+):")
_LINE = re.compile(r'//## File "\.nv_debug_ptx_txt", line (\d+)')
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?)(U?P[\dT]+)\s+)?([A-Z][\w.]*)\s*([^;]*)")
_TIMEOUT_S = 60.0

_SPACES = {
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
_BRANCHES = ("BRA", "BRX", "JMP", "JMX", "EXIT", "RET")


class NvdisasmMissingError(ToolMissingError):
    """NVIDIA's disassembler is not installed here."""

    def __init__(self) -> None:
        super().__init__(
            "not available: install nvidia-cuda-nvdisasm (`pip install nvidia-cuda-nvdisasm`), NVIDIA's "
            "disassembler, to see what the machine code does"
        )


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One machine instruction. ``ptx_line`` is 1-based in the module's PTX text, 0 if unknown."""

    address: int
    opcode: str
    guarded: bool
    operands: str
    ptx_line: int

    @property
    def root(self) -> str:
        """The mnemonic without its suffixes, such as ``LDS``."""
        return self.opcode.split(".")[0]

    @property
    def space(self) -> str:
        """State space of a memory instruction; empty if it is none."""
        return _SPACES.get(self.root, "")

    @property
    def kind(self) -> str:
        """load, store or atomic; empty for anything else."""
        if not self.space:
            return ""
        return {"LD": "load", "ST": "store"}.get(self.root[:2], "atomic")

    @property
    def size_bytes(self) -> int:
        """Bytes one lane accesses."""
        parts = self.opcode.split(".")[1:]
        for text, size in (("256", 32), ("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)):
            if text in parts:
                return size
        return 4

    @property
    def is_conditional_branch(self) -> bool:
        """Whether some lanes may leave here for another place, the kernel's end included."""
        if ".DIV" in self.opcode:  # asks whether the warp has split, which all of its lanes know
            return False
        return self.root in _BRANCHES and (self.guarded or self.root in ("BRX", "JMX"))


def available() -> bool:
    """Whether NVIDIA's disassembler is installed here."""
    return _nvdisasm() is not None


def disassemble(cubin: bytes) -> dict[str, tuple[SassInstruction, ...]]:
    """Machine instructions of every function of a cubin, by (mangled) name.

    Raises
    ------
    NvdisasmMissingError
        If ``nvdisasm`` is not installed.
    GpulabError
        If it cannot read the cubin.
    """
    tool = _nvdisasm()
    if tool is None:
        raise NvdisasmMissingError
    return parse(_run(tool, cubin))


def parse(text: str) -> dict[str, tuple[SassInstruction, ...]]:
    """Read what ``nvdisasm -gp -c`` prints."""
    functions: dict[str, list[SassInstruction]] = {}
    current: list[SassInstruction] = []
    line = 0
    for row in text.splitlines():
        if found := _SECTION.match(row):
            current = functions.setdefault(found[1], [])
            line = 0
        elif found := _LINE.search(row):
            line = int(found[1])
        elif found := _INSTRUCTION.search(row):
            guarded = found[3] is not None and not found[3].endswith("T")
            current.append(SassInstruction(int(found[1], 16), found[4], guarded, found[5].strip(), line))
    return {name: tuple(instructions) for name, instructions in functions.items() if instructions}


def _run(tool: str, cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [tool, "-gp", "-c", str(path)], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise GpulabError(f"nvdisasm cannot read this machine code: {reason[-1] if reason else 'no reason'}.")
    return done.stdout


@functools.cache
def _nvdisasm() -> str | None:
    from cuda.pathfinder import find_nvidia_binary_utility

    try:
        found = find_nvidia_binary_utility("nvdisasm")
    except Exception:
        return None
    return str(found) if found else None
