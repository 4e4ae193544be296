"""The view of a graph: what it draws, folds, marks and says."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from gpulab.views import GraphView
from gpulab.views.graph import graph_text
from gpulab.views.graph.folding import groups
from gpulab.views.parts.boxes import Plot, Switch
from tests.views.graphs import CUB, OLD, X, chain, compared, graph, kernel
from virtualgpu.records import (
    DanglingArray,
    GraphArray,
    GraphRecord,
    NodeParameter,
    SourceLine,
)


class TestFolding:
    def expand(self, record: GraphRecord) -> None:
        """Every node is in one group, and a group's pattern is what its members are."""
        found, edges = groups(record)
        members = [member for group in found for member in group.members]
        assert sorted(members) == [node.number for node in record.nodes]
        for group in found:
            assert len(group.members) == group.times * len(group.pattern)
            names = [record.nodes[member].name for member in group.members]
            assert names == [node.name for node in group.pattern] * group.times
        owner = {member: at for at, group in enumerate(found) for member in group.members}
        assert set(edges) == {(owner[a], owner[b]) for a, b in record.edges if owner[a] != owner[b]}

    def test_a_chain_of_a_thousand_equal_nodes_is_one(self) -> None:
        record = chain(1_000)
        self.expand(record)
        (only,) = groups(record)[0]
        assert graph_text.group_text(only) == ("1,000 × add", "<<<4, 256>>>")

    def test_a_pattern_that_comes_again(self) -> None:
        names = ["norm", "matmul", "softmax"] * 20 + ["gelu"]
        record = graph(*(kernel(n, name) for n, name in enumerate(names)))
        self.expand(record)
        first, last = groups(record)[0]
        assert graph_text.group_text(first) == ("20 × 3 nodes", "norm, matmul, softmax")
        assert graph_text.group_text(last)[0] == "gelu"

    def test_branches_that_do_the_same(self) -> None:
        edges = [(0, n) for n in range(1, 41)] + [(n, 41) for n in range(1, 41)]
        record = graph(*(kernel(n, "add" if 0 < n < 41 else "ends") for n in range(42)), edges=edges)
        self.expand(record)
        found, between = groups(record)
        assert [group.is_fan for group in found] == [False, True, False]
        assert sorted(between) == [(0, 1), (1, 2)]

    def test_branches_that_are_chains(self) -> None:
        """Ten branches of five nodes each, between a fork and a join."""
        edges, number = [], 1
        for _ in range(10):
            edges += [(0, number), *((number + i, number + i + 1) for i in range(4)), (number + 4, 51)]
            number += 5
        record = graph(*(kernel(n, "ends" if n in (0, 51) else "add") for n in range(52)), edges=edges)
        self.expand(record)
        assert [len(group.members) for group in groups(record)[0]] == [1, 50, 1]

    @pytest.mark.parametrize("seed", range(25))
    def test_any_graph_is_only_told_shorter(self, seed: int) -> None:
        draw = random.Random(seed)
        count = draw.randrange(22, 70)
        edges = {
            (a, b) for b in range(1, count) for a in draw.sample(range(b), min(b, draw.choice((1, 1, 2))))
        }
        record = graph(*(kernel(n, draw.choice("ab")) for n in range(count)), edges=sorted(edges))
        self.expand(record)

    def test_different_shapes_are_not_the_same(self) -> None:
        record = graph(*(kernel(n, grid=1 + n) for n in range(30)))
        assert len(groups(record)[0]) == 30


