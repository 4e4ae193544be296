"""Wrong answers that are common in notebook 15, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("15-ring", "n does not divide", "", "does not divide"),
    ShownAnswer("15-ring", "GPU 0 alone", "", "only GPU 0 has the sum"),
    ShownAnswer("15-ring", "all through GPU 0", "", "a ring needs"),
    ShownAnswer("15-ring", "through the host", "", "through the host's memory"),
    ShownAnswer("15-ring", "no events on five GPUs", "", "nothing orders the two"),
    ShownAnswer("15-broadcast", "400 copies", "", "messages; 4 are enough"),
    ShownAnswer("15-broadcast", "not aligned", "", "bytes after a multiple"),
    ShownAnswer("15-broadcast", "shapes lost", "", "reshape"),
    ShownAnswer("15-broadcast", "columns first", "", "the order of its elements"),
    ShownAnswer("15-broadcast", "a dictionary", "", "a list for each GPU"),
    ShownAnswer("15-halo", "no corners", "", "diagonal neighbour"),
    ShownAnswer("15-halo", "the host waits", "", "lets the host wait"),
    ShownAnswer("15-halo", "round the edge", "", "outside the whole field must not"),
    ShownAnswer("15-halo", "whole parts", "", "Send edges"),
    ShownAnswer("15-halo", "nothing", "", "of the rim is"),
    ShownAnswer("15-place", "backwards", "", "over PCIe"),
    ShownAnswer("15-place", "good for islands, not for a cube", "", ""),
    ShownAnswer("15-place", "true and false", "", "once"),
    ShownAnswer("15-shard", "gathers twice", "", "Gather these rows once"),
    ShownAnswer("15-shard", "no scale", "", "not divided by √d"),
    ShownAnswer("15-shard", "no GELU", "", "The last step is missing"),
    ShownAnswer("15-shard", "into the parts", "", "belong to the caller"),
    ShownAnswer("15-shard", "GPUs exchanged", "", "entry k on GPU k"),
)
