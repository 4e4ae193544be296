"""Code images that a driver loads: machine code, PTX or both in one file, with their targets.

Layouts: cubins are ELF files whose ``e_flags`` name the target, in bits 8 to 15 since ABI version 8 and in
bits 0 to 7 before; a fat binary is a header of 16 bytes, then entries, each with its kind (1 PTX, 2 machine
code), size and target. The rules of compatibility are in the CUDA Programming Guide, "binary compatibility",
"PTX compatibility" and "architecture-specific features".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cubin", "PTX"]
Capability = tuple[int, int]

ELF_MAGIC = b"\x7fELF"
FAT_BINARY_MAGIC = b"\x50\xed\x55\xba"
_TARGET_PATTERN = re.compile(rb"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)
_COMPRESSION_FLAGS = 0xA000  # flags of an entry: compressed by LZ4 or by zstd
_TEGRA_CAPABILITIES = (
    (5, 3),
    (6, 2),
    (7, 2),
    (8, 7),
)  # Jetsons run machine code for their own capability only


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a code image: machine code or PTX for one target. For the target ``sm_90a``, ``number`` is
    90 and ``suffix`` is ``a``.
    """

    kind: Kind
    number: int
    suffix: str = ""
    data: bytes = b""

    @classmethod
    def of(cls, target: str) -> Part:
        """Return the part of a code image for a target. The part is machine code for ``sm_90a``, and PTX for
        ``compute_90a``.
        """
        match = re.fullmatch(r"(sm|compute)_(\d+)([af]?)", target)
        if match is None:
            raise ValueError(f"{target!r} is not a target such as sm_90, sm_90a or compute_90.")
        return cls("cubin" if match[1] == "sm" else "PTX", int(match[2]), match[3])

    @property
    def capability(self) -> Capability:
        """The compute capability of the target."""
        return divmod(self.number, 10)

    def runs_on(self, capability: Capability) -> bool:
        """Return whether a device can run this machine code or PTX. The suffix of a cubin is unknown and
        therefore ignored.
        """
        if self.suffix == "a" or (
            self.kind == "cubin" and {self.capability, capability} & set(_TEGRA_CAPABILITIES)
        ):
            return capability == self.capability
        if self.kind == "cubin" or self.suffix == "f":
            return capability[0] == self.capability[0] and capability[1] >= self.capability[1]
        return capability >= self.capability


def choose_part(parts: Iterable[Part], capability: Capability) -> Part | None:
    """Return the part of a code image that a driver selects for a device. The driver selects the newest
    machine code, or the newest PTX if there is no machine code.
    """
    usable_parts = [image_part for image_part in parts if image_part.runs_on(capability)]
    return max(
        usable_parts,
        key=lambda image_part: (image_part.kind == "cubin", image_part.number, image_part.suffix),
        default=None,
    )


def find_parts(image: bytes) -> tuple[Part, ...]:
    """Return the machine code and PTX parts of a code image. The result is empty if the format is unknown."""
    if image.startswith(ELF_MAGIC) and len(image) >= 64:
        elf_flags = struct.unpack_from("<I", image, 48)[0]
        return (Part("cubin", elf_flags >> 8 & 0xFF if image[8] >= 8 else elf_flags & 0xFF, data=image),)
    if image.startswith(FAT_BINARY_MAGIC):
        return tuple(_read_entries(image))
    match = _TARGET_PATTERN.search(image)
    return (Part("PTX", int(match[1]), match[2].decode(), image),) if match else ()


def _read_entries(image: bytes) -> Iterator[Part]:
    """Yield the complete entries of a fat binary, up to the first damaged one."""
    entry_offset = struct.unpack_from("<H", image, 6)[0] if len(image) >= 8 else len(image)
    while entry_offset + 48 <= len(image):
        entry_kind, _, header_bytes, data_bytes = struct.unpack_from("<HHIQ", image, entry_offset)
        entry_end = entry_offset + header_bytes + data_bytes
        if header_bytes < 48 or not data_bytes or entry_end > len(image):
            return
        entry_data = image[entry_offset + header_bytes : entry_end]
        arch_number = struct.unpack_from("<I", image, entry_offset + 28)[0]
        if entry_kind == 2:
            yield Part("cubin", arch_number, data=entry_data)
        elif struct.unpack_from("<I", image, entry_offset + 40)[0] & _COMPRESSION_FLAGS:
            yield Part("PTX", arch_number)
        else:
            match = _TARGET_PATTERN.search(entry_data)
            yield Part("PTX", arch_number, match[2].decode() if match else "", entry_data)
        entry_offset = entry_end
