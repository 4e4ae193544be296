"""``%%gpu_timeline``, ``%%gpu_profile``: what a cell did. ``%%gpu_sandbox``: a process of its own."""

from __future__ import annotations

import re
from typing import Any

GPU_TIMELINE = "gpu_timeline"
GPU_PROFILE = "gpu_profile"
GPU_SANDBOX = "gpu_sandbox"
_SANDBOX_LINE = re.compile(
    r"(?P<name>[^\W\d]\w*)?\s*(?P<blocking>--blocking)?\s*(?:-o\s+(?P<gives>[\w\s,]+))?"
)


def register(shell: Any) -> None:
    """Let an IPython shell know the magic; what it needs is loaded when it is used."""

    def gpu_timeline(line: str, cell: str) -> Any:
        """Run the cell and show its timeline: ``%%gpu_timeline``, or ``%%gpu_timeline t`` to keep it as t."""
        from gpulab.lab.timeline import timeline

        return _run(shell, GPU_TIMELINE, line.strip(), cell, timeline())

    def gpu_profile(line: str, cell: str) -> Any:
        """Run the cell and show what it cost: ``%%gpu_profile``, or ``%%gpu_profile p`` to keep it as p."""
        from gpulab.lab.profiling.profile import profile

        return _run(shell, GPU_PROFILE, line.strip(), cell, profile())

    def gpu_sandbox(line: str, cell: str) -> Any:
        """Run the cell in a process of its own: ``%%gpu_sandbox``, or ``%%gpu_sandbox s`` to keep the report.

        ``--blocking`` lets the host wait after each launch; ``-o x, y`` brings back the cell's x and y.
        """
        return _sandboxed(shell, line.strip(), cell)

    shell.register_magic_function(gpu_timeline, "cell", GPU_TIMELINE)
    shell.register_magic_function(gpu_sandbox, "cell", GPU_SANDBOX)
    shell.register_magic_function(gpu_profile, "cell", GPU_PROFILE)


def _run(shell: Any, magic: str, name: str, cell: str, recording: Any) -> Any:
    from virtualgpu.errors import GpulabError

    if name and not name.isidentifier():
        raise GpulabError(f"%%{magic} takes one name, under which it is kept, not {name!r}.")
    shown = dict.fromkeys(("showtraceback", "showsyntaxerror"), lambda *args, **kwargs: None)
    with recording:
        # The cell's lines keep their numbers below the magic's. An error is shown once, by the outer run.
        shell.__dict__.update(shown)
        # IPython 9 counts on before a cell runs, older ones afterwards; what runs now is the last input.
        following = shell.execution_count
        shell.execution_count = len(shell.user_ns["In"]) - 1
        try:
            done = shell.run_cell(f"# %%{magic} {name}\n{cell}")
        finally:
            shell.execution_count = following
            for patched in shown:
                del shell.__dict__[patched]
    if name:
        shell.user_ns[name] = recording
    error = done.error_before_exec or done.error_in_exec
    if error is not None:
        raise error
    return recording


def _sandboxed(shell: Any, line: str, cell: str) -> Any:
    from gpulab.lab.faults.jobs import Cell, used_by
    from gpulab.lab.faults.sandbox import LIMIT_S, MEMORY_BYTES, run
    from virtualgpu.errors import GpulabError

    asked = _SANDBOX_LINE.fullmatch(line)
    if asked is None:
        raise GpulabError(
            f"%%{GPU_SANDBOX} takes a name, --blocking and -o with names to bring back, as in "
            f"`%%{GPU_SANDBOX} s --blocking -o x, y`, not {line!r}."
        )
    code = f"# %%{GPU_SANDBOX} {line}\n{shell.transform_cell(cell)}"
    file = str(shell.compile.cache(code, shell.execution_count, raw_code=code))
    gives = tuple(re.findall(r"\w+", asked["gives"] or ""))
    job = Cell(code, file, used_by(code, shell.user_ns), gives)
    seen = run(job, "the cell", bool(gives), asked["blocking"] is not None, LIMIT_S, MEMORY_BYTES)
    if gives and seen.ok:
        shell.user_ns.update(seen.result)
    if asked["name"]:
        shell.user_ns[asked["name"]] = seen
    return seen
