"""Machines with several GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine
from virtualgpu.records.traffic.ports import LinkKind

Gpus = Callable[..., Machine]


@pytest.fixture
def gpus() -> Iterator[Gpus]:
    """Makes a machine of so many GPUs, joined like this, the current one."""
    before = slot._slot.machine

    def make(count: int = 2, links: LinkKind | None = None, name: str = "H200") -> Machine:
        machine = Machine([device_info(name)] * count, links=links)
        slot.use(machine)
        return machine

    yield make
    slot._slot.machine = before
