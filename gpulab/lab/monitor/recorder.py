"""Background readings of a device's load, or a recorded session if the device has no sensors."""

from __future__ import annotations

import functools
import json
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources

from gpulab import session
from gpulab.sampler import Sampler
from virtualgpu.errors import NotSupportedError
from virtualgpu.protocol import LoadReader
from virtualgpu.records import io
from virtualgpu.records.device.load import FORMAT, LOAD_COLUMNS, LoadSamples

SHIPPED_SESSION_NAME = "h200_monitor"
UPDATES_PER_S = 2
_MAX_SILENCE_S = 2.0


class LoadRecorder:
    """A recorder of a device's load from `start` to `stop`. Each call of `mark` begins a new phase.

    Parameters
    ----------
    reader
        Reads the values of one row.
    rate_hz
        The number of readings per second.
    """

    def __init__(self, reader: LoadReader, rate_hz: float) -> None:
        backend = session.backend()
        self._provenance = backend.provenance
        self._reader = reader
        self._sms = backend.device_info().sm_count
        self._facts = reader.facts()
        self._phases: list[tuple[str, float]] = []
        self._on_update: Callable[[], object] | None = None
        self._period_s = 1 / rate_hz
        display_interval = max(1, round(rate_hz / UPDATES_PER_S))
        recorder_reference = weakref.ref(self)  # the thread of readings must not keep it alive

        def on_reading(reading_number: int, _row: Sequence[float | None]) -> None:
            if (
                reading_number % display_interval == 0
                and (recorder := recorder_reference()) is not None
                and recorder._on_update is not None
            ):
                recorder._on_update()

        self.sampler = Sampler(reader, len(LOAD_COLUMNS), rate_hz, on_reading=on_reading)

    @property
    def state(self) -> str:
        """The state of the recorder, which is ``"live"``, ``"paused"`` or ``"stopped"``."""
        return self.sampler.state

    def start(self) -> None:
        """Start to take readings of the load."""
        self.sampler.start()

    def stop(self) -> LoadSamples:
        """End the recording with a last reading. The last reading is skipped if an earlier reading has not
        returned.
        """
        if self.sampler.stop():
            self.sampler.take_reading()
        return self.record()

    def mark(self, name: str) -> None:
        """Begin a new phase of the recording with the name `name`."""
        self._phases.append((name, float(self.sampler.now_ns)))

    def call_on_reading(self, show_readings: Callable[[], object]) -> None:
        """Set the function `show_readings`, which the recording thread calls about `UPDATES_PER_S` times per
        second.
        """
        self._on_update = show_readings

    def record(self) -> LoadSamples:
        """Return the recorded readings so far."""
        time_ns, *reading_columns = self.sampler.rows().T.copy()
        return LoadSamples(
            provenance=self._provenance,
            time_ns=time_ns,
            columns=dict(zip(LOAD_COLUMNS, reading_columns, strict=True)),
            missing=dict(self._reader.missing),
            processes=self._reader.processes,
            sms=self._sms,
            phases=tuple(self._phases),
            date=time.strftime("%Y-%m-%d"),
            note=self._describe_failure(float(time_ns[-1]) if len(time_ns) else 0.0),
            **self._facts,
        )

    def _describe_failure(self, last_ns: float) -> str:
        """Return a sentence about a failed or late reading, or an empty string."""
        if self.sampler.failure:
            return f"The last reading failed: {self.sampler.failure}"
        silence_s = (self.sampler.now_ns - last_ns) / 1e9
        if self.state == "live" and silence_s > _MAX_SILENCE_S + self._period_s:
            return f"NVML has not returned a value for {silence_s:.0f} s. NVML or the driver hangs."
        return ""


class SensorlessRecorder:
    """A recorder for a device without sensors. The recorder returns a session that was recorded earlier.

    Parameters
    ----------
    reason
        The reason why the sensors cannot be read.
    """

    state = "recorded"

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self) -> None:
        """Do nothing, because there are no sensors to read."""

    def stop(self) -> LoadSamples:
        """Return the session that was recorded earlier."""
        return self.record()

    def mark(self, name: str) -> None:
        """Do nothing, because the phases of a recorded session already have names."""

    def call_on_reading(self, show_readings: Callable[[], object]) -> None:
        """Do nothing, because there are no new readings to show."""

    def record(self) -> LoadSamples:
        """Return the session that was recorded earlier."""
        shipped_session = load_recorded_session()
        return replace(
            shipped_session,
            note=f"{self._reason} The chart shows a recording of a real GPU, not this program.",
        )


def make_recorder(rate_hz: float) -> LoadRecorder | SensorlessRecorder:
    """Return a recorder for the load of the device in use."""
    try:
        return LoadRecorder(session.backend().load_reader(), rate_hz)
    except NotSupportedError as error:
        return SensorlessRecorder(str(error))


@functools.lru_cache(maxsize=1)
def load_recorded_session() -> LoadSamples:
    """Return the shipped recording of the load of an H200. The phases of the recording include busy-waiting
    blocks, an addition and a matrix multiplication.
    """
    file = resources.files("gpulab") / "data" / "recordings" / f"{SHIPPED_SESSION_NAME}.json"
    session_data = json.loads(file.read_text(encoding="utf-8"))
    io.check_version(session_data, FORMAT, SHIPPED_SESSION_NAME)
    return LoadSamples.of_data(session_data)
