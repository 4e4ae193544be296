"""Wrong answers that are common in notebook 08, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("08-stay", "sets negative elements to 0", "results", "prepare(x, -5)"),
    ShownAnswer("08-stay", "calls item()", "counts", "nothing has to be copied to the host"),
    ShownAnswer("08-stay", "applies the limit first", "results", "it should be"),
    ShownAnswer("08-stay", "uses a NumPy array", "results", "keep all of the work on the device"),
    ShownAnswer("08-stay", "changes x", "results", "belongs to its caller"),
    ShownAnswer("08-report", "computes on the host", "counts", "three numbers are 12 bytes"),
    ShownAnswer("08-report", "copies by tolist()", "counts", "then copy once"),
    ShownAnswer("08-report", "the mean instead of the sum", "results", "the sum, not the mean"),
    ShownAnswer("08-report", "the largest element first", "results", "it should be"),
    ShownAnswer("08-report", "returns integers", "results", "should be float32"),
    ShownAnswer("08-pack", "one copy per array", "counts", "copy once, and return slices"),
    ShownAnswer("08-pack", "returns the host's arrays", "results", "stay on the device"),
    ShownAnswer("08-pack", "converts to float64", "results", "it should be float32"),
    ShownAnswer("08-pack", "offsets that are wrong by one", "results", "it should be"),
    ShownAnswer("08-pack", "returns one array", "results", "as a tuple"),
    ShownAnswer("08-ring", "the given program, unchanged", "hazards", "Before you fill a buffer again"),
    ShownAnswer("08-ring", "copies from data itself", "counts", "not from `data` itself"),
    ShownAnswer("08-ring", "stores each piece one row further on", "results", "it should be"),
    ShownAnswer("08-ring", "returns a host array", "results", "stay on the device"),
    ShownAnswer("08-ring", "always converts to float32", "results", "should be"),
    ShownAnswer("08-lookup", "row by row", "counts", "leave them there"),
    ShownAnswer(
        "08-lookup", "prefetches the whole table", "counts", "only the rows that it reads cross the bus"
    ),
    ShownAnswer(
        "08-lookup", "a pageable copy of the table", "results", "A kernel can read only pinned memory"
    ),
    ShownAnswer("08-lookup", "pins the table a second time", "results", "pinned since they were allocated"),
    ShownAnswer("08-lookup", "returns the transpose", "results", "shape"),
)
