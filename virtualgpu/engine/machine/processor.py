"""Processor for which machine code is generated: this machine's processor, or a common subset of it."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass

import llvmlite.binding as llvm

from virtualgpu.errors import UnknownProcessorError

VARIABLE = "VIRTUALGPU_CPU"
NATIVE = "native"

# Features that each level adds to the one before it (x86-64 psABI, "Micro-Architecture Levels"; Arm's "Arm
# Architecture Reference Manual for A-profile"), by LLVM's names.
_LEVELS = {
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
_NAMES = {
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
    settings
        Features switched on and off, as LLVM expects them in addition to the name.
    features
        The features that it has, by LLVM's names.
    """

    choice: str
    name: str
    settings: str
    features: frozenset[str]

    @property
    def instructions(self) -> tuple[str, ...]:
        """Common names of the processor's instruction sets that affect the speed of kernels."""
        return tuple(name for feature, name in _NAMES.items() if feature in self.features)

    @property
    def converts_halves(self) -> bool:
        """Return whether the processor has instructions to convert float16 to float32 and back."""
        return bool({"f16c", "neon"} & self.features)

    @property
    def masks(self) -> bool:
        """Return whether the processor can mask vector operations by one bit per lane, as AVX-512 does."""
        return {"avx512bw", "avx512vl"} <= self.features

    @property
    def fuses(self) -> bool:
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


def architecture() -> str:
    """Return the name of this machine's processor architecture, such as ``x86`` or ``arm64``."""
    machine = platform.machine().lower()
    return {"x86_64": "x86", "amd64": "x86", "aarch64": "arm64"}.get(machine, machine)


def levels() -> tuple[str, ...]:
    """Return all feature levels of this processor architecture, sorted from the lowest to the highest."""
    return tuple(_LEVELS.get(architecture(), ()))


def level(name: str) -> Processor:
    """Return a processor that has exactly the features of the given level, such as ``x86-64-v3``.

    LLVM can generate code for it on every machine of this architecture.
    """
    features: set[str] = set()
    for level_name, additions in _LEVELS[architecture()].items():
        features.update(additions)
        if level_name == name:
            break
    if architecture() == "x86":
        return Processor(name, name, "-prefer-256-bit" if "avx512f" in features else "", frozenset(features))
    return Processor(name, "generic", ",".join(f"+{f}" for f in sorted(features)), frozenset(features))


def lacking(name: str) -> list[str]:
    """Return the features of the given level that this computer's processor does not have."""
    return sorted(level(name).features - native().features)


@functools.cache
def native() -> Processor:
    """Return the processor that this process runs on."""
    host_features = dict(llvm.get_host_cpu_features())
    if architecture() == "arm64":
        host_features |= {
            "fp-armv8": True,
            "neon": True,
        }  # all of them have these, although not every system reports it
    if host_features.get("avx512f"):
        host_features["prefer-256-bit"] = False
    settings = ",".join(f"{'+' if has else '-'}{feature}" for feature, has in sorted(host_features.items()))
    features = frozenset(feature for feature, has in host_features.items() if has)
    return Processor(NATIVE, llvm.get_host_cpu_name(), settings, features)


def chosen() -> Processor:
    """Return the processor for which kernels are compiled. The result is this machine's processor, or the one
    given by ``VIRTUALGPU_CPU``.

    Raises
    ------
    UnknownProcessorError
        If it names no known processor, or one whose instructions this processor lacks.
    """
    return _processor_of_name(os.environ.get(VARIABLE, "").strip() or NATIVE)


@functools.lru_cache(maxsize=16)
def _processor_of_name(name: str) -> Processor:
    available = [level_name for level_name in levels() if not lacking(level_name)]
    remedy = f"set {VARIABLE} to {_join_alternatives([*available, NATIVE])}"
    if name not in (*levels(), NATIVE):
        raise UnknownProcessorError(
            f"{VARIABLE} is {name!r}, which is not a processor that kernels can be compiled for. To "
            f"continue, {remedy}."
        )
    if name != NATIVE and lacking(name):
        names = _feature_titles(lacking(name))
        raise UnknownProcessorError(
            f"{VARIABLE} selects {name}, but this processor lacks {names}. To continue, {remedy}."
        )
    if levels() and not available:
        names = _feature_titles(lacking(levels()[0]))
        raise UnknownProcessorError(
            f"The virtual GPU needs {levels()[0]}, and this processor lacks {names}. Use a newer processor."
        )
    return native() if name == NATIVE else level(name)


def _feature_titles(features: Iterable[str]) -> str:
    """Return the common names of features; all features of AVX-512 count as one."""
    distinct_titles = {_NAMES.get(f, "AVX-512" if f.startswith("avx512") else f.upper()) for f in features}
    return ", ".join(sorted(distinct_titles))


def _join_alternatives(names: Iterable[str]) -> str:
    *other_names, last_name = names
    return f"{', '.join(other_names)} or {last_name}" if other_names else last_name
