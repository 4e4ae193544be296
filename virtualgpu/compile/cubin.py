"""Reader of the resources (registers, memory) that ptxas assigned to each kernel in a cubin file.

The layout is that of NVIDIA's ELF for machine code:

* a kernel is a function symbol whose ``st_other`` has the entry bit (0x10) set;
* ``.nv.info`` and ``.nv.info.<kernel>`` hold attributes: a format byte, an attribute byte, a
  16-bit value or length, and for format 4 a payload of that length;
* ``.nv.shared.<kernel>`` is the static shared memory. From compute capability 9.0 on it also
  contains the 1 KiB that the driver reserves, which ptxas does not report as the kernel's own;
* ``.nv.constant3`` is the module's ``__constant__`` memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from virtualgpu.errors import GpulabError

_ELF_MAGIC = b"\x7fELF\x02\x01"  # 64-bit, little endian
_FUNCTION_SYMBOL_TYPE = 2
_KERNEL_ENTRY_BIT = 0x10
_PAYLOAD_FORMAT = 4
_ATTRIBUTE_MAX_THREADS = 0x05
_ATTRIBUTE_FRAME_SIZE = 0x11
_ATTRIBUTE_REGISTER_COUNT = 0x2F
_RESERVED_SHARED_BYTES = 1024
_RESERVED_SHARED_SECTION = ".nv.shared.reserved.0"


@dataclass(frozen=True, slots=True)
class KernelResources:
    """The resources that one kernel needs, such as registers per thread and shared memory per block. Memory
    sizes are in bytes.

    ``launch_bound_threads`` is the bound of ``__launch_bounds__``, or None. ``estimated`` means that the
    registers are an estimate, not assigned by a compiler.
    """

    registers_per_thread: int
    static_shared_bytes: int
    local_bytes: int
    constant_bytes: int
    launch_bound_threads: int | None
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    data: bytes
    size_bytes: int


def read_kernel_resources(cubin: bytes) -> dict[str, KernelResources]:
    """Return a dictionary that maps each kernel's (mangled) name in a cubin to its resources.

    Raises
    ------
    GpulabError
        If `cubin` is not a 64-bit cubin.
    """
    sections = {section.name: section for section in _read_sections(cubin)}
    symbols = list(_read_symbols(sections))
    register_counts: dict[int, int] = {}
    frame_bytes: dict[int, int] = {}
    for attribute_code, payload in _parse_attributes(_get_section_data(sections, ".nv.info")):
        if attribute_code in (_ATTRIBUTE_REGISTER_COUNT, _ATTRIBUTE_FRAME_SIZE):
            symbol_index, attribute_value = struct.unpack_from("<II", payload)
            if attribute_code == _ATTRIBUTE_REGISTER_COUNT:
                register_counts[symbol_index] = attribute_value
            else:
                frame_bytes[symbol_index] = attribute_value
    reserved_bytes = _RESERVED_SHARED_BYTES if _RESERVED_SHARED_SECTION in sections else 0
    constant_section = sections.get(".nv.constant3")
    resources = {}
    for symbol_number, (name, is_entry) in enumerate(symbols):
        if not is_entry:
            continue
        shared_section = sections.get(f".nv.shared.{name}")
        resources[name] = KernelResources(
            registers_per_thread=register_counts.get(symbol_number, 0),
            static_shared_bytes=max(shared_section.size_bytes - reserved_bytes, 0) if shared_section else 0,
            local_bytes=frame_bytes.get(symbol_number, 0),
            constant_bytes=constant_section.size_bytes if constant_section else 0,
            launch_bound_threads=_read_launch_bound(_get_section_data(sections, f".nv.info.{name}")),
        )
    return resources


def _read_sections(cubin: bytes) -> Iterator[_Section]:
    if not cubin.startswith(_ELF_MAGIC):
        raise GpulabError("These bytes are not a cubin: they have no 64-bit little-endian ELF header.")
    table_offset = struct.unpack_from("<Q", cubin, 0x28)[0]
    entry_bytes, section_count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    section_headers = [
        struct.unpack_from("<IIQQQQ", cubin, table_offset + i * entry_bytes) for i in range(section_count)
    ]
    section_names = _read_section(cubin, section_headers[names_index])
    for section_header in section_headers:
        yield _Section(
            _read_string(section_names, section_header[0]),
            _read_section(cubin, section_header),
            section_header[5],
        )


def _read_section(cubin: bytes, section_header: tuple[int, ...]) -> bytes:
    section_offset = section_header[4]
    section_bytes = section_header[5]
    return cubin[section_offset : section_offset + section_bytes]


def _read_symbols(sections: dict[str, _Section]) -> Iterator[tuple[str, bool]]:
    symbol_names = _get_section_data(sections, ".strtab")
    for name_offset, symbol_info, visibility, _, _, _ in struct.iter_unpack(
        "<IBBHQQ", _get_section_data(sections, ".symtab")
    ):
        yield (
            _read_string(symbol_names, name_offset),
            symbol_info & 0xF == _FUNCTION_SYMBOL_TYPE and bool(visibility & _KERNEL_ENTRY_BIT),
        )


def _parse_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(data):
        attribute_format, attribute_code, size_or_value = struct.unpack_from("<BBH", data, position)
        position += 4
        if attribute_format == _PAYLOAD_FORMAT:
            yield attribute_code, data[position : position + size_or_value]
            position += size_or_value
        else:
            yield attribute_code, struct.pack("<H", size_or_value)


def _read_launch_bound(data: bytes) -> int | None:
    for attribute_code, payload in _parse_attributes(data):
        if attribute_code == _ATTRIBUTE_MAX_THREADS:
            x, y, z = struct.unpack_from("<III", payload)
            return int(x * y * z)
    return None


def _get_section_data(sections: dict[str, _Section], name: str) -> bytes:
    section = sections.get(name)
    return section.data if section else b""


def _read_string(string_table: bytes, offset: int) -> str:
    return string_table[offset : string_table.index(b"\0", offset)].decode()
