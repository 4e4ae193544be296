"""Predictions of notebook 06."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "06-race",
        "The last rung adds four floats a load and leaves nothing to a second launch. How much of what a "
        "copy moves in a second does it read?",
        "An addition costs next to nothing beside a load. Once lanes, banks, barriers and instructions are "
        "out of the way, a sum is limited as a copy is: by memory.",
        choices=("about a tenth", "about half", "all of it, more or less"),
        comparison="about half",
        misconception="A reduction has to wait for its tree, so it never comes near a copy.",
    ),
    PredictionQuestion(
        "06-packed",
        "Rung 2 lets as few warps add as possible. Which counter becomes worse than in rung 1?",
        "Threads next to each other now work on words that lie 2, 4, 8 … apart, and those share banks.",
        choices=("bank conflicts", "sectors", "barriers", "nothing"),
        comparison="nothing",
        misconception="Fewer active warps make everything better.",
    ),
    PredictionQuestion(
        "06-atomics",
        "All threads of 64 blocks add 1 to one int, and then 1.0f to one float. How long do the floats take, "
        "beside the ints?",
        "Integers are added up within each warp first, since their order does not matter. For floats it does:"
        " every lane's addition waits for the one before.",
        choices=("about as long", "two or three times", "many times"),
        comparison="about as long",
        misconception="Atomics on one address cost the same, whatever is added.",
    ),
    PredictionQuestion(
        "06-fence",
        "Block 1 has waited for the flag. What may it read in `data[0]`, on whatever GPU comes?",
        "The flag is another address than the data, and nothing says that its change is seen later. On most "
        "days it is; a checker says that nothing makes it so.",
        choices=("always 42", "0 or 42: nothing orders the two"),
        comparison="always 42",
        misconception="An atomic orders all that was written before it.",
    ),
    PredictionQuestion(
        "06-spin",
        "Without a ticket, in which orders of beginning will 20,000 blocks hang that wait for their "
        "predecessor?",
        "In order, the predecessor always runs already. Reversed, all places are taken by blocks that wait "
        "for one which has not begun.",
        choices=("always", "in some orders", "never"),
        comparison="never",
        misconception="All blocks of a grid run at the same time.",
    ),
    PredictionQuestion(
        "06-bins",
        "Each block counts in bins of its own and adds them once. How many times as fast as counting in "
        "global memory right away?",
        "256 global bins are few for all blocks of a GPU, whose additions queue up in L2. In shared memory "
        "each SM has its own queues.",
        choices=("about as fast", "two to six times", "more than six times"),
        comparison="about as fast",
        misconception="An atomic is an atomic, wherever its address lies.",
    ),
    PredictionQuestion(
        "06-masked",
        "Three scores, all of them −∞, go through the online sum with `most` beginning at the first of them. "
        "What is the sum?",
        "−∞ minus −∞ is NaN, not 0, and so is its exponential: scores that are masked out need a question "
        "of their own.",
        choices=("0.0", "3.0", "NaN"),
        comparison="0.0",
        misconception="exp(−∞) is 0, so masked scores fall out by themselves.",
    ),
    PredictionQuestion(
        "06-welford",
        "1,024 floats, by turns 9,999 and 10,001, so that their variance is 1. How far off is E[x²] − "
        "E[x]² in float?",
        "Two numbers of about 100 million are subtracted, whose neighbours in float are 8 apart: nothing "
        "of the variance is left, and it may be negative.",
        choices=("not at all", "a little, by rounding", "far off, perhaps negative"),
        comparison="a little, by rounding",
        misconception="Formulas that are equal on paper are equal in float, but for the last digit.",
    ),
)
