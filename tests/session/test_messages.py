"""What a learner sees when something fails in a notebook: one's own line, then the message, no internals."""

from __future__ import annotations

import importlib.util
import re
import sys
import threading
import traceback as traceback_module
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest
from nbclient import NotebookClient

import gpulab as gl
from gpulab.lab import messages
from tests.session.notebooks import run
from virtualgpu.errors import GpulabError

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
# What is typed, and what the message then says, breaks between words aside.
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
    "gl.zeros(3)": "write cp.zeros, after `from gpulab import cp`",
    "from gpulab import lanch": "Did you mean 'gl.launch'?",
    "cp.cuda.Device(7).use()": "CUDARuntimeError: cudaErrorInvalidDevice",
    "x + np.ones(100)": "TypeError",
    "x + cp.ones(7)": "ValueError",
    "x[1000]": "IndexError",
    "np.asarray(x)": "TypeError",
    "gl.use_device('T5')": "Did you mean 'T4'?",
    "cp.ElementwiseKernel('T x', 'T y', 'y = x +', 'e')(x)": "error: expected an expression",
    "cp.ones((3, 4)) @ cp.ones((3, 4))": "ValueError",
    "cp.cuda.Device('cuda:0')": "ValueError: A device goes by its number, as in cp.cuda.Device(0)",
    "gl.launch(f((1,), (1,), (x, 100)), 1, 1)": "TypeError: None is what a launch returns",
    "f[1, 32](x, 100)": "TypeError: A RawKernel is launched with f((blocks,), (threads,), (arguments))",
    "import matplotlib.pyplot as plt; plt.plot(x)": "TypeError: Implicit conversion to a NumPy array",
    "cp.linalg.inv(cp.zeros((2, 2)))": "LinAlgError: Singular matrix",
    "gl.check('nope', 3)": "UnknownExerciseError",
    "import cupy": "write `from gpulab import cp`, which has CuPy's interface",
    "from cupyx.profiler import benchmark": "virtualgpu.as_cupy()",
    "import torch": "PyTorch cannot run on the virtual GPU",
    "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start(); loop((1,), (1,), (zero,))": (
        "KeyboardInterrupt: kernel 'loop' was stopped at line 2 `while (x[0] == 0) { }`"
    ),
}
BEFORE_LINES = 12
IMPORT = re.compile(r"(?:import|from) (cupyx?|torch)\b")


def traceback(outputs: list[Any]) -> list[str]:
    (error,) = [output for output in outputs if output.output_type == "error"]
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error.traceback)).split("\n")


def test_no_internal_frame_stands_before_a_message(jupyter: NotebookClient) -> None:
    jupyter.allow_errors = True
    run(jupyter, SETUP)
    wrong = []
    for source, says in CASES.items():
        if (imported := IMPORT.match(source)) and importlib.util.find_spec(imported[1]):
            continue  # it is installed here
        lines = traceback(run(jupyter, source))
        name = lines[1].split()[0]
        begins = max((i for i, line in enumerate(lines) if line.startswith(f"{name}:")), default=99)
        message = "\n".join(lines[begins:])
        if begins > BEFORE_LINES or " ".join(says.split()) not in " ".join(message.split()):
            wrong.append(f"{source}\n" + "\n".join(lines))
        if max(map(len, [*lines[:2], *message.split("\n")])) > 74 or message.count("error detected") > 1:
            wrong.append(f"{source}\n{message}")
    assert not wrong, "\n\n".join(wrong)
    assert re.search(TYPO, "\n".join(traceback(run(jupyter, "typo((1,), (32,), (x,))"))))


def test_everything_is_shown_when_it_is_asked_for(jupyter: NotebookClient) -> None:
    jupyter.allow_errors = True
    run(jupyter, SETUP)
    failing = "f((1,), (2048,), (x, 100))"
    short = traceback(run(jupyter, failing))
    whole = traceback(run(jupyter, "%tb"))
    assert len(whole) > 2 * len(short)
    assert any("check_shape" in line for line in whole)
    run(jupyter, "%xmode Verbose")
    assert any("check_shape" in line for line in traceback(run(jupyter, failing)))


