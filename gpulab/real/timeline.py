"""Record a timeline of a real GPU with CUPTI, or without CUPTI with pairs of events."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext

from gpulab.real import events
from gpulab.real.cupti import library
from gpulab.real.cupti.recorder import CuptiRecorder, refuse_capture
from gpulab.real.events import EventRecorder
from virtualgpu.errors import GpulabError
from virtualgpu.protocol import Launch, kernel_source
from virtualgpu.records import Provenance, Timeline

_log = logging.getLogger(__name__)
_NO_CUPTI_MESSAGE = "CUPTI is not installed (pip install nvidia-cuda-cupti)"


class RealRecorder:
    """The recorder of timelines on a real GPU, which implements `virtualgpu.protocol.TimelineRecorder`.

    Parameters
    ----------
    provenance
        The device in use.
    """

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._recorder: CuptiRecorder | EventRecorder | None = None
        self.blind_reason = ""

    def start(self) -> None:
        """Start the recording of a timeline.

        Raises
        ------
        GpulabError
            If a timeline is being recorded already, or a stream captures a graph.
        """
        refuse_capture()
        cupti = library.load_cupti()
        rival_tool = library.find_other_cupti_tool()
        if events.is_recording() or (cupti is not None and cupti.is_recording):
            raise GpulabError(
                "A timeline is already being recorded, and recordings cannot be nested. "
                "End that recording first: leave its `with` block, or call stop()."
            )
        fallback_reason = (
            _NO_CUPTI_MESSAGE if cupti is None else f"CUPTI is in use by {rival_tool}" if rival_tool else ""
        )
        if cupti is not None and not rival_tool:
            recorder = CuptiRecorder(cupti, self._provenance)
            try:
                recorder.start()
            except library.CuptiError as error:
                is_cupti_in_use = error.result == library.ERROR_SUBSCRIBER_EXISTS
                fallback_reason = (
                    "CUPTI is in use by another tool"
                    if is_cupti_in_use
                    else f"CUPTI cannot record here ({error})"
                )
            else:
                self._recorder = recorder
                self.blind_reason = ""
                return
        _log.info("A timeline is recorded with pairs of events: %s", fallback_reason)
        event_recorder = EventRecorder(self._provenance, fallback_reason)
        event_recorder.start()
        self._recorder = event_recorder
        self.blind_reason = fallback_reason

    def stop(self) -> Timeline:
        """Wait for the device, end the recording, and return the timeline."""
        if self._recorder is None:
            raise GpulabError("The recording of this timeline has not started. Call start() first.")
        recorder = self._recorder
        self._recorder = None
        return recorder.stop()

    def launching(self, launch: Launch) -> AbstractContextManager[None]:
        """Return a context manager for each launch that gpulab makes. Without CUPTI, the context manager
        measures the launch with a pair of events.
        """
        if isinstance(self._recorder, EventRecorder):
            return self._recorder.record_range(kernel_source(launch.kernel).name)
        return nullcontext()
