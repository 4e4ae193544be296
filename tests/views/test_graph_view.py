"""The view of a CUDA graph: drawing, folding of repeated nodes, dangling arrays, and labels."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from PIL import Image

from gpulab.views import GraphView
from gpulab.views.graph import graph_text
from gpulab.views.graph.folding import fold_groups
from gpulab.views.parts.boxes import Plot, SwitchBox
from tests.views.graphs import CUB, OLD, X, chain, compared, graph, kernel
from tests.views.synthetic import boxes
from virtualgpu.records import DanglingArray, GraphArray, GraphRecord, NodeParameter


class TestFolding:
    def expand(self, record: GraphRecord) -> None:
        """Every node is in one group, and a group's pattern is what its members are."""
        folded_groups, edges = fold_groups(record)
        members = [member for group in folded_groups for member in group.members]
        assert sorted(members) == [node.number for node in record.nodes]
        for group in folded_groups:
            assert len(group.members) == group.repetitions * len(group.pattern)
            names = [record.nodes[member].name for member in group.members]
            assert names == [node.name for node in group.pattern] * group.repetitions
        owner = {member: index for index, group in enumerate(folded_groups) for member in group.members}
        assert set(edges) == {(owner[a], owner[b]) for a, b in record.edges if owner[a] != owner[b]}

    def test_a_chain_of_equal_nodes_folds_into_one_group(self) -> None:
        record = chain(1_000)
        self.expand(record)
        (only,) = fold_groups(record)[0]
        assert graph_text.group_text(only) == ("1,000 × add", "<<<4, 256>>>")

    def test_a_repeated_pattern_of_nodes_is_folded(self) -> None:
        names = ["norm", "matmul", "softmax"] * 20 + ["gelu"]
        record = graph(*(kernel(n, name) for n, name in enumerate(names)))
        self.expand(record)
        first, last = fold_groups(record)[0]
        assert graph_text.group_text(first) == ("20 × 3 nodes", "norm, matmul, softmax")
        assert graph_text.group_text(last)[0] == "gelu"

    def test_identical_branches_fold_into_a_fan(self) -> None:
        edges = [(0, n) for n in range(1, 41)] + [(n, 41) for n in range(1, 41)]
        record = graph(*(kernel(n, "add" if 0 < n < 41 else "ends") for n in range(42)), edges=edges)
        self.expand(record)
        folded_groups, between = fold_groups(record)
        assert [group.is_fan for group in folded_groups] == [False, True, False]
        assert sorted(between) == [(0, 1), (1, 2)]

    def test_branches_of_identical_chains_are_folded(self) -> None:
        """Ten branches of five nodes each, between a fork and a join."""
        edges = []
        number = 1
        for _ in range(10):
            edges += [(0, number), *((number + i, number + i + 1) for i in range(4)), (number + 4, 51)]
            number += 5
        record = graph(*(kernel(n, "ends" if n in (0, 51) else "add") for n in range(52)), edges=edges)
        self.expand(record)
        assert [len(group.members) for group in fold_groups(record)[0]] == [1, 50, 1]

    @pytest.mark.parametrize("seed", range(10))
    def test_folding_keeps_every_node_of_any_graph(self, seed: int) -> None:
        draw = random.Random(seed)
        count = draw.randrange(22, 70)
        edges = {
            (a, b) for b in range(1, count) for a in draw.sample(range(b), min(b, draw.choice((1, 1, 2))))
        }
        record = graph(*(kernel(n, draw.choice("ab")) for n in range(count)), edges=sorted(edges))
        self.expand(record)

    def folded(self, names: str, apart: frozenset[int] = frozenset()) -> list[str]:
        """What stands on the groups of a chain of kernels with these names."""
        folded_groups, _ = fold_groups(graph(*(kernel(n, name) for n, name in enumerate(names))), apart)
        return [graph_text.group_text(group)[0] for group in folded_groups]

    def test_patterns_fold_from_four_nodes_on(self) -> None:
        assert self.folded("aaaa") == ["4 × a"]
        assert self.folded("aaab") == ["a", "a", "a", "b"]
        assert self.folded("abab") == ["2 × 2 nodes"]
        assert self.folded("abcabc") == ["2 × 3 nodes"]
        assert self.folded("abcab") == [*"abcab"]
        assert self.folded("xababab") == ["x", "3 × 2 nodes"]
        assert self.folded("aaaaaaaa") == ["8 × a"], "the shortest pattern"
        assert self.folded("aabaab") == ["2 × 3 nodes"], "the one that covers most"

    def test_patterns_are_twelve_nodes_long_at_most(self) -> None:
        assert self.folded("abcdefghijkl" * 2) == ["2 × 12 nodes"]
        assert self.folded("abcdefghijklm" * 2) == [*"abcdefghijklm" * 2]

    def test_kernels_with_different_grids_are_not_folded(self) -> None:
        record = graph(*(kernel(n, grid=1 + n) for n in range(30)))
        assert len(fold_groups(record)[0]) == 30

    def test_excluded_nodes_are_not_folded(self) -> None:
        assert self.folded("aaaaaaaaa", frozenset({4})) == ["4 × a", "a", "4 × a"]
        edges = [(0, n) for n in range(1, 8)]
        record = graph(*(kernel(n, "root" if n == 0 else "leaf") for n in range(8)), edges=edges)
        for apart, text in ((set(), ["root", "7 × leaf"]), ({3}, ["root", "6 × leaf", "leaf"])):
            folded_groups, between = fold_groups(record, frozenset(apart))
            assert [graph_text.group_text(group)[0] for group in folded_groups] == text
            assert sorted(between) == [(0, n) for n in range(1, len(text))]

    def test_a_fan_has_at_least_four_branches_of_one_node(self) -> None:
        for many, text in ((3, ["root", "leaf", "leaf", "leaf"]), (4, ["root", "4 × leaf"])):
            edges = [(0, n) for n in range(1, many + 1)]
            record = graph(*(kernel(n, "leaf" if n else "root") for n in range(many + 1)), edges=edges)
            assert [graph_text.group_text(group)[0] for group in fold_groups(record)[0]] == text
        # Two roots with four leaves each: the leaves of one are not those of the other.
        edges = [(n // 5 * 5, n) for n in range(10) if n % 5]
        record = graph(*(kernel(n, "leaf" if n % 5 else f"root {n}") for n in range(10)), edges=edges)
        folded_groups, _ = fold_groups(record)
        assert [graph_text.group_text(group)[0] for group in folded_groups] == [
            "root 0",
            "4 × leaf",
            "root 5",
            "4 × leaf",
        ]
        assert [group.members for group in folded_groups if group.is_fan] == [(1, 2, 3, 4), (6, 7, 8, 9)]

    def test_an_empty_graph_has_no_groups(self) -> None:
        assert fold_groups(graph()) == ([], [])
        one = kernel(0)
        assert fold_groups(graph(one, kernel(1)), is_folded=False)[1] == [(0, 1)]


class TestPicture:
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

    def test_a_click_on_a_folded_node_selects_its_first_member(self) -> None:
        view = GraphView(chain(50))
        item = next(box for box in view.draw().boxes if isinstance(box, Plot)).items[0].wire()
        assert item["first"] == [0]
        assert item["owner"] == [0] * 50
        view.close()

    def test_a_folded_node_unfolds_below_the_graph(self) -> None:
        names = ["add", "mul"] * 30
        view = GraphView(graph(kernel(0, "load"), *(kernel(n, name) for n, name in enumerate(names, 1))))
        unfolds = next(box for box in view.draw().boxes if isinstance(box, SwitchBox))
        assert set(unfolds.cases) == {"-1", "1"}, "under the number that a click on the node chooses"
        groups_ = unfolds.cases["1"].boxes[-1].items[0].wire()
        assert groups_["text"][:3] == ["add", "mul", "add"]
        assert "39 more like them" in str(unfolds.cases["1"].wire())
        view.close()
        small = GraphView(chain(3))
        assert not any(isinstance(box, SwitchBox) for box in small.draw().boxes), "nothing is folded"
        small.close()

    def test_a_dangling_array_has_a_red_arrow_and_a_remedy(self) -> None:
        array = GraphArray("a", OLD, 4096, "float32", (1024,))
        folded_groups = DanglingArray(array, X, (1, 3), (1.0, 2.0), (9.0, 8.0))
        nodes = [kernel(n, address=OLD if n in (1, 3) else X) for n in range(5)]
        plain = GraphView(graph(*nodes))
        view = GraphView(graph(*nodes, dangling=(folded_groups,)))
        red = (164, 14, 38)  # palette: error
        counts = []
        for view_ in (plain, view):
            label = np.asarray(Image.open(io.BytesIO(view_.png())).convert("RGB"))
            counts.append(int((label == red).all(axis=-1).sum()))
            view_.close()
        assert counts[0] == 0
        assert counts[1] > 1_000
        assert "a dangles: nodes 1 and 3 still use" in view.describe()
        assert "Write a[...] = new instead of a = new, or call g.update(a=a)." in view.describe()
        item = view.draw().boxes[-1].items[0].wire()
        assert item["text"][:2] == ["old a", "a now"]

    def test_the_first_user_of_an_old_array_is_not_folded(self) -> None:
        folded_groups = DanglingArray(
            GraphArray("a", OLD, 4096, "float32", (1024,)), X, (5, 6), (1.0,), (2.0,)
        )
        view = GraphView(graph(*map(kernel, range(30)), dangling=(folded_groups,)))
        assert [(group.members[0], len(group.members)) for group in view.groups] == [(0, 5), (5, 1), (6, 24)]
        view.close()

    @pytest.mark.parametrize(("leaves", "groups_"), [(14, 15), (15, 2)])
    def test_high_graphs_are_folded(self, leaves: int, groups_: int) -> None:
        nodes = [kernel(n, "leaf" if n else "root") for n in range(leaves + 1)]
        view = GraphView(graph(*nodes, edges=[(0, n) for n in range(1, leaves + 1)]))
        assert len(view.groups) == groups_
        assert ("drawn as 2." in view.caption) == (groups_ == 2)
        view.close()


class TestLabels:
    @pytest.mark.parametrize(
        ("address", "text"),
        [
            (X, "a (float32 1,024)"),
            (X + 4095, "a + 4,095 B (float32 1,024)"),
            (X + 4096, f"temporary at {X + 4096:#x}"),
        ],
    )
    def test_pointers_are_named_by_their_arrays(self, address: int, text: str) -> None:
        pointer = NodeParameter(address.to_bytes(8, "little"), 0, "x", "float*", (address,))
        assert graph_text.parameter_text(chain(1), pointer) == f"x = {text}"

    @pytest.mark.parametrize(
        ("name", "label"),
        [
            ("cupy_multiply__float32_float32_float32", "multiply"),
            ("cupy_copy", "copy"),
            ("my_cupy_add", "my_cupy_add"),
            ("_Z5scalePfi", "scale"),
            (CUB, "DeviceReduceSingleTileKernel"),
            ("_Zebra", "_Zebra"),
        ],
    )
    def test_kernels_have_short_names(self, name: str, label: str) -> None:
        assert graph_text.name_node(kernel(0, name)) == label


class TestReplay:
    def test_replay_uses_the_times_of_the_record(self) -> None:
        record = chain(5)
        comparison = compared(record)
        view = GraphView(record, comparison)
        replay = comparison.replay
        assert replay is not None
        spans = {
            activity.graph_node_id: (activity.start_ns - replay.start_ns, activity.end_ns - replay.start_ns)
            for activity in replay.activities
        }
        (drawn,) = (
            plot["items"][0] for plot in boxes(view.scene, "plot") if plot["items"][0]["item"] == "nodes"
        )
        assert [*zip(drawn["starts"], drawn["ends"], strict=True)] == [spans[node] for node in range(5)]
        (play,) = boxes(view.scene, "player")
        assert play["stops"] == sorted({time_ns for span in spans.values() for time_ns in span})
        assert dict(play["counts"])["as a graph"] == [end_ns for _, end_ns in spans.values()]
        assert play["last"] == max(comparison.eager.duration_ns, replay.duration_ns)
        assert replay.provenance.label in play["origin"]
        view.close()

    def test_a_folded_node_lasts_from_its_first_to_its_last_member(self) -> None:
        record = chain(40)
        comparison = compared(record)
        view = GraphView(record, comparison)
        (drawn,) = (
            plot["items"][0]
            for plot in boxes(view.scene, "plot")
            if plot["items"][0]["item"] == "nodes" and len(plot["items"][0]["starts"]) < 5
        )
        activities = comparison.replay.activities
        assert drawn["starts"][0] == min(a.start_ns for a in activities) - comparison.replay.start_ns
        assert drawn["ends"][-1] == max(a.end_ns for a in activities) - comparison.replay.start_ns
        view.close()
