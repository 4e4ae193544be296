"""Wrong and right answers to the exercises of notebook 13 about libraries."""

from __future__ import annotations

import numpy as np

from tests.answers import Right, Wrong
from tests.answers.n13_libraries import libraries_answers as answers
from tests.answers.n13_libraries.libraries_answers import close, key_by, median, product, tuner

_COLUMNS = (
    Wrong("13-columns", "as if it were row-major", product("mnk", swapped=False), "", "left b @ a in c"),
    Wrong(
        "13-columns",
        "both matrices passed as transposes",
        product("mnk", swapped=False, flags="TT"),
        "",
        "the transpose of a @ b",
    ),
    Wrong("13-columns", "square only: m and n", product("mnk"), "", ""),
    Wrong("13-columns", "square only: k", product("nkm"), "", ""),
    Wrong("13-columns", "sizes for leading dimensions", product("nmk", leading="nkn"), "", ""),
    Wrong("13-columns", "leading dimensions not swapped", product("nmk", leading="abc"), "", ""),
    Wrong("13-columns", "c without its padding", product("nmk", leading="ban"), "", ""),
    Wrong("13-columns", "turned afterwards", answers.transposed_after, "", "neither a nor b nor c"),
    Wrong("13-columns", "transposes the matrices first", answers.copied_first, "", "neither a nor b nor c"),
    Wrong("13-columns", "without the library", answers.by_numpy, "", "never called gemm"),
    Wrong("13-columns", "calls gemm, but does not use its result", answers.for_show, "", "did not compute"),
    Wrong("13-columns", "one call per row", answers.row_by_row, "", "one call computes"),
    Wrong("13-columns", "changes a", answers.spoils_a, "", "only read"),
    Wrong("13-columns", "zeros after the rows", answers.tidied, "", "space after"),
    Wrong("13-columns", "one is transposed", product("nmk", flags="NT"), "", ""),
    Right("13-columns", "swapped", product("nmk")),
    Right("13-columns", "by names", answers.by_names),
    Right("13-columns", "by views", answers.by_views),
    Right("13-columns", "with guards", answers.guarded),
)

_TUNER = (
    Wrong("13-tuner", "no warm-up", tuner(warmup=0, repeats=1), "", "call once before"),
    Wrong("13-tuner", "only one timed call", tuner(warmup=1, repeats=1), "", "median of several"),
    Wrong("13-tuner", "no repeat, well warmed up", tuner(warmup=3, repeats=1), "", "then take the median"),
    Wrong("13-tuner", "the longest time", tuner(of=max), "", "then take the median"),
    Wrong("13-tuner", "the mean of the times", tuner(of=answers.mean), "", "spoils a mean"),
    Wrong("13-tuner", "fastest, right or wrong", tuner(right=lambda found, wanted: True), "", "it is fast, but wrong"),
    Wrong("13-tuner", "NaN is right", tuner(right=answers.not_off), "", "NaN"),
    Wrong("13-tuner", "one element", tuner(right=answers.first_alone), "", ""),
    Wrong("13-tuner", "as many as there are", tuner(right=lambda f, w: all(close([a], [b]) for a, b in zip(f, w, strict=False))), "", ""),
    Wrong("13-tuner", "exactly equal", tuner(right=answers.exactly), "", ""),
    Wrong("13-tuner", "checked once", tuner(check_once=True), "", ""),
    Wrong("13-tuner", "key without dtype", tuner(key_by("shape", "device")), "", "dtype belongs"),
    Wrong("13-tuner", "key without shape", tuner(key_by("dtype", "device")), "", "shape belongs"),
    Wrong("13-tuner", "key of dimensions", tuner(key_by("dtype", "ndim", "device")), "", "shape belongs"),
    Wrong("13-tuner", "key of elements", tuner(key_by("dtype", "size", "device")), "", "shape belongs"),
    Wrong("13-tuner", "key without device", tuner(key_by("dtype", "shape")), "", "in the key"),
    Wrong("13-tuner", "key of the object", tuner(id), "", ""),
    Wrong("13-tuner", "does not keep its choices", tuner(keep=False), "", "Keep this choice"),
    Wrong("13-tuner", "right to 2 %", tuner(right=lambda f, w: len(f) == len(w) and bool(np.allclose(f, w, rtol=0.02))), "", "Before it is timed"),
    Wrong("13-tuner", "sums are compared", tuner(right=lambda f, w: close([sum(f)], [sum(w)])), "", "Before it is timed"),
    Wrong("13-tuner", "choices of all tuners in one place", tuner(kept={}), "", "its own choices"),
    Wrong("13-tuner", "key of tiles", tuner(lambda x: (x.dtype, x.device.id, tuple(-(-n // 64) for n in x.shape))), "", "shape belongs"),
    Wrong("13-tuner", "without looking", answers.last_name, "", ""),
    Wrong("13-tuner", "the function itself", answers.gives_the_function, "", "the name of a candidate"),
    Wrong("13-tuner", "without bounds", answers.thousands, "", "a few calls"),
    Wrong("13-tuner", "the first that is right", answers.one_alone, "", ""),
    Wrong("13-tuner", "looks into the stopwatch", answers.reads_the_table, "", "behaviour"),
    Right("13-tuner", "all of it", tuner()),
    Right("13-tuner", "names of types", tuner(lambda x: (x.dtype.name, x.dtype.itemsize, x.shape, x.device))),
    Right("13-tuner", "the shortest", tuner(of=min, repeats=5)),
    Right("13-tuner", "median of eleven, no warm-up", tuner(warmup=0, repeats=11, of=median)),
    Right("13-tuner", "a class", answers.Tuner),
    Right("13-tuner", "NumPy's comparison", tuner(key_by("device", "shape", "dtype"), answers.by_numpy_close)),
)

_ALL: tuple[Wrong | Right, ...] = (*_COLUMNS, *_TUNER)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]
