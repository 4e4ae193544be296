"""Analysis of timelines: overlap, gaps and their causes, order of streams, and files of other tools.

All are pure functions of `virtualgpu.records`, for measured and for modelled timelines.
"""
