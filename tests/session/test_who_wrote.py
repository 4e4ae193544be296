"""`gl.who_wrote`: the write history of an element, compared with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from virtualgpu.errors import GpulabError, NotSupportedError

SCATTER = r"""extern "C" __global__ void scatter(float* x, const int* to, const float* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    x[to[i]] = v[i];
}
extern "C" __global__ void add(float* x, const int* to, const float* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    atomicAdd(x + to[i], v[i]);
}
extern "C" __global__ void wide(float4* x, float v) { x[threadIdx.x] = make_float4(v, v, v, v); }"""


def kernel(name: str) -> Any:
    return gl.cp.RawKernel(SCATTER, name)


def test_every_write_is_listed_in_order_with_its_thread_and_value() -> None:
    rng = np.random.default_rng(5)
    cp = gl.cp
    scatter = kernel("scatter")
    add = kernel("add")
    x = cp.asarray(rng.random(6, dtype=np.float32))
    expected: list[tuple[str, int, int, int, float]] = []
    launches = []
    current = float(x.get()[2])
    for number in range(1, 9):
        atomic = bool(rng.integers(2))
        n = 3  # one warp's lanes each write an element of their own
        to = np.stack([rng.permutation(6)[:n] for _ in range(3)]).astype(np.int32)
        v = rng.integers(-9, 9, (3, n)).astype(np.float32)
        launches.append((atomic, cp.asarray(to.reshape(-1)), cp.asarray(v.reshape(-1))))
        for block, lane in np.argwhere(to == 2):
            value = float(v[block, lane])
            current = float(np.float32(current) + np.float32(value)) if atomic else value
            expected.append(("atomic" if atomic else "store", number, int(block), int(lane), current))

    def program() -> None:
        for atomic, to, v in launches:
            (add if atomic else scatter)((3,), (3,), (x, to, v, 9))

    history = gl.who_wrote(x, 2, program)
    placed = [w for w in history.writes if w.place]
    assert [
        (w.kind, w.launch, w.place.block[0], w.place.thread[0], w.value) for w in placed if w.place
    ] == expected
    assert history.launches == 8
    assert history.last.value == float(x[2])
    assert {w.place.line for w in placed if w.place} == {4, 9}
    assert {w.source.text for w in placed if w.source} == {
        "(add if atomic else scatter)((3,), (3,), (x, to, v, 9))"
    }


def test_copies_memsets_and_the_librarys_kernels_have_their_python_line() -> None:
    x = gl.cp.arange(12, dtype=gl.cp.float32).reshape(3, 4)

    def program() -> None:
        x.data.memset(0, x.nbytes)
        x[...] = gl.cp.asarray(np.full((3, 4), 5, np.float32))
        x[:, 0] = 9  # another column
        x[:, 1] += 1
        x.set(np.zeros((3, 4), np.float32))

    history = gl.who_wrote(x, (1, 1), program)
    assert [w.value for w in history.writes if w.value is not None][:1] == [5.0]  # before: 1 * 4 + 1
    assert history.writes[0].kind == "initial"
    texts = [w.source.text for w in history.writes if w.source]
    assert texts[0].startswith("x.data.memset")
    assert texts[1].startswith("x[...] =")
    assert texts[2] == texts[-2] == "x[:, 1] += 1"
    assert texts[-1].startswith("x.set")
    assert not any("another column" in text for text in texts)
    assert history.last.value == 0


def test_vector_stores_and_several_lanes_on_one_element() -> None:
    x = gl.cp.zeros(8, dtype=gl.cp.float32)
    history = gl.who_wrote(x, 6, lambda: kernel("wide")((1,), (2,), (x, np.float32(3))))
    (write,) = history.writes[1:]
    assert write.place is not None
    assert (write.place.thread, write.value) == ((1, 0, 0), 3.0)
    to = gl.cp.zeros(4, dtype=gl.cp.int32)
    v = gl.cp.arange(4, dtype=gl.cp.float32)
    history = gl.who_wrote(x, 0, lambda: kernel("scatter")((1,), (4,), (x, to, v, 4)))
    assert [w.value for w in history.writes] == [3.0, None, None, None, float(x[0])]
    assert "Several lanes" in repr(history)


def test_an_element_without_writes_and_a_failing_function() -> None:
    x = gl.cp.full(4, math.nan)
    history = gl.who_wrote(x, -1, lambda: None)
    assert "No launch wrote" in history.verdict
    assert math.isnan(history.last.value)

    def fails() -> None:
        x.fill(2)
        raise RuntimeError("on the way")

    history = gl.who_wrote(x, 0, fails)
    assert history.last.value == 2
    assert "on the way" in repr(history)
    assert (x + 1).get().tolist() == [3, 3, 3, 3]


def test_only_the_last_writes_of_a_long_history_are_kept() -> None:
    x = gl.cp.zeros(1, dtype=gl.cp.float32)
    n = 12_000
    to = gl.cp.zeros(n, dtype=gl.cp.int32)
    v = gl.cp.ones(n, dtype=gl.cp.float32)
    history = gl.who_wrote(x, 0, lambda: kernel("add")((n // 100,), (100,), (x, to, v, n)))
    assert history.left_out == n + 1 - len(history.writes)
    assert history.last.value == n
    assert "did not fit" in repr(history)
    assert len(repr(history).splitlines()) < 100


def test_writes_of_a_graph_are_listed() -> None:
    cp = gl.cp
    x = cp.zeros(4, dtype=cp.float32)
    y = cp.ones(4, dtype=cp.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        kernel("wide")((1,), (1,), (x, np.float32(3)))
        graph = stream.end_capture()

    def program() -> None:
        graph.launch(stream)
        stream.synchronize()
        x[...] = y

    history = gl.who_wrote(x, 1, program)
    assert [w.value for w in history.writes] == [0.0, 3.0, 1.0]


@pytest.mark.parametrize("index", [4, -5, (0, 0), "a", 1.5, ()])
def test_an_invalid_index_is_refused(index: Any) -> None:
    with pytest.raises(IndexError):
        gl.who_wrote(gl.cp.zeros(4), index, lambda: None)


def test_invalid_arguments_are_reported_by_name() -> None:
    with pytest.raises(TypeError, match="needs a device array"):
        gl.who_wrote(np.zeros(3), 0, lambda: None)
    with pytest.raises(TypeError, match="needs a function"):
        gl.who_wrote(gl.cp.zeros(3), 0, 3)  # type: ignore[arg-type]
    x = gl.cp.zeros(3)
    with gl.check_streams(), pytest.raises(GpulabError, match="outside of the block"):
        gl.who_wrote(x, 0, lambda: None)


def test_a_real_gpu_is_refused_and_a_virtual_one_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    x = gl.cp.zeros(3)
    monkeypatch.setattr(session.current, "real_cp", lambda: gl.cp)
    with pytest.raises(NotSupportedError, match="virtual"):
        gl.who_wrote(x, 0, lambda: None)
