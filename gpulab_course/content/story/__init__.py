"""The running example of the course: a small attention layer, and three programs that compute pictures.

The notebooks improve, time, profile, capture and fuse `attention`: layer norm, matmul, softmax, matmul and
GELU, each a simple kernel. `pictures` is for readers without machine learning. Both have NumPy versions.
`rungs` lists the changes of each notebook, and `table` shows their effect:

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
from gpulab_course.content.story.sources import read_source

__all__ = [
    "blur",
    "generations",
    "life",
    "mandelbrot",
    "read_source",
    "reference",
    "run",
    "steps",
    "table",
]
