"""Questions of notebook 16."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "The platform"

QUESTIONS = (
    Question(
        "A program carries machine code for sm_80 and nothing else. Which of these GPUs runs it?",
        (
            Choice("A100 and all that came after it", "Across major versions only PTX goes."),
            Choice(
                "A100, RTX 3090, RTX 4090", "The same major version, this minor one or later.", right=True
            ),
            Choice("A100, and the T4 before it", "Never backwards."),
            Choice("A100 alone", "Later minor versions of the same major one run it, too."),
        ),
    ),
    Question(
        'A new GPU comes out, and a wheel of last year fails with "no kernel image". What did its makers '
        "leave out?",
        (
            Choice("a newer CUDA toolkit", "None of that day knew the new GPU either."),
            Choice(
                "PTX of the newest architecture they built for",
                "A driver compiles it for any later GPU.",
                right=True,
            ),
            Choice("machine code for every minor version", "The new GPU has another major version."),
            Choice("the a behind sm_90", "That would tie it to one GPU even more."),
        ),
    ),
    Question(
        "Where does the first launch of a program with PTX alone lose a second that later ones do not?",
        (
            Choice(
                "the PTX is compiled for the device",
                "And kept in a cache, unless that is turned off.",
                right=True,
            ),
            Choice("the kernel is copied over PCIe", "Some kilobytes: microseconds."),
            Choice("NVRTC compiles the source", "There is none: PTX is what NVRTC would have made."),
        ),
    ),
    Question(
        'A cell sets os.environ["CUDA_VISIBLE_DEVICES"] = "1", after an array was made. What happens?',
        (
            Choice("new arrays land on the second GPU", "The process has its devices already."),
            Choice(
                "nothing in this process; its children see it", "It is read when CUDA starts.", right=True
            ),
            Choice("an error, as the device vanished", "Nobody looks at the variable again."),
        ),
    ),
    Question(
        "What does x @ w on CuPy arrays call between Python and the driver?",
        (
            Choice("cuBLAS, which picks a kernel and launches it", "By shape, type and GPU.", right=True),
            Choice("NVRTC, which compiles a product", "cuBLAS's kernels are compiled already."),
            Choice("cuDNN, the library for neural networks", "Convolutions are its business."),
            Choice("nothing: Python calls the driver", "Several layers lie between."),
        ),
    ),
    Question(
        "A kernel ends with `__shared__ float parts[32]`, one for each warp of a block. Which "
        "GPUs' waves of 64 "
        "lanes break it?",
        (
            Choice(
                "none: there are fewer waves then",
                "The array is large enough; the shuffles before it are another matter.",
                right=True,
            ),
            Choice("all: it has to have 64 places", "A block of 1,024 threads has 16 waves of 64."),
            Choice("those with more than 32 blocks", "Each block has an array of its own."),
        ),
    ),
    Question(
        "Three small models are to share one GPU so that none takes SMs, cache or memory from another. "
        "Which way is it?",
        (
            Choice("time slices", "They take turns on the whole GPU, and its memory is shared."),
            Choice("MPS", "Kernels run side by side, and one that fails may end the others."),
            Choice("MIG", "SMs, L2 and memory are divided in hardware.", right=True),
            Choice("streams with priorities", "Those order work within one process."),
        ),
    ),
    WhyQuestion(
        "Why does NVIDIA ship libraries as machine code for many GPUs, and PTX for the newest only?",
        (
            "Machine code loads at once; PTX has to be compiled by the driver when it is first loaded.",
            "PTX of the newest architecture is what later GPUs can run, with all that it has to offer.",
            "PTX of older ones would be chosen by no GPU that machine code is there for, and takes room.",
        ),
    ),
)
