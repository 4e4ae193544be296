"""Timelines of devices and host: streams, host calls, waits and NVTX ranges on one time axis."""
