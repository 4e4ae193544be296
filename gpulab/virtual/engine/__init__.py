"""The SIMT engine: PTX executed on the CPU, warp by warp, with counters, traces and checks."""

from gpulab.virtual.engine.observer import Observer
from gpulab.virtual.engine.program import LaunchResult, Program
from gpulab.virtual.engine.trace_buffers import TraceRequest

__all__ = ["LaunchResult", "Observer", "Program", "TraceRequest"]
