"""Wrong answers that are common in notebook 15, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("15-ring", "forgets the rest of the division by n", "", "does not divide"),
    ShownAnswer("15-ring", "only GPU 0 has the sum", "", "only GPU 0 has the sum"),
    ShownAnswer("15-ring", "all through GPU 0", "", "a ring needs"),
    ShownAnswer("15-ring", "copies through the host", "", "through the host's memory"),
    ShownAnswer("15-ring", "no events on five GPUs", "", "nothing orders the two"),
    ShownAnswer("15-broadcast", "400 copies", "", "messages, but 4 are enough"),
    ShownAnswer("15-broadcast", "arrays that are not aligned", "", "bytes after a multiple"),
    ShownAnswer("15-broadcast", "does not restore the shapes", "", "reshape"),
    ShownAnswer("15-broadcast", "elements in another order", "", "the order of its elements"),
    ShownAnswer("15-broadcast", "returns a dictionary", "", "a list for each GPU"),
    ShownAnswer("15-halo", "does not exchange the corners", "", "diagonal neighbour"),
    ShownAnswer("15-halo", "the host waits", "", "lets the host wait"),
    ShownAnswer("15-halo", "exchanges across the outer edge", "", "outside the whole field must not"),
    ShownAnswer("15-halo", "sends whole parts", "", "Send edges"),
    ShownAnswer("15-halo", "exchanges nothing", "", "of the rim is"),
    ShownAnswer("15-place", "ranks in reverse order", "", "over PCIe"),
    ShownAnswer("15-place", "right for islands, but not for a cube", "", ""),
    ShownAnswer("15-place", "returns booleans", "", "once"),
    ShownAnswer("15-shard", "gathers the rows twice", "", "Gather these rows once"),
    ShownAnswer("15-shard", "does not divide by √d", "", "not divided by √d"),
    ShownAnswer("15-shard", "does not apply GELU", "", "The last step, gelu, is missing"),
    ShownAnswer("15-shard", "writes into the parts", "", "belong to the caller"),
    ShownAnswer("15-shard", "results on the wrong GPUs", "", "entry k on GPU k"),
)
