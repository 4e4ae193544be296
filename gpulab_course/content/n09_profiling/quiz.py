"""Questions of notebook 09."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Profiling and monitoring"

QUESTIONS = (
    Question(
        "`nvidia-smi` shows 100 % GPU-Util for an hour. What do you know?",
        (
            Choice("that most SMs were busy", "One block on one SM is enough for this number."),
            Choice(
                "that the program is bound by the GPU",
                "A single slow block, or a block that spins, can cause this number.",
            ),
            Choice(
                "that some kernel was running most of the time",
                "GPU-Util is the share of time in which any kernel ran.",
                right=True,
            ),
            Choice(
                "that the program cannot become faster", "The number does not show how fast the program is."
            ),
        ),
    ),
    Question(
        "A training loop shows 35 % utilization. What do you do first?",
        (
            Choice(
                "start more worker processes for the data loader",
                "More workers help only if the loader is the cause.",
            ),
            Choice(
                "look in a timeline at what fills the gaps",
                "A loader, a hidden wait and short kernels look alike in a percentage.",
                right=True,
            ),
            Choice(
                "double the batch size, which raises the utilization",
                "A larger batch may help, but without a known cause it is a guess.",
            ),
            Choice(
                "rewrite the slowest kernel of the profile",
                "While the GPU waits, faster kernels gain little.",
            ),
        ),
    ),
    Question(
        "Which bytes of a launch determine its position on a roofline?",
        (
            Choice("those of all loads and stores in its source", "Caches serve most of them."),
            Choice(
                "the size of its arrays", "A launch may read its arrays many times, or only a part of them."
            ),
            Choice(
                "those that DRAM moved",
                "Counters show them, for the launch that was timed.",
                right=True,
            ),
            Choice(
                "those of its coalesced accesses",
                "Uncoalesced accesses move bytes as well, and more of them.",
            ),
        ),
    ),
    Question(
        "A launch is far below the sloped part of the roofline. What limits it?",
        (
            Choice(
                "the bandwidth of memory, which is used up",
                "A launch that uses the whole bandwidth is on the slope.",
            ),
            Choice("the peak of arithmetic", "A launch at the peak of arithmetic is on the flat part."),
            Choice(
                "neither, but for example a tail",
                "The roofline shows what is possible, but not what else limits the launch.",
                right=True,
            ),
        ),
    ),
    Question(
        "The SM clock is at 300 MHz. Is the GPU throttled?",
        (
            Choice("yes: it should run at its boost clock", "An idle GPU lowers its clock to save power."),
            Choice("yes, if it is hotter than 80 °C", "A high temperature alone does not lower the clock."),
            Choice(
                "only if the driver reports a reason",
                "This is a clock event reason other than idle.",
                right=True,
            ),
            Choice("no: throttling never goes that low", "A power brake can lower the clock as far as this."),
        ),
    ),
    Question(
        "A kernel takes a tenth of the wall time, and you make it three times as fast. By how much does "
        "the wall time of the program fall?",
        (
            Choice("two thirds", "The time of the kernel falls by this share."),
            Choice("a third", "The other nine tenths stay."),
            Choice("about 7 %", "Two thirds of a tenth, if no overlap hid the kernel before.", right=True),
        ),
    ),
    WhyQuestion(
        "Why does a mean over a whole session not show throttling reliably?",
        (
            "a short phase disappears in it",
            "idle time, with its low clocks, pulls it down",
            "it does not contain the cause, which only the clock event reasons show",
        ),
    ),
)
