"""``gl.check_streams`` on programs that are right and on programs that are wrong."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import pytest

import gpulab as gl
from gpulab import session
from tests.session.stream_patterns import RIGHT, WRONG


@pytest.fixture
def cp() -> Iterator[Any]:
    with session.bench(session.table_info("T4")) as side:
        yield side.cp


def checked(cp: Any, program: Any) -> Any:
    with session.on_device("virtual:T4"), gl.check_streams() as found:
        program(gl.cp)
    return found


def test_there_are_enough_patterns() -> None:
    assert len(RIGHT) >= 30
    assert len(WRONG) >= 30


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs(name: str) -> None:
    found = checked(None, RIGHT[name])
    assert not found.findings, found.describe()


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs(name: str) -> None:
    program, kinds = WRONG[name]
    found = checked(None, program)
    assert {finding.kind for finding in found.findings} == kinds, found.describe()
    for finding in found.findings:
        for use in (finding.first, finding.second):
            assert use.source is not None
            assert use.source.file == "stream_patterns.py"
            assert use.source.text == linecache.getline(program.__code__.co_filename, use.source.line).strip()
