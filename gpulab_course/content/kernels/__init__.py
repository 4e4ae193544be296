"""Fast teaching kernels: for each subject a series of versions, each of which improves one counter.

>>> from gpulab import cp, gl
>>> from gpulab_course.content import kernels
>>> kernels.ladder("transpose")                        # the versions, and the counter that each improves
>>> x, out = cp.ones((64, 32), "f"), cp.empty((32, 64), "f")
>>> work = kernels.launch("transpose_padded", x, out)
>>> work()                                             # runs it
>>> gl.count(**work.step)                              # counts it

The sources are in this folder. Tuning parameters are macros at the top of a source, with values that suit an
H200; ``gpulab bench --gpu`` compares the best versions with CUDA's libraries.
"""

from gpulab_course.content.kernels.catalogue import (
    COUNTERS,
    KERNEL_SERIES,
    KernelSeries,
    KernelVersion,
    count,
    ladder,
    launch,
)
from gpulab_course.content.kernels.examples import Example, example
from gpulab_course.content.kernels.launches import ShapeError
from gpulab_course.content.kernels.work import Step, Work, source

__all__ = [
    "COUNTERS",
    "KERNEL_SERIES",
    "Example",
    "KernelSeries",
    "KernelVersion",
    "ShapeError",
    "Step",
    "Work",
    "count",
    "example",
    "ladder",
    "launch",
    "source",
]
