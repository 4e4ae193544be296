"""Predictions of notebook 10."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "10-driver",
        "A million floats, 4,000,000 bytes. By how much does the memory that nvidia-smi calls used grow?",
        "The pool rounds up to 512 bytes, the driver maps whole pages, and the tool counts pages: two of "
        "them.",
        choices=("4,000,000 bytes", "4,000,256 bytes", "4,194,304 bytes"),
        comparison="4,000,256 bytes",
        misconception="What an allocator counts is what the device has given.",
    ),
    PredictionQuestion(
        "10-kept",
        "`del x`, and nobody else has the array. How much of its memory does the device get back?",
        "None: the pool keeps the segment for the next request. cudaMalloc and cudaFree cost more than most "
        "kernels, so a pool asks as seldom as it can.",
        unit="%",
        kind="share",
        comparison=100,
        misconception="Memory that Python has freed is free for other processes.",
    ),
    PredictionQuestion(
        "10-neighbours",
        "Three arrays of 1 MiB, made one after the other, are all freed. How many segments does the pool "
        "hold after a request of 2 MiB?",
        "Blocks are joined only within one segment, that is one cudaMalloc. Each of the three had a segment "
        "of its own: they are never joined, even where they lie side by side. So the last request needs a "
        "fourth.",
        unit="segments",
        comparison=3,
        misconception="Free memory is one amount.",
    ),
    PredictionQuestion(
        "10-refused",
        "The limit is 2.2 GiB, 1.0 GiB is in use. What comes of a request of 1.0 GiB?",
        "What is free lies in five pieces between arrays in use, and a rest. No piece serves, and a segment "
        "with anything in use cannot go back.",
        choices=("it fits: 1.2 GiB are free", "it fits, after the cache is freed", "out of memory"),
        comparison="it fits, after the cache is freed",
        misconception="Freeing the cache makes room for whatever is less than the free bytes.",
    ),
    PredictionQuestion(
        "10-arena",
        "Stream A frees a block of 1 MiB. Stream B asks for 1 MiB. What does the pool do?",
        "What A was given may still be read by A's kernels. Only for A itself is the order clear, so each "
        "stream has an arena of its own.",
        choices=(
            "gives B the same block",
            "takes a new segment for B",
            "waits for A, then gives B the block",
        ),
        comparison="gives B the same block",
        misconception="A freed block is free for everybody.",
    ),
    PredictionQuestion(
        "10-thread",
        "`with cp.cuda.using_allocator(own.malloc):` starts a thread that makes an array of 1 MiB, and waits "
        "for it. How many MiB does the pool `own` give out?",
        "using_allocator holds for the thread that enters it. The other thread allocates from the default "
        "pool.",
        unit="MiB",
        comparison=1,
        misconception="An allocator is chosen for a block of code, whoever runs it.",
    ),
    PredictionQuestion(
        "10-torch",
        "PyTorch makes a tensor of one float, the first of all. How much memory does it reserve?",
        "A whole segment, in which the next small tensors find room. CuPy's pool would take 512 bytes.",
        unit="KiB",
        comparison=0.5,
        tolerance=0.1,
        misconception="Both pools take what is asked for, rounded up.",
    ),
    PredictionQuestion(
        "10-peak",
        "Attention over {n} tokens, made of plain steps. Where is the peak of its memory reached?",
        "At the last line `scores`, `powers` and `weights` live at once, n × n each, and the output is made "
        "besides. The first two are needed no more, but a name keeps its array.",
        choices=("at the first product", "at the exponential", "at the second product"),
        comparison="at the exponential",
        misconception="An array that is not needed any more takes no memory.",
    ),
    PredictionQuestion(
        "10-twice",
        "Twice as many tokens. How many times the memory does the plain version need?",
        "The scores have n² elements, and 2² is 4. That is why long contexts run out of memory first.",
        unit="times",
        comparison=2,
        tolerance=0.15,
        misconception="Memory grows with the input.",
    ),
)
