"""Files of Chrome trace events, which Perfetto opens, written by gpulab or other tools, as timelines.

`compute_sanitizer` and `ncu` read the output of NVIDIA's command-line tools.

The format is the "Trace Event Format" (Google, 2016): a JSON object with ``traceEvents``, or the array alone.
"""
