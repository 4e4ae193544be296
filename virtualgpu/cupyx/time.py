"""``cupyx.time``, the timing module of older programs; newer ones use `virtualgpu.cupyx.profiler`."""

from virtualgpu.cupyx.profiler import benchmark as repeat

__all__ = ["repeat"]
