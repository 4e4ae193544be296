"""Wrong answers that are common in notebook 18, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("18-fragment", "registers 1 and 2 exchanged", "", "register 1 of a has the rows 8 below"),
    ShownAnswer("18-fragment", "elements for registers of b", "", "a register has two halves"),
    ShownAnswer("18-fragment", "b like d", "", "in b, the lane's group is the column"),
    ShownAnswer("18-fragment", "d in halves", "", "an element of d is a float"),
    ShownAnswer("18-tile", "without tensor cores", "budget", "Let the tensor cores multiply"),
    ShownAnswer("18-tile", "registers 1 and 2 of a exchanged", "results", "exchange the two"),
    ShownAnswer("18-tile", "b along its rows", "results", "two neighbours are below each other"),
    ShownAnswer("18-tile", "halves of b exchanged", "results", "in the lower 16 bits"),
    ShownAnswer("18-tile", "no guard", "results", "if w is below n"),
    ShownAnswer("18-swizzle", "as given", "budget", "reads eight rows at once"),
    ShownAnswer("18-swizzle", "stored in another order", "results", "compute the position of a vector"),
    ShownAnswer("18-swizzle", "padded", "budget", "needs no unused words"),
    ShownAnswer("18-swizzle", "by the row", "results", "never leaves the row"),
    ShownAnswer("18-stages", "one buffer", "budget", "one barrier per tile is enough"),
    ShownAnswer("18-stages", "waits for all copies", "budget", "leave no copies pending"),
    ShownAnswer("18-stages", "no wait", "results", "Is tile t complete"),
    ShownAnswer(
        "18-stages", "copies before the barrier", "hazards", "between the use of a tile and the copies"
    ),
    ShownAnswer("18-stages", "no group for a missing tile", "results", "Close a group for each tile"),
    ShownAnswer("18-epilogue", "no bias", "results", "The bias is missing"),
    ShownAnswer("18-epilogue", "bias after GELU", "results", "The bias comes first"),
    ShownAnswer("18-epilogue", "tanh", "results", "the approximation with tanh"),
    ShownAnswer("18-epilogue", "bias of the row", "results", "to the column of an element"),
    ShownAnswer("18-epilogue", "element by element", "budget", "are one half2"),
)
