"""A pytest option for tests of CuPy programs: ``pytest -p virtualgpu.pytest_plugin --virtual-gpu[=T4]``."""

from __future__ import annotations

from pathlib import Path

import pytest

from virtualgpu import as_cupy


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--virtual-gpu`` and ``--virtual-gpu-count`` to pytest."""
    option_group = parser.getgroup("virtual GPU")
    option_group.addoption(
        "--virtual-gpu",
        nargs="?",
        const="",
        metavar="NAME",
        help="run tests of CuPy on a virtual GPU, such as T4 (default: VIRTUALGPU_DEVICE or A100)",
    )
    option_group.addoption(
        "--virtual-gpu-count",
        type=int,
        metavar="N",
        help="number of virtual GPUs (default: VIRTUALGPU_COUNT or 1)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Make ``import cupy`` import the virtual GPU, before a conftest file can import CuPy."""
    options = early_config.known_args_namespace
    if options.virtual_gpu is None:
        if options.virtual_gpu_count is not None:
            raise pytest.UsageError("--virtual-gpu-count needs --virtual-gpu.")
        return
    try:
        as_cupy(options.virtual_gpu or None, options.virtual_gpu_count)
    except (RuntimeError, ValueError) as error:
        message = str(error)
        option_value = options.virtual_gpu
        if option_value and Path(option_value.partition("::")[0]).exists():
            message += f" Write `{option_value}` before --virtual-gpu, or name the GPU with --virtual-gpu=T4."
        raise pytest.UsageError(message) from None


def pytest_configure(config: pytest.Config) -> None:
    """Register the pytest marks of `cp.testing`."""
    config.addinivalue_line("markers", "slow: a test that takes long (cupy.testing.slow)")
    config.addinivalue_line("markers", "multi_gpu: needs several GPUs (cupy.testing.multi_gpu)")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return a line with the names of the GPUs on which the tests run."""
    if config.getoption("virtual_gpu") is None:
        return None
    from virtualgpu.model import machine

    devices = machine.current().devices
    count_text = f"{len(devices)} x " if len(devices) > 1 else ""
    return f"cupy: {count_text}{devices[0].info.as_virtual.label} (virtualgpu)"
