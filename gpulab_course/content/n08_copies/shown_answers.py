"""Wrong answers that are common in notebook 08, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("08-stay", "nothing below 0", "results", "prepare(x, -5)"),
    ShownAnswer("08-stay", "item", "counts", "nothing has to be copied to the host"),
    ShownAnswer("08-stay", "cuts first", "results", "it should be"),
    ShownAnswer("08-stay", "mixes in NumPy", "results", "keep all of the work on the device"),
    ShownAnswer("08-stay", "in place", "results", "belongs to its caller"),
    ShownAnswer("08-report", "on the host", "counts", "three numbers are 12 bytes"),
    ShownAnswer("08-report", "lists", "counts", "then copy once"),
    ShownAnswer("08-report", "the mean", "results", "the sum, not the mean"),
    ShownAnswer("08-report", "largest first", "results", "it should be"),
    ShownAnswer("08-report", "whole numbers", "results", "should be float32"),
    ShownAnswer("08-pack", "one by one", "counts", "copy once, and return slices"),
    ShownAnswer("08-pack", "nothing is sent", "results", "stay on the device"),
    ShownAnswer("08-pack", "as float64", "results", "it should be float32"),
    ShownAnswer("08-pack", "off by one", "results", "it should be"),
    ShownAnswer("08-pack", "all in one", "results", "as a tuple"),
    ShownAnswer("08-ring", "as given", "hazards", "Before you fill a buffer again"),
    ShownAnswer("08-ring", "from data itself", "counts", "not from `data` itself"),
    ShownAnswer("08-ring", "one place on", "results", "it should be"),
    ShownAnswer("08-ring", "the host's array", "results", "stay on the device"),
    ShownAnswer("08-ring", "float32 typed in", "results", "should be"),
    ShownAnswer("08-lookup", "row by row", "counts", "leave them there"),
    ShownAnswer("08-lookup", "prefetched", "counts", "only the rows that it reads cross the bus"),
    ShownAnswer("08-lookup", "pageable", "results", "A kernel can read only pinned memory"),
    ShownAnswer("08-lookup", "locks it twice", "results", "pinned since their allocation"),
    ShownAnswer("08-lookup", "columns", "results", "shape"),
)
