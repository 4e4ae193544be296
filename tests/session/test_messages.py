"""Errors in a notebook: one's own line, then the message, without frames of gpulab."""

from __future__ import annotations

import importlib.util
import re
import sys
from typing import Any

import pytest
from nbclient import NotebookClient

import gpulab as gl
from gpulab.lab import messages
from tests.session.notebooks import run

SETUP = '''
import os, signal, threading
import numpy as np
import gpulab as gl
from gpulab import cp
f = cp.RawKernel(r"""
extern "C" __global__ void f(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] += 1.0f;
}""", "f")
typo = cp.RawKernel(r"""
extern "C" __global__ void typo(float* x) {
  int i = threadIdx.x;
  x[i] = y[i] + 1.0f;
}""", "typo")
loop = cp.RawKernel("""extern "C" __global__ void loop(volatile int* x) {
  while (x[0] == 0) { }
}""", "loop")
loop.compile()
template = "template <class T> __global__ void h(T* x) { x[0] = nope; }"
module = cp.RawModule(code=template, name_expressions=["h<float>"])
x, zero = cp.zeros(100, cp.float32), cp.zeros(1, cp.int32)
'''
TYPO = r'kernel.cu\(4\): error: identifier "y" is undefined\n    x\[i\] = y\[i\] \+ 1.0f;\n           \^'
# Code of a cell, and text of its error message (line breaks aside).
CASES = {
    "f((1,), (100,), (cp.zeros(100), 100))": "TypeError: Kernel 'f', argument 1 ('x'): the kernel",
    "gl.launch(f, 1, 100, (cp.zeros(100), 100))": "TypeError: Kernel 'f', argument 1 ('x')",
    "f((1,), (2048,), (x, 100))": "CUDADriverError: CUDA_ERROR_INVALID_VALUE",
    "gl.launch(f, 1, 2048, (x, 100))": "CUDADriverError: CUDA_ERROR_INVALID_VALUE",
    "gl.launch(f, 1, 100, (x,))": "TypeError: Kernel 'f' takes 2 arguments but 1 was passed",
    "f((1,), (100,), (x,))": "TypeError: Kernel 'f' takes 2 arguments but 1 was passed",
    "f(1, 100, (x, 100))": "TypeError: Argument 'grid' has incorrect type",
    "typo((1,), (32,), (x,))": 'CompileException: kernel.cu(4): error: identifier "y" is undefined',
    "gl.count(typo, 1, 32, (x,))": "CompileException: kernel.cu(4): error",
    "module.get_function('h<float>')": 'CompileException: kernel.cu(1): error: identifier "nope"',
    "cp.RawKernel(f.code, 'ff')((1,), (1,), ())": "Did you mean 'f'?",
    "f((8,), (256,), (x, 100))": "That is right after the end of the float32 array",
    "gl.launch(f, 8, 256, (x, 100))": "IllegalAddressError: cudaErrorIllegalAddress",
    "gl.warps(f, 8, 256, (x, 100))": "IllegalAddressError: cudaErrorIllegalAddress",
    "gl.sanitize(f, 1, 64, (x, 'a'))": "TypeError: Kernel 'f', argument 2 ('n')",
    "cp.zeros(10**13)": "OutOfMemoryError: Out of memory allocating",
    "cp.RawModule(path='a.cubin').get_function('k')": "CUDA_ERROR_FILE_NOT_FOUND: file not found: a.cubin",
    "cp.arrange(3)": "arange",
    "gl.lanch(f, 1, 1, ())": "Did you mean 'gl.launch'?",
    "gl.zeros(3)": "write cp.zeros after `from gpulab import cp`",
    "from gpulab import lanch": "Did you mean 'gl.launch'?",
    "cp.cuda.Device(7).use()": "CUDARuntimeError: cudaErrorInvalidDevice",
    "x + np.ones(100)": "TypeError",
    "x + cp.ones(7)": "ValueError",
    "x[1000]": "IndexError",
    "np.asarray(x)": "TypeError",
    "gl.use_device('T5')": "Did you mean 'T4'?",
    "cp.ElementwiseKernel('T x', 'T y', 'y = x +', 'e')(x)": "error: expected an expression",
    "cp.ones((3, 4)) @ cp.ones((3, 4))": "ValueError",
    "cp.cuda.Device('cuda:0')": "ValueError: cp.cuda.Device needs the number of a device, as in",
    "gl.launch(f((1,), (1,), (x, 100)), 1, 1)": "TypeError: Expected a kernel, but got None",
    "f[1, 32](x, 100)": "TypeError: Launch a RawKernel with f((blocks,), (threads,), (arguments))",
    "import matplotlib.pyplot as plt; plt.plot(x)": "TypeError: Implicit conversion to a NumPy array",
    "cp.linalg.inv(cp.zeros((2, 2)))": "LinAlgError: Singular matrix",
    "gl.check('nope', 3)": "UnknownExerciseError",
    "import cupy": "write `from gpulab import cp`, which has CuPy's interface",
    "from cupyx.profiler import benchmark": "virtualgpu.as_cupy()",
    "import torch": "PyTorch cannot run on the virtual GPU",
    (
        "class CompileException(Exception):\n"
        "    __module__, source = 'cupy.cuda.compiler', '__global__ void k(half* x) {}'\n"
        "raise CompileException('kernel.cu(1): error: identifier \"half\" is undefined')"
    ): "Add #include <cuda_fp16.h> on top.",
    "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start(); loop((1,), (1,), (zero,))": (
        "KeyboardInterrupt: kernel 'loop' was stopped at line 2 `while (x[0] == 0) { }`"
    ),
}
BEFORE_LINES = 12
IMPORT = re.compile(r"(?:import|from) (cupyx?|torch)\b")


