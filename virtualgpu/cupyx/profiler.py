"""``cupyx.profiler``: time functions between events, and mark named ranges. All times are modelled."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu import cp
from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.model import machine as _machine

__all__ = ["benchmark", "profile", "time_range"]

_SECONDS_PER_NS = 1e-9


class BenchmarkResult:
    """The times of all calls in a benchmark. The function ``str()`` returns a line with the mean, standard
    deviation, minimum and maximum.

    Attributes
    ----------
    name : str
        Name of the function.
    cpu_times : array of float64, shape (repeats,)
        Seconds on the host's modelled clock from call to return.
    gpu_times : array of float64, shape (devices, repeats)
        Seconds between events before and after each call, as modelled.
    """

    def __init__(self, name: str, times_s: npt.NDArray[np.float64], devices: tuple[int, ...]) -> None:
        self.name = name
        self.cpu_times = times_s[0]
        self.gpu_times = times_s[1:]
        self._devices = devices

    def to_str(self, show_gpu: bool = False) -> str:
        """Return a line of text with the times on the host. With `show_gpu`, the line also contains the times
        on each device.
        """
        times_by_name = [("CPU", self.cpu_times)]
        if show_gpu:
            times_by_name += [
                (f"GPU-{device_id}", times_s)
                for device_id, times_s in zip(self._devices, self.gpu_times, strict=True)
            ]
        return (
            f"{self.name:<20s}:{' '.join(_format_times(*name_and_times) for name_and_times in times_by_name)}"
        )

    def __str__(self) -> str:
        return self.to_str(show_gpu=True)

    __repr__ = __str__


def _format_times(name: str, times_s: npt.NDArray[np.float64]) -> str:
    times_us = times_s * 1e6
    summary_line = f"    {name}: {times_us.mean():9.03f} us"
    if times_us.size > 1:
        summary_line += (
            f"   +/- {times_us.std():6.03f} (min: {times_us.min():9.03f} / max: {times_us.max():9.03f}) us"
        )
    return summary_line


def benchmark(
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    n_repeat: int = 10000,
    *,
    name: str | None = None,
    n_warmup: int = 10,
    max_duration: float = math.inf,
    devices: tuple[int, ...] | None = None,
) -> BenchmarkResult:
    """Measure the time of a function on the modelled clocks of the host and the device.

    Parameters
    ----------
    func, args, kwargs
        Function and its arguments.
    n_repeat, n_warmup
        Number of timed calls, and of calls before them.
    name
        Name in place of the function's.
    max_duration
        Modelled seconds after which no further call is made.
    devices
        Numbers of the devices to time; the current one by default.

    Raises
    ------
    ValueError
        For arguments of another type, as in CuPy.
    """
    if not callable(func):
        raise ValueError("`func` should be a callable object.")
    devices = (cp.cuda.get_device_id(),) if devices is None else devices
    name = func.__name__ if name is None else name
    kwargs = {} if kwargs is None else kwargs
    for argument, expected_type, message in (
        (args, tuple, "`args` should be of tuple type."),
        (kwargs, dict, "`kwargs` should be of dict type."),
        (n_repeat, int, "`n_repeat` should be an integer."),
        (name, str, "`name` should be a string."),
        (n_warmup, int, "`n_warmup` should be an integer."),
        (devices, tuple, "`devices` should be of tuple type"),
    ):
        if not isinstance(argument, expected_type):
            raise ValueError(message)
    for _ in range(n_warmup):
        func(*args, **kwargs)
    for device in devices:
        cp.cuda.Device(device).synchronize()
    clock = _machine.current().clock
    time_rows_s = []
    start_ns = clock.now_ns
    for _ in range(n_repeat):
        start_events = _record_events(devices)
        call_ns = clock.now_ns
        func(*args, **kwargs)
        cpu_s = (clock.now_ns - call_ns) * _SECONDS_PER_NS
        end_events = _record_events(devices)
        for end_event in end_events:
            end_event.synchronize()
        event_pairs = zip(start_events, end_events, strict=True)
        time_rows_s.append(
            [
                cpu_s,
                *(
                    cp.cuda.get_elapsed_time(start_event, end_event) * 1e-3
                    for start_event, end_event in event_pairs
                ),
            ]
        )
        if (clock.now_ns - start_ns) * _SECONDS_PER_NS > max_duration:
            break
    return BenchmarkResult(name, np.array(time_rows_s, np.float64).T, devices)


def _record_events(devices: tuple[int, ...]) -> list[cp.cuda.Event]:
    events = []
    for device in devices:
        with cp.cuda.Device(device):
            events.append(cp.cuda.Event())
            events[-1].record()
    return events


class time_range:  # noqa: N801 - CuPy's name
    """A named time range for a function (as a decorator) or for a block of code (as a context manager).

    Parameters
    ----------
    message
        Name of the range; by default the name of the decorated function.
    color_id, argb_color
        Colour of the range; at most one of them.
    sync
        Wait for the device before both ends.
    """

    def __init__(
        self,
        message: str | None = None,
        color_id: int | None = None,
        argb_color: int | None = None,
        sync: bool = False,
    ) -> None:
        if color_id is not None and argb_color is not None:
            raise ValueError("Only either color_id or argb_color can be specified")
        self.message = message
        self.color_id = -1 if color_id is None else color_id
        self.argb_color = argb_color
        self.sync = sync

    def __enter__(self) -> time_range:
        if self.message is None:
            raise ValueError("when used as a context manager, the message argument cannot be None")
        if self.sync:
            cp.cuda.runtime.deviceSynchronize()
        if self.argb_color is not None:
            cp.cuda.nvtx.RangePushC(self.message, self.argb_color)
        else:
            cp.cuda.nvtx.RangePush(self.message, self.color_id)
        return self

    def __exit__(self, *_: object) -> None:
        if self.sync:
            cp.cuda.runtime.deviceSynchronize()
        cp.cuda.nvtx.RangePop()

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function so that each call is a range."""
        if self.message is None:
            self.message = func.__name__

        @functools.wraps(func)
        def call_in_range(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return call_in_range


def profile() -> Any:
    """Do nothing in a ``with`` block, because no external profiler can record a virtual GPU."""
    return cp.cuda.profile()


__getattr__ = make_module_getattr("cupyx.profiler", globals())
