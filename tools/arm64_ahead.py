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


def _keep(text: str, effort: jit.Effort = "usual", entries: tuple[str, ...] = pieces.ENTRIES) -> None:
    """Keep the machine code that `jit` would make of a module on arm64."""
    key = jit._key(text, ARM)
    if cache.load("engine", key) is None:
        here = jit._host
        jit._host = _arm
        try:
            jit.translate_and_store(key, text, ARM, effort, entries)
        finally:
            jit._host = here


@functools.cache
def _arm() -> Any:
    return llvm.Target.from_triple("aarch64-unknown-linux-gnu")


def _kernel(text: str) -> None:
    text = stand_ins.adapt(text, ARM)
    long = split.whole_s(text, ARM.register_bytes) > jit._LONG_S
    halves = split.split(text) if long else None
    if halves is None:
        _keep(text)
    else:
        _keep(halves.support_text, entries=halves.function_names)
        _keep(halves.kernel_text, "quick")


def pytest_configure(config: pytest.Config) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    here = jit.Code.__init__
    library = jit.Library.__init__

    def code(self: jit.Code, text: str, made_for: processor.Processor | None = None) -> None:
        _kernel(text)
        here(self, text, made_for)

    def functions(self: jit.Library, text: str, entry: str) -> None:
        _keep(stand_ins.adapt(text, ARM), "thorough")
        library(self, text, entry)

    headers = nvrtc.include_options()
    there = tuple(o.replace(sysconfig.get_path("purelib"), os.environ["ARM64_SITE"]) for o in headers)
    nvrtc.include_options = lambda: there  # type: ignore[assignment]
    jit.Code.__init__ = code  # type: ignore[method-assign]
    jit.Library.__init__ = functions  # type: ignore[method-assign]
