"""Run an unchanged CuPy program on a virtual GPU: ``python -m virtualgpu [--device T4] script.py ...``."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from virtualgpu import as_cupy
from virtualgpu.tracebacks import trim_tracebacks

_INTERRUPTED_STATUS = 130  # 128 + SIGINT, as in shells


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program given on the command line, and return the exit status of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m virtualgpu",
        usage="%(prog)s [--device NAME] [--count N] (script.py | -m module | -c code) [argument ...]",
        description="Run an unchanged CuPy program on a virtual GPU.",
        epilog="A kernel is stopped if none of its threads finishes within "
        "VIRTUALGPU_WATCHDOG_S seconds of processor time (default: 20).",
    )
    remainder = argparse.REMAINDER
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="name of the GPU, such as T4 or H200 (default: VIRTUALGPU_DEVICE or A100)",
    )
    parser.add_argument(
        "--count", type=int, metavar="N", help="number of GPUs (default: VIRTUALGPU_COUNT or 1)"
    )
    parser.add_argument(
        "-m", nargs=remainder, dest="module", metavar="MODULE", help="run a module, like python -m"
    )
    parser.add_argument("-c", nargs=remainder, dest="code", metavar="CODE", help="run a line of code")
    parser.add_argument("script", nargs=remainder, help="a script to run, followed by its arguments")
    options = parser.parse_args(arguments)
    program = options.module or options.code or options.script
    if not program:
        parser.error("pass a script, -m and a module, or -c and code")
    if options.script and not options.module and not options.code and not Path(program[0]).exists():
        parser.error(f"the file {program[0]} does not exist")
    try:
        as_cupy(options.device, options.count)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    try:
        if options.module:
            _run_module(program)
        elif options.code:
            _run_code(program)
        else:
            _run_script(program)
    except SystemExit:
        raise
    except BaseException as error:
        print_exception(error)
        return _INTERRUPTED_STATUS if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _run_module(program: list[str]) -> None:
    sys.argv = program
    sys.path[0] = str(Path.cwd())
    runpy.run_module(program[0], run_name="__main__", alter_sys=True)


def _run_code(program: list[str]) -> None:
    sys.argv = ["-c", *program[1:]]
    sys.path[0] = ""
    module = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(program[0], "<string>", "exec"), module.__dict__)


def _run_script(program: list[str]) -> None:
    sys.argv = program
    sys.path[0] = str(Path(program[0]).resolve().parent)
    runpy.run_path(program[0], run_name="__main__")


def print_exception(error: BaseException) -> None:
    """Print the traceback of an error without the frames inside the virtual GPU."""
    with trim_tracebacks(error):
        traceback.print_exception(error)


if __name__ == "__main__":
    sys.exit(main())
