"""What an H200 did with graphs, and the virtual GPU in its place does: updates, memory nodes, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.recordings import graphs

pytestmark = pytest.mark.gpu

RECORDED = json.loads(
    (Path(__file__).parents[1] / "recordings" / "data" / "graphs_h200.json").read_text(encoding="utf-8")
)
# Messages of the virtual GPU are longer than CUDA's: compare only this number of letters.
WORDS = 58


@pytest.fixture(scope="module")
def cupy() -> Any:
    return pytest.importorskip("cupy")


def test_updates_have_the_recorded_outcomes(cupy: Any) -> None:
    outcomes = {name: outcome[0] for name, outcome in graphs.record_updates().items() if name != "words"}
    assert outcomes == RECORDED["updates"]


def test_memory_nodes_behave_as_recorded(cupy: Any) -> None:
    outcomes = graphs.record_memory()
    for name, recorded in RECORDED["memory"].items():
        launches = [outcomes[name][f"launch {turn}"].partition(". ")[0][:WORDS] for turn in range(3)]
        assert launches == [recorded[f"launch {turn}"][:WORDS] for turn in range(3)], name
        memory = [
            [kind for kind in nodes if "MEM_" in kind]
            for nodes in (outcomes[name]["nodes"], recorded["nodes"])
        ]
        assert memory[0] == memory[1], name


def test_refusals_have_the_recorded_messages(cupy: Any) -> None:
    messages = graphs.record_refusals()
    for name, recorded in RECORDED["refusals"].items():
        words, _, end = recorded.partition(" | ")
        message, _, my_end = messages[name].partition(" | ")
        assert (message[: len(words)], my_end) == (words, end), name
