"""Display of errors in IPython and Jupyter.

A traceback ends in the learner's own line, above the message. Frames of gpulab are left out, and long
messages are wrapped at words. If a module is missing on a virtual GPU, the message names the replacement.
``%tb`` and ``%xmode Verbose`` show the full traceback.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpulab._waiting import load_when_idle, watch_cells
from virtualgpu.compile.advice import make_advice
from virtualgpu.tracebacks import trim_tracebacks

# As many columns as a notebook has on a screen of 1024 pixels beside JupyterLab's side bar.
MAX_LINE_LENGTH = 72
_PACKAGES = ("gpulab", "gpulab_course", "virtualgpu")
_PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
# Frames of these folders are left out of tracebacks, besides those of `virtualgpu`.
_OWN_FOLDERS = [_PACKAGE_FOLDER, _PACKAGE_FOLDER.with_name("gpulab_course")]
_COLOUR_CODES = re.compile(r"\x1b\[[\d;]*m")
# IPython's, of 75 columns.
_HEADING_PATTERN = re.compile(r"-+|\w+ +Traceback \(most recent call last\)")
_CUPY_ADVICE = (
    "This session uses a virtual GPU, without CuPy: write `from gpulab import cp`, which has CuPy's "
    "interface. For unchanged programs run `import virtualgpu; virtualgpu.as_cupy()` first; cupy and cupyx "
    "can then be imported."
)
_OTHER_PACKAGE_ADVICE = (
    "{} cannot run on the virtual GPU. Write `from gpulab import cp`, which has NumPy's functions for arrays "
    "on the GPU, and cp.RawKernel for kernels."
)
_ADVICE_BY_MODULE = {
    "cupy": _CUPY_ADVICE,
    "cupyx": _CUPY_ADVICE,
    "torch": _OTHER_PACKAGE_ADVICE.format("PyTorch"),
    "tensorflow": _OTHER_PACKAGE_ADVICE.format("TensorFlow"),
    "jax": _OTHER_PACKAGE_ADVICE.format("JAX"),
    "numba": _OTHER_PACKAGE_ADVICE.format("Numba"),
    "pycuda": _OTHER_PACKAGE_ADVICE.format("PyCUDA"),
    "triton": _OTHER_PACKAGE_ADVICE.format("Triton"),
}


def use_in_ipython(shell: Any = None) -> None:
    """Register the magics and hide gpulab's frames in error messages, if IPython is running.

    If the shell already has an error handler, that handler is not replaced.
    """
    ipython = sys.modules.get("IPython")
    if shell is None and ipython is not None:
        shell = ipython.get_ipython()
    if shell is None:
        return
    from gpulab.lab import magics

    magics.register_magics(shell)
    watch_cells(shell)
    load_when_idle(_make_function_loaders())
    if not shell.custom_exceptions:
        shell.set_custom_exc((Exception, KeyboardInterrupt), _show_error)
    if threading.excepthook.__module__ != __name__:
        threading.excepthook = _make_thread_hook(threading.excepthook)


def _make_function_loaders() -> Iterator[Callable[[], object]]:
    """Yield one function per public name, which loads this name. IPython completes a name only after it is
    loaded.

    The array modules are left out because they open a device.
    """
    package = sys.modules[__name__.partition(".")[0]]
    for name in package.__all__:
        if name not in ("cp", "cupyx"):
            yield functools.partial(getattr, package, name)


def _make_thread_hook(previous_hook: Callable[[threading.ExceptHookArgs], object]) -> Callable[[Any], None]:
    """Return a handler for errors in threads, which calls the previous handler without gpulab's frames."""

    def show_thread_error(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is None:
            previous_hook(args)
            return
        with trim_tracebacks(args.exc_value, _OWN_FOLDERS, trim_libraries=True):
            own_traceback = args.exc_value.__traceback__
            previous_hook(
                threading.ExceptHookArgs((args.exc_type, args.exc_value, own_traceback, args.thread))
            )

    return show_thread_error


def _show_error(
    shell: Any, error_type: type[BaseException], error: BaseException, tb: Any, tb_offset: Any = None
) -> None:
    """Show an error in IPython without gpulab's frames; afterwards, restore the full traceback `tb`."""
    advice = _find_advice(error)
    if advice and advice not in getattr(error, "__notes__", ()):
        error.add_note(advice)
    if getattr(shell.InteractiveTB, "mode", "") == "Verbose" or isinstance(error, SyntaxError):
        shell.showtraceback((error_type, error, tb), tb_offset=tb_offset)
        return
    with trim_tracebacks(error, _OWN_FOLDERS, trim_libraries=True) as is_shortened:
        if not (is_shortened or advice or type(error).__module__.startswith(_PACKAGES)):
            shell.showtraceback((error_type, error, tb), tb_offset=tb_offset)
            return
        own_traceback = error.__traceback__
        traceback_lines = shell.InteractiveTB.structured_traceback(
            error_type, error, own_traceback, tb_offset=tb_offset
        )
        long_lines = {
            line
            for line in f"{error_type.__name__}: {error}\n{advice}".split("\n")
            if len(line) > MAX_LINE_LENGTH
        }
        error._render_traceback_ = lambda: [_wrap_messages(line, long_lines) for line in traceback_lines]  # type: ignore[attr-defined]
        try:
            shell.showtraceback((error_type, error, own_traceback), tb_offset=tb_offset)
        finally:
            del error._render_traceback_  # type: ignore[attr-defined]
    sys.last_traceback = tb


def _wrap_messages(traceback_text: str, long_lines: set[str]) -> str:
    """Wrap the long lines of a traceback that belong to a message; source text is not wrapped."""
    lines = []
    for line in traceback_text.split("\n"):
        plain_line = _COLOUR_CODES.sub("", line)
        if plain_line in long_lines:
            line = _wrap_line(line)
        elif len(plain_line) > MAX_LINE_LENGTH and _HEADING_PATTERN.fullmatch(plain_line):
            fill_letter = "-" if plain_line.startswith("-") else " "
            line = line.replace(fill_letter * (len(plain_line) - MAX_LINE_LENGTH + 2), fill_letter * 2, 1)
        lines.append(line)
    return "\n".join(lines)


def _wrap_line(line: str) -> str:
    if line.startswith(" "):  # a compiler's log quotes the source, with a mark below
        return line
    # Colours, which have no width on the screen, stand around the first word, the error's name.
    first_word, _, message = line.partition(" ")
    placeholder = "-" * len(_COLOUR_CODES.sub("", first_word))
    plain_line = textwrap.fill(
        f"{placeholder} {message}", MAX_LINE_LENGTH, break_long_words=False, break_on_hyphens=False
    )
    return first_word + plain_line[len(placeholder) :]


def _find_advice(error: BaseException) -> str:
    """Return advice about a failed import or a compiler error, or an empty string."""
    if isinstance(error, ModuleNotFoundError):
        missing_package = (error.name or "").partition(".")[0]
        if missing_package not in _ADVICE_BY_MODULE or missing_package in sys.modules:
            return ""
        with suppress(Exception):
            from gpulab.session import which_device

            if which_device().kind == "virtual":
                return _ADVICE_BY_MODULE[missing_package]
    elif isinstance(error, ImportError):
        match = re.match(r"cannot import name '(\w+)' from '((?:gpulab|virtualgpu)[\w.]*)'", str(error))
        if match:
            try:
                getattr(importlib.import_module(match[2]), match[1])
            except AttributeError as attribute_error:
                return str(attribute_error)
    elif type(error).__module__.startswith("cupy.") and type(error).__name__ == "CompileException":
        # The virtual GPU's own errors say it already.
        return make_advice(str(error), str(getattr(error, "source", "")))
    return ""
