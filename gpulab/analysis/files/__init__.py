"""Read and write Chrome trace event files (which Perfetto opens) as timelines, also of other tools.

`compute_sanitizer` and `ncu` read the output of NVIDIA's command-line tools.

The format is the "Trace Event Format" (Google, 2016): a JSON object with ``traceEvents``, or the array alone.
"""
