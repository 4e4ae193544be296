"""Notebook 16: artefacts load according to the compatibility rules on every device."""

from __future__ import annotations

import pytest

import gpulab as gl
from gpulab_course.content.n16_platform import configuration, exercises, figures
from virtualgpu.records.device import images


@pytest.mark.parametrize("gpu", [gpu for gpu in exercises.GPUS if gpu not in ("RTX 3090", "B300")])
def test_a_virtual_gpu_loads_artefacts_by_the_rules(gpu: str) -> None:
    gl.use_device(f"virtual:{gpu}")
    assert {name: figures.load(name)[0] for name in figures.artefacts()} == {
        name: figures.find_outcome_by_rules(name, gpu) for name in figures.artefacts()
    }


def test_artefacts_contain_the_named_images() -> None:
    for name, image in figures.artefacts().items():
        parts = [
            f"{part.kind} {part.number // 10}.{part.number % 10}{part.suffix}"
            for part in images.find_parts(image)
        ]
        names = name.removeprefix("fat ").split(" + ")
        kind = "cubin" if name.startswith("fat") else ""
        assert sorted(parts) == sorted(p if " " in p else f"{kind} {p}" for p in names)


def test_the_matrix_has_every_artefact_and_gpu() -> None:
    matrix = figures.Matrix()
    assert matrix.record["PTX 9.0a"]["B200"] == figures.REFUSED
    assert "PTX 10.0f: T4 –, A100 –, RTX 3090 –, RTX 4090 –, H200 –, B200 compiles, B300 compiles" in (
        matrix.describe()
    )
    assert repr(matrix).startswith("11 artefacts on 7 GPUs: 13 run, 16 are compiled first, 48 are refused")


def test_messages_of_refused_files_are_short() -> None:
    gl.use_device("virtual:A100")
    messages = {row[0]: row[2] for row in figures.loads().rows}
    assert messages["PTX 9.0a"] == "CUDA_ERROR_INVALID_PTX: a PTX JIT compilation failed"
    assert messages["cubin 9.0"].startswith("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available")
    assert len(messages["cubin 9.0"]) < 100


def test_the_picture_of_targets_follows_the_rules() -> None:
    caption = repr(figures.reach(["sm_80", "compute_100", "compute_90a"]))
    assert "sm_80 runs on A100, RTX 3090, RTX 4090; " in caption
    assert "compute_100 runs on B200, B300 and all later GPUs; compute_90a runs on H200." in caption


def test_known_cells_of_the_compatibility_matrix_are_correct() -> None:
    rules = {
        ("PTX 9.0a", "H200"): "compiles",
        ("PTX 9.0a", "B200"): "–",
        ("PTX 9.0", "B200"): "compiles",
        ("cubin 8.6", "A100"): "–",
        ("cubin 8.0", "RTX 4090"): "runs",
        ("fat 8.0 + 9.0 + PTX 9.0", "T4"): "–",
        ("fat 8.0 + 9.0 + PTX 9.0", "B200"): "compiles",
        ("cubin 10.0", "B300"): "runs",
        ("PTX 10.0a", "B300"): "–",
        ("PTX 10.0f", "B300"): "compiles",
        ("PTX 10.0f", "H200"): "–",
    }
    assert {place: figures.find_outcome_by_rules(*place) for place in rules} == rules


def test_an_environment_variable_is_verified_in_a_child_process() -> None:
    gl.use_device("virtual:T4")
    plain = configuration.child()
    set_before = configuration.child({"CUPY_GPU_MEMORY_LIMIT": "1048576"})
    assert plain["device"] == "T4"
    assert {name for name in plain if plain[name] != set_before[name]} == {"pool limit", "larger array"}
    assert configuration._make_changes_text(plain, plain) == "nothing"


@pytest.mark.parametrize(
    ("targets", "capability", "chosen"),
    [
        (["sm_80", "compute_80"], (8, 9), "sm_80"),
        (["compute_90a", "compute_75"], (10, 0), "compute_75"),
        (["sm_86"], (8, 0), None),
        (["sm_100f"], (10, 3), "sm_100f"),
        (["sm_100f"], (12, 0), None),
        (["compute_100f", "compute_90"], (12, 0), "compute_90"),
        (["sm_103f"], (10, 0), None),
        (["sm_86"], (8, 7), None),
        (["sm_87"], (8, 9), None),
        (["sm_87"], (8, 7), "sm_87"),
        (["compute_100", "compute_90"], (12, 0), "compute_100"),
    ],
)
def test_a_driver_selects_the_best_image(
    targets: list[str], capability: tuple[int, int], chosen: str | None
) -> None:
    assert exercises.taken(targets, capability) == chosen
