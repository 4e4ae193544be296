"""Wrong answers that are common in notebook 00, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer(
        "00-saxpy", "multiplies by the old y instead of adding it", "results", "Add the old y instead"
    ),
    ShownAnswer("00-saxpy", "infinite loop", "results", "it does not end"),
    ShownAnswer("00-saxpy", "the TODO is unchanged", "", "the kernel still has its TODO"),
    ShownAnswer("00-saxpy", "parameter `a` is a double", "results", "parameter 1, `a`, must be `float a`"),
    ShownAnswer("00-saxpy", 'no extern "C"', "", 'Put extern "C" before __global__'),
    ShownAnswer("00-blocks", "always one block", "", "info.max_threads_per_block"),
    ShownAnswer("00-blocks", "never more than 512 blocks", "", "blocks on this device"),
    ShownAnswer("00-blocks", "returns one number", "", "Return a tuple"),
    ShownAnswer("00-blocks", "returns nothing", "", "replace the TODO and end with a return"),
    ShownAnswer("00-blocks", "a tuple instead of a function", "", "should be a function, not tuple"),
    ShownAnswer("00-repair", "the index is not repaired", "results", "before the first thread of block b?"),
    ShownAnswer(
        "00-repair", "the ends are not repaired", "results", "Which neighbours does the first element have"
    ),
    ShownAnswer("00-repair", "the ends are set to 0", "results", "Which neighbours"),
    ShownAnswer("00-repair", "the guard was removed", "results", "outside"),
    ShownAnswer("00-repair", "multiplies by 0.33", "results", "it should be"),
    ShownAnswer("00-picture", "no guard", "results", "Guard both edges"),
    ShownAnswer("00-picture", "bytes exceed 255", "results", "Take the minimum"),
    ShownAnswer("00-picture", "the edge of the circle is dark", "results", "exactly r must be bright"),
    ShownAnswer("00-picture", "a square instead of a circle", "results", "it should be"),
    ShownAnswer("00-picture", "one thread does all of the work", "parallelism", "few threads"),
)
