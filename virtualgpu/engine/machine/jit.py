"""Translation of LLVM text to machine code with llvmlite, and its storage in the cache on disk."""

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
from virtualgpu.compile.interruptible import run_interruptible
from virtualgpu.engine.machine import object_code, pieces, processor, split, stand_ins
from virtualgpu.engine.machine.processor import Processor

_RUN_BLOCKS_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
# A kernel that takes longer than the first number to translate in one piece is translated quickly first,
# and one that takes longer than the second number is only translated quickly.
_QUICK_FIRST_LIMIT_S = 0.8
_QUICK_ONLY_LIMIT_S = 15.0
_RUN_BLOCK_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
# Code without tables for unwinding. LLVM would register them with libgcc, which since GCC 13 looks them up in
# a tree where they outlive the code: any backtrace then ends the process, and NumPy takes one for large
# arrays.
_NO_UNWINDING_ATTRIBUTE = "nounwind"
# Part of each cache key that describes how machine code is made; entries made in another way do not match.
_METHOD_KEY = f"{_NO_UNWINDING_ATTRIBUTE}, in pieces"

Effort = Literal["quick", "usual", "thorough"]


@functools.cache
def _find_host_target() -> Any:
    """Return the LLVM target of this machine's architecture."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


def make_target_machine(target_processor: Processor, optimization_level: int = 2) -> Any:
    """Return LLVM's code generator for a processor. The LLVM compiler that receives this object takes
    ownership of it.
    """
    return _find_host_target().create_target_machine(
        cpu=target_processor.name,
        features=target_processor.feature_settings,
        opt=optimization_level,
        jit=True,
    )


class KernelCode:
    """The machine code of one kernel. The machine code stays in memory as long as the object exists.

    A long kernel is translated quickly first, and well after it has run for as long as a good translation
    takes. Together this takes at most twice the time of the better choice.
    """

    def __init__(self, text: str, target_processor: Processor | None = None) -> None:
        self._target_processor = target_processor = target_processor or processor.find_chosen_processor()
        text = stand_ins.replace_missing_operations(text, target_processor)
        self._text = ""  # text to translate again after a long run time
        self._time_until_improvement_s = split.estimate_translation_s(text, target_processor.register_bytes)
        text_halves = None
        if self._time_until_improvement_s > _QUICK_FIRST_LIMIT_S and not _is_stored(text, target_processor):
            text_halves = split.split_kernel(text)
        if text_halves is None:
            self._engines = [_load_module(text, target_processor)]
        else:
            self._text = text if self._time_until_improvement_s < _QUICK_ONLY_LIMIT_S else ""
            support_module = _load_module(
                text_halves.support_text, target_processor, entry_names=text_halves.function_names
            )
            addresses = {
                name: support_module.get_function_address(name) for name in text_halves.function_names
            }
            self._engines = [
                _load_module(text_halves.kernel_text, target_processor, addresses),
                support_module,
            ]
        self._set_entry_points()

    def _set_entry_points(self) -> None:
        engine = self._engines[0]
        self.run_blocks = _RUN_BLOCKS_TYPE(engine.get_function_address("run_blocks"))
        self.run_block = _RUN_BLOCK_TYPE(engine.get_function_address("run_block"))

    def note_run_time(self, seconds: float) -> None:
        """Add the run time of a launch to the total that triggers an optimized translation."""
        self._time_until_improvement_s -= seconds

    def improve(self) -> None:
        """Translate a kernel again with full optimization if its launches have taken long enough.

        Launches that are already running keep the old code.
        """
        text = self._text
        if text and self._time_until_improvement_s <= 0:
            self._text = ""
            self._engines.insert(0, _load_module(text, self._target_processor))
            self._set_entry_points()


class LibraryCode:
    """The machine code of functions that do not belong to a kernel. The code is compiled with all of LLVM's
    optimizations.
    """

    def __init__(self, text: str, entry_name: str) -> None:
        target_processor = processor.find_chosen_processor()
        self._engine = _load_module(
            stand_ins.replace_missing_operations(text, target_processor), target_processor, is_thorough=True
        )
        self.address = int(self._engine.get_function_address(entry_name))


def _cache_key(text: str, target_processor: Processor) -> str:
    return disk_cache.make_key(
        llvmlite.__version__, target_processor.name, target_processor.feature_settings, _METHOD_KEY, text
    )


def _is_stored(text: str, target_processor: Processor) -> bool:
    return disk_cache.load_entry("engine", _cache_key(text, target_processor)) is not None


def _load_module(
    text: str,
    target_processor: Processor,
    addresses: Mapping[str, int] | None = None,
    *,
    entry_names: tuple[str, ...] = pieces.ENTRY_FUNCTIONS,
    is_thorough: bool = False,
) -> Any:
    """Translate one module to machine code and load it.

    If `addresses` of called functions are given, it is translated quickly and with fewer optimizations.
    """
    effort: Effort = "usual" if addresses is None else "quick"
    if is_thorough:
        effort = "thorough"
    key = _cache_key(text, target_processor)
    packed_codes = disk_cache.load_entry("engine", key)
    if packed_codes is None:
        packed_codes = run_interruptible(
            lambda: translate_and_store(key, text, target_processor, effort, entry_names)
        )
    (*module_codes, last_code), required_names = object_code.unpack(packed_codes)
    machine = make_target_machine(target_processor, 0 if effort == "quick" else 2)
    module = llvm.parse_assembly("\n".join(f"declare void @{name}()" for name in addresses or ()))
    engine = llvm.create_mcjit_compiler(module, machine)
    object_code.check_required_names(required_names, addresses or {})
    for name, address in (addresses or {}).items():
        engine.add_global_mapping(module.get_function(name), address)
    for module_code in module_codes:
        engine.add_object_file(llvm.ObjectFileRef.from_data(module_code))
    engine.set_object_cache(None, lambda _: last_code)
    # On a separate thread, because Python drops a KeyboardInterrupt that it raises within a callback from C.
    thread = threading.Thread(target=engine.finalize_object)
    thread.start()
    thread.join()
    return engine


def translate_and_store(
    key: str,
    text: str,
    target_processor: Processor,
    effort: Effort,
    entry_names: tuple[str, ...] = pieces.ENTRY_FUNCTIONS,
) -> bytes:
    """Translate an LLVM module to machine code, store the code in the cache on disk, and return it.

    Functions that several kernels share are stored separately.
    """
    if effort == "usual" and sys.platform != "win32":  # COFF objects are known to load one at a time
        module_codes = [
            _load_shared_code(module_piece.text, target_processor)
            if module_piece.is_shared
            else _compile_module(module_piece.text, target_processor, effort)
            for module_piece in pieces.split_by_sharing(text, entry_names)
        ]
    else:
        module_codes = [_compile_module(text, target_processor, effort)]
    packed_codes = object_code.pack(module_codes)
    disk_cache.store_entry("engine", key, packed_codes)
    return packed_codes


@functools.lru_cache(maxsize=512)
def _load_shared_code(text: str, target_processor: Processor) -> bytes:
    """Return the machine code of a function that many kernels contain, from the cache if possible."""
    key = _cache_key(text, target_processor)
    object_code = disk_cache.load_entry("engine", key)
    if object_code is None:
        object_code = _compile_module(text, target_processor, "usual")
        disk_cache.store_entry("engine", key, object_code)
    return object_code


def _compile_module(text: str, target_processor: Processor, effort: Effort) -> bytes:
    """Translate one module to machine code and return it."""
    machine = make_target_machine(target_processor, 0 if effort == "quick" else 2)
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if not function.is_declaration:
            function.add_function_attribute(_NO_UNWINDING_ATTRIBUTE)
    module.verify()
    if effort == "thorough":
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        pass_builder = llvm.create_pass_builder(machine, options)
        pass_builder.getModulePassManager().run(module, pass_builder)
    elif effort == "usual":
        _run_fast_passes(module, machine)
    return bytes(machine.emit_object(module))


def _run_fast_passes(module: Any, machine: Any) -> None:
    """Run a few fast LLVM passes; most of the text is straight-line vector code already."""
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    pass_builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_new_gvn_pass()
    passes.add_simplify_cfg_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, pass_builder)
