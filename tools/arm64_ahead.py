"""Pytest plugin: translate for arm64, too, what tests translate here, so that an emulated run need not.

    ARM64_SITE=FOLDER GPULAB_CACHE_DIR=FOLDER pytest -p tools.arm64_ahead TESTS

`ARM64_SITE` holds arm64's packages: what NVRTC is asked there names its headers by their place. LLVM gives
the same machine code wherever it runs; emulated, it takes many times as long as the tests that the code is
for. `tools/arm64.sh` runs its tests once with this before it runs them on the emulator.
"""

from __future__ import annotations

import functools
import os
import sysconfig
from typing import Any

import llvmlite.binding as llvm
import pytest

from virtualgpu.compile import cache, nvrtc
from virtualgpu.engine.machine import jit, pieces, processor, split, stand_ins

LEVEL = "armv8-a"
FEATURES = ("fp-armv8", "neon")
ARM = processor.Processor(LEVEL, "generic", ",".join(f"+{name}" for name in FEATURES), frozenset(FEATURES))


def _store_translation(
    ptx: str, effort: jit.Effort = "usual", entries: tuple[str, ...] = pieces.ENTRY_FUNCTIONS
) -> None:
    """Keep the machine code that `jit` would make of a module on arm64."""
    key = jit._cache_key(ptx, ARM)
    if cache.load_entry("engine", key) is None:
        original_find_target = jit._find_host_target
        jit._find_host_target = _arm_processor
        try:
            jit.translate_and_store(key, ptx, ARM, effort, entries)
        finally:
            jit._find_host_target = original_find_target


@functools.cache
def _arm_processor() -> Any:
    return llvm.Target.from_triple("aarch64-unknown-linux-gnu")


def _store_kernel(ptx: str) -> None:
    ptx = stand_ins.replace_missing_operations(ptx, ARM)
    is_long = split.estimate_translation_s(ptx, ARM.register_bytes) > jit._QUICK_FIRST_LIMIT_S
    kernel_halves = split.split_kernel(ptx) if is_long else None
    if kernel_halves is None:
        _store_translation(ptx)
    else:
        _store_translation(kernel_halves.support_text, entries=kernel_halves.function_names)
        _store_translation(kernel_halves.kernel_text, "quick")


def pytest_configure(config: pytest.Config) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    original_init = jit.KernelCode.__init__
    library_init = jit.LibraryCode.__init__

    def translate_code(
        self: jit.KernelCode, text: str, target_processor: processor.Processor | None = None
    ) -> None:
        _store_kernel(text)
        original_init(self, text, target_processor)

    def translate_functions(self: jit.LibraryCode, text: str, entry_name: str) -> None:
        _store_translation(stand_ins.replace_missing_operations(text, ARM), "thorough")
        library_init(self, text, entry_name)

    include_options = nvrtc.find_include_options()
    arm64_options = tuple(
        option.replace(sysconfig.get_path("purelib"), os.environ["ARM64_SITE"]) for option in include_options
    )
    nvrtc.find_include_options = lambda: arm64_options  # type: ignore[assignment]
    jit.KernelCode.__init__ = translate_code  # type: ignore[method-assign]
    jit.LibraryCode.__init__ = translate_functions  # type: ignore[method-assign]
