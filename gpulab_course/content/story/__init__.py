"""The programs that grow through the course: a tiny attention block, and three pictures.

`attention` is what the notebooks mend, time, profile, capture and fuse: layer norm, matmul, softmax,
matmul, GELU, each a kernel written plainly. `pictures` is for those who do no machine learning. Both come
with the same in NumPy, and with the launches one by one. `rungs` says what each notebook changes, and `table`
what came of it:

>>> from gpulab import cp
>>> from gpulab_course.content import story
>>> for name, array in story.run(cp, n=64, d=32).items():
...     print(name, array.shape)
x (64, 32)
normed (64, 32)
scores (64, 64)
weights (64, 64)
mixed (64, 32)
out (64, 32)
"""

from gpulab_course.content.story.attention import reference, run, steps
from gpulab_course.content.story.growth import table
from gpulab_course.content.story.pictures import blur, generations, life, mandelbrot
from gpulab_course.content.story.sources import source

__all__ = [
    "blur",
    "generations",
    "life",
    "mandelbrot",
    "reference",
    "run",
    "source",
    "steps",
    "table",
]
