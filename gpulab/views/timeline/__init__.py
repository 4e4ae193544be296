"""What devices and host did over time: streams, host calls, waits and NVTX ranges on one axis."""
