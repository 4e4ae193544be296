"""Analysis of timelines: overlap, gaps and their causes, order of streams, and files of other tools.

Pure functions of `virtualgpu.records`, of either side: measured timelines and modelled ones alike.
"""