def test_what_ends_a_thread_is_told_without_our_frames(jupyter: NotebookClient) -> None:
    run(jupyter, SETUP)
    source = (
        "def rank():\n    f((1,), (2048,), (x, 100))\nt = threading.Thread(target=rank)\nt.start(); t.join()"
    )
    told = "".join(output.get("text", "") for output in run(jupyter, source))
    assert "in rank" in told
    assert "CUDADriverError: CUDA_ERROR_INVALID_VALUE" in told
    assert "virtualgpu/" not in told.replace("\\", "/")


def test_whoever_showed_what_ends_a_thread_still_does_and_the_error_keeps_its_frames() -> None:
    told: list[tuple[Any, list[str]]] = []

    def before(args: Any) -> None:
        own = args.exc_traceback
        told.append((args, [frame.name for frame in traceback_module.extract_tb(own)]))

    show = messages._of_threads(before)
    with pytest.raises(TypeError) as caught:
        gl.launch(None, 1, 32, ())
    error = caught.value
    thread = threading.current_thread()
    whole = error.__traceback__
    show(threading.ExceptHookArgs((TypeError, error, whole, thread)))
    ((args, names),) = told
    assert (args.exc_type, args.exc_value, args.thread) == (TypeError, error, thread)
    assert names == ["test_whoever_showed_what_ends_a_thread_still_does_and_the_error_keeps_its_frames"]
    assert error.__traceback__ is whole
    nothing = threading.ExceptHookArgs((SystemExit, None, None, thread))
    show(nothing)
    assert told[1][0] is nothing


class Shell:
    """What IPython's handler of errors asks of a shell, and what it was given to show."""

    def __init__(self, mode: str = "Context") -> None:
        self.InteractiveTB = SimpleNamespace(mode=mode, structured_traceback=self._lines)
        self.shown: list[tuple[Any, bool, list[str]]] = []

    def _lines(self, kind: type, error: Exception, tb: Any, tb_offset: Any) -> list[str]:
        return [*(frame.name for frame in traceback_module.extract_tb(tb)), f"{kind.__name__}: {error}"]

    def showtraceback(self, told: Any, tb_offset: Any) -> None:
        kind, error, tb = told
        ours = hasattr(error, "_render_traceback_")
        self.shown.append(
            (tb_offset, ours, error._render_traceback_() if ours else self._lines(kind, error, tb, 0))
        )

    def show(self, error: Exception) -> tuple[Any, bool, list[str]]:
        try:
            raise error
        except type(error):
            messages._show(self, type(error), error, error.__traceback__, 3)
        assert not hasattr(error, "_render_traceback_")
        return self.shown[-1]


def test_an_import_that_failed_is_answered_once_with_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device("virtual:T4")
    error = ModuleNotFoundError("No module named 'triton.x'", name="triton.x")
    shell = Shell()
    for _ in range(2):
        offset, ours, lines = shell.show(error)
        assert (offset, ours, lines[-1]) == (3, True, "ModuleNotFoundError: No module named 'triton.x'")
    (note,) = error.__notes__
    assert note.startswith("Triton cannot run on the virtual GPU. Write `from gpulab import cp`")
    monkeypatch.setitem(sys.modules, "triton", None)
    for other in (
        ModuleNotFoundError("no", name="triton"),
        ModuleNotFoundError("no", name="else"),
        ImportError("no"),
    ):
        assert messages._advice(other) == ""
    missing = "cannot import name 'lunch' from 'gpulab' (somewhere)"
    assert "launch" in messages._advice(ImportError(missing))
    assert messages._advice(ImportError(missing.replace("lunch", "launch"))) == ""


