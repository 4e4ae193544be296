"""Questions of notebook 10."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "The allocator"

QUESTIONS = (
    Question(
        "nvidia-smi shows 20 GiB in use, and your arrays have 3 GiB in total. What is the most likely "
        "reason?",
        (
            Choice("a leak: arrays that Python has lost", "Python frees arrays that no variable refers to."),
            Choice(
                "the pool keeps segments that it needed before",
                "Reserved memory is not always used. The context and libraries also need memory.",
                right=True,
            ),
            Choice(
                "each array is rounded up to a page",
                "The pool rounds up to a multiple of 512 bytes, not to a page.",
            ),
        ),
    ),
    Question(
        "A colleague says: “Call empty_cache() regularly, it prevents running out of memory.” What does "
        "empty_cache() really do?",
        (
            Choice(
                "it frees memory for other processes, not for yours",
                "A pool returns its free segments before it refuses a request, so calling it in a loop "
                "only costs time.",
                right=True,
            ),
            Choice(
                "it joins free pool blocks of different segments, so larger requests fit",
                "Pool blocks of different segments are never joined.",
            ),
            Choice("it moves arrays together", "No array moves, because kernels use its address."),
        ),
    ),
    Question(
        "5 GiB are free in the pool, but a request of 3 GiB is refused. What will help?",
        (
            Choice(
                "waiting for the device, so that all frees are done",
                "The pool already counts this memory as free.",
            ),
            Choice("emptying the cache before the request", "The pool has already done this."),
            Choice(
                "allocating long-lived arrays before short-lived ones",
                "With this order, long-lived arrays do not split the memory that short-lived ones leave.",
                right=True,
            ),
        ),
    ),
    Question(
        "Why does a pool keep the free pool blocks of each stream apart?",
        (
            Choice(
                "work of the stream that had a pool block may still use it",
                "Within one stream the order is clear, but two streams do not wait for each other.",
                right=True,
            ),
            Choice(
                "each stream runs on its own SMs, which have their own memory", "All SMs share all memory."
            ),
            Choice(
                "so that a search for a pool block takes less time", "A shorter search is only a side effect."
            ),
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
        "How does an expandable segment differ from an ordinary one?",
        (
            Choice(
                "more memory can be added at its end when it must grow",
                "So neighbours can be joined where fixed segments would have borders.",
                right=True,
            ),
            Choice("tensors that are in use move together when memory is needed", "Addresses never change."),
            Choice(
                "memory of the host is used when the device is full",
                "Managed memory does this, but an expandable segment does not.",
            ),
        ),
    ),
    Question(
        "The memory of your training step has its peak in the backward pass. Which of these lowers the "
        "peak without changing the results?",
        (
            Choice("a larger pool limit", "A larger limit allows a higher peak, but does not lower it."),
            Choice(
                "to recompute some activations instead of keeping them",
                "Recomputing trades time for memory: the activations are computed again when they are "
                "needed.",
                right=True,
            ),
            Choice(
                "a copy of each gradient on a second stream", "With such a copy, one more array is alive."
            ),
        ),
    ),
    WhyQuestion(
        "Why is an array's memory not simply returned to the device when the array is deleted?",
        (
            "cudaMalloc and cudaFree take microseconds to milliseconds, more than many kernels.",
            "cudaFree can wait for all work of the device, so all streams would wait.",
            "Programs request the same sizes again and again, and the pool has memory for them at once.",
            "The price is reserved memory that other processes cannot use, and fragments.",
        ),
    ),
)
