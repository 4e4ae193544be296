"""The recording of several GPUs with virtual ones: its schedules are right, and its files."""

from __future__ import annotations

from typing import Any

from gpulab import session
from gpulab.lab.links.schedules import ALGORITHMS
from tools.recordings import captured, several


def test_schedules_are_timed_by_every_method_and_are_correct() -> None:
    rows: list[Any] = []
    with session.use_bench_device(session.find_table_info("H200"), 3) as side:
        captured.time_schedules(side.cp, 3, lambda _, row: rows.append(row), sizes=(4096,))
    assert [row["algorithm"] for row in rows] == list(ALGORITHMS)
    for row in rows:
        assert row["right"] is True
        assert all(row[f"{way}_us"] > 0 for way in ("graph", "gated", "host", "issue", "by_steps"))


def test_building_blocks_depend_only_on_earlier_pieces() -> None:
    for name, count, _, pieces in captured.list_building_blocks(3):
        assert all(before < number for number, piece in enumerate(pieces) for before in piece[6])
        if name == "copies in turns":
            assert [piece[6] for piece in pieces] == [(), *((number,) for number in range(count - 1))]
        if name == "into one port":
            assert [piece[6] for piece in pieces] == [()] * count
            assert {piece[4] for piece in pieces} == {0}  # GPU 0's port
            assert len({piece[1] for piece in pieces}) == min(count, 2)


def test_shipped_rows_are_merged_and_name_disabled_features() -> None:
    times = {"host_us": 9.0, "issue_us": 8.0, "graph_us": 3.0, "by_steps_us": 10.0}
    row = {"size_bytes": 4096, "algorithm": "ring", "slices": 1, **times}
    common = dict.fromkeys(("format", "ranks", "date", "copies", "kernel_gbps", "both_ways_gbps"), 1)
    first = {
        **common,
        "gpus": 2,
        "gpu": "H200",
        "device": "NVIDIA H200",
        "what": "2 of one host; driver 1, CuPy 14.2.0 with NCCL 2.28.9, CUDA driver 9, NCCL 22809, NVLS off",
        "all_reduce": [{"size_bytes": 4096, "torch_us": 5.0}],
        "schedules": [row, {**row, "slices": 2}, {k: v for k, v in row.items() if k != "graph_us"}],
    }
    second = {
        **first,
        "schedules": [],
        "all_reduce": [{"size_bytes": 4096, "nccl_us": 6.0}],
        "nccl": [{"size_bytes": 4096, "in_a_row_us": 6.0, "captured_us": 4.0}],
        "blocks": [{"what": "adds", "many": 2, "size_bytes": 4096, "graph_us": 1.0}],
    }
    shipped = several.make_shipped_records([{"records": [first]}, {"records": [second]}])[2]
    assert shipped["what"] == "2 of one host; driver 1, CuPy 14.2.0, NCCL 2.28.9; NVLink SHARP (NVLS) off"
    (merged,) = shipped["all_reduce"]
    ways = (("us", 3.0), ("python_us", 9.0), ("issue_us", 8.0), ("steps_us", 10.0))
    assert merged == {
        "size_bytes": 4096,
        "torch_us": 5.0,
        "nccl_us": 6.0,
        "nccl_graph_us": 4.0,
        **{f"ring{sliced}_{way}": us for sliced in ("", "_sliced") for way, us in ways},
    }
    assert shipped["blocks"] == {"adds": [[2, 4096, 1.0]]}
