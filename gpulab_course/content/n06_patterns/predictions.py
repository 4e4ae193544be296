"""Predictions of notebooks 06a and 06b."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "06-race",
        "The last version loads four floats with each load and needs no second launch. A copy reads and "
        "writes at a certain bandwidth. How much of this bandwidth does the sum reach?",
        "An addition costs almost nothing compared with a load. When idle lanes, bank conflicts, barriers "
        "and instructions no longer limit it, a sum is limited by memory, as a copy is.",
        choices=("about a tenth", "about half", "all of it, more or less"),
        comparison="about half",
        misconception="A reduction has to wait for its tree, so it never comes near a copy.",
    ),
    PredictionQuestion(
        "06-packed",
        "In version 2, as few warps add as possible. Which counter becomes worse than in version 1?",
        "Neighbouring threads now use words that are 2, 4, 8, … apart, and such words share banks.",
        choices=("bank conflicts", "sectors", "barriers", "nothing"),
        comparison="nothing",
        misconception="Fewer active warps make everything better.",
    ),
    PredictionQuestion(
        "06-atomics",
        "All threads of 64 blocks add 1 to one int, and then 1.0f to one float. How long do the floats take, "
        "compared with the ints?",
        "The compiler adds up integers within each warp first, because their order does not matter. For "
        "floats the order matters, so the additions of all lanes run one after another.",
        choices=("about as long", "two or three times", "many times"),
        comparison="about as long",
        misconception="Atomics on one address cost the same for every type.",
    ),
    PredictionQuestion(
        "06-fence",
        "Block 1 has waited for the flag. Which values can it read from `data[0]`, on any GPU?",
        "The flag and the data have different addresses, and nothing guarantees that the change of the "
        "flag becomes visible later than the data. Usually the data is visible first, but the checker "
        "shows that nothing ensures this.",
        choices=("always 42", "0 or 42: nothing orders the two"),
        comparison="always 42",
        misconception="An atomic orders everything that was written before it.",
    ),
    PredictionQuestion(
        "06-spin",
        "20,000 blocks wait for their predecessor, without a ticket. Blocks may start in order, or in "
        "reversed order. Does the kernel hang?",
        "If blocks start in order, the predecessor has always started before. If they start in reversed "
        "order, all slots are taken by blocks that wait for a block that has not started.",
        choices=("always", "in some orders", "never"),
        comparison="never",
        misconception="All blocks of a grid run at the same time.",
    ),
    PredictionQuestion(
        "06-bins",
        "Each block counts in private bins and adds them to the global bins once. How fast is "
        "this, compared with counting directly in the global bins?",
        "There are only 256 global bins for all blocks of a GPU, so their additions queue up in L2. In "
        "shared memory each SM has its own queues.",
        choices=("about as fast", "two to six times", "more than six times"),
        comparison="about as fast",
        misconception="All atomics cost the same, in global and in shared memory.",
    ),
    PredictionQuestion(
        "06-masked",
        "All three scores of a row are −∞, and `most` starts with the first of them. What is the online sum?",
        "−∞ minus −∞ is NaN, not 0, and the exponential of NaN is NaN. So the code must test for masked "
        "scores.",
        choices=("0.0", "3.0", "NaN"),
        comparison="0.0",
        misconception="exp(−∞) is 0, so masked scores need no special treatment.",
    ),
    PredictionQuestion(
        "06-welford",
        "1,024 floats alternate between 9,999 and 10,001, so their variance is 1. How far off is E[x²] − "
        "E[x]² in float?",
        "Both numbers are about 100 million, where neighbouring floats are 8 apart. Nothing of the variance "
        "is left in their difference, and it can be negative.",
        choices=("not at all", "a little, by rounding", "far off, perhaps negative"),
        comparison="a little, by rounding",
        misconception="Formulas that are equal on paper are equal in float, except for the last digit.",
    ),
)
