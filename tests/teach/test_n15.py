"""Notebook 15's figures and the machines that its answers are tried on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.words import duration
from gpulab_course.content.n15_several import figures
from gpulab_course.teach.judge.python import several as machines


def test_tables_say_what_is_recorded_and_that_nvls_was_off() -> None:
    gl.use_device("virtual:H200", count=8)
    assert figures.published_gbps() == 900
    assert "recorded on NVIDIA H200" in figures.recorded_copies().text()
    for text in (figures.graph_records().text(), figures.python_records().text()):
        assert "Recorded on NVIDIA H200, 4 of one host" in text
        assert text.splitlines()[0].endswith("NVLink SHARP (NVLS) off")
    assert "NCCL, NVLS off" in figures.graph_records().text()


@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_the_arithmetic_beside_the_table_is_that_of_the_steps(size: int) -> None:
    """α and β by hand, for four GPUs."""
    gl.use_device("virtual:H200", count=4)
    price = gl.session.step_prices()
    beta = {}
    for way, steps, sums, turns, sum_turns, port, added in (
        ("ring", 6, 3, 0, 0, 6 / 4, 3 / 4),
        ("tree", 4, 2, 0, 0, 4, 2),
        ("naive", 2, 1, 4, 2, 6, 3),
    ):
        view = gl.collective("all-reduce", way, size_bytes=size, gpus=4)
        beta[way] = port * size / price.link_gbps + added * size / price.sum_gbps
        fixed = steps * price.step_ns + sums * price.sum_ns
        turned = turns * price.turn_ns + sum_turns * price.sum_turn_ns
        assert view.record.time_ns == pytest.approx(fixed + turned + beta[way], abs=steps)
        row = figures.counted(view).rows[0]
        assert row[2] == f"{steps} × α + {sums} × sums = {duration(fixed)}"
        assert row[3].startswith(f"{turns} + {sum_turns}: ")
        assert row[5] == duration(view.record.time_ns)


def test_processes_add_up_what_they_tell() -> None:
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
def test_a_missing_event_between_devices_shows(how: Any) -> None:
    found = {}
    for wait in (True, False):
        with machines.gpus(2) as made, machines.tried(made, how) as said:
            parts = [made.put(gpu, np.full(4, gpu, np.float32)) for gpu in range(2)]
            with made.cp.cuda.Device(1):
                before = made.streams[1].record()
            with made.cp.cuda.Device(0):
                made.streams[0].wait_event(before)
            _, facts = made.called(lambda parts=parts, wait=wait, m=made: _late(m.cp, parts, m.streams, wait))
            found[wait] = made.read(1, parts[1]).tolist()
        assert facts["waits"] == facts["host_bytes"] == 0
        if how == "as given":
            assert (facts["out"], facts["in"], facts["messages"]) == ([16, 0], [0, 16], [0, 1])
        assert bool(said) == (how == "checked" and not wait)
    assert found[True] == [0.0] * 4
    assert (found[False] == [0.0] * 4) == (how in ("as given", "checked"))


@pytest.mark.parametrize(("links", "pcie"), [("nvswitch", 0), ("host", 32)])
def test_what_a_program_costs_is_counted_by_gpu(links: str, pcie: int) -> None:
    with machines.gpus(3, links) as made:
        cp = made.cp
        parts = [made.put(gpu, np.full(4, gpu, np.float32)) for gpu in range(3)]
        assert [(part.device.id, made.read(gpu, part)[0]) for gpu, part in enumerate(parts)] == [
            (0, 0.0),
            (1, 1.0),
            (2, 2.0),
        ]
        made.quiet()

        def work() -> Any:
            with cp.cuda.Device(0), made.streams[0]:
                cp.copyto(parts[1], parts[0])
                cp.copyto(parts[2], parts[0])
                sent = made.streams[0].record()
                assert not sent.done  # asking is a wait
            with cp.cuda.Device(1), made.streams[1]:
                made.streams[1].wait_event(sent)
                return made.read(1, parts[1] + 5)

        result, facts = made.called(work)
        assert result.tolist() == [5.0] * 4
        assert facts["pcie"] == pcie
        told = {name: facts[name] for name in ("waits", "host_bytes", "out", "in", "messages")}
        assert told == {
            "waits": 2,
            "host_bytes": 16,
            "out": [32, 0, 0],
            "in": [0, 16, 16],
            "messages": [0, 1, 1],
        }
        first, second, add, back = sorted(made.after)
        assert made.follows(back, first)
        assert made.follows(add, second)
        assert not made.follows(first, second)
        assert not made.follows(second, add)
        assert not made.follows(first, first)


def test_hazards_of_several_gpus_are_told_one_by_one_in_their_words() -> None:
    with machines.gpus(2) as made, machines.tried(made, "checked") as said:
        parts = [made.put(gpu, np.full(4, gpu, np.float32)) for gpu in range(2)]
        _late(made.cp, parts, made.streams, wait=False)
        made.read(1, parts[1])
    assert len(said) == 1
    assert "streams[0]" in said[0]
