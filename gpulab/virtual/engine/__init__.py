"""The SIMT engine: PTX executed on the CPU, warp by warp, with counters, traces and checks."""

from gpulab.virtual.engine.program import LaunchResult, Program, TraceRequest
from gpulab.virtual.engine.run import Observer

__all__ = ["LaunchResult", "Observer", "Program", "TraceRequest"]
