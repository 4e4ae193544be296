"""Ranks on virtual GPUs: all in one thread, or one thread per rank."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from virtualgpu import cp
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine
from virtualgpu.records.traffic.ports import LinkTopology

Gpus = Callable[..., Machine]


@pytest.fixture
def gpus() -> Iterator[Gpus]:
    """A function that creates a machine with such GPUs and links, and selects it."""
    before = slot._current_machine.machine

    def make(
        count: int = 2, links: LinkTopology | None = None, name: str = "H200", watchdog_s: float | None = None
    ) -> Machine:
        machine = Machine([device_info(name)] * count, links=links)
        for device in machine.devices if watchdog_s else ():
            device.watchdog_s = watchdog_s
        slot.use(machine)
        return machine

    yield make
    slot._current_machine.machine = before


def on(device: int, make: Callable[[], Any]) -> Any:
    """Call a function on a device."""
    with cp.cuda.Device(device):
        return make()


def in_threads(count: int, rank: Callable[[int], Any]) -> list[Any]:
    """Call a function for each rank in its own thread on its own device; return results or errors."""
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        try:
            cp.cuda.Device(number).use()
            results[number] = rank(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,), name=f"rank {n}") for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