def test_a_program_s_own_error_is_shown_as_it_is_and_one_of_ours_without_our_frames() -> None:
    for mode, error, ours in (
        ("Context", ValueError("mine"), False),
        ("Verbose", GpulabError("ours " * 20), False),
        ("Context", GpulabError("ours " * 20), True),
    ):
        offset, rendered, lines = Shell(mode).show(error)
        assert (offset, rendered, lines[0]) == (3, ours, "show")
        assert ("\n" in lines[-1]) is ours
        if ours:
            assert sys.last_traceback is error.__traceback__
    with pytest.raises(TypeError) as caught:
        gl.launch(None, 1, 32, ())
    shell = Shell()
    messages._show(shell, TypeError, caught.value, caught.value.__traceback__)
    ((offset, rendered, lines),) = shell.shown
    assert (offset, rendered) == (None, True)
    assert lines[:-1] == ["test_a_program_s_own_error_is_shown_as_it_is_and_one_of_ours_without_our_frames"]
    assert isinstance(caught.value.__traceback__, TracebackType)
    assert caught.value.__traceback__.tb_next is not None, "the whole one is put back"


LONG = "ValueError: " + "word " * 20


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        (LONG, ("ValueError:" + " word" * 12, " ".join(["word"] * 8))),
        (
            f"\x1b[31mValueError\x1b[39m: {'word ' * 20}",
            ("\x1b[31mValueError\x1b[39m:" + " word" * 12, " ".join(["word"] * 8)),
        ),
        ("    source " + "word " * 20, None),  # a compiler quotes it
        ("ValueError: " + "w" * 80, ("ValueError:", "w" * 80)),
        ("x = 1", None),
        ("-" * 75, ("-" * 72,)),
        ("-" * 72, None),
        (
            "TypeError" + " " * 32 + "Traceback (most recent call last)",
            ("TypeError" + " " * 30 + "Traceback (most recent call last)",),
        ),
    ],
)
def test_messages_are_broken_at_words_and_headings_shortened(
    line: str, broken: tuple[str, ...] | None
) -> None:
    said = {re.sub(r"\x1b\[\d+m", "", line)} if "ord" in line or "www" in line else set()
    assert messages._broken(f"{line}\nx", said) == "\n".join([*(broken or (line,)), "x"])
    if said:
        assert messages._broken(line, set()) == line, "text of the program"


def test_a_learners_own_frames_and_causes_stay(jupyter: NotebookClient) -> None:
    jupyter.allow_errors = True
    run(jupyter, SETUP)
    run(jupyter, "def helper(a):\n    return f((1,), (2048,), (a, 100))")
    assert any("helper(a)" in line for line in traceback(run(jupyter, "helper(x)")))
    run(
        jupyter,
        "def chained():\n    try:\n        1 / 0\n    except ZeroDivisionError as e:\n"
        "        raise ValueError('mine') from e",
    )
    text = "\n".join(traceback(run(jupyter, "chained()")))
    assert "ZeroDivisionError" in text
    assert "direct cause" in text
    long = "a word and another " * 10
    assert f"ValueError: {long}" in traceback(run(jupyter, f"raise ValueError({long!r})"))


CUPYS_OWN = """
class CompileException(Exception):
    __module__ = "cupy.cuda.compiler"
    source = "__global__ void k(half* x) {}"
raise CompileException('kernel.cu(1): error: identifier "half" is undefined')
"""


def test_cupys_compile_errors_come_with_advice_too(jupyter: NotebookClient) -> None:
    jupyter.allow_errors = True
    run(jupyter, SETUP)
    assert traceback(run(jupyter, CUPYS_OWN))[-1] == "Add #include <cuda_fp16.h> on top."


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_nobody_is_told_that_a_missing_module_is_there(name: str) -> None:
    import importlib.util

    import gpulab  # noqa: F401

    if importlib.util.find_spec(name) is None:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
