"""Wrong answers that are common in notebook 00, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("00-saxpy", "product", "results", "Add the old y instead"),
    ShownAnswer("00-saxpy", "no end", "results", "it does not end"),
    ShownAnswer("00-saxpy", "stub", "", "the kernel still has its TODO"),
    ShownAnswer("00-saxpy", "double", "results", "parameter 1, `a`, must be `float a`"),
    ShownAnswer("00-saxpy", "mangled", "", 'Put extern "C" before __global__'),
    ShownAnswer("00-blocks", "one block", "", "info.max_threads_per_block"),
    ShownAnswer("00-blocks", "512 at most", "", "blocks on this device"),
    ShownAnswer("00-blocks", "one number", "", "return two numbers"),
    ShownAnswer("00-blocks", "nothing", "", "replace the TODO and end with a return"),
    ShownAnswer("00-blocks", "a shape", "", "should be a function, not tuple"),
    ShownAnswer("00-repair", "index left", "results", "before the first thread of block b?"),
    ShownAnswer("00-repair", "ends left", "results", "Which neighbours does the first element have"),
    ShownAnswer("00-repair", "ends 0", "results", "Which neighbours"),
    ShownAnswer("00-repair", "guard lost", "results", "outside"),
    ShownAnswer("00-repair", "0.33", "results", "it should be"),
    ShownAnswer("00-picture", "no guard", "results", "Guard both edges"),
    ShownAnswer("00-picture", "bytes wrap", "results", "Take the minimum"),
    ShownAnswer("00-picture", "rim dark", "results", "exactly r must be bright"),
    ShownAnswer("00-picture", "a square", "results", "it should be"),
    ShownAnswer("00-picture", "one thread", "parallelism", "few threads"),
)
