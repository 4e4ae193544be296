"""``gpulab bench --gpu``: ratios within one run, results checked first, one sentence without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulab import cli, session
from gpulab_course.content import kernels
from tools.bench import gpu
from virtualgpu.errors import GpulabError


def test_a_missing_gpu_is_reported_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    if session.use_device("auto").kind == "cuda":
        pytest.skip("there is a GPU")
    assert cli.main(["bench", "--gpu"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("gpulab bench --gpu compares kernels on a real NVIDIA GPU, and CuPy can use none")
    assert text.count(". ") == 0


def test_a_run_reports_ratios_targets_and_provenance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.json"
    options = ["copy", "transpose", "--device", "virtual:A100", "--rounds", "2", "--json", str(file)]
    assert gpu.main([*options, "--all"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("modelled on virtual A100")
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert [row["kernel"] for row in rows if row["ladder"] == "copy"] == [
        "cudaMemcpy",
        "copy_floats",
        "copy_vectors",
    ]
    for row in rows:
        baseline = next(r for r in rows if r["ladder"] == row["ladder"] and r["kernel"] == "cudaMemcpy")
        if row is not baseline:
            assert row["ratio"] == pytest.approx(baseline["median_ms"] / row["median_ms"])
        assert (row["target"] is not None) == (row["kernel"] in ("copy_vectors", "transpose_vectors"))


def test_a_wrong_result_is_not_timed() -> None:
    with session.on_device("virtual:A100"):
        example = kernels.example("copy", (100,))
        with pytest.raises(GpulabError, match="copy_floats of copy is wrong by"):
            gpu.check("copy", "copy_floats", example, lambda: None)
