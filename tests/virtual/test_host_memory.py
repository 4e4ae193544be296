"""The host memory that is available: the machine's, within the limits of control groups."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from virtualgpu.model.memory import host

GiB = 1 << 30
V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 64 GiB free and its own control groups."""
    monkeypatch.setattr(host, "_GROUP_ROOT", tmp_path)
    monkeypatch.setattr(host, "_GROUP_FILE", tmp_path / "self")
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=64 * GiB))
    return tmp_path


def limit(folder: Path, names: tuple[str, str, str], limit: object, used: int, cache: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cache}\n")


@pytest.mark.parametrize("inside", ["/", "/user.slice", "/user.slice/jupyter-ada.service"])
def test_a_cgroup_v2_limit_applies_to_nested_groups(groups: Path, inside: str) -> None:
    (groups / "self").write_text("0::/user.slice/jupyter-ada.service\n")
    for place in ("/", "/user.slice", "/user.slice/jupyter-ada.service"):
        limit(groups / place[1:], V2, 4 * GiB if place == inside else "max", GiB)
    assert host._read_available_bytes() == 3 * GiB


def test_a_cgroup_v1_limit_is_read_among_other_controllers(groups: Path) -> None:
    (groups / "self").write_text("5:cpu,cpuacct:/other\n4:memory:/docker/1\n0::/\n")
    limit(groups / "memory" / "docker" / "1", V1, 2 * GiB, GiB)
    limit(groups / "other", V1, GiB, 0)
    assert host._read_available_bytes() == GiB


def test_file_cache_counts_as_available(groups: Path) -> None:
    (groups / "self").write_text("0::/job\n")
    limit(groups / "job", V2, 4 * GiB, 4 * GiB - 5, cache=3 * GiB)
    assert host._read_available_bytes() == 3 * GiB + 5


def test_the_error_for_low_host_memory_contains_both_sizes(groups: Path) -> None:
    (groups / "self").write_text("0::/job\n")
    limit(groups / "job", V2, 2 * GiB, GiB)
    host.check_host_memory(GiB // 2)
    with pytest.raises(MemoryError, match=r"1\.0 GiB of free memory, which is too little for the 1\.0 GiB"):
        host.check_host_memory(GiB)
