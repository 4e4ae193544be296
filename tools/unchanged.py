"""Leave out test files of which nothing has changed since all their tests passed: a pytest plugin.

``pytest -p tools.unchanged --unchanged=.cache/green/unit.json`` notes, for each file whose tests all ran and
passed, a digest of everything they may depend on, and leaves the file out while that stays the same. What it
may depend on is taken widely: the interpreter, packages and variables in use, ``virtualgpu`` and ``tools``,
every helper and data file of its folder and of those that it names, the rest of the checkout but other
tests, unless nothing that it reaches speaks of that, and the turn, where a part is tried (`tools.turns`).
Files with a skipped test, and those about the checkout itself, always run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import sys
from collections import defaultdict
from importlib import metadata
from pathlib import Path

import pytest

from tools import turns

ALL = "GPULAB_TEST_ALL"
# Folders that are no sources, and tests that look at all of the checkout.
_NO_SOURCES = {"artifacts", "build", "dist", "__pycache__"}
_OF_CHECKOUT = ("tests/test_", "tests/tooling/")
# Words of tests that reach beyond `virtualgpu`, `tools` and their own folder.
_BEYOND = re.compile(rb"gpulab|notebooks|README|CONTRIBUTING|Makefile|parents|parent\.parent")
_WITHIN = ("virtualgpu/", "tools/", "pyproject.toml")
_NAMED = re.compile(rb"\btests\.(\w+)(?:\.(test_\w+))?|\bfrom tests import (\w+)")
# Variables that say where things are kept, or differ from run to run.
_PLACES = {"GPULAB_HOME", "GPULAB_CACHE_DIR", "GPULAB_CHROMIUM", ALL, turns.VARIABLE}
# What those tests name that try a part of what they could.
_IN_TURNS = re.compile(rb"\bfrom tools import .*\bturns\b")


def wanted() -> bool:
    """Whether files may be left out: not in continuous integration, nor where `ALL` asks for all."""
    return not os.environ.get("CI") and not os.environ.get(ALL)


def _digest(parts: list[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()


def surroundings() -> bytes:
    """What every test depends on beside files."""
    packages = sorted(f"{each.name} {each.version}" for each in metadata.distributions())
    variables = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith(("GPULAB_", "VIRTUALGPU_")) and name not in _PLACES
    )
    return repr((sys.version, platform.platform(), packages, variables)).encode()


class Sources:
    """A checkout's files as they are when this is made."""

    def __init__(self, root: Path, arguments: str = "") -> None:
        self._about = [surroundings(), arguments.encode()]
        self._texts: dict[str, bytes] = {}
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(set(folders) - _NO_SOURCES - {name for name in folders if name[0] == "."})
            paths = filter(Path.is_file, (Path(folder, name) for name in sorted(names)))
            self._texts |= {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
        self._sums = {path: _digest([path.encode(), text]) for path, text in self._texts.items()}

    def digest(self, test: str) -> str:
        """Of all that a test file may depend on; empty for one that always runs."""
        if test.startswith(_OF_CHECKOUT) or test not in self._texts:
            return ""
        used = self._used(test)
        texts = [self._texts[path] for path in used if path.endswith(".py")]
        beyond = not test.startswith("tests/") or any(map(_BEYOND.search, texts))
        whose = str(turns.turn()) if any(map(_IN_TURNS.search, texts)) else ""
        used |= {
            path
            for path in self._texts
            if path.startswith(_WITHIN) or (beyond and not path.startswith("tests/"))
        }
        used |= self._shared("")
        return _digest([*self._about, whose.encode(), *(self._sums[path].encode() for path in sorted(used))])

    def _used(self, test: str) -> set[str]:
        """A file, the helpers and data of its folder and of those named there, and modules that they name."""
        found, rooms = {test}, set[str]()
        todo = {test.split("/")[1]} if test.startswith("tests/") else set()
        while todo:
            room = todo.pop()
            rooms.add(room)
            found |= self._shared(room) | ({f"tests/{room}.py"} & self._texts.keys())
            for folder, module, other in _NAMED.findall(b"\n".join(self._texts[path] for path in found)):
                todo.add((folder or other).decode())
                found |= {f"tests/{folder.decode()}/{module.decode()}.py"} & self._texts.keys()
            todo -= rooms
        return found

    @functools.cache  # noqa: B019 - one of these a run
    def _shared(self, room: str) -> frozenset[str]:
        """All but tests in a folder of tests; in none, the modules beside the folders."""
        start = f"tests/{room}/" if room else "tests/"
        return frozenset(
            path
            for path in self._texts
            if path.startswith(start)
            and not path.rpartition("/")[2].startswith("test_")
            and (room or path.count("/") == 1)
        )


class Unchanged:
    """Leaves out what is unchanged, and notes which files have passed whole."""

    def __init__(self, kept: Path, sources: Sources) -> None:
        self._kept, self._sources = kept, sources
        self._known: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError):
            self._known = dict(json.loads(kept.read_text()))
        self._wanted: defaultdict[str, set[str]] = defaultdict(set)
        self._ended: defaultdict[str, set[str]] = defaultdict(set)
        self._bad: set[str] = set()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        def is_known(path: str) -> bool:
            digest = self._known.get(path, "")
            return bool(digest) and digest == self._sources.digest(path)

        known = {path for path in {_file(item.nodeid) for item in items} if is_known(path)}
        config.hook.pytest_deselected(items=[item for item in items if _file(item.nodeid) in known])
        items[:] = [item for item in items if _file(item.nodeid) not in known]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._want([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self._want(ids)

    def _want(self, ids: list[str]) -> None:
        for name in ids:
            self._wanted[_file(name)].add(name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        path = _file(report.nodeid)
        if report.outcome != "passed":
            self._bad.add(path)
        if report.when == "teardown":
            self._ended[path].add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        for path, ids in self._wanted.items():
            self._known.pop(path, None)
            digest = self._sources.digest(path)
            if digest and path not in self._bad and self._ended[path] >= ids:
                self._known[path] = digest
        self._kept.parent.mkdir(parents=True, exist_ok=True)
        self._kept.write_text(json.dumps(self._known, indent=0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if out := set(self._known) - set(self._wanted):
            terminalreporter.line(f"{len(out)} files unchanged since they passed: {ALL}=1 runs them, too")


def _file(name: str) -> str:
    return name.partition("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unchanged", help="leave out files unchanged since they passed, as this file notes")


def pytest_configure(config: pytest.Config) -> None:
    kept = config.getoption("--unchanged")
    if kept and wanted():
        marks, words = config.getoption("-m"), config.getoption("-k")
        sources = Sources(
            config.rootpath, repr((marks, words, config.getoption("--processor", default=None)))
        )
        config.pluginmanager.register(Unchanged(config.rootpath / kept, sources))
