"""``%%gpu_timeline``: the timeline of a notebook cell."""

from __future__ import annotations

from typing import Any

GPU_TIMELINE = "gpu_timeline"


def register(shell: Any) -> None:
    """Let an IPython shell know the magic; what it needs is loaded when it is used."""

    def gpu_timeline(line: str, cell: str) -> Any:
        """Run the cell and show its timeline: ``%%gpu_timeline``, or ``%%gpu_timeline t`` to keep it as t."""
        return _run(shell, line.strip(), cell)

    shell.register_magic_function(gpu_timeline, "cell", GPU_TIMELINE)


def _run(shell: Any, name: str, cell: str) -> Any:
    from gpulab.lab.timeline import timeline
    from virtualgpu.errors import GpulabError

    if name and not name.isidentifier():
        raise GpulabError(f"%%{GPU_TIMELINE} takes one name, that of the timeline, not {name!r}.")
    recording = timeline()
    shown = dict.fromkeys(("showtraceback", "showsyntaxerror"), lambda *args, **kwargs: None)
    with recording:
        # The cell's lines keep their numbers below the magic's. An error is shown once, by the outer run.
        shell.__dict__.update(shown)
        # IPython 9 counts on before a cell runs, older ones afterwards; what runs now is the last input.
        following = shell.execution_count
        shell.execution_count = len(shell.user_ns["In"]) - 1
        try:
            done = shell.run_cell(f"# %%{GPU_TIMELINE} {name}\n{cell}")
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
