"""Old names of functions, parameters and methods give what the new ones give, with one warning each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import _deprecated, session
from virtualgpu.compile import sass
from virtualgpu.errors import GpulabError

CODE = r"""
extern "C" __global__ void add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1;
}"""


@pytest.fixture(autouse=True)
def device() -> None:
    session.use_device("virtual:T4")


def launch() -> tuple[Any, ...]:
    cp = gl.cp
    return cp.RawKernel(CODE, "add"), 4, 256, (cp.zeros(1000, "f4"), cp.zeros(1000, "f4"), np.int32(1000))


def warned_once(call: Callable[[], Any], text: str) -> Any:
    """Call and check that one `DeprecationWarning` names the calling line of this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        result = call()
    # Old versions of other packages have warnings of their own.
    (warning,) = [warning for warning in caught if warning.filename == __file__]
    assert warning.category is DeprecationWarning
    assert str(warning.message).startswith(text)
    return result


def same(first: Any, second: Any) -> bool:
    """Whether two results have the same description."""
    return repr(first) == repr(second)


@pytest.mark.parametrize(("old", "new"), _deprecated.RENAMED_FUNCTIONS.items())
def test_old_function_names_return_the_new_functions(old: str, new: str) -> None:
    function = warned_once(lambda: getattr(gl, old), f"gl.{old} is now gl.{new}.")
    assert function is getattr(gl, new)
    assert old not in gl.__all__


@pytest.mark.parametrize(
    "name", [name for name, renamed in _deprecated.RENAMED_PARAMETERS.items() if "shared_bytes" in renamed]
)
def test_shared_bytes_is_accepted_as_shared_mem(name: str) -> None:
    if name == "machine_code" and not sass.is_available():
        pytest.skip("needs nvdisasm")
    args = launch()[::2] if name == "occupancy" else launch()
    function = getattr(gl, name)
    expected = function(*args, shared_mem=1024)
    result = warned_once(
        lambda: function(*args, shared_bytes=1024), f"shared_bytes= of gl.{name} is now shared_mem=."
    )
    assert same(result, expected)
    with pytest.raises(TypeError, match="its old name 'shared_bytes'"):
        function(*args, shared_bytes=1024, shared_mem=1024)


def test_roofline_mapping_accepts_shared_bytes() -> None:
    names = ("kernel", "grid", "block", "args")
    described = dict(zip(names, launch(), strict=True))
    old: dict[str, Any] = {**described, "shared_bytes": 512}
    result = warned_once(lambda: gl.roofline(old), "'shared_bytes' of a launch is now 'shared_mem'.")
    assert same(result, gl.roofline({**described, "shared_mem": 512}))


def test_diagnose_accepts_beside_as_baseline() -> None:
    other = launch()
    first = launch()
    result = warned_once(
        lambda: gl.diagnose(*first, beside=other), "beside= of gl.diagnose is now baseline=."
    )
    assert result.baseline is not None
    assert warned_once(lambda: result.beside, ".beside is now .baseline.") is result.baseline
    assert same(result, gl.diagnose(*first, baseline=other))


def test_function_argument_is_accepted_as_fn() -> None:
    x = gl.cp.ones((8, 8), gl.cp.float32)

    def twice() -> Any:
        return x * 2

    text = "function= of gl.{} is now fn=."
    history = warned_once(
        lambda: gl.who_wrote(x, (0, 0), function=lambda: x.fill(2)), text.format("who_wrote")
    )
    assert history.last.value == 2
    run = warned_once(lambda: gl.sandbox(function=print), text.format("sandbox"))
    assert run.ok
    layers = warned_once(lambda: gl.call_layers(function=twice), text.format("call_layers"))
    assert same(layers, gl.call_layers(fn=twice))
    calls = warned_once(lambda: gl.library_calls(what=twice), "what= of gl.library_calls is now fn=.")
    assert same(calls, gl.library_calls(fn=twice))
    with pytest.raises(GpulabError, match="neither returns nor changes a device array"):
        warned_once(lambda: gl.traffic(function=lambda: None), text.format("traffic"))


def test_beside_methods_are_accepted_as_compare() -> None:
    x = gl.cp.zeros(8)
    with gl.timeline() as line:
        x += 1
    with gl.allocator() as pool:
        x.copy()
    report = gl.sanitize(*launch())
    chart = gl.launch(*launch())
    profile = gl.profile(lambda: x + 1)
    graph = gl.graph(lambda y: y + 1, x)
    for call in (
        lambda: line.beside(line),
        lambda: pool.beside("CuPy"),
        lambda: report.beside(report),
        lambda: chart.beside(chart.trace),
        lambda: profile.beside(profile),
        lambda: graph.beside(repeats=1),
    ):
        warned_once(call, ".beside() is now .compare().")
    assert chart.other is chart.trace
