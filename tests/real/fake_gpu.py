"""A pytest plugin: ``pytest -p tests.real.fake_gpu --fake-gpu -m gpu`` runs the GPU tests without a GPU.

`cupy` is then a virtual GPU of its own (`second_copy`), `pynvml` answers from a table (`fake_nvml`), and
`cuda.bindings.driver` from the graphs of that virtual GPU (`fake_cuda_driver`).
What gpulab measures there is no GPU's; that it measures, where it puts it and what it says of it, is tested.
Tests marked ``hardware`` ask for more and are skipped.

A GPU is less kind than a virtual one, and so is this: wrong arguments and faults end the test run with
`HardwareHarm`, which no handler of errors catches, and limits are told without a hint.
"""

from __future__ import annotations

import importlib
import sys
from numbers import Number
from typing import Any

import pytest

from tests.real import fake_cuda_driver, fake_cupti, fake_nvml, second_copy

DEVICE = "L4"
CUPTI = pytest.StashKey[fake_cupti.FakeCupti]()


class HardwareHarm(BaseException):
    """What would have ended the process, or the CUDA context with every array in it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fake-gpu", action="store_true", help="let a virtual GPU stand for a real one")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if not early_config.known_args_namespace.fake_gpu:
        return
    for name in ("cupy", "cupyx"):
        sys.modules.pop(name, None)
    cupy = second_copy.dress(DEVICE)
    cupy.cuda.Device.pci_bus_id = property(lambda self: fake_nvml.BUS_ID.format(self.id))
    be_unkind(cupy)
    sys.modules["pynvml"] = fake_nvml.module()
    fake_cuda_driver.install(second_copy.NAME)
    early_config.stash[CUPTI] = fake_cupti.install()
    # CuPy looks name and words of a status up.
    cupy.cuda.driver.CUDADriverError.__init__.__defaults__ = ("CUDA_ERROR", "as the driver says")


def be_unkind(cupy: Any) -> None:
    """Take the help out of the copy's launches that a driver does not give."""
    function = importlib.import_module(f"{second_copy.NAME}.cp.cuda.function")
    prepare = function.prepare_launch
    launches = importlib.import_module(f"{second_copy.NAME}.launch.prepare")
    run = launches.PreparedLaunch.run

    def prepared(device: Any, kernel: Any, launch: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return prepare(device, kernel, launch, *arguments, **options)
        except TypeError as error:
            if all(isinstance(argument, (Number, cupy.ndarray)) for argument in launch.args):
                raise HardwareHarm(f"CUDA would have read past the arguments: {error}") from error
            raise
        except cupy.cuda.driver.CUDADriverError as error:
            words = str(error).removeprefix(f"{error.error_name}: ").partition(":")[0]
            raise cupy.cuda.driver.CUDADriverError(error.status, error.error_name, words) from None

    def ran(self: Any, *arguments: Any) -> Any:
        try:
            return run(self, *arguments)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise HardwareHarm(f"the CUDA context would have ended: {error}") from error

    function.prepare_launch = prepared
    launches.PreparedLaunch.run = ran


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--fake-gpu"):
        return
    for item in items:
        mark = item.get_closest_marker("hardware")
        if mark:
            item.add_marker(pytest.mark.skip(reason=f"needs hardware: {mark.args[0]}"))


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption("--fake-gpu"):
        return None
    return f"cupy: a virtual {DEVICE} stands for a real one"
