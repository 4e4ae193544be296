"""Wrong answers that are common in notebook 18, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("18-fragment", "registers 1 and 2 exchanged", "", "register 1 of a has the rows 8 below"),
    ShownAnswer(
        "18-fragment", "element numbers instead of register numbers in b", "", "a register has two halves"
    ),
    ShownAnswer("18-fragment", "distributes b as d", "", "in b, the lane's group is the column"),
    ShownAnswer("18-fragment", "two elements of d in a register", "", "an element of d is a float"),
    ShownAnswer("18-tile", "without tensor cores", "budget", "Let the tensor cores multiply"),
    ShownAnswer("18-tile", "registers 1 and 2 of a exchanged", "results", "exchange the two"),
    ShownAnswer("18-tile", "pairs along the rows of b", "results", "two neighbours are below each other"),
    ShownAnswer("18-tile", "the halves of a register of b exchanged", "results", "in the lower 16 bits"),
    ShownAnswer("18-tile", "no guard", "results", "if w is below n"),
    ShownAnswer("18-swizzle", "the given kernel, unchanged", "budget", "reads eight rows at once"),
    ShownAnswer("18-swizzle", "stored in another order", "results", "compute the position of a vector"),
    ShownAnswer("18-swizzle", "padding instead of a swizzle", "budget", "needs no unused words"),
    ShownAnswer("18-swizzle", "exclusive or with the whole row number", "results", "never leaves the row"),
    ShownAnswer("18-stages", "one buffer", "budget", "one barrier per tile is enough"),
    ShownAnswer("18-stages", "waits for all copies", "budget", "leave no copies pending"),
    ShownAnswer("18-stages", "does not wait for copies", "results", "Is tile t complete"),
    ShownAnswer(
        "18-stages", "copies before the barrier", "hazards", "between the use of a tile and the copies"
    ),
    ShownAnswer("18-stages", "no group for a missing tile", "results", "Close a group for each tile"),
    ShownAnswer("18-epilogue", "does not add the bias", "results", "The bias is missing"),
    ShownAnswer("18-epilogue", "bias after GELU", "results", "The bias comes first"),
    ShownAnswer("18-epilogue", "GELU by tanh", "results", "the approximation with tanh"),
    ShownAnswer(
        "18-epilogue", "the bias by row instead of by column", "results", "to the column of an element"
    ),
    ShownAnswer("18-epilogue", "element by element", "budget", "are one half2"),
)
