"""Ladder chart: steps in words, both axes, published figures, other devices beside it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gpulab.views import LadderChart
from tests.views import synthetic
from tests.views.synthetic import items
from virtualgpu.records.memory import MemoryLadder


def test_the_sentence_names_each_step_and_rate() -> None:
    chart = LadderChart([synthetic.ladder()])
    assert repr(chart) == (
        "A load takes 20 ns from L1, 150 ns from L2 and 500 ns within 256 MiB; all SMs together read "
        "4,000 GB/s from L2 and 1,700 GB/s from memory; modelled on A100-SXM4-80GB (virtual GPU)."
    )
    assert "peer: not measured, there is one GPU" in chart.describe()
    assert "(published: 2,039 GB/s, a data sheet)" in chart.describe()
    chart.close()


def test_both_axes_are_logarithmic() -> None:
    chart = LadderChart([synthetic.ladder()])
    drawn = chart.draw()
    curve = items(drawn, "line")[0]
    assert list(curve["x"]) == list(range(10, 29))
    fast, middle, slow = (float(y) for y in (curve["y"][0], curve["y"][10], curve["y"][-1]))
    assert (fast - middle) / (middle - slow) == pytest.approx(math.log(150 / 20) / math.log(500 / 150), 1e-4)
    bars = items(drawn, "rects")[1]
    registers, l2, memory = (float(x) - bars["x0"][0] for x in bars["x1"])
    assert (registers - l2) / (l2 - memory) == pytest.approx(math.log(250_000 / 4000) / math.log(4000 / 1700))
    chart.close()


def test_capacities_and_published_rates_are_dashed_where_they_belong() -> None:
    chart = LadderChart([synthetic.ladder()])
    capacities, published = [item for item in items(chart.draw(), "rules") if item["dash"]]
    assert list(capacities["x0"]) == [math.log2(192 << 10), math.log2(40 << 20)]
    assert list(published["x0"]) == [math.log10(300_000), math.log10(2039)]
    chart.close()


def test_another_ladder_comes_beside_by_name_or_as_a_record() -> None:
    measured = synthetic.ladder(synthetic.MEASURED, 1.1)
    asked: list[str] = []

    def find(name: str) -> MemoryLadder:
        asked.append(name)
        return measured

    chart = LadderChart([synthetic.ladder()], find=find)
    by_name = chart.beside("H200")
    as_record = chart.beside(measured)
    assert asked == ["H200"]
    assert by_name.png() == as_record.png() != chart.png()
    assert by_name.record is chart.record
    assert "2 KiB: 22 ns a load" in by_name.describe()
    assert len(items(by_name.draw(), "line")) == 2
    with pytest.raises(ValueError, match="one to 3"):
        by_name.beside(measured).beside(measured)
    with pytest.raises(ValueError, match="pass a MemoryLadder"):
        LadderChart([measured]).beside("H200")
    for view in (chart, by_name, as_record):
        view.close()


def test_latency_lies_between_its_neighbours() -> None:
    ladder = synthetic.ladder()
    assert ladder.latency_at(3000) == pytest.approx(20)
    assert 20 < ladder.latency_at(200 << 10) < 150
    assert ladder.bandwidth("L2") == 4000
    assert ladder.bandwidth("peer") is None
    assert replace(ladder, bandwidths=()).bandwidth("L2") is None
