"""The processor that kernels are compiled for: named by a variable, checked before anything is compiled."""

from __future__ import annotations

import os
import subprocess
import sys

import llvmlite.binding as llvm
import pytest

from virtualgpu.engine.machine import jit, processor
from virtualgpu.errors import UnknownProcessorError

X86 = processor.find_architecture() == "x86"
PROGRAM = """
from virtualgpu import cp
cp.RawKernel('extern "C" __global__ void k() { never compiled }', "k")((1,), (1,), ())
"""


def test_the_native_processor_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(processor.CPU_VARIABLE, raising=False)
    assert processor.find_chosen_processor().name == llvm.get_host_cpu_name()
    monkeypatch.setenv(processor.CPU_VARIABLE, "native")
    assert processor.find_chosen_processor() is processor.find_native_processor()


@pytest.mark.parametrize("name", processor.list_feature_levels())
def test_a_level_is_accepted_if_the_processor_has_its_features(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(processor.CPU_VARIABLE, name)
    if processor.find_missing_features(name):
        with pytest.raises(UnknownProcessorError, match=f"selects {name}"):
            processor.find_chosen_processor()
    else:
        assert processor.find_chosen_processor().choice == name


@pytest.mark.skipif(not X86, reason="levels of x86")
def test_each_feature_level_uses_its_own_vector_instructions() -> None:
    text = "define <16 x float> @f(<16 x float> %x) { %r = fmul <16 x float> %x, %x ret <16 x float> %r }"
    result = {}
    for name in processor.list_feature_levels():
        machine = jit.make_target_machine(processor.make_level_processor(name))
        result[name] = machine.emit_assembly(llvm.parse_assembly(text))
    assert "ymm" not in result["x86-64-v2"]
    assert "ymm" in result["x86-64-v3"]
    assert "zmm" not in result["x86-64-v3"]
    assert "zmm" in result["x86-64-v4"]
    features = [processor.make_level_processor(name).features for name in processor.list_feature_levels()]
    assert features[0] < features[1] < features[2]


@pytest.mark.skipif(not X86, reason="levels of x86")
def test_a_level_above_the_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    older = processor.make_level_processor("x86-64-v3")
    monkeypatch.setattr(processor, "find_native_processor", lambda: older)
    processor._processor_of_name.cache_clear()
    monkeypatch.setenv(processor.CPU_VARIABLE, "x86-64-v4")
    with pytest.raises(UnknownProcessorError, match=r"lacks AVX-512.*x86-64-v2, x86-64-v3 or native\."):
        processor.find_chosen_processor()
    processor._processor_of_name.cache_clear()


def test_an_unknown_processor_is_refused_before_compilation() -> None:
    environment = {**os.environ, processor.CPU_VARIABLE: "sparc"}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    last = ended.stderr.rstrip().split("\n")[-1]
    assert "UnknownProcessorError" in last
    assert "'sparc'" in last
    assert "native" in last
    assert "never" not in last


def test_cached_code_is_separate_for_each_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    from virtualgpu.compile import cache as disk_cache

    keys = []
    monkeypatch.setattr(disk_cache, "load_entry", lambda kind, key: keys.append(key))
    monkeypatch.setattr(disk_cache, "store_entry", lambda *_: None)
    text = "define i32 @run_blocks() { ret i32 0 }\ndefine i32 @run_block() { ret i32 0 }"
    usable = [name for name in processor.list_feature_levels() if not processor.find_missing_features(name)]
    for name in (*usable, "native"):
        monkeypatch.setenv(processor.CPU_VARIABLE, name)
        jit.KernelCode(text)
    assert len(set(keys)) == 3 * (len(usable) + 1)  # of the whole and of each function
