"""Count calls of shared libraries' functions by name, without a log: through the callers' own tables.

What a program's object calls in a shared library it calls through a table of addresses (its GOT). Each entry
of a wanted name is made to point to a few bytes of code that count and go on to where it pointed before. This
sees every library alike, also those that keep no log (cuFFT, cuRAND, most of cuSOLVER), and costs a
nanosecond a call. Linux on x86-64 only.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_PT_DYNAMIC = 2
_DT_STRTAB = 5
_DT_SYMTAB = 6
_DT_RELA = 7
_DT_RELASZ = 8
_DT_PLTRELSZ = 2
_DT_JMPREL = 23
_R_X86_64_GLOB_DAT = 6
_R_X86_64_JUMP_SLOT = 7
_SYMBOL_BYTES = 24
_RELOCATION_BYTES = 24
_CODE_BYTES = 32
_RELOCATION = np.dtype([("offset", "u8"), ("info", "u8"), ("addend", "i8")])
# lock inc qword [counter]; jmp qword [target]; both lie behind, at 16 and 24.
_STUB_CODE = bytes.fromhex("f048ff0508000000ff250a0000000000")
_PAGE_BYTES = mmap.PAGESIZE


class _Header(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("physical", ctypes.c_uint64),
        ("file_bytes", ctypes.c_uint64),
        ("memory_bytes", ctypes.c_uint64),
        ("align", ctypes.c_uint64),
    )


class _Object(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.POINTER(_Header)),
        ("count", ctypes.c_uint16),
    )


class LibraryCalls:
    """A counter of calls of shared-library functions, which ignores calls from certain objects.

    Parameters
    ----------
    functions
        A pattern for the beginning of a function's name.
    excluded_files
        A pattern for file names of objects whose calls are not counted: the libraries themselves.
    max_functions
        The largest number of functions, counted for each object that calls them.
    """

    def __init__(self, functions: str, excluded_files: str, max_functions: int = 20_000) -> None:
        self._functions = re.compile(functions)
        self._excluded_files = re.compile(excluded_files)
        size_bytes = max_functions * _CODE_BYTES
        self._memory = mmap.mmap(-1, size_bytes, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        # Tables point there until the process has ended, and libraries still call while it ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._size = size_bytes
        self._names: list[str] = []
        self._slots: dict[int, int] = {}  # our code for an entry of a table, by its address
        self._tables: dict[tuple[int, str], list[tuple[int, str]]] = {}

    def watch(self) -> int:
        """Start to count calls of all loaded objects; return the number of watched entries."""
        for base_address, name, dynamic_address in _list_objects():
            if (base_address, name) not in self._tables:
                is_skipped = not dynamic_address or self._excluded_files.search(Path(name).name)
                self._tables[base_address, name] = (
                    [] if is_skipped else list(self._find_entries(base_address, dynamic_address))
                )
            for slot_address, symbol in self._tables[base_address, name]:
                self._redirect(slot_address, symbol)
        return len(self._slots)

    def clear(self) -> None:
        """Reset all counts to 0."""
        for function_number in range(len(self._names)):
            self._stub_word(function_number, 16).value = 0

    def counted(self) -> Counter[str]:
        """Return the number of calls of each function since `clear`."""
        counts_by_name: Counter[str] = Counter()
        for function_number, name in enumerate(self._names):
            if call_count := self._stub_word(function_number, 16).value:
                counts_by_name[name] += call_count
        return counts_by_name

    def _stub_word(self, number: int, offset: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self._base + number * _CODE_BYTES + offset)

    def _redirect(self, slot: int, symbol: str) -> None:
        """Point an entry to the counting code; the loader may change it again when it resolves the name."""
        table_entry = ctypes.c_uint64.from_address(slot)
        stub_address = self._slots.get(slot)
        if table_entry.value == stub_address or not table_entry.value:
            return
        if stub_address is None:
            function_number = len(self._names)
            stub_address = self._base + function_number * _CODE_BYTES
            if (function_number + 1) * _CODE_BYTES > self._size:
                return
            ctypes.memmove(stub_address, _STUB_CODE, len(_STUB_CODE))
            self._names.append(symbol)
            self._slots[slot] = stub_address
        ctypes.c_uint64.from_address(stub_address + 24).value = table_entry.value
        page_address = slot & ~(_PAGE_BYTES - 1)
        ctypes.CDLL(None).mprotect(
            ctypes.c_void_p(page_address), ctypes.c_size_t(_PAGE_BYTES), mmap.PROT_READ | mmap.PROT_WRITE
        )
        table_entry.value = stub_address

    def _find_entries(self, base: int, dynamic: int) -> Iterator[tuple[int, str]]:
        """Yield the addresses of an object's entries for counted functions, with their names."""
        values_by_tag = _read_tags(dynamic, base)
        for table_tag, size_tag in ((_DT_JMPREL, _DT_PLTRELSZ), (_DT_RELA, _DT_RELASZ)):
            if table_tag not in values_by_tag or not values_by_tag.get(size_tag):
                continue
            relocation_count = values_by_tag[size_tag] // _RELOCATION_BYTES
            relocation_bytes = (ctypes.c_char * (relocation_count * _RELOCATION_BYTES)).from_address(
                values_by_tag[table_tag]
            )
            relocations = np.frombuffer(memoryview(relocation_bytes), _RELOCATION)
            relocation_types = relocations["info"] & 0xFFFFFFFF
            for relocation in relocations[
                (relocation_types == _R_X86_64_JUMP_SLOT) | (relocation_types == _R_X86_64_GLOB_DAT)
            ]:
                symbol_address = values_by_tag[_DT_SYMTAB] + int(relocation["info"] >> 32) * _SYMBOL_BYTES
                name = ctypes.string_at(
                    values_by_tag[_DT_STRTAB] + ctypes.c_uint32.from_address(symbol_address).value
                ).decode()
                if self._functions.match(name):
                    yield base + int(relocation["offset"]), name


def _read_tags(dynamic: int, base: int) -> dict[int, int]:
    """Return the addresses and sizes of tables in an object's dynamic section."""
    values_by_tag: dict[int, int] = {}
    while tag := ctypes.c_int64.from_address(dynamic).value:
        value = ctypes.c_uint64.from_address(dynamic + 8).value
        is_address = tag in (_DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_JMPREL)
        values_by_tag[tag] = value + base if is_address and value < base else value
        dynamic += 16
    return values_by_tag


def _list_objects() -> list[tuple[int, str, int]]:
    """Return base address, file and dynamic section of all loaded objects."""
    objects: list[tuple[int, str, int]] = []

    def add_object(info: Any, size: int, data: Any) -> int:
        object_info = info.contents
        program_headers = (object_info.headers[header_index] for header_index in range(object_info.count))
        dynamic_address = next(
            (header.address for header in program_headers if header.type == _PT_DYNAMIC), 0
        )
        name = (object_info.name or b"").decode(errors="replace")
        if "vdso" not in name:
            objects.append(
                (object_info.base, name, object_info.base + dynamic_address if dynamic_address else 0)
            )
        return 0

    callback_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Object), ctypes.c_size_t, ctypes.c_void_p)
    callback: Callable[..., int] = callback_type(add_object)
    ctypes.CDLL(None).dl_iterate_phdr(callback, None)
    return objects
