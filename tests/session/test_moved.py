"""Imports of version 1.0, as in learners' copies of the notebooks, return the modules of today."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import warnings

import pytest

from gpulab import _moved

# Imports of all notebooks of version 1.0.
IMPORTS = """
from gpulab.course import kernels, screens, story
from gpulab.course.n00_start import device_card, figures
from gpulab.course.n01_devices import context, forks, sensors
from gpulab.course.n02_grid import figures, tails
from gpulab.course.n03_lanes import machine_code
from gpulab.course.n04_debugging import catalogue, figures
from gpulab.course.n05_memory import figures
from gpulab.course.n06_patterns import figures
from gpulab.course.n07_streams import clocks, exercises, figures, predictions, work
from gpulab.course.n08_copies import elsewhere, predictions, where
from gpulab.course.n08_copies.memory import managed, mapped
from gpulab.course.n09_profiling import figures, nvidia_smi
from gpulab.course.n09_profiling.times import exercises as stages_tasks
from gpulab.course.n09_profiling.times import stages
from gpulab.course.n10_allocator import exercises, figures
from gpulab.course.n11_graphs import exercises, figures, predictions
from gpulab.course.n12_fusion import figures
from gpulab.course.n12_fusion.compiler.jit import compiled
from gpulab.course.n13_libraries import errors, figures
from gpulab.course.n13_libraries.libraries import figures as libraries
from gpulab.course.n14_random import figures, generators
from gpulab.course.n15_several import figures
from gpulab.course.n16_platform import configuration, figures
from gpulab.course.n17_interview import figures
from gpulab.course.ranges import among, within
from gpulab.course.story import rungs
from gpulab.session import on_device
from virtualgpu.records import HOST_CLOCK
from virtualgpu.records.formats import BF16, E4M3, E5M2, FP16, FP32, TF32
"""
# Modules of 1.0 and where each of them is now.
MODULES = {
    "gpulab.course.story.attention": "gpulab_course.content.story.attention",
    "gpulab.course.n12_fusion.compiler.plan": "gpulab.lab.fusion.compiler.plan",
    "gpulab.teach.question": "gpulab_course.teach.question",
    "gpulab.teach.classroom.golf": "gpulab_course.classroom.golf",
    "gpulab.teach.folders": "gpulab_course.folders",
    "gpulab.teach.judge.process.talk": "gpulab.processes.talk",
    "gpulab.teach.judge.process.processes": "gpulab.processes.process",
    "virtualgpu.allocators.cupy.model": "gpulab.allocators.cupy",
    "virtualgpu.allocators.cupy.pool": "virtualgpu.allocators.pool",
    "virtualgpu.allocators.snapshot.reader": "gpulab.allocators.snapshot.reader",
    "virtualgpu.records.formats": "gpulab.analysis.formats",
    "virtualgpu.trace.files.foreign": "gpulab.analysis.files.foreign",
}


def test_a_notebook_of_version_1_imports_and_is_warned_once() -> None:
    """In a process of its own, since a module is imported once."""
    code = (
        f"import gpulab as gl\n{IMPORTS}\nfrom gpulab.course import story as again\nprint(again.__name__)\n"
    )
    command = [sys.executable, "-W", "default::DeprecationWarning", "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout == "gpulab_course.content.story\n"
    warned = [line.partition("DeprecationWarning: ")[2] for line in process.stderr.splitlines()]
    assert [line.split(" has ")[0] for line in warned if line.startswith(("gpulab", "virtualgpu"))] == [
        "gpulab.course",
        "gpulab.course.n12_fusion.compiler",
        "virtualgpu.records.formats",
    ]


@pytest.mark.parametrize(("old", "new"), MODULES.items())
def test_an_old_name_imports_the_same_module(old: str, new: str) -> None:
    module = importlib.import_module(new)
    spec = module.__spec__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert importlib.import_module(old) is module
    assert (module.__name__, module.__spec__) == (new, spec)


def test_every_new_module_exists() -> None:
    for home in _moved.NEW_MODULE_NAMES.values():
        importlib.import_module(home)


def test_unmoved_module_names_are_not_redirected() -> None:
    for name in ("gpulab", "gpulab.lab.kernels", "gpulab.courses", "virtualgpu.allocators.pool", "json"):
        assert _moved.find_new_module_name(name) == ""


def test_a_module_that_never_existed_is_missing_under_the_old_name_too() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(ModuleNotFoundError, match="n99_nothing"):
            importlib.import_module("gpulab.course.n99_nothing")


def test_a_pickle_of_version_1_loads() -> None:
    from gpulab_course.teach.question import Choice

    text = pickle.dumps(Choice("a", "Because."), protocol=0).replace(b"gpulab_course.teach", b"gpulab.teach")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert pickle.loads(text) == Choice("a", "Because.")
