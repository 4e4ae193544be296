"""``pauses()``: the function that a learner calls, with its report."""

from __future__ import annotations

from gpulab.lab._base import Recorded
from gpulab.views._saving import Writers, make_text_writer
from tests.session.sample.pauses import PauseRecorder, Pauses, PauseView


def pauses() -> PauseReport:
    """Show how long Python's garbage collector stops the program.

    Returns
    -------
    PauseReport
        Live if it is displayed, or of a ``with`` block. ``.record`` has the data.

    Examples
    --------
    >>> with pauses() as p:
    ...     gc.collect()
    >>> p
    """
    return PauseReport()


class PauseReport(
    Recorded[Pauses], what="list of pauses", write="with pauses() as p:", live=True, display=True
):
    """Pauses of a block, or since the display."""

    def _recorder_of_now(self) -> PauseRecorder:
        return PauseRecorder()

    def _make_picture(self) -> PauseView:
        view = PauseView(lambda: self.record)
        self._recorder.after = view.redraw
        return view

    def _sentence(self) -> str:
        return PauseView.sentence(self)

    def _make_writers(self) -> Writers:
        rows = make_text_writer(lambda: "".join(f"{ns}\n" for ns in self.record.took_ns))
        return {".csv": rows, **super()._make_writers()}
