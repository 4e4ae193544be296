"""Questions of notebook 05."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "The memory hierarchy"

QUESTIONS = (
    Question(
        "A load from global memory misses L1 and hits L2. On which path does the data come?",
        (
            Choice(
                "global memory, L2, shared memory, register",
                "Shared memory is not on the path of a load. Only your own code stores data there.",
            ),
            Choice(
                "L2, then L1, then the register",
                "L1 and shared memory are the same SRAM, but only L1 is on the path of a load.",
                right=True,
            ),
            Choice("L2, straight to the register", "The data passes through L1 and is usually kept there."),
        ),
    ),
    Question(
        "32 lanes read 32 different floats of the same 128 bytes, in random order. The 128 bytes start at "
        "a multiple of 128. The request touches …",
        (
            Choice(
                "4 sectors, whatever the order", "Only the set of bytes of the request counts.", right=True
            ),
            Choice(
                "32 sectors, because neighbouring lanes read floats that are far apart",
                "The number of sectors counts, not the order of the lanes.",
            ),
            Choice(
                "5 sectors, because the random order costs one more",
                "The request would touch five sectors only if the 128 bytes started inside a sector.",
            ),
        ),
    ),
    Question(
        "All lanes of a warp read the same word of shared memory. That is …",
        (
            Choice(
                "a 32-way conflict, because all lanes use one bank",
                "Only different words of the same bank conflict.",
            ),
            Choice(
                "a broadcast, in one pass", "A bank returns its word to all lanes that read it.", right=True
            ),
            Choice("forbidden without __syncwarp()", "Reading does not need a barrier."),
        ),
    ),
    Question(
        "A tile float t[32][32] is filled by rows and read by columns. What removes the conflicts?",
        (
            Choice("t[33][32], one more row", "A row still has 32 floats, so a column is still in one bank."),
            Choice(
                "filling it by columns and reading it by rows instead",
                "After this change, the stores conflict, 32 ways.",
            ),
            Choice(
                "storing element (r, c) at column c ^ r",
                "This is a swizzle: each row has a different order, and no memory is wasted.",
                right=True,
            ),
        ),
    ),
    Question(
        "A kernel is limited by DRAM bandwidth, and every sector is used in full. With float4 loads it is …",
        (
            Choice("four times faster", "The bytes are still the same."),
            Choice(
                "hardly faster, if enough bytes were in flight before",
                "There are fewer instructions, but the bytes are the same and limit the speed.",
                right=True,
            ),
            Choice(
                "slower, because alignment costs extra sectors",
                "A float4 access is either aligned or an error.",
            ),
        ),
    ),
    Question(
        "Compared with a naive matrix multiplication, what does a tile of 32 × 32 in shared memory avoid? "
        "Blocks have 32 × 32 threads.",
        (
            Choice(
                "requests that are not coalesced",
                "The requests were coalesced before, because x runs along the rows of b.",
            ),
            Choice(
                "31 of the 32 loads of each element",
                "A block loads it once, and 32 threads use it.",
                right=True,
            ),
            Choice(
                "mostly the traffic between L2 and device memory",
                "L2 already served most of these loads before.",
            ),
        ),
    ),
    Question(
        "The compiler reports 480 bytes of local memory per thread. That is …",
        (
            Choice(
                "480 bytes of registers, kept close to the core",
                "Local memory is not a part of the registers.",
            ),
            Choice(
                "a share of the SM's shared memory, 480 bytes for each thread",
                "Local memory is not a part of shared memory.",
            ),
            Choice(
                "device memory, which L1 caches as long as it has space",
                "Spilled values and arrays with indices that depend on data are stored there.",
                right=True,
            ),
        ),
    ),
    Question(
        "When is constant memory a poor choice?",
        (
            Choice(
                "if lanes of a warp read different words",
                "The cache delivers the different words one after another.",
                right=True,
            ),
            Choice(
                "if all lanes read the same word at the same time", "Constant memory is made for this case."
            ),
            Choice("if it contains more than 1 KB in all", "Constant memory can contain up to 64 KB."),
        ),
    ),
    WhyQuestion(
        "Why can a kernel that requests 200 times the bytes that it needs be only 10 times as slow as one "
        "that requests only these bytes?",
        (
            "The requested bytes are counted before L1, and L1 and L2 serve most of them.",
            "Device memory serves the first access to a line, and data that the caches have replaced.",
            "Each level has its own bandwidth, and the level that needs the most time decides.",
            "So count at each level: sectors for L1, misses of L1 for L2, and misses of L2 for DRAM.",
        ),
    ),
)
