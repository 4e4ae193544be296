"""Quiz of notebook 17."""

from __future__ import annotations

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "The interview"

QUESTIONS = (
    Question(
        "You are asked for a number that you do not know. What is the best beginning?",
        (
            Choice(
                "the order of magnitude of a kernel that you know",
                "The listener cannot follow it or find an error in it.",
            ),
            Choice(
                "its parts, and a bound for each",
                "The listener can follow, and an error shows at once.",
                right=True,
            ),
            Choice(
                "what it depends on: device, size, type",
                "The number depends on these, but the listener also needs to know how, with numbers.",
            ),
            Choice(
                "the number of another GPU, scaled by bandwidth",
                "Scaling is right only if bandwidth is the limit, and only the parts show that.",
            ),
        ),
    ),
    Question(
        "A profiler reports that DRAM is 95 % busy. What have you found?",
        (
            Choice(
                "the cause: the kernel is memory-bound",
                "A busy DRAM shows where the time goes, but not why there are so many bytes.",
            ),
            Choice(
                "the limit: it cannot get faster",
                "The kernel is at its limit only if every byte is needed, and is moved once.",
            ),
            Choice(
                "a symptom: compare the bytes moved with those needed",
                "Scattered and repeated reads keep DRAM just as busy.",
                right=True,
            ),
            Choice(
                "poor use of the caches",
                "Data that is used once passes through any cache.",
            ),
        ),
    ),
    Question(
        "Which experiment cannot refute “padding makes this kernel faster”?",
        (
            Choice(
                "with and without padding, medians of many runs",
                "The medians can show that padding helps, or that it does not.",
            ),
            Choice(
                "bank conflicts with and without padding",
                "The counts can refute the claim: there may be no conflicts in either version.",
            ),
            Choice(
                "the padded kernel, timed ten times",
                "There is no time of the other version to compare with.",
                right=True,
            ),
            Choice(
                "both on a second device as well",
                "A second device could show that the claim is true on only one of them.",
            ),
        ),
    ),
    Question(
        "An estimate is off by less than a tenth. What may still be wrong with it?",
        (
            Choice("nothing: it is right", "Two errors can cancel, and next time they do not."),
            Choice(
                "bytes and bandwidth, both wrong by one factor",
                "The time is right, but both numbers that it comes from are wrong.",
                right=True,
            ),
            Choice(
                "its digits: it has more of them than its inputs",
                "Too many digits are bad style, but they change no decision.",
            ),
            Choice(
                "the unit: µs where ms are meant",
                "With a wrong unit, the estimate would be off by a factor of a thousand.",
            ),
        ),
    ),
    Question(
        "A race can no longer be seen since a print was added to the kernel. What has been repaired?",
        (
            Choice(
                "the race: results are right again",
                "The results were right by luck before, most of the time.",
            ),
            Choice(
                "nothing: the order has changed by chance",
                "The sanitizer still finds two accesses that nothing orders.",
                right=True,
            ),
            Choice(
                "the compiler's reordering of the accesses",
                "The compiler was allowed to reorder the accesses, and still is.",
            ),
            Choice(
                "the timing between the two warps",
                "The timing has changed only by luck: nothing orders the two warps.",
            ),
        ),
    ),
    Question(
        "Which of these facts about an H100 can you use for a T4 without a check?",
        (
            Choice(
                "32 lanes in a warp, 32-byte sectors",
                "The numbers of lanes and of bytes are the same on every GPU of the course.",
                right=True,
            ),
            Choice(
                "resident blocks for a given amount of shared memory",
                "The size of shared memory and the part that CUDA reserves differ.",
            ),
            Choice("which of memory and arithmetic is the bound", "The ridge of the roofline differs."),
            Choice(
                "asynchronous copies into shared memory",
                "Asynchronous copies into shared memory came with compute capability 8.0.",
            ),
        ),
    ),
    Question(
        "A wrong program passes its only test. What do you try first?",
        (
            Choice(
                "the same test, a hundred times",
                "The same test tries the same sizes and the same order again.",
            ),
            Choice(
                "ragged sizes, other blocks, another order",
                "Round numbers hide most faults.",
                right=True,
            ),
            Choice("a larger grid", "A larger grid may only move the fault."),
            Choice(
                "reading the code line by line", "Reading helps, and is quicker with an input that fails."
            ),
        ),
    ),
    WhyQuestion(
        "Why is being sure and wrong worse than not knowing, in an interview and at work?",
        (
            "Others rely on a firm answer, and notice the error late.",
            "If you know that you do not know, you can measure it in a minute.",
            "It shows that the answer was remembered and not derived.",
        ),
    ),
)
