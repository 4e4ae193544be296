"""Errors for names that CuPy has and the virtual GPU has not: what to use instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np


def absent(where: str, name: str, known: Iterable[str], remedy: str = "") -> AttributeError:
    """The error for a missing attribute `name` of the module ``cp.<where>``.

    Parameters
    ----------
    where
        Such as ``"cp.linalg"``.
    known
        What the module has, to suggest the nearest.
    remedy
        What to do instead; found out if not given.
    """
    text = f"the virtual GPU's {where} has no {name!r}"
    near = difflib.get_close_matches(name, [n for n in known if not n.startswith("_")], n=1, cutoff=0.75)
    if remedy:
        return AttributeError(f"{text}: {remedy}.", name=name)
    host: Any = np
    for part in [*where.split(".")[1:], name]:
        host = getattr(host, part, None)
    if host is not None:
        path = f"numpy{where.removeprefix('cp')}.{name}"
        text += f"; {path} has it: copy with cp.asnumpy(x), compute on the host, copy back with cp.asarray"
    elif near:
        text += f"; the nearest is {where}.{near[0]}"
    else:
        text += f"; dir({where}) lists what it has. With CuPy on an NVIDIA GPU more is there"
    return AttributeError(f"{text}.", name=name)


def no_attribute(kind: type, name: str) -> str:
    """What is said of an attribute that device arrays have not."""
    text = f"'cupy.ndarray' object has no attribute {name!r}"
    if name.startswith("_"):
        return text
    near = difflib.get_close_matches(name, [n for n in dir(kind) if not n.startswith("_")], n=1, cutoff=0.75)
    if hasattr(np.ndarray, name):
        return f"{text}. NumPy arrays have it: copy the array to the host first, x.get().{name}"
    if near:
        return f"{text}. Did you mean {near[0]!r}?"
    return f"{text}. See dir(x) for what device arrays have."


def module_getattr(
    where: str, namespace: dict[str, Any], remedies: dict[str, str] | None = None
) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that explains what is missing."""

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {where!r} has no attribute {name!r}", name=name)
        raise absent(where, name, namespace, (remedies or {}).get(name, ""))

    return missing


class Namespace(ModuleType):
    """A submodule such as ``cp.cuda.driver``: names given one by one, and what is said of others."""

    def __init__(self, where: str, **members: Any) -> None:
        super().__init__(f"virtualgpu.{where}")
        self.__dict__.update(members)
        self._where = where

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__dict__.get('_where')!r} has no attribute {name!r}")
        raise absent(self._where, name, self.__dict__)

    def __dir__(self) -> list[str]:
        return sorted(name for name in self.__dict__ if not name.startswith("_"))

    def __repr__(self) -> str:
        return f"<{self._where} of the virtual GPU>"
