"""Questions of notebook 19."""

from gpulab_course.teach.question import Choice, Question

TITLE = "Attention"

QUESTIONS = (
    Question(
        "What grows with n² in a tiled forward pass?",
        (
            Choice(
                "the extra memory",
                "The forward pass stores no scores, and only one number per row for training.",
            ),
            Choice(
                "the loads of k and v, and the arithmetic",
                "Each block of rows loads all keys and values, and each score is computed.",
                right=True,
            ),
            Choice("nothing: flash attention is linear in every respect", "Only its extra memory is linear."),
        ),
    ),
    Question(
        "A block has 64 rows of q instead of 32. The loads of k and v …",
        (
            Choice(
                "are halved",
                "There are half as many blocks, and each of them loads k and v once.",
                right=True,
            ),
            Choice("stay the same", "Each block loads k and v once, and there are fewer blocks."),
            Choice("double", "The tiles of k and v do not become larger."),
        ),
    ),
    Question(
        "The largest score of a row changes from 3 to 5. What must be multiplied by exp(3 − 5)?",
        (
            Choice("only the sum", "The row of the result contains the same old weights."),
            Choice("only the row of the result", "The sum contains the same old weights."),
            Choice("the sum and the row of the result", "Both contain weights relative to 3.", right=True),
            Choice("all later weights", "Later weights are computed relative to 5."),
        ),
    ),
    Question(
        "A tile is completely masked for one row, and it is the first tile of this row. What can happen "
        "if masked scores are −∞?",
        (
            Choice("nothing: exp(−∞) is 0", "exp(−∞) = 0 helps only if the largest score is finite."),
            Choice("the row becomes NaN", "The largest score is still −∞, and −∞ − (−∞) is NaN.", right=True),
            Choice("the row becomes 0", "A NaN in the sum stays there."),
        ),
    ),
    Question(
        "Why is decoding split over the tokens?",
        (
            Choice(
                "to load fewer bytes of keys and values from memory",
                "The bytes are the same, and the parts add a few.",
            ),
            Choice(
                "because one query leads to too few blocks",
                "Without a split, there is one block for each sequence and head.",
                right=True,
            ),
            Choice("to need no combining step", "The split is the reason why a combining step is needed."),
        ),
    ),
    Question(
        "Two parts have the pairs (largest 2, sum 3) and (largest 4, sum 1). The sum of both, relative to "
        "4, is …",
        (
            Choice("4", "The first sum is relative to 2."),
            Choice("3 · exp(−2) + 1", "The first sum is multiplied by exp(2 − 4).", right=True),
            Choice("3 + exp(−2)", "The part with the smaller largest score is scaled."),
        ),
    ),
    Question(
        "A page table makes it possible to …",
        (
            Choice(
                "load fewer bytes per token, because pages are aligned in memory",
                "Each token needs the same row of k and of v.",
            ),
            Choice(
                "store a sequence without reserving its longest length",
                "A new page is taken when the last one is full.",
                right=True,
            ),
            Choice("compute scores without loading keys", "A table has page numbers only."),
        ),
    ),
    Question(
        "Why does the backward pass compute the scores again?",
        (
            Choice(
                "because n² stored weights would need much memory, and traffic",
                "The backward pass needs only one number per row instead.",
                right=True,
            ),
            Choice(
                "because the weights of the forward pass are not exact",
                "The weights of the forward pass are as exact as the new ones.",
            ),
            Choice(
                "because the gradient does not depend on the weights of the forward pass",
                "The gradient depends on all weights of the forward pass.",
            ),
        ),
    ),
)
