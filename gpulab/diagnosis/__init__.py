"""``gpulab doctor``: the state of this machine for the course, and remedies for missing parts."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

from gpulab.diagnosis.checks import (
    DRIVER_SUBJECT,
    FIRST_CELL_SUBJECT,
    GPU_SUBJECTS,
    NO_DRIVER,
    REAL_GPU_SUBJECT,
    VIRTUAL_GPU_SUBJECT,
    Finding,
    run_checks,
)
from gpulab.views.tables import Table, TextDisplay

_FINDING_COLUMNS = ("part", "status", "found", "remedy")
_USE_VIRTUAL_GPU = "Nothing to do: the virtual GPU replaces it."


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(TextDisplay):
    """All findings of the function `doctor` with an overall verdict, displayed as a table."""

    findings: tuple[Finding, ...]

    def __getitem__(self, subject: str) -> Finding:
        return {finding.subject: finding for finding in self.findings}[subject]

    @property
    def virtual_gpu(self) -> bool:
        """Return whether kernels can run on the virtual GPU on this machine."""
        return self[VIRTUAL_GPU_SUBJECT].status == "ok"

    @property
    def real_gpu(self) -> bool:
        """Return whether kernels can run on a real GPU on this machine."""
        return self[REAL_GPU_SUBJECT].status == "ok"

    @property
    def wrong(self) -> tuple[str, ...]:
        """The names of the parts that are installed but do not work."""
        return tuple(finding.subject for finding in self.findings if finding.status == "wrong")

    @property
    def exit_code(self) -> int:
        """The exit status of ``gpulab doctor``. The status is 0 if kernels run and nothing is wrong, and 1
        otherwise.
        """
        return 0 if (self.virtual_gpu or self.real_gpu) and not self.wrong else 1

    @property
    def verdict(self) -> str:
        """The result of all checks in one or two sentences."""
        not_working_text = (
            f" Not working: {', '.join(self.wrong)}. The table shows the remedies." if self.wrong else ""
        )
        if FIRST_CELL_SUBJECT in self.wrong and (self.real_gpu or self.virtual_gpu):
            return f"Not ready: the parts work, but a notebook's first cell does not.{not_working_text}"
        if self.real_gpu:
            virtual_text = " and on the virtual one" if self.virtual_gpu else ", but not on the virtual one"
            return f"Ready: kernels run here on the real GPU{virtual_text}.{not_working_text}"
        if self.virtual_gpu:
            return f"Ready: kernels run here on the virtual GPU.{not_working_text}"
        return f"Not ready: neither a real nor the virtual GPU works here.{not_working_text}"

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The findings that the report displays. If the machine has no GPU, all findings about a GPU are
        combined into one finding.
        """
        gpu_findings = [finding for finding in self.findings if finding.subject in GPU_SUBJECTS]
        has_no_driver = (DRIVER_SUBJECT, NO_DRIVER) in [
            (finding.subject, finding.found) for finding in gpu_findings
        ]
        if not has_no_driver or any(finding.status != "missing" for finding in gpu_findings):
            return self.findings
        summary = Finding(
            REAL_GPU_SUBJECT,
            "missing",
            f"no NVIDIA GPU: {NO_DRIVER}",
            _USE_VIRTUAL_GPU if self.virtual_gpu else "",
        )
        other_findings = [finding for finding in self.findings if finding not in gpu_findings]
        return (*other_findings[:1], summary, *other_findings[1:])

    def table(self) -> Table:
        """Return the shown findings as a table."""
        return Table("", _FINDING_COLUMNS, tuple(map(astuple, self.shown)))

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis as a dictionary, which ``gpulab doctor --json`` prints."""
        return {
            "findings": [
                dict(zip(_FINDING_COLUMNS, astuple(finding), strict=True)) for finding in self.findings
            ],
            "virtual_gpu": self.virtual_gpu,
            "real_gpu": self.real_gpu,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
        }

    def __repr__(self) -> str:
        wrong_lines = [
            line
            for finding in self.findings
            if finding.status == "wrong"
            for line in _format_finding(finding, 0)
        ]
        return "\n".join([self.verdict, *wrong_lines])

    def __str__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """Return the verdict and the shown findings as text."""
        width = max(len(finding.subject) for finding in self.shown)
        return "\n".join(
            [self.verdict, "", *(line for finding in self.shown for line in _format_finding(finding, width))]
        )

    def _repr_html_(self) -> str:
        open_attribute = " open" if self.exit_code else ""
        return (
            f"<details{open_attribute}><summary><b>{html.escape(self.verdict)}</b></summary>"
            f"{self.table().html()}</details>"
        )


def _format_finding(finding: Finding, width: int) -> Iterator[str]:
    yield f"{finding.status:<7}  {finding.subject:<{width}}  {finding.found}"
    if finding.remedy:
        yield f"{'':<7}  {'':<{width}}  -> {finding.remedy}"


def doctor() -> Diagnosis:
    """Check each component that the course uses, such as the driver, CuPy, NVRTC and Jupyter.

    Returns
    -------
    Diagnosis
        The verdict in one line, with the problems. When it is opened or printed, it is a table in which each
        line is ``ok``, ``missing`` or ``wrong`` and names a remedy. A missing GPU is not a problem and needs
        only one line.

    Examples
    --------
    >>> gl.doctor().exit_code
    0
    """
    return Diagnosis(run_checks())
