"""What all tests share: which of them this machine can run, and a word about those it cannot."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import chromium

ROOT = Path(__file__).resolve().parent.parent


def gpu_obstacle() -> str:
    """Why no GPU test can run here; empty if they can."""
    if importlib.util.find_spec("cupy") is None:
        return "needs an NVIDIA GPU and CuPy; CuPy is not installed"
    try:
        import cupy
    except Exception as error:
        return f"needs CuPy, whose import failed: {error!r}"
    if not cupy.cuda.is_available():
        return "needs an NVIDIA GPU; CuPy finds none"
    return ""


def browser_obstacle() -> str:
    """Why no browser test can run here; empty if they can."""
    if importlib.util.find_spec("playwright") is None:
        return "needs Playwright: pip install -e .[test]"
    if chromium.find() is None:
        return "needs Chromium; `make test` installs Debian's where apt-get needs no password"
    return ""


OBSTACLES = {"gpu": gpu_obstacle, "browser": browser_obstacle}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots",
        dest="write_snapshots",  # syrupy, where it is installed, has the other name
        action="store_true",
        help="write the texts and pictures of tests/views again",
    )
    parser.addoption("--without-gpu", action="store_true", help="skip GPU tests where there is a GPU, too")
    parser.addoption("--processor", help="compile kernels for it, as VIRTUALGPU_CPU would")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--processor"):
        os.environ["VIRTUALGPU_CPU"] = config.getoption("--processor")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with the reason."""
    for mark, obstacle in OBSTACLES.items():
        marked = [item for item in items if item.get_closest_marker(mark)]
        reason = obstacle() if marked else ""
        if mark == "gpu" and not reason and config.getoption("--without-gpu"):
            # Several processes side by side would disturb each other's measurements.
            reason = "needs the GPU for itself: run `make test-gpu`"
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end: no collector needs to look through them each time."""
    _keep()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor through what compilers have kept since: one full collection, as a full memory pool asks for, took
    half a second after some thousand tests."""
    if nextitem is None or nextitem.path != item.path:
        _keep()


def _keep() -> None:
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Repeat the figures tests report; say how many tests were skipped, and why."""
    figures = [
        value
        for report in terminalreporter.stats.get("passed", [])
        for name, value in report.user_properties
        if name == "figure"
    ]
    if figures:
        terminalreporter.section("figures")
        for figure in figures:
            terminalreporter.line(str(figure))
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        if isinstance(report.longrepr, tuple)
        else str(report.longrepr)
        for report in skipped
    )
    terminalreporter.section(f"{len(skipped)} skipped")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:4}  {reason}")


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Path of the Chromium to drive."""
    path = chromium.find()
    if path is None:
        pytest.skip(browser_obstacle())
    return path


@pytest.fixture(scope="session")
def learners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where tests find a folder each: few make it, and making one for each takes longer than most tests."""
    home = tmp_path_factory.mktemp("learners")
    return (home / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def learner_folder(learners: Iterator[Path]) -> Iterator[Path]:
    """Keep predictions and progress of the person who runs the tests out of them, whatever they undo."""
    folder = next(learners)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GPULAB_HOME", str(folder))
        yield folder
