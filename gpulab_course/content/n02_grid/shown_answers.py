"""Wrong answers that are common in notebook 02, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("02-stride", "no loop", "results", "Some elements had no"),
    ShownAnswer("02-stride", "one too many", "results", "The loop must end when i reaches n"),
    ShownAnswer("02-stride", "do while", "results", "more threads than there are elements"),
    ShownAnswer("02-stride", "never moves", "results", "Does i grow"),
    ShownAnswer("02-stride", "doubles instead", "results", "it should be"),
    ShownAnswer("02-index", "no guard", "results", "Guard both edges"),
    ShownAnswer("02-index", "row from x", "results", "x counts columns and y counts rows"),
    ShownAnswer("02-index", "by the exponent", "results", "it should be"),
    ShownAnswer("02-index", "adds in place", "results", "adds to the initial contents"),
    ShownAnswer("02-index", "leaves zeros out", "results", "needs a thread that stores its result"),
    ShownAnswer("02-repair", "guard of the product", "results", "Guard both edges"),
    ShownAnswer("02-repair", "adds to what is there", "results", "adds to the initial contents"),
    ShownAnswer("02-repair", "flat guard", "hazards", "Guard both edges"),
    ShownAnswer("02-repair", "changes the input", "results", "may only read"),
    ShownAnswer("02-repair", "too little shared memory", "results", "large enough for every block shape"),
    ShownAnswer("02-address", "16 bits for blocks", "results", "without gaps"),
    ShownAnswer("02-address", "lane from long rows", "results", "lane["),
    ShownAnswer("02-address", "blocks numbered x, z, y", "results", "Blocks or threads are in another order"),
    ShownAnswer("02-address", "the SM's place for the warp", "results", "warp["),
    ShownAnswer("02-address", "rows in a byte", "results", "row["),
    ShownAnswer("02-achieved", "percent", "", "not percent"),
    ShownAnswer("02-achieved", "one SM", "", "idle SMs also count"),
    ShownAnswer("02-achieved", "one place", "", "slots of each SM as well"),
    ShownAnswer("02-achieved", "prints", "", "returns nothing"),
    ShownAnswer("02-achieved", "gives text", "", "return one number"),
)
