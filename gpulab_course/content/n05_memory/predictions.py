"""Predictions of notebook 05."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "05-block",
        "`gelu` requests exactly the bytes that it needs. Now consider `matmul_transposed`, which multiplies "
        "`normed` by its own transpose. How many times the needed bytes does it request?",
        "Each element of the result reads a whole row of both factors again. In addition, 16 lanes read "
        "from 16 different rows, so each request loads sectors of 32 bytes and uses 4 bytes of each. In "
        "total, the kernel requests {times} times the needed bytes.",
        choices=("about 2 times", "about 20 times", "about 200 times", "about 2,000 times"),
        comparison="about 2 times",
        misconception="A kernel requests about as many bytes as its arrays have.",
    ),
    PredictionQuestion(
        "05-hundred",
        "On an H200, compare a load from device memory with a load that hits L1, which uses the same SRAM "
        "as shared memory. How many times as long does the load from device memory take?",
        "A load that hits L1 takes {near}, because L1 has to find the data by its address. A load from "
        "device memory takes {far}. The bandwidth of shared memory is {band} times that of device memory: "
        "128 bytes per cycle and SM at the published clock, compared with the published bandwidth of "
        "device memory.",
        unit="times",
        comparison=100,
        misconception="Shared memory is a hundred times faster than global memory.",
    ),
    PredictionQuestion(
        "05-largest",
        "Add up the whole GPU that you use here. Which has more bytes: all registers, or all shared memory?",
        "An SM has 65,536 registers: 65,536 × 4 bytes = 256 KB. No GPU in the table of this course has as "
        "much shared memory per SM. The fastest memory is not the smallest one.",
        choices=("all registers", "all shared memory"),
        comparison="all shared memory",
        misconception="The closer to the cores, the smaller the memory.",
    ),
    PredictionQuestion(
        "05-offset",
        "32 lanes read 32 neighbouring floats, which start 4 bytes after a multiple of 128. How many "
        "sectors of 32 bytes does the request touch?",
        "These 128 bytes do not start where a sector starts, so they are in five sectors. The offset costs "
        "one sector more, and nothing else.",
        unit="sectors",
        comparison=8,
        misconception="A misaligned access takes twice the transactions, as it did on GPUs of 2008.",
    ),
    PredictionQuestion(
        "05-reverse",
        "Lane 0 reads float 31, lane 1 reads float 30, and so on to lane 31, which reads float 0. How many "
        "sectors does the request touch?",
        "It does not matter which lane reads which float. Only the set of all bytes of the request counts.",
        unit="sectors",
        comparison=32,
        misconception="For a coalesced access, lane k must read element k.",
    ),
    PredictionQuestion(
        "05-stride",
        "If the lanes read floats that are 8 apart, they touch 32 sectors. How many sectors do they touch "
        "if the floats are 32 apart?",
        "From a stride of 8 on, each lane touches a separate sector, and no lane can touch more than one.",
        unit="sectors",
        comparison=128,
        misconception="The larger the stride, the more bytes are moved.",
    ),
    PredictionQuestion(
        "05-vector",
        "The copy uses `float4` instead of `float`, so it makes a quarter of the requests. How many sectors "
        "does it touch, in percent of the sectors that the copy with `float` touches?",
        "The bytes are the same, and so are their sectors: 16 per request instead of 4. The copy with "
        "`float4` needs fewer instructions and addresses, and each lane has more bytes in flight.",
        unit="%",
        comparison=25,
        misconception="Vector loads move fewer bytes.",
    ),
    PredictionQuestion(
        "05-third",
        "In shared memory, lane k reads word 3 k. How many ways does the access conflict (1 means no "
        "conflict)?",
        "3 k modulo 32 is a different bank for every lane, because 3 and 32 have no common factor. Odd "
        "strides never conflict. Even strides do, from 2 on.",
        unit="ways",
        comparison=3,
        misconception="A stride of n conflicts n ways.",
    ),
    PredictionQuestion(
        "05-wide",
        "32 lanes read 32 neighbouring `float2` values from shared memory. How many passes does the request "
        "take?",
        "The request has 256 bytes, and a pass delivers 128 bytes, for 16 lanes at a time. This is not a "
        "conflict, because more bytes need more passes.",
        unit="passes",
        comparison=1,
        misconception="Neighbouring lanes never need more than one pass, whatever the size of an element.",
    ),
    PredictionQuestion(
        "05-axis",
        "A colleague pads the tile: `float tile[33][32]`. How many ways does reading a column conflict now?",
        "A row still has 32 floats, so all elements of a column are still in one bank. The row has to "
        "become longer: `tile[32][33]`.",
        unit="ways",
        comparison=1,
        misconception="It does not matter which of the two sizes is 33.",
    ),
    PredictionQuestion(
        "05-naive",
        "One thread computes one element of a · b. Blocks have 16 × 16 threads, with x along the columns. "
        "How many sectors does a load touch on average?",
        "A warp is two rows of 16 threads. Its load of `a` reads two elements, each for 16 lanes. Its load "
        "of `b` reads 64 neighbouring bytes, which are two sectors. So both loads are coalesced. The "
        "problem is that the same bytes are loaded many times.",
        unit="sectors",
        comparison=32,
        misconception="Naive matrix multiplication is slow because it is uncoalesced.",
    ),
    PredictionQuestion(
        "05-ladder",
        "With a tile of 32 × 32, loads and stores of the transpose are coalesced, but reading a column of "
        "the tile conflicts 32 ways. How long does this transpose take, in percent of the time of the "
        "naive version?",
        "A pass of shared memory takes one cycle, and a sector of global memory takes longer. Therefore "
        "even the worst conflict can be cheaper than one sector per lane. Here the tiled version took "
        "{tiled}, and the padded version, which has no conflict, took {padded}.",
        unit="%",
        comparison=100,
        misconception="A 32-way conflict is as bad as 32 sectors.",
    ),
    PredictionQuestion(
        "05-tile",
        "With tiles of 16 × 16, the multiplication loads an eighth of the sectors. How many sectors does it "
        "load from L2, in percent of the sectors that the naive version loads from L2?",
        "In the naive version, L1 already delivered {held} of the sectors. A small tile therefore reduces "
        "mainly the requests to L1. Larger tiles are needed to reduce the traffic to L2 and device memory.",
        unit="%",
        comparison=12.5,
        misconception="Every tile saves traffic to device memory.",
    ),
    PredictionQuestion(
        "05-constant",
        "A table of 32 floats is in `__constant__` memory and in its cache. The 32 lanes read 32 different "
        "floats. How many passes does the constant cache take?",
        "A pass returns one word to all lanes that read it, so constant memory is ideal for a word that "
        "all lanes read. If each lane reads a different element of a table, shared memory is better.",
        unit="passes",
        comparison=1,
        misconception="Constant memory is the fastest memory there is.",
    ),
    PredictionQuestion(
        "05-texture",
        "A row has the texels 0, 10, 20 and 30 and is filtered linearly. What does the texture return at "
        "coordinate 1.0?",
        "Texel 0 has its centre at 0.5, and texel 1 at 1.5. The coordinate 1.0 is halfway between them.",
        comparison=10,
        misconception="Coordinate i is element i.",
    ),
    PredictionQuestion(
        "05-where",
        "A kernel contains `int v[5];` and sorts it in a loop whose indices depend on the data. Where is "
        "`v` stored?",
        "An index that is known only at run time needs an address, and registers have no addresses. *Local* "
        "memory is private to the thread, but it is a part of device memory, cached in L1 and L2.",
        choices=("in registers", "in shared memory", "in the device's memory"),
        comparison="in registers",
        misconception="Local memory is local: on the SM, next to the thread.",
    ),
    PredictionQuestion(
        "05-resident",
        "A block uses 12 KB of shared memory. An SM of the H100 has 228 KB for blocks. How many blocks fit, "
        "if nothing else limits them?",
        "228 / 12 would be 19. But from compute capability 8.0 on, the system reserves one more KB per "
        "block, and 228 / 13 = 17.5, so 17 blocks fit.",
        unit="blocks",
        comparison=19,
        misconception="A block uses only the shared memory that it declares.",
    ),
)
