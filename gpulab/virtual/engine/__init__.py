"""The SIMT engine: PTX executed on the CPU, warp by warp, with counters, traces and checks."""

from gpulab.virtual.engine.program import LaunchResult, Program, TraceRequest

__all__ = ["LaunchResult", "Program", "TraceRequest"]
