"""The cache of compiled code: changed headers, untrusted entries, removal of old entries."""

from __future__ import annotations

import copy
import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import virtualgpu.cp as cp
from virtualgpu import cuda_errors as errors
from virtualgpu.compile import cache
from virtualgpu.errors import FaultSite, NotSupportedError

WITH_HEADER = '#include "mine.cuh"\nextern "C" __global__ void k(int* x) { x[0] = NUMBER; }'


def answer(code: str, *options: str) -> int:
    x = cp.zeros(1, cp.int32)
    cp.RawKernel(code, "k", options)((1,), (1,), (x,))
    return int(x[0])


def test_a_changed_header_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in ("11", "22", "11"):
        Path("mine.cuh").write_text(f"#define NUMBER {number}\n")
        assert answer(WITH_HEADER) == int(number)


def test_a_changed_header_in_an_include_folder_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("parts").mkdir()
    Path("mine.cuh").write_text('#include "parts/inner.cuh"\n')
    Path("parts", "inner.cuh").write_text('#include "number.cuh"\n')
    for number in (3, 4):
        Path("parts", "number.cuh").write_text(f"#define NUMBER {number}\n")
        assert answer(WITH_HEADER) == number
        assert answer(WITH_HEADER.replace('"mine.cuh"', "<number.cuh>"), f"-I{tmp_path / 'parts'}") == number


def test_foreign_writable_or_moved_entries_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULAB_CACHE_DIR", str(tmp_path))
    cache.store_entry("engine", "a", b"code")
    assert cache.load_entry("engine", "a") == b"code"
    (tmp_path / "engine" / "b").write_bytes((tmp_path / "engine" / "a").read_bytes())
    (tmp_path / "engine" / "b").chmod(0o600)
    assert cache.load_entry("engine", "b") is None, "another's entry under this name"
    (tmp_path / "engine" / "a").chmod(0o666)
    assert cache.load_entry("engine", "a") is None, "everybody may write it"
    (tmp_path / "engine" / "a").chmod(0o600)
    assert cache.load_entry("engine", "a") == b"code"
    (tmp_path / "engine").chmod(0o777)
    assert cache.load_entry("engine", "a") is None, "everybody may put another there"
    cache.store_entry("engine", "c", b"code")
    assert cache.load_entry("engine", "a") == b"code", "what is stored is kept where only its owner may write"
    status = (tmp_path / "engine" / "a").stat()
    owned_by_another = os.stat_result([*status[:4], 4242, *status[5:]])
    monkeypatch.setattr(os, "fstat", lambda _: owned_by_another)
    assert cache.load_entry("engine", "a") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipes_and_symbolic_links_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULAB_CACHE_DIR", str(tmp_path))
    cache.store_entry("engine", "a", b"code")
    (tmp_path / "engine" / "a").rename(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "engine" / "a")
    assert (
        cache.load_entry("engine", "a") is None
    )  # and it returns, though nothing will ever write to the pipe
    (tmp_path / "engine" / "a").unlink()
    (tmp_path / "engine" / "a").symlink_to(tmp_path / "elsewhere")
    assert cache.load_entry("engine", "a") is None


def test_a_folder_that_cannot_be_written_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPULAB_CACHE_DIR", str(tmp_path / "file"))
    with caplog.at_level("INFO", "virtualgpu"):
        cache.store_entry("engine", "a", b"code")
    assert cache.load_entry("engine", "a") is None
    assert str(tmp_path / "file" / "engine") in caplog.text


def test_the_oldest_entries_are_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAB_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "MAX_ENTRIES", 20)
    for number in range(20):
        cache.store_entry("kind", str(number), b"code")
        os.utime(tmp_path / "kind" / str(number), (number, number))
    assert cache.load_entry("kind", "0") == b"code"
    cache.store_entry("kind", "new", b"code")
    left = {path.name for path in (tmp_path / "kind").iterdir()}
    assert {"0", "new"} < left
    assert not {"1", "2"} & left


def test_the_shared_cache_is_read_and_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_folder = tmp_path / "everybodys"
    own_folder = tmp_path / "mine"
    monkeypatch.setenv("GPULAB_CACHE_DIR", str(shared_folder))
    cache.store_entry("engine", "a", b"code")
    monkeypatch.setenv("GPULAB_CACHE_DIR", str(own_folder))
    assert cache.load_entry("engine", "a") is None
    monkeypatch.setenv("GPULAB_CACHE_SHARED", str(shared_folder))
    assert cache.load_entry("engine", "a") == b"code"
    cache.store_entry("engine", "b", b"more")
    assert [path.name for path in (shared_folder / "engine").iterdir()] == ["a"]
    (shared_folder / "engine" / "a").chmod(0o666)
    assert cache.load_entry("engine", "a") is None, "somebody else may have written it"


def test_the_cache_folder_may_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAB_CACHE_DIR", "~/compiled")
    assert cache.get_cache_folder() == Path.home() / "compiled"


def test_warnings_go_to_a_log_stream() -> None:
    log = io.StringIO()
    code = 'extern "C" __global__ void k(int* x) { int unused; x[0] = 1; }'
    cp.RawKernel(code, "k").compile(log_stream=log)
    assert '"unused" was declared but never referenced' in log.getvalue()
    cp.RawModule(code=code).compile(log_stream=log)
    assert log.getvalue().count('unused" was declared') == 2


def test_code_for_a_linker_is_refused() -> None:
    with pytest.raises(NotSupportedError, match="Remove this option"):
        answer(WITH_HEADER, "-dlto")


@pytest.mark.parametrize(
    "error",
    [
        errors.OutOfMemoryError(10, 20, 30),
        errors.CUDARuntimeError(1, "cudaErrorInvalidValue", "no"),
        errors.CUDADriverError(1, "CUDA_ERROR_INVALID_VALUE", "no"),
        errors.CompileException("log", "source", "kernel.cu", ("-O3",)),
        errors.IllegalAddressError("bad", FaultSite("k", 3, "x[i]", (0, 0, 0), (1, 0, 0), 42)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_sent_to_another_process(error: Any) -> None:
    for duplicate in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(duplicate) is type(error)
        assert str(duplicate) == str(error)
        assert vars(duplicate) == vars(error)
