"""The teaching kernels: right at odd sizes, and each rung mends the counter that it says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpulab import session
from gpulab_course.content import kernels
from tools.bench import tune
from virtualgpu.errors import GpulabError

# By series: sizes that are not multiples of a tile, block or vector, if the kernels accept such sizes.
ODD: dict[str, list[tuple[int, ...]]] = {
    "copy": [(1,), (1031,)],
    "transpose": [(4, 4), (36, 100)],
    "reduction": [(1,), (33,), (5003,)],
    "scan": [(1,), (257,), (13_001,)],
    "histogram": [(1,), (5003,)],
    "stencil": [(1, 1), (33, 70)],
    "softmax": [(1, 4), (37, 100)],
    "layer_norm": [(1, 4), (37, 100)],
    "sgemm": [(1, 4, 4), (130, 68, 40)],
    "tensor_cores": [(1, 8, 8), (130, 72, 40)],
}
RUNGS = [(ladder, rung) for ladder in kernels.KERNEL_SERIES for rung in ladder.rungs]


@pytest.fixture(scope="module", autouse=True)
def _device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        session.use_device(watchdog_s=60)
        yield


def expected(ladder: str, arrays: tuple[Any, ...]) -> np.ndarray:
    """Return the result of NumPy for the inputs."""
    x, *others = (session.cp().asnumpy(array) for array in arrays[:-1])
    wide = x.astype(np.float64)
    if ladder in ("sgemm", "tensor_cores"):
        return wide @ others[0].astype(np.float64)
    if ladder == "stencil":
        padded = np.pad(wide, 2)
        return np.lib.stride_tricks.sliding_window_view(padded, (5, 5)).mean(axis=(2, 3))
    if ladder == "softmax":
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
    if ladder == "layer_norm":
        return (wide - wide.mean(axis=1, keepdims=True)) / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
    return {
        "copy": lambda: x,
        "transpose": lambda: x.T,
        "reduction": lambda: wide.sum()[None],
        "scan": lambda: np.cumsum(x),
        "histogram": lambda: np.bincount(x, minlength=256),
    }[ladder]()


def check(ladder: str, rung: str, size: tuple[int, ...]) -> None:
    example = kernels.example(ladder, size, seed=len(rung))
    result = expected(ladder, example.arrays)
    out = example.arrays[-1]
    work = kernels.launch(rung, *example.arrays)
    for _ in range(2):  # a second launch must find its counters reset
        out.fill(77)
        work()
        assert np.allclose(session.cp().asnumpy(out), result, rtol=1e-5, atol=1e-4), f"{rung} at {size}"
    assert example.error() <= example.tolerance
    out += 1
    assert example.error() > example.tolerance, "the benchmark's check sees a wrong result"


@pytest.mark.parametrize("ladder", kernels.KERNEL_SERIES, ids=lambda ladder: ladder.name)
def test_every_version_is_correct_at_odd_sizes(ladder: kernels.KernelSeries) -> None:
    for size, rung in itertools.product(ODD[ladder.name], ladder.rungs):
        check(ladder.name, rung.name, size)


def test_matrix_multiplication_works_without_asynchronous_copies() -> None:
    """A T4 has no asynchronous copies, and its MMA instructions use tiles of 8 columns instead of 16."""
    with session.on_device("virtual:T4"):
        for ladder in ("sgemm", "tensor_cores"):
            check(ladder, kernels.ladder(ladder).best.name, ODD[ladder][-1])


@pytest.mark.parametrize("ladder", kernels.KERNEL_SERIES, ids=lambda ladder: ladder.name)
def test_each_version_improves_its_counter(ladder: kernels.KernelSeries) -> None:
    example = kernels.example(ladder.name)
    works = [kernels.launch(rung.name, *example.arrays) for rung in ladder.rungs]
    assert not ladder.rungs[0].improved_counter
    for (before, after), rung in zip(itertools.pairwise(works), ladder.rungs[1:], strict=True):
        counts = kernels.count(before, rung.improved_counter), kernels.count(after, rung.improved_counter)
        # Atomic conflicts depend on the data, and instruction counts differ slightly between NVRTC versions.
        assert counts == pytest.approx((rung.count_before, rung.count_after), rel=0.05), rung.name
        assert rung.count_after < 0.95 * rung.count_before, rung.name


def test_tuned_kernel_variants_are_correct() -> None:
    for name, tuning in (("scan_look_back", {"BLOCK": 128, "ITEMS": 12}), ("transpose_vectors", {"SIDE": 8})):
        ladder = next(ladder_ for ladder_, rung in RUNGS if rung.name == name)
        example = kernels.example(ladder.name, ODD[ladder.name][-1])
        kernels.launch(name, *example.arrays, **tuning)()
        assert example.error() <= example.tolerance, name
    assert {variant[0] for make in tune.VARIANTS.values() for variant in make()} <= {
        rung.name for _, rung in RUNGS
    }


def test_unsupported_shapes_are_refused() -> None:
    cp = session.cp()
    x = cp.zeros((5, 6), cp.float32)
    with pytest.raises(kernels.ShapeError, match="multiples of 4"):
        kernels.launch("transpose_vectors", x, x.T.copy())
    with pytest.raises(kernels.ShapeError, match="at most 1,024 floats"):
        kernels.launch("softmax_registers", *[cp.zeros((2, 1028), cp.float32)] * 2)
    with pytest.raises(GpulabError, match=r"no kernel 'transpose_pad'.*transpose_padded"):
        kernels.launch("transpose_pad", x, x)
    with pytest.raises(GpulabError, match=r"no series of kernels 'scann'.*scan"):
        kernels.ladder("scann")


def test_a_kernel_series_is_displayed_as_a_table() -> None:
    text = repr(kernels.ladder("transpose"))
    assert text.startswith("The transpose of a matrix, counted on the virtual GPU for 256 × 256")
    assert "transpose_padded   one unused column" in text
    assert "bank conflicts" in kernels.ladder("transpose")._repr_html_()
