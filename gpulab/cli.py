"""The ``gpulab`` command: ``doctor``, the developers' tools of a checkout, and commands of other packages.

A package adds a command by an entry point in the group ``gpulab.commands``: a function that takes the list of
arguments and returns the exit status. The first line of its docstring is the help text. The course adds
``lab``, ``copy``, ``reset``, ``check``, ``golf``, ``instructor``, ``report`` and ``tally``.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import gpulab
from virtualgpu.errors import GpulabError

COMMAND_GROUP = "gpulab.commands"
# Commands of a checkout: name -> module with ``main(arguments)``, help.
_CHECKOUT_COMMANDS = {
    "bench": (
        "tools.bench.table",
        "measure the speed of the virtual GPU or, with --gpu, of the teaching kernels on a GPU",
    ),
    "record": ("tools.recordings.record", "record values of a real GPU for the tests and the course"),
}
# Commands of the course, so that the message for a missing command can name its package.
_COURSE_COMMANDS = ("lab", "copy", "reset", "check", "golf", "instructor", "report", "tally")


class CommandError(GpulabError):
    """Error for a command that is not available in this installation. The message describes how to make the
    command available.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of the command line, and return the exit status."""
    _write_all_characters()
    command_words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = _find_course_command(command_words[0]) if command_words else None
        if command is not None:
            return command(command_words[1:])
        options = _make_parser().parse_args(command_words)
        return _run_doctor(as_json=options.json, details=options.details)
    except (GpulabError, OSError) as error:
        print(f"gpulab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _find_course_command(name: str) -> Callable[[list[str]], int] | None:
    """Return the function of a command that another package defines, or None."""
    if name in _CHECKOUT_COMMANDS:
        return lambda words: _run_tool(name, words)
    matching_entry_points = metadata.entry_points(group=COMMAND_GROUP, name=name)
    if matching_entry_points:
        command_function: Callable[[list[str]], int] = next(iter(matching_entry_points)).load()
        return command_function
    if name in _COURSE_COMMANDS:
        raise CommandError(
            f"`gpulab {name}` needs the package gpulab-course. Install it with: pip install gpulab-course"
        )
    return None


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpulab", description="Learn how a GPU works, on a real GPU or on a virtual one."
    )
    parser.add_argument("--version", action="version", version=f"gpulab {gpulab.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    doctor_parser = commands.add_parser(
        "doctor", help="check driver, CUDA, CuPy, NVRTC and Jupyter, and explain how to fix problems"
    )
    doctor_parser.add_argument("--details", action="store_true", help="list everything that was checked")
    doctor_parser.add_argument("--json", action="store_true", help="print JSON")
    for command in sorted(metadata.entry_points(group=COMMAND_GROUP), key=lambda entry: entry.name):
        summary = (command.load().__doc__ or "").strip().partition("\n")[0]
        commands.add_parser(command.name, help=summary.rstrip("."), add_help=False)
    for name, (_, command_help) in _CHECKOUT_COMMANDS.items():
        commands.add_parser(name, help=command_help, add_help=False)
    return parser


def _write_all_characters() -> None:
    """Make the output accept all characters.

    A pipe or file uses UTF-8. Characters that an encoding does not support are written as escapes.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            uses_utf8 = "PYTHONIOENCODING" not in os.environ and not stream.isatty()
            stream.reconfigure(encoding="utf-8" if uses_utf8 else None, errors="backslashreplace")


def _run_tool(command: str, tool_arguments: list[str]) -> int:
    """Run a developers' tool from the checkout that contains this package."""
    checkout_folder = Path(__file__).resolve().parents[1]
    if not (
        (checkout_folder / "pyproject.toml").is_file() and (checkout_folder / "tools" / "recordings").is_dir()
    ):
        raise CommandError(
            f"`gpulab {command}` is a tool for developers, which is not installed with the package. Run it "
            "in a checkout of gpulab."
        )
    sys.path.insert(0, str(checkout_folder))
    module = _CHECKOUT_COMMANDS[command][0]
    if command == "bench" and "--gpu" in tool_arguments:
        module = "tools.bench.gpu"
        tool_arguments = [argument for argument in tool_arguments if argument != "--gpu"]
    return int(importlib.import_module(module).main(tool_arguments) or 0)


def _run_doctor(*, as_json: bool, details: bool) -> int:
    from gpulab.diagnosis import doctor

    diagnosis = doctor()
    report_text = diagnosis.describe() if details else repr(diagnosis)
    print(json.dumps(diagnosis.to_json(), indent=2) if as_json else report_text)
    return diagnosis.exit_code


if __name__ == "__main__":
    sys.exit(main())
