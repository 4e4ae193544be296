"""Predictions of notebook 15."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "15-host",
        "The same large copy from GPU 0 to GPU 1, before peer access is enabled and after. How many times as "
        "long does the first one take?",
        "Without peer access a copy goes out over PCIe into the host's memory, and in again.",
        choices=("about as long", "2 to 5 times", "5 to 20 times", "more than 20 times"),
        comparison="about as long",
        misconception="GPUs on one NVLink use it for every copy.",
    ),
    PredictionQuestion(
        "15-peer",
        "A kernel reads a large array ten times. It lies on the other GPU, over NVLink. Which is faster?",
        "Each pass over there crosses the link again. A copy crosses it once, and then reads its own memory.",
        choices=("ten passes over there", "a copy, and ten passes here", "both alike"),
        comparison="ten passes over there",
        misconception="Peer access always helps, since it saves the copy.",
    ),
    PredictionQuestion(
        "15-both",
        "NVLink's figure on the H200's data sheet, and what a large copy from one GPU to another "
        "reaches: which "
        "share of the figure?",
        "The data sheet adds up both directions; a copy uses one of them.",
        choices=("nearly all of it", "somewhat under a half", "under a tenth"),
        comparison="nearly all of it",
        misconception="A link's published rate is what one copy can reach.",
    ),
    PredictionQuestion(
        "15-port",
        "All eight send their arrays to GPU 0, which adds them and sends the sum back. How many "
        "times the size "
        "of an array passes its busiest port in one direction?",
        "Seven arrays come in, and seven sums go out; no other GPU's port passes more than one each way.",
        unit="times",
        comparison=2,
        misconception="Traffic spreads over the links that there are.",
    ),
    PredictionQuestion(
        "15-grow",
        "The ring with 16 GPUs instead of 8, and arrays of the same size. What passes each port?",
        "2·(n − 1)/n of the array: it grows towards 2, and never reaches it.",
        choices=("nearly the same", "about twice as much", "about half as much"),
        comparison="about twice as much",
        misconception="Twice as many GPUs have twice as much to tell each other.",
    ),
    PredictionQuestion(
        "15-small",
        "Arrays of 4 KiB on 8 GPUs. The ring has 14 steps and the tree 6, with one message at each port. All "
        "through GPU 0 has 2 steps, in which seven messages take turns at one port. By the prices above, "
        "which finishes first?",
        "With few bytes the steps that wait for each other decide, and messages in turn cost much less.",
        choices=("the ring", "the tree", "all through GPU 0"),
        comparison="the ring",
        misconception="The algorithm that moves the fewest bytes is the fastest.",
    ),
    PredictionQuestion(
        "15-pairs",
        "Eight GPUs, of which NVLink joins 0 with 1, 2 with 3, and so on. How many times as "
        "long does the same "
        "ring take?",
        "A step is as slow as its slowest link: with links in pairs every other one goes by the host.",
        choices=("about as long", "half as long again", "3 times as long or more"),
        comparison="half as long again",
        misconception="When half of the links are fast, a ring is half as fast.",
    ),
    PredictionQuestion(
        "15-block",
        "The course's block, four sequences: on four GPUs instead of one. How long does it take?",
        "One GPU had room for all four, and now the host launches four graphs instead of one.",
        choices=("a quarter of the time", "half of the time", "as long, or longer"),
        comparison="a quarter of the time",
        misconception="n GPUs are n times as fast.",
    ),
)
