"""The running examples of the course, compared with NumPy and checked by the sanitizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab_course.content import story
from gpulab_course.content.story import attention, pictures, rungs


@pytest.fixture(autouse=True)
def cp() -> Iterator[Any]:
    yield gl.use_device("virtual:A100").cp
    session.use_device("auto")


@pytest.mark.parametrize(("n", "d"), [(64, 32), (1, 8), (33, 17), (7, 130), (100, 1)])
def test_every_step_of_the_attention_block_equals_numpy(cp: Any, n: int, d: int) -> None:
    arrays_ = story.run(cp, n, d, seed=3)
    expected = story.reference(cp.asnumpy(arrays_["x"]))
    assert arrays_.keys() == expected.keys()
    for name, array in arrays_.items():
        np.testing.assert_allclose(cp.asnumpy(array), expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_the_reference_computes_normalized_attention_weights() -> None:
    arrays_ = story.reference(attention.tokens(20, 12, seed=1))
    np.testing.assert_allclose(arrays_["normed"].mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(arrays_["normed"].std(axis=1), 1, atol=1e-3)
    np.testing.assert_allclose(arrays_["weights"].sum(axis=1), 1, rtol=1e-6)
    assert (arrays_["weights"].argmax(axis=1) == np.arange(20)).all(), "a token is most like itself"


def test_large_attention_scores_do_not_overflow(cp: Any) -> None:
    launches, arrays = story.steps(cp, 4, 4)
    arrays["scores"][...] = cp.asarray(np.array([[1000, 999, 0, -1000]] * 4, np.float32))
    launches["softmax"]()
    np.testing.assert_allclose(cp.asnumpy(arrays["weights"])[0], [0.7310586, 0.26894143, 0, 0], rtol=1e-6)


def test_the_sanitizer_finds_nothing_in_the_attention_block(cp: Any) -> None:
    launches, _ = story.steps(cp, 9, 6)
    for name, step in launches.items():
        step()  # the next step reads its result
        assert gl.sanitize(**step).clean, name


def test_a_step_can_be_displayed_with_gl_launch(cp: Any) -> None:
    launches, arrays = story.steps(cp, 40, 8)
    chart = gl.launch(**launches["layer_norm"])
    assert chart.trace.kernel_name == "layer_norm"
    assert cp.asnumpy(arrays["normed"]).any()
    chart.close()


@pytest.mark.parametrize(("width", "height"), [(64, 48), (33, 17), (1, 1)])
def test_mandelbrot_life_and_blur_equal_numpy(cp: Any, width: int, height: int) -> None:
    turns = cp.asnumpy(story.mandelbrot(cp, width, height, 60))
    # On the border of the set, rounding changes the number of iterations.
    assert (turns == story.mandelbrot(np, width, height, 60)).mean() > 0.97
    rng = np.random.default_rng(0)
    board = rng.integers(0, 2, (height, width), dtype=np.uint8)
    np.testing.assert_array_equal(cp.asnumpy(story.life(cp, cp.asarray(board), 3)), story.life(np, board, 3))
    image = rng.random((height, width), dtype=np.float32)
    for radius in (0, 2, 40):
        np.testing.assert_allclose(
            cp.asnumpy(story.blur(cp, cp.asarray(image), radius)), story.blur(np, image, radius), rtol=1e-5
        )


def test_a_glider_moves_diagonally_in_life(cp: Any) -> None:
    board = np.zeros((12, 12), np.uint8)
    board[1:4, 1:4] = [[0, 1, 0], [0, 0, 1], [1, 1, 1]]
    moved = story.life(cp, cp.asarray(board), 4)
    np.testing.assert_array_equal(cp.asnumpy(moved), np.roll(board, (1, 1), axis=(0, 1)))


def test_the_sanitizer_finds_nothing_in_the_picture_kernels(cp: Any) -> None:
    size = (np.int32(19), np.int32(18))
    board = cp.ones((18, 19), dtype=cp.uint8)
    image = cp.ones((18, 19), dtype=cp.float32)
    turns = cp.empty((18, 19), dtype=cp.int32)
    for step in (
        pictures.step(cp, "mandelbrot", 19, 18, turns, *size, np.int32(20)),
        pictures.step(cp, "life", 19, 18, board, cp.empty_like(board), *size),
        pictures.step(cp, "blur", 19, 18, image, cp.empty_like(image), *size, np.int32(2)),
    ):
        assert gl.sanitize(**step).clean


@pytest.mark.parametrize("rung", [rung_.notebook_number for rung_ in rungs.VERSIONS])
@pytest.mark.parametrize(("n", "d"), [(33, 17), (128, 64)])
def test_every_version_equals_numpy(cp: Any, rung: str, n: int, d: int) -> None:
    arrays_ = story.run(cp, n, d, seed=3, rung=rung)
    expected = story.reference(cp.asnumpy(arrays_["x"]))
    if rung < "13":
        np.testing.assert_allclose(cp.asnumpy(arrays_["out"]), expected["out"], rtol=2e-5, atol=2e-6)
        return
    # BF16 rounding changes a large score by up to half a unit, and its weight by the same relative amount.
    off = cp.asnumpy(arrays_["out"]) - expected["out"]
    assert 1e-4 < np.sqrt((off**2).mean() / (expected["out"] ** 2).mean()) < 0.02
    normed = (cp.asnumpy(arrays_["normed"]).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(normed, expected["normed"], rtol=2**-8, atol=1e-6)


def test_a_version_includes_the_versions_before_it(cp: Any) -> None:
    launches, arrays = story.steps(cp, rung="10")
    assert "__shared__" in launches["matmul"].kernel.code
    assert "__shared__" not in launches["softmax"].kernel.code
    assert launches["softmax"].grid[0] == 32 * story.steps(cp, rung="05")[0]["softmax"].grid[0]
    assert arrays["weights"].data.ptr == arrays["scores"].data.ptr
    plain = story.steps(cp)[1]
    assert plain["weights"].data.ptr != plain["scores"].data.ptr
    with pytest.raises(ValueError, match=r"no version '.*are 00, 04, 05"):
        rungs.list_versions("")


@pytest.mark.parametrize("device", ["virtual:T4", "virtual:H100"])
def test_each_version_improves_the_metric_of_its_notebook(device: str) -> None:
    gl.use_device(device)
    lines = {line.notebook_number: line for line in story.table().record}
    assert list(lines) == sorted(lines)
    assert lines["04"].block == lines["00"].block  # no optimization
    assert lines["05"].block.time_ns < lines["00"].block.time_ns
    assert lines["06"].block.time_ns < lines["05"].block.time_ns
    assert lines["07"].block.time_ns <= lines["06"].block.time_ns  # launches by the host are the limit now
    assert lines["07"].block.time_ns < lines["05"].block.time_ns
    assert lines["10"].block.array_bytes < lines["07"].block.array_bytes
    assert lines["10"].life.array_bytes < lines["07"].life.array_bytes
    assert (lines["10"].block.launches, lines["11"].block.launches) == (20, 1)
    assert lines["11"].block.time_ns < lines["10"].block.time_ns
    assert lines["11"].life.time_ns < lines["10"].life.time_ns
    assert lines["12"].block.time_ns < lines["11"].block.time_ns
    assert lines["13"].block.array_bytes < lines["12"].block.array_bytes
    assert lines["15"].block == lines["13"].block  # one GPU


def test_sequences_are_distributed_over_the_available_gpus() -> None:
    gl.use_device("virtual:H200", count=8)
    lines = {line.notebook_number: line for line in story.table("15").record}
    assert (lines["13"].block.launches, lines["15"].block.launches) == (1, 4)
    gl.use_device("virtual:H200", count=2)
    again = {line.notebook_number: line for line in story.table("15").record}
    assert again["15"].block.launches == 2
    assert again["15"].block.array_bytes == lines["15"].block.array_bytes


def test_generations_equal_the_numpy_game_of_life(cp: Any) -> None:
    for take_turns in (False, True):
        launches, boards = story.generations(cp, 5, 24, seed=2, alternate_boards=take_turns)
        expected = story.life(np, cp.asnumpy(boards[0]), 5)
        for step in launches:
            step()
        np.testing.assert_array_equal(cp.asnumpy(boards[5 % len(boards)]), expected)
        assert len(boards) == (2 if take_turns else 6)
