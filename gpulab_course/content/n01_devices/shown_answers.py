"""Wrong answers that are common in notebook 01, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("01-peak", "GFLOP", "", "10^12"),
    ShownAnswer("01-peak", "MB/s", "", "10^9"),
    ShownAnswer("01-peak", "text", "", "return numbers"),
    ShownAnswer("01-peak", "64 lanes", "", "TFLOP/s"),
    ShownAnswer("01-peak", "nothing", "", "returns nothing"),
    ShownAnswer("01-capability", "as given", "", "the last digit"),
    ShownAnswer("01-capability", "newer than", "", "includes the version itself"),
    ShownAnswer("01-capability", "minor alone", "", "only if the major versions are equal"),
    ShownAnswer("01-capability", "the pair itself", "", "return True or False"),
    ShownAnswer("01-capability", "equal", "", ""),
    ShownAnswer("01-limits", "typed in", "", "does not read info.max_threads_per_block"),
    ShownAnswer("01-limits", "shared first", "", "comes before shared memory"),
    ShownAnswer("01-limits", "grid first", "", "the block comes before the grid"),
    ShownAnswer("01-limits", "no grid", "", "grid"),
    ShownAnswer("01-limits", "opt-in limit", "", "default limit"),
    ShownAnswer("01-select", "by hand", "", "runs out of memory and leaves device"),
    ShownAnswer("01-select", "five", "", "it should be (1,)"),
    ShownAnswer("01-select", "bytes", "", "it should be 128"),
    ShownAnswer("01-select", "16 bits", "", "it should be 65,536"),
    ShownAnswer("01-select", "floats", "", "must be integers"),
    ShownAnswer("01-choose", "bandwidth alone", "", "FP32 arithmetic decides"),
    ShownAnswer("01-choose", "arithmetic alone", "", "bandwidth decides"),
    ShownAnswer("01-choose", "in whole GB", "", "memory is too small"),
    ShownAnswer("01-choose", "the GPU itself", "", "return the `.name`"),
    ShownAnswer("01-choose", "prints", "", "it should be"),
)
