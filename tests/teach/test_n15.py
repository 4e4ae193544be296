"""Notebook 15: pictures and tables, and the machines that run the answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.words import duration
from gpulab_course.content.n15_several import figures
from gpulab_course.teach.judge.python import several as machines


def test_tables_name_the_recorded_device_and_that_nvls_was_off() -> None:
    gl.use_device("virtual:H200", count=8)
    assert figures.published_gbps() == 900
    assert "recorded on NVIDIA H200" in figures.recorded_copies().text()
    for text in (figures.graph_records().text(), figures.python_records().text()):
        assert "Recorded on NVIDIA H200, 4 of one host" in text
        assert text.splitlines()[0].endswith("NVLink SHARP (NVLS) off")
    assert "NCCL, NVLS off" in figures.graph_records().text()


def test_the_picture_of_messages_counts_them_per_link_and_port() -> None:
    gl.use_device("virtual:H200", count=4)
    views = [gl.collective("all-reduce", way, size_bytes=4096, gpus=4) for way in ("naive", "ring")]
    caption = repr(figures.link_messages(*views))
    assert "step 1 of 2, 3 arrows between 4 GPUs" in caption
    assert (
        "1 message of 4 KiB over each arrow, and as many back; busiest port: 3 arrays in, 3 out." in caption
    )
    assert (
        "6 messages of 1 KiB over each arrow, and none back; busiest port: 1.5 arrays in, 1.5 out." in caption
    )


@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_collective_times_equal_the_alpha_beta_formula(size: int) -> None:
    """Compute α and β by hand for four GPUs."""
    gl.use_device("virtual:H200", count=4)
    price = gl.session.find_step_prices()
    beta = {}
    for way, steps, sums, turns, sum_turns, port, added in (
        ("ring", 6, 3, 0, 0, 6 / 4, 3 / 4),
        ("tree", 4, 2, 0, 0, 4, 2),
        ("naive", 2, 1, 4, 2, 6, 3),
    ):
        view = gl.collective("all-reduce", way, size_bytes=size, gpus=4)
        beta[way] = port * size / price.link_gbps + added * size / price.sum_gbps
        fixed = steps * price.step_ns + sums * price.sum_ns
        expected_ns = turns * price.turn_ns + sum_turns * price.sum_turn_ns
        assert view.record.time_ns == pytest.approx(fixed + expected_ns + beta[way], abs=steps)
        row = figures.counted(view).rows[0]
        assert row[2] == f"{steps} × α + {sums} × sums = {duration(fixed)}"
        assert row[3].startswith(f"{turns} + {sum_turns}: ")
        assert row[5] == duration(view.record.time_ns)


def test_messages_of_processes_are_summed() -> None:
    gl.use_device("virtual:H200")
    code = (
        "import json, sys\nrank, ranks, steps = map(int, sys.argv[1:])\nseen = []\n"
        "for step in range(steps):\n    print(json.dumps([rank + 1, step]), flush=True)\n"
        "    seen.append(json.loads(sys.stdin.readline()))\nprint(json.dumps({'rank': rank, 'seen': seen}))"
    )
    assert figures.in_processes(code, ranks=2, steps=2) == [
        {"rank": 0, "seen": [[3, 0], [3, 2]]},
        {"rank": 1, "seen": [[3, 0], [3, 2]]},
    ]
    with pytest.raises(RuntimeError, match="Rank 0 ended in step 0"):
        figures.in_processes("raise SystemExit", ranks=2, steps=1)


def _late(cp: Any, parts: Any, streams: Any, wait: bool) -> None:
    with cp.cuda.Device(0), streams[0]:
        cp.copyto(parts[1], parts[0])
        sent = streams[0].record()
    if wait:
        with cp.cuda.Device(1):
            streams[1].wait_event(sent)


@pytest.mark.parametrize("how", machines.RUN_MODES)
def test_a_missing_event_between_devices_is_detected(how: Any) -> None:
    results = {}
    for wait in (True, False):
        with machines.open_gpu_machine(2) as machine, machines.run_in_order(machine, how) as sample:
            parts = [machine.copy_to_gpu(gpu, np.full(4, gpu, np.float32)) for gpu in range(2)]
            with machine.cp.cuda.Device(1):
                before = machine.streams[1].record()
            with machine.cp.cuda.Device(0):
                machine.streams[0].wait_event(before)
            _, facts = machine.run_recorded(
                lambda parts=parts, wait=wait, m=machine: _late(m.cp, parts, m.streams, wait)
            )
            results[wait] = machine.read(1, parts[1]).tolist()
        assert facts["waits"] == facts["host_bytes"] == 0
        if how == "as given":
            assert (facts["out"], facts["in"], facts["messages"]) == ([16, 0], [0, 16], [0, 1])
        assert bool(sample) == (how == "checked" and not wait)
    assert results[True] == [0.0] * 4
    assert (results[False] == [0.0] * 4) == (how in ("as given", "checked"))


@pytest.mark.parametrize(("links", "pcie"), [("nvswitch", 0), ("host", 32)])
def test_costs_are_counted_by_gpu(links: str, pcie: int) -> None:
    with machines.open_gpu_machine(3, links) as machine:
        cp = machine.cp
        parts = [machine.copy_to_gpu(gpu, np.full(4, gpu, np.float32)) for gpu in range(3)]
        assert [(part.device.id, machine.read(gpu, part)[0]) for gpu, part in enumerate(parts)] == [
            (0, 0.0),
            (1, 1.0),
            (2, 2.0),
        ]
        machine.wait_for_gpus()

        def work() -> Any:
            with cp.cuda.Device(0), machine.streams[0]:
                cp.copyto(parts[1], parts[0])
                cp.copyto(parts[2], parts[0])
                sent = machine.streams[0].record()
                assert not sent.done  # a query counts as a wait
            with cp.cuda.Device(1), machine.streams[1]:
                machine.streams[1].wait_event(sent)
                return machine.read(1, parts[1] + 5)

        result, facts = machine.run_recorded(work)
        assert result.tolist() == [5.0] * 4
        assert facts["pcie"] == pcie
        costs = {name: facts[name] for name in ("waits", "host_bytes", "out", "in", "messages")}
        assert costs == {
            "waits": 2,
            "host_bytes": 16,
            "out": [32, 0, 0],
            "in": [0, 16, 16],
            "messages": [0, 1, 1],
        }
        first, second, add, back = sorted(machine.predecessor_ids)
        assert machine.must_follow(back, first)
        assert machine.must_follow(add, second)
        assert not machine.must_follow(first, second)
        assert not machine.must_follow(second, add)
        assert not machine.must_follow(first, first)


def test_hazards_of_several_gpus_are_listed() -> None:
    with machines.open_gpu_machine(2) as machine, machines.run_in_order(machine, "checked") as sample:
        parts = [machine.copy_to_gpu(gpu, np.full(4, gpu, np.float32)) for gpu in range(2)]
        _late(machine.cp, parts, machine.streams, wait=False)
        machine.read(1, parts[1])
    assert len(sample) == 1
    assert "streams[0]" in sample[0]
