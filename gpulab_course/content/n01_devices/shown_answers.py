"""Wrong answers that are common in notebook 01, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("01-peak", "GFLOP/s instead of TFLOP/s", "", "10^12"),
    ShownAnswer("01-peak", "MB/s instead of GB/s", "", "10^9"),
    ShownAnswer("01-peak", "returns strings", "", "Return numbers"),
    ShownAnswer("01-peak", "always 128 lanes per SM", "", "TFLOP/s"),
    ShownAnswer("01-peak", "returns nothing", "", "returns nothing"),
    ShownAnswer("01-capability", "the given function, unchanged", "", "the last digit"),
    ShownAnswer("01-capability", "newer than, instead of at least", "", "includes the version itself"),
    ShownAnswer(
        "01-capability", "compares the minor versions separately", "", "only if the major versions are equal"
    ),
    ShownAnswer("01-capability", "returns the pair", "", "Return True or False"),
    ShownAnswer("01-capability", "tests for equal versions", "", ""),
    ShownAnswer("01-limits", "limits as constants", "", "does not read info.max_threads_per_block"),
    ShownAnswer("01-limits", "tests shared memory first", "", "comes before shared memory"),
    ShownAnswer("01-limits", "tests the grid before the block", "", "the block comes before the grid"),
    ShownAnswer("01-limits", "does not test the grid", "", "grid"),
    ShownAnswer("01-limits", "the opt-in limit of shared memory", "", "default limit"),
    ShownAnswer("01-select", "use() without a with block", "", "runs out of memory and leaves device"),
    ShownAnswer("01-select", "always five elements", "", "it should be (1,)"),
    ShownAnswer("01-select", "elements of 8 bits", "", "it should be 128"),
    ShownAnswer("01-select", "elements of 16 bits", "", "it should be 65,536"),
    ShownAnswer("01-select", "float elements", "", "must be integers"),
    ShownAnswer("01-choose", "compares only the bandwidth", "", "FP32 arithmetic decides"),
    ShownAnswer("01-choose", "compares only arithmetic", "", "bandwidth decides"),
    ShownAnswer("01-choose", "rounds memory to whole GB", "", "memory is too small"),
    ShownAnswer("01-choose", "returns the GPU instead of its name", "", "Return the `.name`"),
    ShownAnswer("01-choose", "prints the name instead of returning it", "", "it should be"),
)
