"""Memory ladder chart: description, both axes, published values, and other devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from gpulab.views import LadderChart
from tests.views import synthetic
from virtualgpu.records.memory import MemoryLadder


def test_a_second_memory_ladder_is_added_by_name_or_record() -> None:
    measured = synthetic.ladder(synthetic.MEASURED, 1.1)
    names: list[str] = []

    def find(name: str) -> MemoryLadder:
        names.append(name)
        return measured

    chart = LadderChart([synthetic.ladder()], find_ladder=find)
    by_name = chart.beside("H200")
    as_record = chart.beside(measured)
    assert names == ["H200"]
    assert by_name.png() == as_record.png() != chart.png()
    assert by_name.record is chart.record
    assert "2 KiB: 22 ns per load" in by_name.describe()
    lines = by_name.plot(Figure().subplots()).get_legend().get_texts()
    assert [text.get_text() for text in lines] == ["A100-SXM4, modelled", "H200, measured"]
    with pytest.raises(ValueError, match="one to 3"):
        by_name.beside(measured).beside(measured)
    with pytest.raises(ValueError, match="Pass a MemoryLadder"):
        LadderChart([measured]).beside("H200")


def test_curves_on_top_of_each_other_are_all_visible() -> None:
    ladder = synthetic.ladder()
    latency = LadderChart([ladder, ladder, ladder]).plot(Figure().subplots())
    curves = [line for line in latency.lines if line.get_label().endswith("modelled")]
    assert len({curve.get_marker() for curve in curves}) == 3
    *_, last = curves
    assert last.is_dashed(), "the curve below is visible in the gaps"


def test_latency_is_interpolated_between_measured_sizes() -> None:
    ladder = synthetic.ladder()
    assert ladder.latency_at(3000) == pytest.approx(20)
    assert 20 < ladder.latency_at(200 << 10) < 150
    assert ladder.bandwidth("L2") == 4000
    assert ladder.bandwidth("peer") is None
    assert replace(ladder, bandwidths=()).bandwidth("L2") is None
