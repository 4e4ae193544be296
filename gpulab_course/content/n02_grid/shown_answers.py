"""Wrong answers that are common in notebook 02, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("02-stride", "no loop over the grid", "results", "Some elements had no"),
    ShownAnswer("02-stride", "i <= n instead of i < n", "results", "The loop must end when i reaches n"),
    ShownAnswer("02-stride", "a do-while loop", "results", "more threads than there are elements"),
    ShownAnswer("02-stride", "i does not grow", "results", "Does i grow"),
    ShownAnswer("02-stride", "doubles instead of squaring", "results", "it should be"),
    ShownAnswer("02-index", "no guard", "results", "Guard both edges"),
    ShownAnswer(
        "02-index", "the row from x, the column from y", "results", "x counts columns and y counts rows"
    ),
    ShownAnswer("02-index", "doubles by changing the exponent", "results", "it should be"),
    ShownAnswer("02-index", "adds to the old y", "results", "adds to the initial contents"),
    ShownAnswer("02-index", "does not write zeros", "results", "needs a thread that stores its result"),
    ShownAnswer("02-repair", "guards row times column", "results", "Guard both edges"),
    ShownAnswer("02-repair", "adds to the old contents", "results", "adds to the initial contents"),
    ShownAnswer("02-repair", "guards only the flat index", "hazards", "Guard both edges"),
    ShownAnswer("02-repair", "changes the input", "results", "may only read"),
    ShownAnswer("02-repair", "too little shared memory", "results", "large enough for every block shape"),
    ShownAnswer("02-address", "16 bits for blocks", "results", "without gaps"),
    ShownAnswer("02-address", "the lane from threadIdx.x in long rows", "results", "lane["),
    ShownAnswer("02-address", "blocks numbered x, z, y", "results", "Blocks or threads are in another order"),
    ShownAnswer("02-address", "the hardware's warp number (%warpid)", "results", "warp["),
    ShownAnswer("02-address", "the row in one byte", "results", "row["),
    ShownAnswer("02-achieved", "in percent", "", "not percent"),
    ShownAnswer("02-achieved", "divides by the slots of one SM", "", "idle SMs also count"),
    ShownAnswer("02-achieved", "one slot for each SM", "", "slots of each SM as well"),
    ShownAnswer("02-achieved", "prints the result instead of returning it", "", "returns nothing"),
    ShownAnswer("02-achieved", "returns a string", "", "Return one number"),
)
