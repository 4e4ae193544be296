"""Ladder chart: steps in words, both axes, published figures, other devices beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from gpulab.views import LadderChart
from tests.views import synthetic
from virtualgpu.records.memory import MemoryLadder


def test_both_axes_are_logarithmic() -> None:
    latency, bandwidth = LadderChart([synthetic.ladder()]).plot(Figure().subplots(1, 2))
    assert (latency.get_xscale(), latency.get_yscale(), bandwidth.get_xscale()) == ("log", "log", "log")
    curve = latency.lines[0]
    assert list(curve.get_xdata()) == [2**n for n in range(10, 29)]
    assert [curve.get_ydata()[index] for index in (0, 10, -1)] == [20, 150, 500]
    ends = [bar.get_x() + bar.get_width() for bar in bandwidth.patches]
    assert ends == pytest.approx([250_000, 4000, 1700])
    assert [label.get_text() for label in bandwidth.get_yticklabels()] == [
        "registers",
        "L2",
        "memory, read",
        "peer",
    ]
    assert bandwidth.yaxis_inverted(), "registers stand on top"
    assert "there is one GPU" in [text.get_text() for text in bandwidth.texts]


def test_capacities_and_published_rates_are_dashed_where_they_belong() -> None:
    latency, bandwidth = LadderChart([synthetic.ladder()]).plot(Figure().subplots(1, 2))
    dashed = [line.get_xdata()[0] for line in latency.lines if line.get_linestyle() == "--"]
    assert dashed == [192 << 10, 40 << 20]
    assert [text.get_text() for text in latency.texts] == ["L1: 192 KiB", "L2: 40 MiB"]
    published = [line.get_segments()[0][0][0] for line in bandwidth.collections]
    assert published == [300_000, 2039]


def test_another_ladder_is_added_by_name_or_record() -> None:
    measured = synthetic.ladder(synthetic.MEASURED, 1.1)
    names: list[str] = []

    def find(name: str) -> MemoryLadder:
        names.append(name)
        return measured

    chart = LadderChart([synthetic.ladder()], find=find)
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


def test_latency_lies_between_its_neighbours() -> None:
    ladder = synthetic.ladder()
    assert ladder.latency_at(3000) == pytest.approx(20)
    assert 20 < ladder.latency_at(200 << 10) < 150
    assert ladder.bandwidth("L2") == 4000
    assert ladder.bandwidth("peer") is None
    assert replace(ladder, bandwidths=()).bandwidth("L2") is None
