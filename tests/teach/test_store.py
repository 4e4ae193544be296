"""Stored answers survive disk errors and concurrent writers."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
from pathlib import Path

import pytest

from gpulab_course.teach.store import LearnerStore, find_data_folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "learner.json"


def put_many(path: Path, name: str, count: int) -> None:
    for number in range(count):
        LearnerStore(path).put("predictions", f"{name}-{number}", number)


def test_stored_values_are_read_by_another_session(path: Path) -> None:
    first = LearnerStore(path)
    second = LearnerStore(path)
    first.put("quizzes", "start", {"right": 2})
    second.put("predictions", "n", "1,5 µs")
    assert first.get("predictions", "n") == "1,5 µs"
    assert LearnerStore(path).get_section("quizzes") == {"start": {"right": 2}}
    first.forget("predictions", "n")
    second.put("predictions", "m", 1)
    assert LearnerStore(path).get_section("predictions") == {"m": 1}, (
        "what one forgot the other does not bring back"
    )


def test_concurrent_processes_lose_no_answers(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=put_many, args=(path, str(name), 60)) for name in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert len(LearnerStore(path).get_section("predictions")) == 240
    assert sorted(entry.name for entry in path.parent.iterdir() if entry.name[0] != ".") == ["learner.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"predictions": {"a": 1',
        b"[1]",
        b'{"predictions": [1]}',
        b"\xff\x00",
        b"[" * 200_000,
        b"\x00" * 64,
    ],
)
@pytest.mark.parametrize("first", ["read", "write"])
def test_a_damaged_file_is_moved_aside_and_reported_once(
    path: Path, content: bytes, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    store = LearnerStore(path)
    if first == "read":
        assert store.get_section("predictions") == {}
        assert not path.exists(), "it is kept before anything is written"
    store.put("predictions", "b", 2)
    assert LearnerStore(path).get_section("predictions") == {"b": 2}
    (aside,) = path.parent.glob("learner.json.damaged-*")
    assert re.fullmatch(r"learner\.json\.damaged-\d{4}-\d\d-\d\d_\d{6}", aside.name)
    assert aside.read_bytes() == content
    message = capsys.readouterr().err
    assert message.count("gpulab: ") == 1
    assert aside.name in message


def test_an_unwritable_folder_is_reported_once_and_written_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    store = LearnerStore(blocked / "learner.json")
    store.put("predictions", "a", 1)
    store.put("predictions", "b", 2)
    store.forget("predictions", "a")
    assert store.get_section("predictions") == {"b": 2}
    message = capsys.readouterr().err
    assert message.count("cannot be saved") == 1
    assert "GPULAB_HOME" in message
    blocked.unlink()
    store.put("predictions", "c", 3)
    assert LearnerStore(store.path).get_section("predictions") == {"b": 2, "c": 3}


def test_a_file_that_cannot_be_read_is_not_written_over(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    LearnerStore(path).put("predictions", "a", 1)
    before = path.read_bytes()

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refuse)
        store = LearnerStore(path)
        store.put("predictions", "b", 2)
        assert store.get("predictions", "b") == 2
    assert path.read_bytes() == before
    assert capsys.readouterr().err.count("Permission denied") == 1


def fill_the_disk(path: Path) -> None:
    """Run in a separate process: simulate a full disk, then free space again."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = LearnerStore(path)
    store.put("predictions", "a", 1)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    store.put("predictions", "b", 2)
    assert json.loads(path.read_text()) == {"predictions": {"a": 1}}
    assert store.get_section("predictions") == {"a": 1, "b": 2}
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    store.put("predictions", "c", 3)


@pytest.mark.skipif(os.name == "nt", reason="no limit of file sizes")
def test_a_full_disk_leaves_the_old_file_intact(path: Path) -> None:
    worker = multiprocessing.get_context("spawn").Process(target=fill_the_disk, args=(path,))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    assert LearnerStore(path).get_section("predictions") == {"a": 1, "b": 2, "c": 3}
    assert not [
        entry for entry in path.parent.iterdir() if entry.name.startswith(".") and "lock" not in entry.name
    ]


def test_a_value_unsupported_by_json_does_not_block_later_ones(path: Path) -> None:
    store = LearnerStore(path)
    with pytest.raises(TypeError):
        store.put("predictions", "a", object())
    store.put("predictions", "b", 2)
    assert LearnerStore(path).get_section("predictions") == {"b": 2}


def test_stored_answers_are_synced_to_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    LearnerStore(path).put("predictions", "a", 1)
    assert synced


def test_a_tilde_in_gpulab_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAB_HOME", "~/answers")
    assert find_data_folder() == Path.home() / "answers"


def test_the_file_does_not_depend_on_the_order_of_answers(tmp_path: Path) -> None:
    kept = [("quiz", "start", 1), ("exercises", "b", True), ("exercises", "a", False), ("quiz", "grid", 2)]
    files = []
    for number, order in enumerate((kept, kept[::-1])):
        store = LearnerStore(tmp_path / f"{number}.json")
        for row in order:
            store.put(*row)
        files.append(store.path.read_bytes())
    assert files[0] == files[1]
    assert files[0].decode().splitlines()[:3] == ["{", ' "exercises": {', '  "a": false,']
