"""SIMT engine that executes PTX on the CPU, warp by warp, with counters, traces and checks."""

from virtualgpu.engine.observe.observer import Observer
from virtualgpu.engine.observe.trace_buffers import TraceRequest
from virtualgpu.engine.run.launch import PackedLaunch, RunOptions
from virtualgpu.engine.run.program import LaunchResult, Program

__all__ = ["LaunchResult", "Observer", "PackedLaunch", "Program", "RunOptions", "TraceRequest"]
