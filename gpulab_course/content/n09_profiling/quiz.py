"""Questions of notebook 09."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Profiling and monitoring"

QUESTIONS = (
    Question(
        "`nvidia-smi` shows 100 % GPU-Util for an hour. What do you know?",
        (
            Choice("that most SMs were busy", "One block on one SM is enough for this figure."),
            Choice(
                "that the program is bound by the GPU", "It may be a single slow block, or one that spins."
            ),
            Choice(
                "that at most moments some kernel ran",
                "It is a share of time, of any kernel.",
                right=True,
            ),
            Choice("that there is nothing left to gain", "Nothing about speed follows from it."),
        ),
    ),
    Question(
        "A training loop shows 35 % utilization. What do you do first?",
        (
            Choice(
                "start more worker processes for the data loader",
                "That helps only if the loader is the cause.",
            ),
            Choice(
                "look in a timeline at what fills the gaps",
                "A loader, a hidden wait and short kernels look alike in a percentage.",
                right=True,
            ),
            Choice("double the batch size, which raises it", "It may; without a cause it is a guess."),
            Choice(
                "rewrite the slowest kernel of the profile",
                "While the GPU waits, faster kernels gain little.",
            ),
        ),
    ),
    Question(
        "For its place on a roofline, which bytes of a launch count?",
        (
            Choice("those of all loads and stores in its source", "Caches serve most of them."),
            Choice("the size of its arrays", "It may read them many times, or a part only."),
            Choice(
                "those that DRAM moved",
                "As counted, in the launch that was timed.",
                right=True,
            ),
            Choice("those of its coalesced accesses", "Uncoalesced ones move bytes as well, more of them."),
        ),
    ),
    Question(
        "A launch stands far below the sloped part of the roof. What holds it?",
        (
            Choice("the bandwidth of memory, which is used up", "Then it would stand at the slope."),
            Choice("the peak of arithmetic", "Then it would stand at the flat part."),
            Choice(
                "neither, but something else: a tail, say",
                "The roof says what is possible, not what else is in the way.",
                right=True,
            ),
        ),
    ),
    Question(
        "The SM clock is at 300 MHz. Is the GPU throttled?",
        (
            Choice("yes: it should run at its boost clock", "An idle GPU lowers its clock to save power."),
            Choice("yes, if it is hotter than 80 °C", "The temperature alone holds no clock back."),
            Choice("only if the driver gives a reason", "A clock event reason other than idle.", right=True),
            Choice("no: throttling never goes that low", "A power brake may go as low as that."),
        ),
    ),
    Question(
        "A kernel takes a tenth of the wall time. Made three times as fast, what does it bring?",
        (
            Choice("two thirds of its time", "That is what the kernel gains."),
            Choice("a third of its time", "The other nine tenths stay."),
            Choice("about 7 % of its time", "Two thirds of a tenth, if nothing hid it before.", right=True),
        ),
    ),
    WhyQuestion(
        "Why is a mean over a whole session a bad witness for throttling?",
        (
            "a short phase disappears in it",
            "idle time, with its low clocks, pulls it down",
            "it says nothing about the cause, which is in the reasons",
        ),
    ),
)
