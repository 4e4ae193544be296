"""Tables as data frames: raw numbers with units in the names, checked against the records."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gpulab.views.tables import Cell, Column, Table
from gpulab.views.tables.timeline import AnalysisTable
from gpulab.words import duration
from tests.views.every_table import TABLES


class DataFrame:
    """A stand-in for `pandas.DataFrame`."""

    def __init__(self, rows: list[list[Any]], columns: list[str]) -> None:
        assert len(set(columns)) == len(columns), f"names occur twice: {columns}"
        assert all(columns), f"a column has no name: {columns}"
        assert all(len(row) == len(columns) for row in rows)
        self.columns = columns
        self.rows = rows

    def __getitem__(self, name: str) -> list[Any]:
        return [row[self.columns.index(name)] for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)


@pytest.fixture
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=DataFrame))


def test_the_error_without_pandas_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs pandas.*pip install pandas") as caught:
        Table("", ("name",), (("x",),)).to_pandas()
    assert caught.value.name == "pandas"


def test_a_frame_has_raw_values_of_all_rows_and_columns(pandas: None) -> None:
    table = Table(
        "title",
        ("kernel", Column("time", "time_ns", duration), "empty", Column("", "kind")),
        (("a", 1500.0, None, Cell("copy", "")), ("b", 2, None, "wait"), ("c", None, None, "wait")),
        hide_empty=True,
        max_rows=1,
        omission_row=("others", 2, None, ""),
    )
    frame = table.to_pandas()
    assert frame.columns == ["kernel", "time_ns", "empty", "kind"]
    assert frame.rows == [["a", 1500.0, None, "copy"], ["b", 2, None, "wait"], ["c", None, None, "wait"]]
    assert table.headings == ("kernel", "time", "")
    assert table.cells == (("a", "1.5 µs", ""), ("others", "2 ns", ""))


@pytest.mark.parametrize("name", TABLES)
def test_every_table_becomes_a_frame(name: str, pandas: None) -> None:
    table_ = TABLES[name]()
    if isinstance(table_, AnalysisTable) or hasattr(table_, "records"):
        frames = [table_.to_pandas()]
    else:
        frames = [table.to_pandas() for table in table_.tables()]
    for frame in frames:
        for column in frame.columns:
            if column.endswith(("_ns", "_bytes", "count", "share", "factor")):
                assert all(isinstance(value, (int, float, type(None))) for value in frame[column]), column


def test_frames_of_a_profile_equal_its_records(pandas: None) -> None:
    profile = next(
        table_ for make in TABLES.values() if getattr(table_ := make(), "kernels", None) and table_.copies
    )
    frame = profile.to_pandas()
    assert frame["key"] == [row_.key for row_ in profile.kernels]
    assert frame["device_time_total_ns"] == [row_.device_time_total_ns for row_ in profile.kernels]
    assert frame["gb_per_s"] == [row_.gb_per_s for row_ in profile.kernels]
    copies = profile.to_pandas("Copies")
    assert copies["size_bytes"] == [row_.size_bytes for row_ in profile.copies]
    with pytest.raises(ValueError, match=r"has no table 'Colours'[.] Its tables are: 'Kern"):
        profile.to_pandas("Colours")
