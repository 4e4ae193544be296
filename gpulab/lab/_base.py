"""Base classes of recordings that cover a ``with`` block: start, stop, display and saving to files."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from gpulab import session
from gpulab.sampler import check_rate
from gpulab.views._saving import Savable, Writers, make_text_writer, to_json
from virtualgpu.errors import GpulabError

if TYPE_CHECKING:
    from gpulab.session.choose import DeviceChoice
    from gpulab.views._base import View
    from gpulab.views.tables import RecordTable

MimeBundle = tuple[dict[str, Any], dict[str, Any]]
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class PicturedResult(Savable):
    """A base class for objects that notebooks display as a widget or as tables. A subclass defines
    `_make_picture`, which is called once to create the picture.
    """

    _cached_picture: Any = None

    def _make_picture(self) -> View | RecordTable[Any]:
        raise NotImplementedError

    def _picture(self) -> View | RecordTable[Any]:
        picture: View | RecordTable[Any] = (
            self._make_picture() if self._cached_picture is None else self._cached_picture
        )
        self._cached_picture = picture
        return picture

    def _make_writers(self) -> Writers:
        return self._picture()._make_writers()

    def describe(self) -> str:
        """Return a text description of the picture."""
        return self._picture().describe()

    def to_pandas(self, title: str = "") -> Any:
        """Return one table of the picture as a `pandas.DataFrame` of raw values.

        Parameters
        ----------
        title
            The beginning of the table's title. An empty string selects the first table.
        """
        return self._picture().to_pandas(title)

    def _repr_mimebundle_(self, **kwargs: Any) -> MimeBundle | None:
        return self._picture()._repr_mimebundle_(**kwargs)


class Recorder(Protocol[R_co]):
    """The interface of an object that records data between `start` and `stop`. Each of these methods is
    called once. The method `stop` is also called after an error.
    """

    def start(self) -> None:
        """Start the recording. If this method raises an error, no recording has started."""
        ...

    def stop(self) -> R_co:
        """End the recording, and return the recorded data."""
        ...


class RecordedResult(PicturedResult, Generic[R]):
    """A recording of a ``with`` block, which can be displayed, queried and saved afterwards.

    A subclass passes its name for messages and the code that starts a recording, as in ``class
    Seen(RecordedResult[Record], recording_name="list", start_code="with gl.seen() as s:")``. It also defines
    `_make_recorder`, `_make_picture` and `_make_sentence`. With ``is_live=True``, the record is available
    during the recording. With ``starts_on_display=True``, the recording starts when the object is
    displayed, and stops when its view is closed.
    """

    _recording_name: ClassVar[str]
    _start_code: ClassVar[str]
    _is_live: ClassVar[bool]
    _starts_on_display: ClassVar[bool]

    def __init_subclass__(
        cls,
        recording_name: str,
        start_code: str,
        is_live: bool = False,
        starts_on_display: bool = False,
        **kwargs: Any,
    ) -> None:
        cls._recording_name = recording_name
        cls._start_code = start_code
        cls._is_live = is_live
        cls._starts_on_display = starts_on_display
        super().__init_subclass__(**kwargs)

    def __init__(self, record: R | None = None) -> None:
        self._record = record
        self._recorder: Any = None  # a Recorder[R], one that is live after its end, too
        self._device: DeviceChoice | None = None
        self._is_new = record is None
        self._is_recording = False

    def _make_recorder(self) -> Recorder[R]:
        """Return a new recorder for the device in use."""
        raise NotImplementedError

    def _make_sentence(self) -> str:
        """Return a summary of the record in one sentence."""
        raise NotImplementedError

    @property
    def record(self) -> R:
        """The recorded data of the ``with`` block.

        Raises
        ------
        GpulabError
            If the block has not ended. A live recording needs only to have begun.
        """
        if self._is_live and self._recorder is not None:
            record: R = self._recorder.record()
            return record
        if self._record is None:
            raise GpulabError(f"{self!r} The result is available when the block has ended.")
        return self._record

    def start(self) -> None:
        """Start the recording, as the beginning of a ``with`` block does."""
        if self._is_recording:
            raise GpulabError(f"This {self._recording_name} is already being recorded.")
        if not self._is_new:
            raise GpulabError(
                f"This {self._recording_name} already has a recording. Create a new one: {self._start_code}"
            )
        recorder = self._make_recorder()
        self._device = session.which_device()
        recorder.start()
        self._recorder = recorder
        self._is_new = False
        self._is_recording = True
        self._record = self._cached_picture = None

    def stop(self) -> None:
        """End the recording, as the end of a ``with`` block does."""
        if not self._is_recording:
            return
        self._is_recording = False
        record: Any = self._recorder.stop()
        if (
            session.which_device() is not self._device
            and self._device is not None
            and hasattr(record, "note")
        ):
            move_note = (
                "Another device was selected within the block. This result is from the "
                f"{self._device.device}."
            )
            record = replace(record, note=" ".join(filter(None, (record.note, move_note))))
        self._record = record
        if not self._is_live:
            self._recorder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __del__(self) -> None:
        # Started and forgotten: the device must not go on recording.
        if getattr(self, "_is_recording", False) and not sys.is_finalizing():
            self.stop()
            warnings.warn(
                f"A {self._recording_name} was started but never stopped: {self._start_code}",
                ResourceWarning,
                stacklevel=2,
            )

    @property
    def _has_record(self) -> bool:
        return self._record is not None or (self._is_live and self._recorder is not None)

    def _picture(self) -> Any:
        picture: Any = super()._picture()
        if self._starts_on_display:
            picture.on_close = self.stop
        return picture

    def _make_writers(self) -> Writers:
        return {".json": make_text_writer(lambda: to_json(self.record)), **super()._make_writers()}

    def __repr__(self) -> str:
        if self._has_record:
            return self._make_sentence()
        if self._is_recording:
            return f"{self._recording_name.capitalize()} that is being recorded."
        display_hint = " or display it" if self._starts_on_display else ""
        name = self._recording_name.capitalize()
        return f"{name} that has not started. Start it with `{self._start_code}`{display_hint}."

    def _repr_mimebundle_(self, **kwargs: Any) -> MimeBundle | None:
        if self._starts_on_display and self._is_new:
            self.start()
        bundle = super()._repr_mimebundle_(**kwargs) if self._has_record else None
        if bundle is None or "text/html" in bundle[0]:
            return bundle  # tables are their own text
        return {**bundle[0], "text/plain": repr(self)}, bundle[1]


class SampledResult(RecordedResult[R], recording_name="recording", start_code=""):
    """A live recording that takes readings at a fixed rate and can be paused. The chart shows whether the
    recording is paused.

    A subclass passes the code that creates a new recording (``restart_code="gl.memory()"``), and
    defines `_show_state` in addition to the methods that `RecordedResult` needs.
    """

    _restart_code: str

    def __init_subclass__(cls, restart_code: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(is_live=True, starts_on_display=True, **kwargs)
        cls._restart_code = restart_code

    def __init__(self, rate_hz: float, record: R | None = None) -> None:
        super().__init__(record)
        self._rate_hz = check_rate(rate_hz)

    def _show_state(self) -> None:
        """Show the state of the recording in its chart, if there is one."""
        raise NotImplementedError

    def pause(self) -> None:
        """Pause the readings until `resume` is called."""
        self._switch_state("pause")

    def resume(self) -> None:
        """Continue the readings after a call of `pause`.

        Raises
        ------
        GpulabError
            If the recording has not started, or has ended.
        """
        self._switch_state("resume")

    def stop(self) -> None:
        """End the recording. The chart stays visible with the readings so far."""
        if self._is_recording:
            super().stop()
            self._show_state()

    def _switch_state(self, action: str) -> None:
        getattr(self._require_recorder().sampler, action)()
        self._show_state()

    def _require_recorder(self) -> Any:
        """Return the recorder; raise an error if the recording has not started or has ended."""
        if not self._is_recording:
            recording_noun = self._recording_name.split()[-1]
            raise GpulabError(
                f"This {recording_noun} has not started, or has already ended. "
                f"{self._restart_code} creates another one."
            )
        return self._recorder