@pytest.fixture(autouse=True)
def names(jupyter: NotebookClient) -> None:
    """Define arrays and kernels in the shared Jupyter kernel, whose cells may fail."""
    jupyter.allow_errors = True
    run(jupyter, SETUP)


def traceback(outputs: list[Any]) -> list[str]:
    (error,) = [output for output in outputs if output.output_type == "error"]
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error.traceback)).split("\n")


def test_traceback_has_no_internal_frames_before_the_message(jupyter: NotebookClient) -> None:
    wrong = []
    for source, text in CASES.items():
        if (module := IMPORT.match(source)) and importlib.util.find_spec(module[1]):
            continue  # it is installed here
        lines = traceback(run(jupyter, source))
        name = lines[1].split()[0]
        start = max((i for i, line in enumerate(lines) if line.startswith(f"{name}:")), default=99)
        message = "\n".join(lines[start:])
        if start > BEFORE_LINES or " ".join(text.split()) not in " ".join(message.split()):
            wrong.append(f"{source}\n" + "\n".join(lines))
        if max(map(len, [*lines[:2], *message.split("\n")])) > 74 or message.count("error detected") > 1:
            wrong.append(f"{source}\n{message}")
    assert not wrong, "\n\n".join(wrong)
    assert re.search(TYPO, "\n".join(traceback(run(jupyter, "typo((1,), (32,), (x,))"))))


def test_tb_and_verbose_mode_show_all_frames(jupyter: NotebookClient) -> None:
    failing = "f((1,), (2048,), (x, 100))"
    short = traceback(run(jupyter, failing))
    whole = traceback(run(jupyter, "%tb"))
    assert len(whole) > 2 * len(short)
    assert any("check_shape" in line for line in whole)
    run(jupyter, "%xmode Verbose")
    try:
        assert any("check_shape" in line for line in traceback(run(jupyter, failing)))
    finally:
        run(jupyter, "%xmode Context")


def test_an_error_that_ends_a_thread_is_shown_without_frames_of_gpulab(jupyter: NotebookClient) -> None:
    source = (
        "def rank():\n    f((1,), (2048,), (x, 100))\nt = threading.Thread(target=rank)\nt.start(); t.join()"
    )
    text = "".join(output.get("text", "") for output in run(jupyter, source))
    assert "in rank" in text
    assert "CUDADriverError: CUDA_ERROR_INVALID_VALUE" in text
    assert "virtualgpu/" not in text.replace("\\", "/")


def test_advice_is_added_once_to_an_error_that_is_raised_again(jupyter: NotebookClient) -> None:
    missing = "ModuleNotFoundError('triton is missing', name='triton.x')"
    run(jupyter, f"failure = {missing}")
    for _ in range(2):
        text = "\n".join(traceback(run(jupyter, "raise failure")))
        assert text.count("Triton cannot run on the virtual GPU") == 1


def test_advice_is_added_only_to_missing_modules_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device("virtual:T4")
    assert "Triton" in messages._find_advice(ModuleNotFoundError("no", name="triton"))
    monkeypatch.setitem(sys.modules, "triton", None)
    for error in (ModuleNotFoundError("no", name="triton"), ModuleNotFoundError("no"), ImportError("no")):
        assert messages._find_advice(error) == ""
    missing = "cannot import name 'lunch' from 'gpulab' (somewhere)"
    assert "launch" in messages._find_advice(ImportError(missing))
    assert messages._find_advice(ImportError(missing.replace("lunch", "launch"))) == ""


def test_users_own_frames_causes_and_messages_are_kept(jupyter: NotebookClient) -> None:
    run(jupyter, "def helper(a):\n    return f((1,), (2048,), (a, 100))")
    assert any("helper(a)" in line for line in traceback(run(jupyter, "helper(x)")))
    cause = "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('mine') from e"
    text = "\n".join(traceback(run(jupyter, cause)))
    assert "ZeroDivisionError" in text
    assert "direct cause" in text
    long = "a word and another " * 10
    assert f"ValueError: {long}" in traceback(run(jupyter, f"raise ValueError({long!r})"))


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_gpulab_does_not_provide_missing_modules(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
