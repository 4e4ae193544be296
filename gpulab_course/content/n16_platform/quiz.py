"""Questions of notebook 16."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "The platform"

QUESTIONS = (
    Question(
        "A program contains machine code for sm_80 and nothing else. Which of these GPUs run it?",
        (
            Choice("A100 and all that came after it", "Only PTX runs on another major version."),
            Choice(
                "A100, RTX 3090, RTX 4090",
                "These GPUs have the same major version, and the same minor version or a later one.",
                right=True,
            ),
            Choice("A100, and the T4 before it", "Machine code never runs on an earlier GPU."),
            Choice("A100 alone", "Later minor versions of the same major version also run it."),
        ),
    ),
    Question(
        'A wheel of last year fails with "no kernel image" on a GPU of a new major version. What should '
        "the wheel have contained in addition?",
        (
            Choice("a newer CUDA toolkit", "No toolkit of that time supported the new GPU."),
            Choice(
                "PTX of the newest architecture it was built for",
                "The driver compiles it for any later GPU.",
                right=True,
            ),
            Choice("machine code for every minor version", "The new GPU has another major version."),
            Choice("the letter a after sm_90", "With the letter, it would run on even fewer GPUs."),
        ),
    ),
    Question(
        "A program contains only PTX. Why does its first launch take a second longer than later ones?",
        (
            Choice(
                "the PTX is compiled for the device",
                "The result is kept in a cache, unless the cache is turned off.",
                right=True,
            ),
            Choice(
                "the kernel is copied over PCIe",
                "A kernel has some kilobytes, so its copy takes only microseconds.",
            ),
            Choice(
                "NVRTC compiles the source", "The program contains no source: PTX is the output of NVRTC."
            ),
        ),
    ),
    Question(
        'A cell sets os.environ["CUDA_VISIBLE_DEVICES"] = "1", after an array was made. What happens?',
        (
            Choice("new arrays are on the second GPU", "The process already has its list of devices."),
            Choice(
                "nothing in this process; its children see it",
                "CUDA reads the variable when it is initialized.",
                right=True,
            ),
            Choice(
                "an error, because the device is no longer visible", "CUDA does not read the variable again."
            ),
        ),
    ),
    Question(
        "Between Python and the driver, what does x @ w on CuPy arrays call?",
        (
            Choice(
                "cuBLAS, which picks a kernel and launches it",
                "cuBLAS chooses the kernel by shape, type and GPU.",
                right=True,
            ),
            Choice("NVRTC, which compiles a kernel", "cuBLAS's kernels are compiled already."),
            Choice(
                "cuDNN, the library for neural networks", "cuDNN is for convolutions and similar operations."
            ),
            Choice(
                "nothing: Python calls the driver", "There are several layers between Python and the driver."
            ),
        ),
    ),
    Question(
        "A kernel has an array `__shared__ float parts[32]`, with one element for each warp of a block. On "
        "which GPUs with wavefronts of 64 lanes is the array too small?",
        (
            Choice(
                "none: a block then has fewer wavefronts",
                "The array is large enough, but the shuffles may still depend on 32 lanes.",
                right=True,
            ),
            Choice("all: it must have 64 elements", "A block of 1,024 threads has 16 wavefronts of 64."),
            Choice("those with more than 32 blocks", "Each block has a separate array."),
        ),
    ),
    Question(
        "Three small models are to share one GPU so that none takes SMs, cache or memory from another. "
        "Which method do you choose?",
        (
            Choice(
                "time slices", "In time slices, programs use the whole GPU in turn, and share its memory."
            ),
            Choice("MPS", "Kernels run at the same time, and a failing one can end the others."),
            Choice("MIG", "SMs, L2 and memory are divided in hardware.", right=True),
            Choice("streams with priorities", "Priorities order the work within one process."),
        ),
    ),
    WhyQuestion(
        "Why does NVIDIA ship libraries as machine code for many GPUs, and PTX for the newest only?",
        (
            "Machine code loads at once; PTX has to be compiled by the driver when it is first loaded.",
            "PTX of the newest architecture runs on all later GPUs, and uses all of its features.",
            "PTX of older architectures only takes space: a GPU that finds machine code never uses it.",
        ),
    ),
)
