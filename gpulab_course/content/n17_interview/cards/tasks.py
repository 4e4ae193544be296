"""The full task texts of kernels in interview cards: the result, the launch and the rules."""

from __future__ import annotations

_LAUNCH_OF_LINES = "Launch: one-dimensional blocks of any size up to 1,024, with a thread for each element."
_LAUNCH_OF_WARPS = (
    "Launch: one-dimensional blocks of whole warps, with a thread for each element; `w` counts warps over "
    "the whole grid."
)
_LAUNCH_OF_PLANES = "The grid covers the columns in x and the rows in y."

TASKS: dict[str, str] = {
    "00-saxpy": "`saxpy` sets `y[i] = a * x[i] + y[i]` for n floats. " + _LAUNCH_OF_LINES,
    "02-stride": "`squares` sets `y[i] = x[i] * x[i]` for n floats, and writes each element once. Launch: "
    "one-dimensional, with any number of threads: fewer than elements, or more. Neighbouring lanes must read "
    "neighbouring elements.",
    "02-index": (
        "`scale2d` sets `y = 2 * x` for a row-major matrix of rows × cols, each side from 1 to "
        "about 70,000, and writes each element once. Launch: two-dimensional blocks of any shape. "
        f"{_LAUNCH_OF_PLANES} Accesses must be coalesced."
    ),
    "03-warp-sum": f"`out[w]` is the sum of `x[32 w]` to `x[32 w + 31]`; elements beyond n count as 0. {_LAUNCH_OF_WARPS} "
    "`out` has an int for each of these warps, also for those without an element. No shared memory and no "
    "atomics: the lanes exchange registers.",
    "03-bins": (
        "`count_keys` counts how often each key from 0 to 7 occurs among n keys, and adds the "
        f"number for key k to `bins[k]`, which already contains a count. {_LAUNCH_OF_LINES} As few "
        "lanes as possible may issue an atomic in global memory: about one for each different key "
        "of a warp."
    ),
    "03-compact": "Each warp moves the positive elements among `x[32 w]` to `x[32 w + 31]`, in their order, to "
    "`out[32 w]`, `out[32 w + 1]` and so on, and writes to `counts[w]` how many there are. All other "
    f"elements of `out` keep their values. {_LAUNCH_OF_WARPS} `counts` has an int for each of these warps, also for "
    "those without an element. No atomics.",
    "05-copy4": (
        "`copy4` sets `y[i] = x[i]` for n floats, where n is any number. It uses `float4`, and so "
        "a quarter of the requests. Both arrays are aligned. Each float is written once. Launch: "
        "one-dimensional blocks of any size, with a thread for each four floats, rounded up."
    ),
    "05-split": (
        "`xyz` contains n points as x, y, z, x, y, z, and so on. `split` copies the coordinates "
        "into three arrays, with all accesses coalesced and no bank conflicts. Launch: "
        "one-dimensional blocks of any size up to 1,024, with a thread for each point."
    ),
    "05-transpose": (
        "`y` (cols × rows) becomes the transpose of `x` (rows × cols); both are row-major and "
        "of any shape. Accesses must be coalesced on both sides, without bank conflicts. "
        "Launch: blocks of 32 × h threads, h from 2 to 32; each block processes a tile of 32 × "
        "32. The grid covers the columns of `x` in x and its rows in y, with a block for each "
        "32 of them."
    ),
    "05-matmul": (
        "`c = a · b` for row-major floats, where `a` is rows × inner and `b` is inner × cols, of "
        "any size; inner can be 0. Use tiles in shared memory: the sectors loaded are compared "
        "with those of S × S tiles, and an access must not have bank conflicts that it can "
        "avoid. Launch: blocks of S × S threads, S from 2 to 32, with a thread for each element "
        f"of `c`. {_LAUNCH_OF_PLANES}"
    ),
    "06-block": "Each block writes the sum and the largest of its elements to `sums[blockIdx.x]` and "
    "`largest[blockIdx.x]`. Elements beyond n count as 0 and as -2147483648; numbers have any sign. "
    + _LAUNCH_OF_LINES,
    "06-scan": (
        "Exclusive prefix sums of n integers in one launch: `y[i]` is the sum of all `x` before i, "
        f"and `y[0]` is 0. No sum overflows. {_LAUNCH_OF_LINES} There may be more blocks than the "
        "device can run at once, and they start in any order. `state` has 2 · gridDim.x + 2 ints, "
        "all 0 at first, to use as you like. Blocks communicate through atomics, or with fences. "
        "Load each element about once."
    ),
    "06-compact": "All positive elements of `x` go to the front of `out`, in their order; all other elements of "
    "`out` keep their values. `before[b]` is given: the number of positive elements before block b. One "
    "thread writes to `count[0]` how many positive elements there are. Launch: one-dimensional blocks of "
    "whole warps, with a thread for each element. Load each element about once. No atomics.",
    "06-blur": (
        "`y` is the mean of the 5 × 5 pixels around each pixel of `x` (rows × cols, of any shape); "
        "beyond the edges the nearest pixel counts. Load each pixel once for its block, through a "
        "tile in shared memory. Launch: two-dimensional blocks of any shape, with (blockDim.x + 4) "
        "· (blockDim.y + 4) floats of dynamic shared memory. The grid covers the columns in x. In y "
        "there may be fewer blocks than the rows need, so each block continues with the tile that "
        "is gridDim.y tiles further down."
    ),
    "06-softmax": (
        "The softmax of each row of `x` (rows × cols). Scores are finite or −∞; a row of nothing "
        "but −∞ becomes 0. Find the maximum and the sum in one pass, so that the row is read "
        "only twice in total. Launch: a one-dimensional block of whole warps for each row, "
        "gridDim.x = rows. Rows have any length."
    ),
    "14-sum": "`sums[k]` is the sum of the elements 256 k to 256 k + 255, with 0 beyond n, by exactly this tree, so "
    "that its bits are fixed: `s[i] += s[i + half]` for all i below half, for half = 128, 64, …, 1. Launch: "
    "any grid, of fewer or more blocks than tiles, and one-dimensional blocks of any size from 1 to 1,024. "
    "Each sum is written once.",
}
