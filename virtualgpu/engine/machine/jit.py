"""LLVM text to callable machine code, through llvmlite, kept on disk by content."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Mapping
from typing import Any, Literal

import llvmlite
import llvmlite.binding as llvm

from virtualgpu.compile import cache as disk_cache
from virtualgpu.compile.interruptible import interruptible
from virtualgpu.engine.machine import object_code, pieces, processor, split, stand_ins
from virtualgpu.engine.machine.processor import Processor

_RUN_BLOCKS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
# Kernels that take longer to translate whole are first translated in passing, and longer still only so.
_LONG_S = 0.8
_NEVER_S = 15.0
_RUN_BLOCK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
# Code without tables for unwinding. LLVM would register them with libgcc, which since GCC 13 looks them up in a
# tree where they outlive the code: any backtrace then ends the process, and NumPy takes one for large arrays.
_NEVER_UNWOUND = "nounwind"
# How machine code is made and kept, for keys: entries that were made in other ways are not found.
_MADE = f"{_NEVER_UNWOUND}, in pieces"

Effort = Literal["quick", "usual", "thorough"]


@functools.cache
def _host() -> Any:
    """LLVM's target for this machine's architecture."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


def target_machine(made_for: Processor, effort: int = 2) -> Any:
    """Code generation for a processor; a compiler takes over the one it is given."""
    return _host().create_target_machine(cpu=made_for.name, features=made_for.settings, opt=effort, jit=True)


class Code:
    """Machine code of one kernel; keeps its memory alive while it is referenced.

    A long kernel's is made in passing first, and well when it has run for as long as that takes: together
    at most twice the time of whichever would have been the better choice.
    """

    def __init__(self, text: str, made_for: Processor | None = None) -> None:
        self._made_for = made_for = made_for or processor.chosen()
        text = stand_ins.fitted(text, made_for)
        self._text = ""  # of what is translated again when it has run for long
        self._spare_s = split.whole_s(text, made_for.register_bytes)
        halves = None
        if self._spare_s > _LONG_S and not _is_kept(text, made_for):
            halves = split.split(text)
        if halves is None:
            self._engines = [_engine(text, made_for)]
        else:
            self._text = text if self._spare_s < _NEVER_S else ""
            support = _engine(halves.support, made_for, entries=halves.names)
            places = {name: support.get_function_address(name) for name in halves.names}
            self._engines = [_engine(halves.own, made_for, places), support]
        self._enter()

    def _enter(self) -> None:
        own = self._engines[0]
        self.run_blocks = _RUN_BLOCKS(own.get_function_address("run_blocks"))
        self.run_block = _RUN_BLOCK(own.get_function_address("run_block"))

    def ran(self, seconds: float) -> None:
        """Note that a launch has taken so long."""
        self._spare_s -= seconds

    def improve(self) -> None:
        """Before a launch: translate well what has run for long; launches under way keep what they run."""
        text = self._text
        if text and self._spare_s <= 0:
            self._text = ""
            self._engines.insert(0, _engine(text, self._made_for))
            self._enter()


class Library:
    """Machine code of functions that do not belong to one kernel, translated as well as LLVM can."""

    def __init__(self, text: str, entry: str) -> None:
        made_for = processor.chosen()
        self._engine = _engine(stand_ins.fitted(text, made_for), made_for, thorough=True)
        self.address = int(self._engine.get_function_address(entry))


def _key(text: str, made_for: Processor) -> str:
    return disk_cache.key(llvmlite.__version__, made_for.name, made_for.settings, _MADE, text)


def _is_kept(text: str, made_for: Processor) -> bool:
    return disk_cache.load("engine", _key(text, made_for)) is not None


def _engine(
    text: str,
    made_for: Processor,
    places: Mapping[str, int] | None = None,
    *,
    entries: tuple[str, ...] = pieces.ENTRIES,
    thorough: bool = False,
) -> Any:
    """One module translated; with addresses of functions that it calls, quickly rather than well."""
    effort: Effort = "thorough" if thorough else "usual" if places is None else "quick"
    key = _key(text, made_for)
    data = disk_cache.load("engine", key)
    if data is None:
        data = interruptible(lambda: kept(key, text, made_for, effort, entries))
    (*codes, last), needs = object_code.unpacked(data)
    machine = target_machine(made_for, 0 if effort == "quick" else 2)
    module = llvm.parse_assembly("\n".join(f"declare void @{name}()" for name in places or ()))
    engine = llvm.create_mcjit_compiler(module, machine)
    object_code.check(needs, places or {})
    for name, place in (places or {}).items():
        engine.add_global_mapping(module.get_function(name), place)
    for code in codes:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.set_object_cache(None, lambda _: last)
    # On a thread of its own: Python drops a KeyboardInterrupt that it raises within a callback from C.
    thread = threading.Thread(target=engine.finalize_object)
    thread.start()
    thread.join()
    return engine


def kept(
    key: str, text: str, made_for: Processor, effort: Effort, entries: tuple[str, ...] = pieces.ENTRIES
) -> bytes:
    """The machine code of a module, which is also kept on disk; in pieces where much of it is shared."""
    if effort == "usual" and sys.platform != "win32":  # COFF objects are known to load one at a time
        made = [
            _shared(piece.text, made_for) if piece.shared else _generated(piece.text, made_for, effort)
            for piece in pieces.pieces(text, entries)
        ]
    else:
        made = [_generated(text, made_for, effort)]
    data = object_code.packed(made)
    disk_cache.store("engine", key, data)
    return data


@functools.lru_cache(maxsize=512)
def _shared(text: str, made_for: Processor) -> bytes:
    """Machine code of a function that many kernels have."""
    key = _key(text, made_for)
    code = disk_cache.load("engine", key)
    if code is None:
        code = _generated(text, made_for, "usual")
        disk_cache.store("engine", key, code)
    return code


def _generated(text: str, made_for: Processor, effort: Effort) -> bytes:
    """Machine code of one module."""
    machine = target_machine(made_for, 0 if effort == "quick" else 2)
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if not function.is_declaration:
            function.add_function_attribute(_NEVER_UNWOUND)
    module.verify()
    if effort == "thorough":
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    elif effort == "usual":
        _optimize(module, machine)
    return bytes(machine.emit_object(module))


def _optimize(module: Any, machine: Any) -> None:
    """A few cheap passes: most of the text is straight-line vector code already."""
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_new_gvn_pass()
    passes.add_simplify_cfg_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
