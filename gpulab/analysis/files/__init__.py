"""Timelines as files of Chrome trace events, which Perfetto opens, and such files of other tools.

Beside them what NVIDIA's command-line tools write: `compute_sanitizer` and `ncu`.

The format is the "Trace Event Format" (Google, 2016): a JSON object with ``traceEvents``, or the array alone.
"""
