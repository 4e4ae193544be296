"""The modelled time of tensor cores, asynchronous copies and chains of addresses against an H200."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tools.timing import card, compare
from tools.timing.compare import Compared
from tools.timing.launches import TimedLaunch, read_source
from tools.timing.tensor_launches import PROBES, Program, make_programs
from virtualgpu.backend import VirtualBackend
from virtualgpu.compile import nvrtc
from virtualgpu.model import machine
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine
from virtualgpu.protocol import Launch

DATA = compare.load_recording(card.TENSOR)
TEXT = card.CARD.read_text(encoding="utf-8").partition("## Tensor cores")[2].partition("\n## ")[0]
ROW = re.compile(r"^\| (.+?) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.]+) \|$", re.M)
# What was reached for the programs of the development set; the goals for others are 10 % and 1.6.
MEDIAN = 0.11
WORST = 1.45
CHAINS_WORST = 1.2
TRIED = make_programs()


def modelled(gpu: str, launches: list[TimedLaunch]) -> dict[str, tuple[float, float]]:
    """Return the modelled times in ns of launches, warm and cold."""
    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    return compare.model_times([gpu], launches)[gpu]


def probes(start: str) -> list[TimedLaunch]:
    """Return the small kernels whose name starts so."""
    return [timed for timed in PROBES if timed.name.startswith(start)]


def rows(launches: list[TimedLaunch], *, cold: bool = False) -> dict[str, Compared]:
    """Return recorded and modelled times of launches by name."""
    compared = compare.compare_kernels(DATA, modelled("h200", launches), launches)[cold]
    return {row.name: row for row in compared}


def card_rows() -> list[Compared]:
    """Return the times in the card, in ns."""
    return [
        Compared(name, 1000 * float(recorded_us.replace(",", "")), 1000 * float(modelled_us.replace(",", "")))
        for name, recorded_us, modelled_us, _ in ROW.findall(TEXT)
    ]


def test_errors_in_the_model_card_are_within_the_bounds() -> None:
    reached = compare.score(card_rows())
    assert reached.count == len(make_programs()) > 50
    assert reached.median <= MEDIAN
    assert 1 + reached.worst <= WORST
    assert reached.ranked >= 0.97


def test_the_model_card_has_the_recorded_times() -> None:
    assert {row.name for row in card_rows()} == {program.name for program in make_programs()}
    for row in card_rows():
        assert row.recorded_ns == pytest.approx(DATA["launches"][row.name]["warm_ns"], rel=0.01, abs=5.1)


@pytest.mark.parametrize("program", TRIED, ids=lambda program: program.name)
def test_the_model_card_has_the_modelled_time(program: Program) -> None:
    (row,) = rows([program]).values()
    (shown,) = (shown for shown in card_rows() if shown.name == program.name)
    assert shown.modelled_ns == pytest.approx(row.modelled_ns, rel=0.04, abs=11)


def test_the_recording_is_complete_and_its_results_were_right() -> None:
    assert DATA["launches"].keys() >= {timed.name for timed in compare.list_tensor_launches()}
    assert not DATA["errors"]
    for program in make_programs():
        assert program.check is not None
        assert DATA["checks"][program.name] <= program.check.tolerance


def test_the_search_tree_check_detects_a_wrong_result() -> None:
    for program in make_programs():
        if program.name.startswith("search tree, 8 keys"):
            assert program.check is not None
            inputs = [np.array([0.0, 1.0, -1.0]), np.array([0.5, -0.5]), None, 1, 2]
            assert program.check.error(inputs, np.array([2, 1])) == 0.0
            assert program.check.error(inputs, np.array([2, 2])) > program.check.tolerance


@pytest.mark.parametrize("cold", [False, True])
def test_times_of_pointer_chases_outside_l1(cold: bool) -> None:
    reached = compare.score(
        [row for name, row in rows(probes("chase"), cold=cold).items() if "L1" not in name]
    )
    assert reached.count == 10
    assert 1 + reached.worst <= 1.1


def test_times_of_pointer_chases_in_l1() -> None:
    assert 1 + compare.score(list(rows(probes("chase L1")).values())).worst <= CHAINS_WORST


def test_times_of_mma_by_number_of_warps_and_accumulators() -> None:
    reached = compare.score(
        list(rows(probes("mma f16, ") + probes("mma s8") + probes("mma f16_k8")).values())
    )
    assert reached.count == 49
    assert reached.median <= 0.03
    assert reached.worst <= 0.15


def test_pipeline_stages_hide_the_latency_of_async_copies() -> None:
    names = [f"copies of 4 bytes, {stages} stages, 0 operations" for stages in (1, 2, 4)]
    compared = rows([timed for timed in PROBES if timed.name in names], cold=True)
    recorded_ns, modelled_ns = (
        [getattr(compared[name], field) for name in names] for field in ("recorded_ns", "modelled_ns")
    )
    for few, many in ((0, 1), (1, 2)):
        gain = recorded_ns[few] / recorded_ns[many]
        assert gain > 1.5
        assert modelled_ns[few] / modelled_ns[many] == pytest.approx(gain, rel=0.2)


def test_tensor_cores_of_other_gpus_have_their_published_rate() -> None:
    (probe,) = probes("mma f16, 8 sums, 16 warps")
    multiply_adds = 16 * 1024 * 16 * 8 * 16  # of one SM
    for gpu in ("A100", "RTX 3090", "L4"):
        info = device_info(gpu)
        assert info.fp16_tensor_tflops
        per_ns = 1e3 * info.fp16_tensor_tflops / 2 / info.sm_count
        work_ns = modelled(gpu, [probe])[probe.name][0]
        short = replace(probe, make_args=lambda cp: (*probe.make_args(cp)[:2], probe.make_args(cp)[2] // 2))
        half_ns = modelled(gpu, [short])[probe.name][0]
        assert 2 * (work_ns - half_ns) == pytest.approx(multiply_adds / per_ns, rel=0.05)


@pytest.mark.parametrize(
    ("kernel", "turns", "bound"),
    [
        ("warp_tile_4_4", 32, "tensor"),  # 32 products for 8 loads of fragments
        ("warp_tile_1_1", 256, "load/store"),  # 2 products for 2 loads
    ],
)
def test_the_diagnosis_names_the_limit_of_a_tensor_core_kernel(kernel: str, turns: int, bound: str) -> None:
    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    device = Machine([device_info("H200")])
    previous_machine = machine.current()
    machine.use(device)
    try:
        backend = VirtualBackend(device)
        cp = backend.cp
        function = cp.RawModule(code=read_source("tensor_probes")).get_function(kernel)
        arguments = (cp.zeros(132 * 256, "uint32"), np.int32(turns), np.int32(3))
        costs = backend.prepared(Launch.of(function, (132,), (256,), arguments)).run().costs
    finally:
        machine.use(previous_machine)
    assert costs.bound == bound
    shares = {name: ns / costs.time_ns for name, ns in costs.stages.items()}
    assert shares[bound] > 0.6
    if bound == "load/store":
        assert costs.shared_share > 0.9
        assert shares["tensor"] < 0.5
    else:
        assert shares["load/store"] < shares["tensor"]
