"""Predictions of notebook 05."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "05-block",
        "The last step moves exactly the bytes that it needs. And the second, the product of `normed` with "
        "its own transpose: how many times what it needs?",
        "Each element of the result reads a whole row of both factors again, and where 16 lanes stand in 16 "
        "rows, each request brings sectors of 32 bytes for 4 that are wanted. In all it is {times} times.",
        choices=("about 2 times", "about 20 times", "about 200 times", "about 2,000 times"),
        comparison="about 2 times",
        misconception="A kernel moves what it computes with, give or take a little.",
    ),
    PredictionQuestion(
        "05-hundred",
        "On an H200, how many times as long as a load that hits L1, the same SRAM as shared memory, does a "
        "load from device memory take?",
        "L1, the same SRAM as shared memory, answers after {near}, for it has to be addressed, too; device "
        "memory after {far}. In bandwidth shared memory is {band} times ahead: 128 bytes a cycle for "
        "each SM, by the published clock, against the published bandwidth.",
        unit="times",
        comparison=100,
        misconception="Shared memory is a hundred times faster than global memory.",
    ),
    PredictionQuestion(
        "05-largest",
        "Counted over the whole GPU here, which holds more bytes: all registers, or all shared memory?",
        "An SM has 65,536 registers: 65,536 × 4 bytes = 256 KB, more than any GPU of our table "
        "has of shared memory. What is fastest is not what is smallest.",
        choices=("all registers", "all shared memory"),
        comparison="all shared memory",
        misconception="The closer to the cores, the smaller the memory.",
    ),
    PredictionQuestion(
        "05-offset",
        "32 lanes read 32 neighbouring floats, which begin 4 bytes behind a multiple of 128. How many "
        "sectors of 32 bytes does the request touch?",
        "128 bytes that do not begin where a sector does lie in five. It costs one more, and that is all.",
        unit="sectors",
        comparison=8,
        misconception="A misaligned access takes twice the transactions, as it did on GPUs of 2008.",
    ),
    PredictionQuestion(
        "05-reverse",
        "Lane 0 reads float 31, lane 1 float 30, and so on down to lane 31, which reads float 0. Sectors?",
        "Which lane wants which float does not matter: the request is the set of its bytes.",
        unit="sectors",
        comparison=32,
        misconception="Coalescing wants lane k at element k.",
    ),
    PredictionQuestion(
        "05-stride",
        "Lanes 8 floats apart touch 32 sectors. How many do lanes touch that stand 32 floats apart?",
        "From a stride of 8 on each lane touches a sector of its own, and no lane can touch more than one.",
        unit="sectors",
        comparison=128,
        misconception="The larger the stride, the more is moved.",
    ),
    PredictionQuestion(
        "05-vector",
        "The same copy, by `float4` instead of `float`. It makes a quarter of the requests. How many sectors "
        "does it touch, as a share of before?",
        "The bytes are the same and so are their sectors: 16 for a request instead of 4. What is saved are "
        "instructions and addresses, and each lane has more bytes on their way.",
        unit="%",
        comparison=25,
        misconception="Vector loads move less memory.",
    ),
    PredictionQuestion(
        "05-third",
        "In shared memory, lane k reads word 3 k. How many ways does the access conflict (1: not at all)?",
        "3 k modulo 32 is another bank for every lane: 3 and 32 have no common factor. Odd strides never "
        "conflict; even ones do, from 2 on.",
        unit="ways",
        comparison=3,
        misconception="A stride of n conflicts n ways.",
    ),
    PredictionQuestion(
        "05-wide",
        "32 lanes read 32 neighbouring `float2`s from shared memory. How many turns (passes) does the "
        "request take?",
        "256 bytes, and a pass brings 128: 16 lanes at a time. It is no conflict, only more to bring.",
        unit="turns",
        comparison=1,
        misconception="Neighbours never take more than one pass, whatever their size.",
    ),
    PredictionQuestion(
        "05-axis",
        "A colleague pads the tile: `float tile[33][32]`. How many ways does reading a column conflict now?",
        "A row still has 32 floats, so a column still lies in one bank. What has to grow is the row: "
        "`tile[32][33]`.",
        unit="ways",
        comparison=1,
        misconception="33 anywhere is enough.",
    ),
    PredictionQuestion(
        "05-naive",
        "One thread computes one element of a · b, with 16 × 16 threads a block, x along the columns. How "
        "many sectors does a load touch on average?",
        "Two rows of 16 threads: for `a` two elements that are shared, for `b` 64 bytes that all 32 lanes "
        "want. It is coalesced. What is wrong with it is how often it comes back.",
        unit="sectors",
        comparison=32,
        misconception="Naive matrix multiplication is slow because it is uncoalesced.",
    ),
    PredictionQuestion(
        "05-ladder",
        "A tile of 32 × 32 makes loads and stores coalesced, but reading its columns conflicts 32 ways. "
        "How long does this transpose take, as a share of the naive one's time?",
        "A pass of shared memory is over in a cycle, and a sector of global memory is not: even the worst "
        "conflict can be cheaper than a sector for each lane. Here it took {tiled}, and {padded} without the "
        "conflict.",
        unit="%",
        comparison=100,
        misconception="A 32-way conflict is as bad as 32 sectors.",
    ),
    PredictionQuestion(
        "05-tile",
        "A tile of 16 × 16 loads an eighth of the sectors. What does the tiled product ask of L2, as a "
        "share of what the naive one asks?",
        "L1 held {held} of what the naive product asked for. The tile relieves L1 first; it is larger tiles "
        "that relieve L2 and memory.",
        unit="%",
        comparison=12.5,
        misconception="Tiling saves traffic to memory.",
    ),
    PredictionQuestion(
        "05-constant",
        "A table of 32 floats in `__constant__` memory, in its cache. The 32 lanes read 32 different ones. "
        "How many turns does the constant cache take?",
        "It gives one word a turn, to all lanes that want it. For a word that all lanes want there is "
        "nothing better; for a table that each lane indexes otherwise, shared memory is.",
        unit="turns",
        comparison=1,
        misconception="Constant memory is the fastest memory there is.",
    ),
    PredictionQuestion(
        "05-texture",
        "Texels 0, 10, 20 and 30 in a row, filtered linearly. What does the texture give at coordinate 1.0?",
        "Texel 0 has its centre at 0.5, texel 1 at 1.5. 1.0 is halfway between them.",
        comparison=10,
        misconception="Coordinate i is element i.",
    ),
    PredictionQuestion(
        "05-where",
        "`int v[5];` in a kernel, sorted in a loop whose indices depend on the data. Where does `v` live?",
        "An index that is known only at run time needs an address, and registers have none. *Local* memory "
        "is private to the thread, and lies in the device's memory, behind L1 and L2.",
        choices=("in registers", "in shared memory", "in the device's memory"),
        comparison="in registers",
        misconception="Local memory is local: on the SM, next to the thread.",
    ),
    PredictionQuestion(
        "05-resident",
        "A block with 12 KB of shared memory, on an H100, whose SMs have 228 KB for blocks: how many fit, "
        "if nothing else limits them?",
        "228 / 12 would be 19. But from compute capability 8.0 on each block costs one more KB, which the "
        "system keeps for itself: 228 / 13 leaves 17.",
        unit="blocks",
        comparison=19,
        misconception="A block takes the shared memory that it declares.",
    ),
)
