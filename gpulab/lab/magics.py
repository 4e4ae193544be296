"""IPython magics: ``%gpu_timeline`` and ``%gpu_profile`` for lines and cells, ``%%gpu_sandbox`` for cells."""

from __future__ import annotations

import re
import warnings
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from virtualgpu.errors import GpulabError

_NAME_PATTERN = re.compile(r"[^\W\d]\w*")
_OLD_SANDBOX_LINE = re.compile(
    r"\s*(?P<name>[^\W\d]\w*)?\s*(?P<blocking>--blocking)?\s*(?:-o\s+(?P<results>\w+(?:[\s,]+\w+)*))?\s*"
)


@magics_class
class GpuMagics(Magics):
    """IPython magics that record a line or a cell, or run a cell in a separate process."""

    shell: Any  # always set: only an IPython shell makes one of these

    @magic_arguments()
    @argument("-o", "--output", metavar="NAME", help="keep the timeline in the variable NAME")
    @argument("statement", nargs="*", help="the statement to record, as a line magic")
    @line_cell_magic
    def gpu_timeline(self, line: str, cell: str | None = None) -> Any:
        """Run a line or a cell and show its timeline."""
        from gpulab.lab.timeline import timeline

        return self._record("gpu_timeline", line, cell, timeline())

    @magic_arguments()
    @argument("-o", "--output", metavar="NAME", help="keep the profile in the variable NAME")
    @argument("statement", nargs="*", help="the statement to profile, as a line magic")
    @line_cell_magic
    def gpu_profile(self, line: str, cell: str | None = None) -> Any:
        """Run a line or a cell and show the costs of its kernels, copies and waits."""
        from gpulab.lab.profiling.profile import profile

        return self._record("gpu_profile", line, cell, profile())

    @magic_arguments()
    @argument("-o", "--output", metavar="NAME", help="keep the report in the variable NAME")
    @argument("-r", "--return", dest="names", metavar="NAMES", help="variables to bring back, such as x,y")
    @argument("--blocking", action="store_true", help="let the host wait after each launch")
    @cell_magic
    def gpu_sandbox(self, line: str, cell: str) -> Any:
        """Run the cell in another process, so that a fault cannot affect this kernel or its CUDA context."""
        from gpulab.lab.faults.jobs import Cell, find_used_names
        from gpulab.lab.faults.sandbox import DEFAULT_LIMIT_S, DEFAULT_MEMORY_BYTES, run_in_sandbox

        line = _convert_old_line(line, cell)
        options = parse_argstring(self.gpu_sandbox, line)
        names = tuple(re.findall(r"\w+", options.names or ""))
        _check_name("gpu_sandbox", options.output)
        cell_code = f"# %%gpu_sandbox {line}\n{self.shell.transform_cell(cell)}"
        file = str(self.shell.compile.cache(cell_code, self.shell.execution_count, raw_code=cell_code))
        job = Cell(cell_code, file, find_used_names(cell_code, self.shell.user_ns), names)
        report = run_in_sandbox(
            job, "the cell", bool(names), options.blocking, DEFAULT_LIMIT_S, DEFAULT_MEMORY_BYTES
        )
        if names and report.ok:
            self.shell.user_ns.update(report.result)
        if options.output:
            self.shell.user_ns[options.output] = report
        return report

    def _record(self, magic_name: str, line: str, cell: str | None, recording: Any) -> Any:
        """Run the code while the recorder is active, assign the recording to its variable, and return it."""
        options = parse_argstring(getattr(self, magic_name), line)
        variable_name = options.output
        if cell is None:
            cell_code = re.sub(r"^\s*(?:(?:-o|--output)[\s=]*\w+\s*)?", "", line)
        else:
            cell_code = f"# %%{magic_name} {line}\n{cell}"
            if options.statement and variable_name is None:
                variable_name = _warn_deprecated_name(magic_name, options.statement)
        _check_name(magic_name, variable_name)
        result = self._run_recorded(cell_code, recording)
        if variable_name:
            self.shell.user_ns[variable_name] = recording
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            raise error
        return recording

    def _run_recorded(self, code: str, recording: Any) -> Any:
        """Run code as a nested cell. Its error is shown once, by the cell that contains the magic."""
        shell = self.shell
        silenced_methods = dict.fromkeys(("showtraceback", "showsyntaxerror"), lambda *args, **kwargs: None)
        with recording:
            shell.__dict__.update(silenced_methods)
            # IPython 9 increments the count before a cell runs, older versions afterwards; the code that runs
            # now is the last input.
            next_count = shell.execution_count
            shell.execution_count = len(shell.user_ns["In"]) - 1
            try:
                return shell.run_cell(code)
            finally:
                shell.execution_count = next_count
                for method_name in silenced_methods:
                    del shell.__dict__[method_name]


def register_magics(shell: Any) -> None:
    """Register gpulab's magics with an IPython shell."""
    shell.register_magics(GpuMagics)


def _check_name(magic_name: str, name: str | None) -> None:
    if name is not None and not _NAME_PATTERN.fullmatch(name):
        raise GpulabError(f"%%{magic_name} -o needs the name of a variable, not {name!r}.")


def _warn_deprecated_name(magic_name: str, name_words: list[str]) -> str:
    """Return the variable name in ``%%gpu_timeline t``, the syntax of version 1.0, with a warning."""
    name = " ".join(name_words)
    _check_name(magic_name, name)
    message = f"`%%{magic_name} {name}` is deprecated: write `%%{magic_name} -o {name}`."
    warnings.warn(message, DeprecationWarning, stacklevel=4)
    return name


def _assigns_name(cell: str, name: str) -> bool:
    """Return whether the cell assigns the name; ``-o name`` of version 1.0 then means a result."""
    return re.search(rf"^{re.escape(name)}\s*=(?!=)", cell, re.MULTILINE) is not None


def _convert_old_line(line: str, cell: str) -> str:
    """Convert a line in the syntax of version 1.0, such as ``s -o x, y``, to the current ``-o s -r x,y``."""
    line_match = _OLD_SANDBOX_LINE.fullmatch(line)
    if line_match is None:
        return line
    result_names = re.findall(r"\w+", line_match["results"] or "")
    if (
        not line_match["name"]
        and len(result_names) < 2
        and not any(_assigns_name(cell, name) for name in result_names)
    ):
        return line
    new_line = " ".join(
        [
            *(["-o", line_match["name"]] if line_match["name"] else []),
            *(["-r", ",".join(result_names)] if result_names else []),
            *(["--blocking"] if line_match["blocking"] else []),
        ]
    )
    message = f"`%%gpu_sandbox {line.strip()}` is deprecated: write `%%gpu_sandbox {new_line}`."
    warnings.warn(message, DeprecationWarning, stacklevel=4)
    return new_line
