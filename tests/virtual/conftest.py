"""Fresh virtual machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine


def fresh(*names: str) -> Iterator[Machine]:
    """A machine of these GPUs as the current one, and the previous one afterwards."""
    previous = slot._current_machine.machine
    machine = Machine([device_info(name) for name in names])
    slot.use(machine)
    yield machine
    slot._current_machine.machine = previous


@pytest.fixture
def machine() -> Iterator[Machine]:
    """One virtual A100."""
    yield from fresh("A100")


@pytest.fixture
def two_gpus() -> Iterator[Machine]:
    """Two virtual H200."""
    yield from fresh("H200", "H200")
