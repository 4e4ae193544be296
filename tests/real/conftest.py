"""What tests of real GPUs share where there is none."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.real import fake_nvml


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = fake_nvml.module()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module
