"""Notebook 12: one kernel per layer compared with NumPy and H200 counters, passes, and recordings."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab_course.content.n12_fusion import custom_operator, exercises, figures, pictures
from tests.notebooks.course import FOLDER, read
from virtualgpu import cp


def strings(source: str) -> list[str]:
    """Return the CUDA C++ strings of a cell in order."""
    constants = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return [node.value for node in constants if isinstance(node.value, str) and "{" in node.value]


def code() -> str:
    """Return the source of the notebook's kernel and of the kernel that it is compared with."""
    cells = {cell.id: cell.source for cell in read(FOLDER / "12_fusion.ipynb").cells}
    pieces = [strings(cells[name])[0] for name in ("one-product", "one-norm", "one-kernels")]
    return "".join(pieces) + figures.SECOND_KERNEL_NOTE


@pytest.fixture
def layer() -> Any:
    """Return the arrays of the notebook's layer, and its result in double precision."""
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((1024, 256), (256, 1024)))
    b = np.linspace(-1, 1, 1024, dtype=np.float32)
    product = x.astype(np.float64) @ w.astype(np.float64)
    centred = product - product.mean(axis=1, keepdims=True)
    v = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * b + b
    return x, w, b, product, v / (1 + np.exp(v * (v * v * -0.0713548 - 1.5957691)))


def test_one_kernel_computes_matmul_layer_norm_and_gelu(layer: Any) -> None:
    x, w, b, product, expected = layer
    module = cp.RawModule(code=code())
    y = cp.empty((1024, 1024), "float32")
    module.get_function("one_kernel")((128,), (256,), (*map(cp.asarray, (x, w, b)), y))
    assert np.abs(cp.asnumpy(y) - expected).max() < 2e-5
    y[...] = 0
    h = cp.asarray(product.astype(np.float32))
    module.get_function("second_kernel")((1024,), (256,), (h, cp.asarray(b), y))
    assert np.abs(cp.asnumpy(y) - expected).max() < 2e-5


def test_the_kernel_reads_as_many_bytes_as_on_an_h200(layer: Any) -> None:
    with session.on_device("virtual:H200"):
        x, w, b = map(cp.asarray, layer[:3])
        kernel = cp.RawKernel(code(), "one_kernel")
        y = cp.empty((1024, 1024), "float32")
        caches: Any = gl.count(kernel, 128, 256, (x, w, b, y)).record.caches
    recorded = figures.recorded()["whole_layer_memory"]["kernels"]["one_kernel"]
    assert caches.dram_read_bytes == x.nbytes + w.nbytes + b.nbytes
    assert caches.dram_read_bytes == pytest.approx(recorded["dram_read_bytes"], rel=0.03)
    assert caches.l2_sectors - y.nbytes / 32 == pytest.approx(recorded["l2_read_sectors"], rel=0.05)


def test_nine_numpy_expressions_read_eleven_arrays_and_write_nine() -> None:
    """A NumPy array subclass counts the arrays that each operation reads and writes."""
    moved = []

    class Counting(np.ndarray):
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            plain = [np.asarray(array) for array in inputs]
            full = {id(array) for array, base in zip(inputs, plain, strict=True) if base.shape == (4, 8)}
            result = getattr(ufunc, method)(*plain, **kwargs)
            moved.append((len(full), 1))
            return result.view(Counting)

    x = np.ones((4, 8), np.float32).view(Counting)
    v = x * np.ones(8, np.float32) + np.ones(8, np.float32)
    _ = v / (1 + np.exp(v * (v * v * -0.0713548 - 1.5957691)))
    assert [sum(column) for column in zip(*moved, strict=True)] == [11, 9]


def test_recorded_layer_times_rank_as_in_the_notebook() -> None:
    layers = figures.recorded()["whole_layer"]
    assert all(row["one_us"]["8"] > row["two_us"] for row in layers)
    assert [row["one_us"]["4"] < row["two_us"] for row in layers] == [True, False, False, False]
    assert all(row["one_us"]["4"] < row["one_us"]["8"] for row in layers)
    gains = [row["two_us"] / row["one_us"] for row in figures.recorded()["narrow_layers"]["layers"]]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.5
    assert gains[-1] < 1.1


def test_recorded_compilations_follow_automatic_dynamic_shapes() -> None:
    for row in figures.recorded()["symbols"]:
        guards = list[set[int]]()
        programs = []
        for size in row["sizes"]:
            if not any(size in guard for guard in guards):
                constant = size < 2 or row["option"] == "dynamic=False"
                constant |= row["option"] == "default" and not guards
                guards.append({size} if constant else set(range(2, 1000)))
            programs.append(len(guards))
        assert programs == row["compiled_after_each_call"], row["option"]


