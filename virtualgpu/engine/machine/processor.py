"""Processor for which machine code is generated: this machine's processor, or a common subset of it."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass

import llvmlite.binding as llvm

from virtualgpu.errors import UnknownProcessorError

CPU_VARIABLE = "VIRTUALGPU_CPU"
NATIVE_CHOICE = "native"

# Features that each level adds to the one before it (x86-64 psABI, "Micro-Architecture Levels"; Arm's "Arm
# Architecture Reference Manual for A-profile"), by LLVM's names.
_FEATURE_LEVELS = {
    "x86": {
        "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2"),
        "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
        "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    },
    "arm64": {
        "armv8-a": ("fp-armv8", "neon"),
        "armv8.2-a": ("crc", "lse", "rdm", "fullfp16"),
    },
}
# Common names of the instruction sets that decide how fast kernels run.
_FEATURE_NAMES = {
    "sse4.2": "SSE4.2",
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "avx512f": "AVX-512",
    "avx512fp16": "AVX512-FP16",
    "neon": "NEON",
    "fullfp16": "FP16",
    "sve": "SVE",
}


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor for which LLVM generates code.

    Attributes
    ----------
    choice
        As `VIRTUALGPU_CPU` has it: ``native`` or a level.
    name
        LLVM's name of it.
    feature_settings
        Features switched on and off, as LLVM expects them in addition to the name.
    features
        The features that it has, by LLVM's names.
    """

    choice: str
    name: str
    feature_settings: str
    features: frozenset[str]

    @property
    def instructions(self) -> tuple[str, ...]:
        """Common names of the processor's instruction sets that affect the speed of kernels."""
        return tuple(name for feature, name in _FEATURE_NAMES.items() if feature in self.features)

    @property
    def converts_halves(self) -> bool:
        """Return whether the processor has instructions to convert float16 to float32 and back."""
        return bool({"f16c", "neon"} & self.features)

    @property
    def has_lane_masks(self) -> bool:
        """Return whether the processor can mask vector operations by one bit per lane, as AVX-512 does."""
        return {"avx512bw", "avx512vl"} <= self.features

    @property
    def has_fused_multiply_add(self) -> bool:
        """Return whether the processor has an instruction to multiply and add with one rounding."""
        return bool({"fma", "neon"} & self.features)

    @property
    def register_bytes(self) -> int:
        """Size of the processor's vector registers in bytes."""
        if "avx512f" in self.features:
            return 64
        return 32 if "avx2" in self.features else 16

    def __str__(self) -> str:
        name = self.choice if self.choice == self.name else f"{self.choice} ({self.name})"
        return f"{name}: {', '.join(self.instructions)}"


def find_architecture() -> str:
    """Return the name of this machine's processor architecture, such as ``x86`` or ``arm64``."""
    machine = platform.machine().lower()
    return {"x86_64": "x86", "amd64": "x86", "aarch64": "arm64"}.get(machine, machine)


def list_feature_levels() -> tuple[str, ...]:
    """Return all feature levels of this processor architecture, sorted from the lowest to the highest."""
    return tuple(_FEATURE_LEVELS.get(find_architecture(), ()))


def make_level_processor(name: str) -> Processor:
    """Return a processor that has exactly the features of the given level, such as ``x86-64-v3``.

    LLVM can generate code for it on every machine of this architecture.
    """
    features: set[str] = set()
    for level_name, added_features in _FEATURE_LEVELS[find_architecture()].items():
        features.update(added_features)
        if level_name == name:
            break
    if find_architecture() == "x86":
        return Processor(name, name, "-prefer-256-bit" if "avx512f" in features else "", frozenset(features))
    return Processor(name, "generic", ",".join(f"+{f}" for f in sorted(features)), frozenset(features))


def find_missing_features(name: str) -> list[str]:
    """Return the features of the given level that this computer's processor does not have."""
    return sorted(make_level_processor(name).features - find_native_processor().features)


@functools.cache
def find_native_processor() -> Processor:
    """Return the processor that this process runs on."""
    host_features = dict(llvm.get_host_cpu_features())
    if find_architecture() == "arm64":
        host_features |= {
            "fp-armv8": True,
            "neon": True,
        }  # all of them have these, although not every system reports it
    if host_features.get("avx512f"):
        host_features["prefer-256-bit"] = False
    feature_settings = ",".join(
        f"{'+' if is_present else '-'}{feature}" for feature, is_present in sorted(host_features.items())
    )
    features = frozenset(feature for feature, is_present in host_features.items() if is_present)
    return Processor(NATIVE_CHOICE, llvm.get_host_cpu_name(), feature_settings, features)


def find_chosen_processor() -> Processor:
    """Return the processor for which kernels are compiled. The result is this machine's processor, or the one
    given by ``VIRTUALGPU_CPU``.

    Raises
    ------
    UnknownProcessorError
        If it names no known processor, or one whose instructions this processor lacks.
    """
    return _processor_of_name(os.environ.get(CPU_VARIABLE, "").strip() or NATIVE_CHOICE)


@functools.lru_cache(maxsize=16)
def _processor_of_name(name: str) -> Processor:
    available_levels = [
        level_name for level_name in list_feature_levels() if not find_missing_features(level_name)
    ]
    remedy = f"set {CPU_VARIABLE} to {_join_alternatives([*available_levels, NATIVE_CHOICE])}"
    if name not in (*list_feature_levels(), NATIVE_CHOICE):
        raise UnknownProcessorError(
            f"{CPU_VARIABLE} is {name!r}, which is not a processor that kernels can be compiled for. To "
            f"continue, {remedy}."
        )
    if name != NATIVE_CHOICE and find_missing_features(name):
        missing_titles = _join_feature_titles(find_missing_features(name))
        raise UnknownProcessorError(
            f"{CPU_VARIABLE} selects {name}, but this processor lacks {missing_titles}. To continue, {remedy}."
        )
    if list_feature_levels() and not available_levels:
        missing_titles = _join_feature_titles(find_missing_features(list_feature_levels()[0]))
        raise UnknownProcessorError(
            f"The virtual GPU needs {list_feature_levels()[0]}, and this processor lacks {missing_titles}. Use a newer processor."
        )
    return find_native_processor() if name == NATIVE_CHOICE else make_level_processor(name)


def _join_feature_titles(features: Iterable[str]) -> str:
    """Return the common names of features; all features of AVX-512 count as one."""
    distinct_titles = {
        _FEATURE_NAMES.get(f, "AVX-512" if f.startswith("avx512") else f.upper()) for f in features
    }
    return ", ".join(sorted(distinct_titles))


def _join_alternatives(names: Iterable[str]) -> str:
    *other_names, last_name = names
    return f"{', '.join(other_names)} or {last_name}" if other_names else last_name
