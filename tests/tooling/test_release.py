"""Release checks: sizes, licences, platforms, templates, workflows, recipes, addresses."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from tools import environment
from tools.release import addresses, contents, platforms

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = [tomllib.loads(file.read_text())["project"] for file in environment.list_project_files()]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLASSROOM = ROOT / "tools" / "classroom"


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


# --- licences ---


def test_required_packages_have_licences_and_a_bounded_size() -> None:
    packages = contents.find_dependencies()
    if not packages:
        pytest.skip("gpulab's own metadata are not installed here")
    assert {"numpy", "llvmlite", "jupyterlab"} <= {package.name.lower() for package in packages}
    assert not [package.name for package in packages if not package.licence]
    assert sum(package.size_bytes for package in packages) < 1_000_000_000

    assert not {"hypothesis", "playwright"} & {package.name.lower() for package in packages}


@pytest.mark.parametrize(
    ("lines", "phrase"),
    [
        (["License-Expression: MIT"], "MIT"),
        (["Classifier: License :: OSI Approved :: BSD License"], "BSD License"),
        (["Classifier: License :: OSI Approved", "License: Apache 2.0"], "Apache 2.0"),
        ([], ""),
    ],
)
def test_a_licence_is_read_from_any_metadata_field(tmp_path: Path, lines: list[str], phrase: str) -> None:
    folder = tmp_path / "x-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.1", "Name: x", "Version: 1", *lines, ""])
    )
    assert contents.licence(metadata.Distribution.at(folder)) == phrase


# --- platforms ---


def test_the_classifiers_name_the_supported_pythons() -> None:
    for project in PROJECTS[1:]:
        versions = [
            text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r":: 3\.\d+$", text)
        ]
        assert tuple(versions) == platforms.PYTHONS
        assert project["requires-python"] == f">={platforms.PYTHONS[0]}"
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in platforms.PYTHONS


def test_every_platform_is_resolved_from_wheels_only() -> None:
    combinations = list(
        platforms.list_combinations(platforms.PYTHONS, list(platforms.PLATFORMS), list(platforms.EXTRAS))
    )
    assert len(combinations) == 4 * (5 + 5 + 3 + 3)
    extras = {extra for project in PROJECTS for extra in project.get("optional-dependencies", {})}
    assert set(platforms.EXTRAS) - {"", *platforms.GROUPS} <= extras
    words = " ".join(platforms.make_command("3.14", "macos", "test"))
    for option in ("--only-binary :all:", "--python-version 3.14", "aarch64-apple-darwin", ":test"):
        assert option in words
    assert "--extra cuda13" in " ".join(platforms.make_command("3.14", "linux", "cuda13"))


def test_unexpected_resolver_failures_are_detected() -> None:
    good = platforms.read("3.12", "linux", "", 0, "a==1\nb==2 ; python_version < '4'\n", "")
    assert (good.packages, good.problem, platforms.is_surprising(good)) == (2, "", False)
    bad = platforms.read(
        "3.12", "macos-x86", "", 1, "", "  × No solution\n  ╰─▶ Because llvmlite>=0.48 has no wheels"
    )
    assert "No solution Because llvmlite" in bad.line
    assert not platforms.is_surprising(bad)
    assert platforms.is_surprising(
        platforms.read("3.12", "macos", "", 1, "", "Because llvmlite>=0.48 has none")
    )
    assert platforms.is_surprising(
        platforms.read("3.12", "macos-x86", "", 1, "", "Because numpy>=2 has none")
    )
    assert platforms.is_surprising(platforms.read("3.12", "linux", "", 2, "", ""))


def test_a_new_failure_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing: set[str] = {"macos-x86"}

    def outcome(python: str, platform: str, extra: str) -> platforms.Outcome:
        return platforms.Outcome(python, platform, extra, 9, "llvmlite>=1" if platform in failing else "")

    monkeypatch.setattr(platforms, "resolve_platform", outcome)
    assert platforms.main(["--python", "3.13", "--extra", "test"]) == 0
    assert "4 of 5 can be had" in capsys.readouterr().out
    failing.add("windows")
    assert platforms.main(["--python", "3.13", "--extra", "test"]) == 1


# --- files for users and services ---


def test_the_citation_has_the_packages_version_and_licence() -> None:
    cited = load("CITATION.cff")
    assert (cited["version"], cited["license"]) == (PROJECTS[1]["version"], PROJECTS[1]["license"])
    assert {"cff-version", "message", "title", "authors", "type"} <= set(cited)
    assert cited["authors"] == PROJECTS[1]["authors"]


def test_the_workflow_runs_the_readmes_test_command() -> None:
    jobs = load(".github/workflows/test.yml")["jobs"]
    assert jobs["linux"]["steps"][-1] == {"run": "make test"}
    assert jobs["linux"]["strategy"]["matrix"]["python"] == [platforms.PYTHONS[0], platforms.PYTHONS[-1]]
    assert set(jobs["quick"]["strategy"]["matrix"]["system"]) == {"windows-latest", "macos-latest"}
    steps = load(".github/workflows/weekly.yml")["jobs"]["weekly"]["steps"]
    assert steps[-1]["run"].endswith("-m tools.release.weekly")


def test_the_nightly_workflow_runs_every_stage_and_test() -> None:
    jobs = load(".github/workflows/nightly.yml")["jobs"]
    stages = " ".join(jobs["stages"]["strategy"]["matrix"]["stages"]).split()
    everywhere = re.search(r"^STAGES \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert everywhere
    assert {*stages, "unit"} == set(everywhere[1].split())
    *shards, last = jobs["unit"]["strategy"]["matrix"]["tests"]
    ignored = {word.removeprefix("--ignore=") for word in last.split()[1:]}
    assert ignored == {name for shard in shards for name in shard.split()} | {"tests/browser"}
    assert all((ROOT / name).is_dir() for name in ignored)


# --- classrooms ---


def test_deployment_recipes_start_the_same_command() -> None:
    values = load("tools/classroom/zero-to-jupyterhub.yaml")["singleuser"]
    docker = (CLASSROOM / "Dockerfile").read_text()
    assert (
        values["cmd"] == json.loads(re.findall(r"^CMD (.*)$", docker, re.M)[0]) == ["gpulab", "lab", "--hub"]
    )
    assert values["storage"]["homeMountPath"] in docker
    variables = dict(pair.split("=") for pair in re.findall(r"^ENV (.*)$", docker, re.M)[0].split())
    assert values["extraEnv"] == variables
    littlest = (CLASSROOM / "tljh_config.py").read_text()
    ast.parse(littlest)
    assert '"lab", "--hub"]' in littlest
    text = (CLASSROOM / "README.md").read_text()
    recipes = {path.name for path in CLASSROOM.iterdir() if path.suffix in (".yaml", "") and path.is_file()}
    assert recipes <= set(re.findall(r"`([\w.-]+)`", text))


def test_numbers_of_a_shared_gpu_are_the_recorded_ones() -> None:
    record = json.loads((CLASSROOM / "recorded" / "h200_sharing.json").read_text())

    def shares(work: str, how: str) -> list[float]:
        alone = record[f"{work}: alone"][0]
        plain = [run_ for run_ in record[f"{work}: {how}"] if run_["role"] == "plain"]
        return [run_["count"] / run_["seconds"] / (alone["count"] / alone["seconds"]) for run_ in plain]

    small = "small kernels"
    product = "gemm 2048"
    mps = shares(small, "eight, MPS")
    for work, share in ((product, 12), (small, 13)):
        assert {round(100 * result) for result in shares(work, "eight")} == {share}
    assert (round(100 * min(mps)), round(100 * max(mps))) == (63, 89)
    assert {round(100 * result) for result in shares(product, "eight, MPS")} == {13}
    text = " ".join((ROOT / "docs" / "classroom.md").read_text(encoding="utf-8").split())
    for phrase in ("12 % of the large matrix multiplications", "13 % of the small kernels", "63 to 89 %"):
        assert phrase in text
    assert text.count("13 %") == 2
    others = {run_["role"]: run_ for run_ in record[f"{small}: eight"]}
    assert "Out of memory" in others["greedy"]["oom"]
    assert "IllegalAddress" in others["crash"]["error"]
    assert record["device"].startswith("NVIDIA H200, 580.159.04")


# --- addresses of the project ---


def checkout(folder: Path, urls: str = "") -> Path:
    (folder / "notebooks").mkdir()
    (folder / "pyproject.toml").write_text(f'[project]\nname = "x"\n{urls}')
    (folder / "README.md").write_text("# gpulab\n\n**Learn.**\n")
    notebook = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[nbformat.v4.new_markdown_cell("# 00"), nbformat.v4.new_code_cell("1")]  # type: ignore[no-untyped-call]
    )
    nbformat.write(notebook, folder / "notebooks" / "00_x.ipynb")  # type: ignore[no-untyped-call]
    return folder


URLS = '[project.urls]\nRepository = "https://github.com/owner/name.git"\n'


def test_badges_and_cells_are_made_from_one_repository_address(tmp_path: Path) -> None:
    root = checkout(tmp_path, URLS)
    assert addresses.find_stale_files(root) == ["README.md", "notebooks/00_x.ipynb"]
    assert addresses.write(root) == ["README.md", "notebooks/00_x.ipynb"]
    assert addresses.write(root) == []
    readme = (root / "README.md").read_text()
    assert readme.splitlines()[2].count("https://") == 4
    assert "github/owner/name/blob/HEAD/notebooks/00_start_here.ipynb" in readme
    assert readme.endswith("\n\n**Learn.**\n")
    cells = nbformat.read(root / "notebooks" / "00_x.ipynb", as_version=4).cells  # type: ignore[no-untyped-call]
    assert [cell.id for cell in cells][1] == "set-up"
    assert cells[1].metadata["jupyter"]["source_hidden"]
    assert '%pip install --quiet "gpulab-workspace @ git+https://github.com/owner/name"' in cells[1].source
    (root / "pyproject.toml").write_text('[project]\nname = "x"\n')
    addresses.write(root)
    assert (root / "README.md").read_text() == "# gpulab\n\n**Learn.**\n"
    cells = nbformat.read(root / "notebooks" / "00_x.ipynb", as_version=4).cells  # type: ignore[no-untyped-call]
    assert len(cells) == 2


def test_an_address_outside_github_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no GitHub repository"):
        addresses.read_repository(checkout(tmp_path, URLS.replace("github.com", "git.example")))
