"""Predictions of notebook 15."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "15-host",
        "A large copy from GPU 0 to GPU 1 runs without peer access, and then with it. How many times as long "
        "does the first copy take?",
        "Without peer access, a copy goes over PCIe to the host's memory, and over PCIe again to the other "
        "GPU.",
        choices=("about as long", "2 to 5 times", "5 to 20 times", "more than 20 times"),
        comparison="about as long",
        misconception="GPUs that NVLink joins use it for every copy.",
    ),
    PredictionQuestion(
        "15-peer",
        "A kernel reads a large array ten times. The array is in the memory of another GPU, over NVLink. "
        "Which is faster?",
        "Each remote pass crosses the link again. A copy crosses it once, and then the kernel reads local "
        "memory.",
        choices=("ten passes over there", "a copy, and ten passes here", "both alike"),
        comparison="ten passes over there",
        misconception="Reading remote memory is always faster, because it saves the copy.",
    ),
    PredictionQuestion(
        "15-both",
        "What share of the NVLink rate in the data sheet of the H200 does a large copy from one GPU to "
        "another reach?",
        "The data sheet adds up both directions; a copy uses one of them.",
        choices=("nearly all of it", "somewhat under a half", "under a tenth"),
        comparison="nearly all of it",
        misconception="A link's published rate is what one copy can reach.",
    ),
    PredictionQuestion(
        "15-port",
        "All other GPUs send their arrays to GPU 0, which adds them and sends the sum back. How many times "
        "the size of an array passes the busiest port in one direction?",
        "Seven arrays arrive at GPU 0, and the sum leaves it seven times. All other ports pass one array in "
        "each direction.",
        unit="times",
        comparison=2,
        misconception="Traffic spreads evenly over all links.",
    ),
    PredictionQuestion(
        "15-grow",
        "The ring runs on 16 GPUs instead of 8, with arrays of the same size. How much passes each port, "
        "compared with 8 GPUs?",
        "It is 2·(n − 1)/n times the array, which grows towards 2 and never reaches it.",
        choices=("nearly the same", "about twice as much", "about half as much"),
        comparison="about twice as much",
        misconception="Twice as many GPUs exchange twice as much at each port.",
    ),
    PredictionQuestion(
        "15-small",
        "The arrays have 4 KiB on each of 8 GPUs. The ring has 14 steps and the tree has 6, with one message "
        "at each port. The naive algorithm (all through GPU 0) has 2 steps, with seven messages one after "
        "another at one port. By the times above, which finishes first?",
        "With few bytes, the steps that wait for each other take most of the time. A further "
        "message at a port "
        "takes much less.",
        choices=("the ring", "the tree", "all through GPU 0"),
        comparison="the ring",
        misconception="The algorithm that moves the fewest bytes is the fastest.",
    ),
    PredictionQuestion(
        "15-pairs",
        "On eight GPUs, NVLink joins only 0 with 1, 2 with 3, and so on. How many times as long does the "
        "same ring take?",
        "A step is as slow as its slowest copy, and with links in pairs every second copy of the ring goes "
        "through the host.",
        choices=("about as long", "half as long again", "3 times as long or more"),
        comparison="half as long again",
        misconception="If half of the copies use fast links, the ring is only a little slower.",
    ),
    PredictionQuestion(
        "15-block",
        "The attention layer with four sequences runs on four GPUs instead of one. How long does it take?",
        "One GPU has enough SMs for all four sequences at the same time. Four GPUs need four launches of a "
        "graph, one after another from the same host.",
        choices=("a quarter of the time", "half of the time", "as long, or longer"),
        comparison="a quarter of the time",
        misconception="n GPUs are n times as fast.",
    ),
)
