"""``cp.cuda.stream``: streams and events, under CuPy's name for the module."""

from __future__ import annotations

from virtualgpu.cp._missing_names import module_getattr
from virtualgpu.cp.cuda.streams import Event, ExternalStream, Stream, get_current_stream, get_elapsed_time

__all__ = ["Event", "ExternalStream", "Stream", "get_current_stream", "get_elapsed_time"]
__getattr__ = module_getattr("cp.cuda.stream", globals())
