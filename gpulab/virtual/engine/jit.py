"""LLVM text to callable machine code, through llvmlite, kept on disk by content."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from gpulab import disk_cache

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


def target_machine() -> Any:
    """Code generation for this machine's own processor; a compiler takes over the one it is given."""
    target, name, features = _host()
    return target.create_target_machine(cpu=name, features=features, opt=2, jit=True)


class Code:
    """Machine code of one LLVM module; keeps its memory alive while it is referenced."""

    def __init__(self, text: str) -> None:
        machine = target_machine()
        module = llvm.parse_assembly(text)
        _, processor, features = _host()
        key = disk_cache.key(llvmlite.__version__, processor, features, text)
        stored = disk_cache.load("engine", key)
        if stored is None:
            module.verify()
            _optimize(module, machine)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.set_object_cache(
            lambda _, compiled: disk_cache.store("engine", key, compiled), lambda _: stored
        )
        self._engine.finalize_object()
        self.run_blocks = _RUN_BLOCKS(self._engine.get_function_address("run_blocks"))
        self.run_block = _RUN_BLOCK(self._engine.get_function_address("run_block"))


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
