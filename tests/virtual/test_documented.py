"""Docstrings, signatures and completion of ``cp``, and suggestions for misspelt names."""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import pytest

from virtualgpu import cp
from virtualgpu.cp import _missing_names
from virtualgpu.cp._routines.documented import FUNCTION_EXAMPLES

MODULES = """
cp cp.cuda cp.cuda.device cp.cuda.driver cp.cuda.memory cp.cuda.nvrtc cp.cuda.nvtx cp.cuda.pinned_memory
cp.cuda.runtime cp.cuda.stream cp.fft cp.linalg cp.random cp.testing
"""


def value(path: str) -> Any:
    return eval(path, {"cp": cp})


def test_examples_in_docstrings_are_correct() -> None:
    for line in FUNCTION_EXAMPLES.strip().split("\n"):
        code, _, result = line.partition(" -> ")
        assert " ".join(repr(value(code)).split()) == " ".join(result.split()), code
        thing = value(code.partition("(")[0])
        text = inspect.getdoc(thing) or ""
        assert f"\nExamples\n--------\n>>> {code}\n" in text
        assert not text.startswith(("Like", "As NumPy", "Examples")), code
        assert "*args" not in str(inspect.signature(thing))
    assert len(FUNCTION_EXAMPLES.strip().split("\n")) >= 60


def test_methods_have_the_docstrings_of_their_functions() -> None:
    assert str(inspect.signature(cp.zeros(3).cumsum)) == "(axis=None, dtype=None, out=None)"
    assert ">>> cp.cumsum(" in (inspect.getdoc(cp.ndarray.cumsum) or "")
    for name in dir(cp.ndarray):
        method = getattr(cp.ndarray, name)
        if not name.startswith("_") and inspect.isfunction(method):
            assert "**kwargs" not in str(inspect.signature(method)), name


def test_keywords_that_cupy_lacks_are_not_shown() -> None:
    assert "where" not in inspect.signature(cp.sum).parameters
    assert not re.search(r"^(where|initial) :", inspect.getdoc(cp.sum) or "", re.M)
    assert re.search(r"^keepdims :", inspect.getdoc(cp.sum) or "", re.M)


@pytest.mark.parametrize("path", MODULES.split())
def test_completion_lists_only_public_names(path: str) -> None:
    module = value(path)
    names = dir(module)
    assert names
    assert len(set(names)) == len(names)
    for name in names:
        thing = getattr(module, name)
        assert not name.startswith("_")
        assert isinstance(thing, ModuleType) == (getattr(thing, "__name__", "").startswith("virtualgpu.cp."))
        assert getattr(thing, "__module__", "") not in ("typing", "collections.abc", "__future__")
    assert not {
        "np",
        "lift_to_device",
        "annotations",
        "make_module_getattr",
        "check_device",
        "dataclass",
    } & set(names)


def message_of(path: str) -> str:
    with pytest.raises(AttributeError) as raised:
        value(path)
    return str(raised.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("cp.zeroes", "Did you mean cp.zeros?"),
        ("cp.arrange", "Did you mean cp.arange?"),
        ("cp.cuda.Strem", "Did you mean cp.cuda.Stream?"),
        ("cp.random.rnad", "Did you mean cp.random.rand?"),
        ("cp.linalg.nrm", "Did you mean cp.linalg.norm?"),
        ("cp.cuda.runtime.getDevceCount", "Did you mean cp.cuda.runtime.getDeviceCount?"),
        ("cp.zeros(3).shpe", "Did you mean 'shape'?"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(path: str, message: str) -> None:
    assert message in message_of(path)


def test_suggestions_for_foreign_names_exist() -> None:
    array_habits = _missing_names._ARRAY_NAMES_ELSEWHERE
    for module, habits in {**_missing_names._NAMES_ELSEWHERE, "cp.zeros(3)": array_habits}.items():
        for name, answer in habits.items():
            assert answer in message_of(f"{module}.{name}")
            for path in re.findall(r"\bcp(?:\.\w+)+", answer):
                value(path)
            for attribute in re.findall(r"\bx\.(\w+)", answer):
                value(f"cp.zeros(3).{attribute}")


def test_comparing_a_device_with_a_string_warns() -> None:
    with pytest.warns(UserWarning, match="never equals"):
        assert cp.zeros(3).device != "cuda"
    assert cp.zeros(3).device == cp.cuda.Device(0)