SMALL: list[pictures.Step] = [
    ("m", "reduce", ("x",), None),
    ("c", "map", ("x", "m"), None),
    ("s", "map", ("c",), None),
    ("v", "reduce", ("s",), None),
    ("y", "map", ("c", "v"), None),
]


def test_drawn_fusion_boundaries_agree_with_judge_and_gl_traffic() -> None:
    kernels = exercises.kernels_of([exercises.Step(*step) for step in SMALL])
    assert kernels == [["m"], ["c", "s"], ["v"], ["y"]]
    red = pictures.find_fusion_boundaries(SMALL, kernels)
    assert red == [("m", "c"), ("s", "v"), ("c", "y"), ("v", "y")]
    caption = repr(pictures.kernels_of_steps(SMALL, kernels))
    assert caption.endswith("Drawn in red: from m to c, from s to v, from c to y, from v to y.")

    def small(x: cp.ndarray) -> cp.ndarray:
        c = x - x.mean(axis=1, keepdims=True)
        return c / (c * c).mean(axis=1, keepdims=True)

    traffic = gl.traffic(small, cp.ones((64, 64), cp.float32)).record
    names = dict(enumerate("xmcsvy"))
    assert sorted((names[edge.first], names[edge.then]) for edge in traffic.edges) == sorted(red)


def test_the_tile_of_a_block_names_the_columns_of_a_thread() -> None:
    caption = repr(pictures.tile_of_a_block(rows=8, columns=1024, step=32, thread=100))
    assert "Thread 100 keeps columns 400 to 403 of all 8 rows in registers." in caption


@pytest.fixture(scope="module")
def operator() -> dict[str, Any]:
    """Return the functions of the custom operator that work with NumPy instead of PyTorch."""
    tree = ast.parse(custom_operator.load_recording()["program"])
    names = ("backward", "expressions")
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    torch = SimpleNamespace(exp=np.exp, sigmoid=lambda x: 1 / (1 + np.exp(-x)), Tensor=np.ndarray)
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(ast.Module(functions, []), "custom_op.py", "exec"), namespace)
    namespace["code"] = strings(custom_operator.load_recording()["program"])[0]
    return namespace


def test_the_kernel_of_the_custom_operator_equals_its_expressions(operator: Any) -> None:
    rng = np.random.default_rng(4)
    x, w, b = rng.standard_normal((5, 70)), rng.standard_normal(70), rng.standard_normal(70)
    arrays = [cp.asarray(array, dtype="float32") for array in (x, w, b)]
    y = cp.empty((5, 70), "float32")
    kernel = cp.RawKernel(operator["code"], "affine_gelu")
    kernel((2,), (256,), (*arrays, y, np.int32(70), np.int32(350)))
    np.testing.assert_allclose(cp.asnumpy(y), operator["expressions"](x, w, b), atol=1e-5)


def test_gradients_of_the_custom_operator_equal_finite_differences(operator: Any) -> None:
    rng = np.random.default_rng(5)
    tensors = [rng.standard_normal(shape) for shape in ((3, 4), 4, 4)]
    dy = rng.standard_normal((3, 4))
    gradients = operator["backward"](SimpleNamespace(saved_tensors=tensors), dy)
    for number, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
        expected = np.empty_like(tensor)
        for index in np.ndindex(tensor.shape):
            sums = []
            for step in (1e-6, -1e-6):
                moved = [array.copy() for array in tensors]
                moved[number][index] += step
                sums.append((operator["expressions"](*moved) * dy).sum())
            expected[index] = (sums[0] - sums[1]) / 2e-6
        np.testing.assert_allclose(gradient, expected, atol=1e-7)


def test_the_recorded_custom_operator_agrees_with_the_notebook() -> None:
    record = custom_operator.load_recording()
    assert set(record["opcheck"].values()) == {"SUCCESS"}
    assert max(record["errors"].values()) < 1e-4
    operator = record["graph of custom_op"]
    assert (operator["graphs"], operator["breaks"]) == (1, 0)
    assert operator["nodes"].count("gpulab.affine_gelu.default") == 1
    assert record["graph of plain"]["breaks"] > 0
    counts = [custom_operator.compiled_kernels(name) for name in ("expressions", "custom_op")]
    assert counts == [1, 3]
    assert "There was no fake impl registered" in record["without register_fake"]["error"]
    assert custom_operator.origin().device == "NVIDIA H200"
    names = [row[0] for row in custom_operator.checks().rows]
    assert names == [*record["opcheck"]]
