"""What a timeline says: overlap, gaps and their causes, order between streams, and files of other tools.

Pure functions of `virtualgpu.records`, of either side: measured timelines and modelled ones alike.
"""
