"""Teaching kernels that are truly fast, each subject as a ladder whose rungs mend one counter each.

>>> from gpulab import cp, gl
>>> from gpulab_course.content import kernels
>>> kernels.ladder("transpose")                        # the rungs, and the counter that each mends
>>> x, out = cp.ones((64, 32), "f"), cp.empty((32, 64), "f")
>>> work = kernels.launch("transpose_padded", x, out)
>>> work()                                             # runs it
>>> gl.count(**work.step)                              # counts it

Sources stand beside this file. What can be tuned is a macro at the top of its source, with a value that suits
an H200; ``gpulab bench --gpu`` compares the best rungs with CUDA's own libraries.
"""

from gpulab_course.content.kernels.catalogue import COUNTERS, LADDERS, Ladder, Rung, count, ladder, launch
from gpulab_course.content.kernels.examples import Example, example
from gpulab_course.content.kernels.launches import ShapeError
from gpulab_course.content.kernels.work import Step, Work, source

__all__ = [
    "COUNTERS",
    "LADDERS",
    "Example",
    "Ladder",
    "Rung",
    "ShapeError",
    "Step",
    "Work",
    "count",
    "example",
    "ladder",
    "launch",
    "source",
]
