"""LLVM text to callable machine code, through llvmlite, kept on disk by content."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Mapping
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from virtualgpu.compile import cache as disk_cache
from virtualgpu.compile.interruptible import interruptible
from virtualgpu.engine.run import object_code, split

_RUN_BLOCKS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_RUN_BLOCK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)


@functools.cache
def _host() -> tuple[Any, str, str]:
    """Target, processor name and features of this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        features["prefer-256-bit"] = False
    return llvm.Target.from_default_triple(), llvm.get_host_cpu_name(), features.flatten()


def target_machine(effort: int = 2) -> Any:
    """Code generation for this machine's own processor; a compiler takes over the one it is given."""
    target, name, features = _host()
    return target.create_target_machine(cpu=name, features=features, opt=effort, jit=True)


class Code:
    """Machine code of one kernel; keeps its memory alive while it is referenced."""

    def __init__(self, text: str) -> None:
        halves = split.split(text)
        if halves is None:
            self._engines = [_engine(text)]
        else:
            support = _engine(halves.support)
            places = {name: support.get_function_address(name) for name in halves.names}
            self._engines = [_engine(halves.own, places), support]
        own = self._engines[0]
        self.run_blocks = _RUN_BLOCKS(own.get_function_address("run_blocks"))
        self.run_block = _RUN_BLOCK(own.get_function_address("run_block"))


class Library:
    """Machine code of functions that do not belong to one kernel, translated as well as LLVM can."""

    def __init__(self, text: str, entry: str) -> None:
        self._engine = _engine(text, thorough=True)
        self.address = int(self._engine.get_function_address(entry))


def _engine(text: str, places: Mapping[str, int] | None = None, *, thorough: bool = False) -> Any:
    """One module translated; with addresses of functions that it calls, quickly rather than well."""
    quick = places is not None
    machine = target_machine(0 if quick else 2)
    module = llvm.parse_assembly(text)
    _, processor, features = _host()
    key = disk_cache.key(llvmlite.__version__, processor, features, text)
    code = disk_cache.load("engine", key)
    if code is None:
        code = interruptible(lambda: _generate(module, machine, key, quick, thorough))
    engine = llvm.create_mcjit_compiler(module, machine)
    object_code.check(code, places or {})
    for name, place in (places or {}).items():
        engine.add_global_mapping(module.get_function(name), place)
    engine.set_object_cache(None, lambda _: code)
    # On a thread of its own: Python drops a KeyboardInterrupt that it raises within a callback from C.
    thread = threading.Thread(target=engine.finalize_object)
    thread.start()
    thread.join()
    return engine


def _generate(module: Any, machine: Any, key: str, quick: bool, thorough: bool) -> bytes:
    """Machine code of a module, which is also kept on disk."""
    module.verify()
    if thorough:
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    elif not quick:
        _optimize(module, machine)
    code: bytes = machine.emit_object(module)
    disk_cache.store("engine", key, code)
    return code


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