class TestPicture:
    def test_a_small_graph_is_drawn_whole(self) -> None:
        view = GraphView(chain(8))
        assert len(view.groups) == 8
        view.close()

    @pytest.mark.parametrize("count", [1, 21, 300])
    def test_height(self, count: int) -> None:
        record = chain(count)
        view = GraphView(record, compared(record), "step")
        shown = Image.open(io.BytesIO(view.png()))
        assert shown.height / 2 <= 560
        view.close()

    def test_both_timelines_and_the_graph_share_a_trait(self) -> None:
        record = chain(5)
        view = GraphView(record, compared(record), "step")
        *_, picture, timelines = view.draw().boxes
        assert picture.items[0].columns["picks"] == "node"
        assert "node" in timelines.items[0].columns["picks"]
        item = timelines.items[0].wire()
        replayed = [
            int(n) for n, panel in zip(item["node"], item["panel"], strict=True) if panel == 1 and n >= 0
        ]
        assert sorted(replayed) == [0, 1, 2, 3, 4]
        view.close()

    def test_a_click_on_a_folded_node_chooses_its_first(self) -> None:
        view = GraphView(chain(50))
        item = next(box for box in view.draw().boxes if isinstance(box, Plot)).items[0].wire()
        assert item["first"] == [0]
        assert item["owner"] == [0] * 50
        view.close()

    def test_a_folded_node_unfolds_below_the_graph(self) -> None:
        names = ["add", "mul"] * 30
        view = GraphView(graph(kernel(0, "load"), *(kernel(n, name) for n, name in enumerate(names, 1))))
        unfolds = next(box for box in view.draw().boxes if isinstance(box, Switch))
        assert set(unfolds.cases) == {"-1", "1"}, "under the number that a click on the node chooses"
        drawn = unfolds.cases["1"].boxes[-1].items[0].wire()
        assert drawn["text"][:3] == ["add", "mul", "add"]
        assert "39 more like them" in str(unfolds.cases["1"].wire())
        view.close()
        small = GraphView(chain(3))
        assert not any(isinstance(box, Switch) for box in small.draw().boxes), "nothing is folded"
        small.close()

    def test_an_array_that_dangles_has_a_red_arrow_and_the_remedy(self) -> None:
        array = GraphArray("a", OLD, 4096, "float32", (1024,))
        found = DanglingArray(array, X, (1, 3), (1.0, 2.0), (9.0, 8.0))
        nodes = [kernel(n, address=OLD if n in (1, 3) else X) for n in range(5)]
        plain, view = GraphView(graph(*nodes)), GraphView(graph(*nodes, dangling=(found,)))
        red = (164, 14, 38)  # palette: error
        counts = []
        for each in (plain, view):
            shown = np.asarray(Image.open(io.BytesIO(each.png())).convert("RGB"))
            counts.append(int((shown == red).all(axis=-1).sum()))
            each.close()
        assert counts[0] == 0
        assert counts[1] > 1_000
        assert (
            f"a dangles: nodes 1 and 3 still use [1, 2, …] at {OLD:#x}, but a is now [9, 8, …] at {X:#x}. "
            "Write a[...] = new instead of a = new, or call g.update(a=a)."
        ) in view.describe()
        item = view.draw().boxes[-1].items[0].wire()
        assert item["text"][:2] == ["old a", "a now"]

    def test_an_empty_graph_says_so(self) -> None:
        view = GraphView(graph(edges=()))
        assert "The graph has no nodes." in str(view.draw())
        assert view.png()
        view.close()


class TestWords:
    def test_a_node(self) -> None:
        record = chain(2)
        told = graph_text.node_sentence(record, record.nodes[1])
        assert told == "Node 1: kernel add, grid 4, block 256, with x = a (float32 1,024), y = 2.5"

    def test_the_line_that_gave_it_to_the_stream(self) -> None:
        node = replace(kernel(0), source=SourceLine("cell [3]", 4, "add(x)"))
        view = GraphView(graph(node))
        assert view.describe().endswith("y = 2.5; cell [3], line 4: add(x).")
        view.close()

    def test_parameters_without_names(self) -> None:
        record = chain(1)
        bare = [replace(p, name="", type="") for p in record.nodes[0].parameters]
        assert [graph_text.parameter_text(record, p) for p in bare] == ["a (float32 1,024)", "0x40200000"]
        inside = NodeParameter(b"", addresses=(X + 8,))
        assert graph_text.parameter_text(record, inside) == "a + 8 B (float32 1,024)"
        assert (
            graph_text.parameter_text(record, NodeParameter(b"", addresses=(OLD,)))
            == f"temporary at {OLD:#x}"
        )
        assert graph_text.parameter_text(record, NodeParameter(bytes(24))) == "24 bytes"

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            ("cupy_multiply__float32_float32_float32", "multiply"),
            ("cupy_copy", "copy"),
            ("my_cupy_add", "my_cupy_add"),
            ("_Z5scalePfi", "scale"),
            (CUB, "DeviceReduceSingleTileKernel"),
            ("_Zebra", "_Zebra"),
        ],
    )
    def test_kernels_have_short_names(self, name: str, shown: str) -> None:
        assert graph_text.name_of(kernel(0, name)) == shown

    def test_what_it_costs(self) -> None:
        record = chain(10)
        view = GraphView(record, compared(record), "step")
        assert view.sentence() == (
            "Graph of step: 10 nodes in 10 steps, 9 edges; captured on NVIDIA H200. Per node 1 µs in the "
            "graph, 4 µs piece by piece: 4 times as fast. Host per run 1.6 µs instead of 39 µs (mean of 10 "
            "runs; measured on NVIDIA H200)."
        )
        told = "Node 3: kernel add, grid 4, block 256, with x = a (float32 1,024), y = 2.5; 803 ns in the "
        assert f"{told}replay. After node 2." in view.describe()
        view.close()
