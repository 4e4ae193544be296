"""Questions of notebook 10."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "The allocator"

QUESTIONS = (
    Question(
        "nvidia-smi shows 20 GiB in use, and your arrays come to 3 GiB. What is the likeliest reason?",
        (
            Choice("a leak: arrays that Python has lost", "Python frees arrays without references."),
            Choice(
                "the pool keeps segments it once needed",
                "Reserved memory need not be used. The context and libraries also need memory.",
                right=True,
            ),
            Choice("each array is rounded up to a page", "Blocks are multiples of 512 bytes."),
        ),
    ),
    Question(
        "“Call empty_cache() regularly, it prevents running out of memory.” What is true of it?",
        (
            Choice(
                "it makes room for other processes, not for yours",
                "A pool frees its cache before it refuses. A call in a loop only makes the program slow.",
                right=True,
            ),
            Choice(
                "it joins free blocks of different segments, so larger requests fit",
                "Blocks of different segments are never joined.",
            ),
            Choice("it moves arrays together", "Nothing moves, because kernels use the addresses."),
        ),
    ),
    Question(
        "5 GiB are free in the pool, and 3 GiB are refused. What will help?",
        (
            Choice("waiting for the device, so that all frees are done", "They are done, in stream order."),
            Choice("emptying the cache before the request", "The pool has tried that."),
            Choice(
                "allocating long-lived arrays before short-lived ones",
                "Then long-lived arrays do not split the memory that short-lived ones leave.",
                right=True,
            ),
        ),
    ),
    Question(
        "Why does a pool keep the free blocks of each stream apart?",
        (
            Choice(
                "work of the stream that had a block may still use it",
                "Within one stream the order is clear, but two streams do not wait for each other.",
                right=True,
            ),
            Choice(
                "each stream runs on its own SMs, which have their own memory", "All SMs share all memory."
            ),
            Choice("so that a search for a block takes less time", "This is only a side effect."),
        ),
    ),
    Question(
        "What does PyTorch's record_stream() do to a tensor?",
        (
            Choice("copies it to memory of that stream", "Memory belongs to the device, not to a stream."),
            Choice("makes that stream wait for the tensor", "No stream waits because of it."),
            Choice(
                "after it is deleted, keeps its memory until the earlier work of that stream is over",
                "An event is recorded there when the tensor is freed, not when record_stream() is called.",
                right=True,
            ),
        ),
    ),
    Question(
        "What does an expandable segment change?",
        (
            Choice(
                "memory is mapped behind a range of addresses as it grows",
                "So neighbours can be joined where fixed segments would have borders.",
                right=True,
            ),
            Choice("tensors that are in use move together when room is needed", "Addresses never change."),
            Choice("memory of the host is added when the device is full", "That would be managed memory."),
        ),
    ),
    Question(
        "Your training step peaks in the backward pass. Which of these lowers the peak without changing the "
        "results?",
        (
            Choice("a larger pool limit", "It allows a higher peak, but lowers none."),
            Choice(
                "to recompute some activations instead of keeping them",
                "This trades time for memory: they are computed again when they are needed.",
                right=True,
            ),
            Choice("a copy of each gradient on a second stream", "Then one more array is alive."),
        ),
    ),
    WhyQuestion(
        "Why is an array's memory not simply given back to the device when the array dies?",
        (
            "cudaMalloc and cudaFree take microseconds to milliseconds, more than many kernels.",
            "cudaFree can wait for all work of the device, so all streams would wait.",
            "Programs request the same sizes again and again, and the pool has memory for them at once.",
            "The price is reserved memory that other processes cannot use, and fragments.",
        ),
    ),
)
