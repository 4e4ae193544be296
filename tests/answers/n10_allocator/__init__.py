"""Wrong and right answers to the exercises of notebook 10."""

import numpy as np

from gpulab_course.content.n10_allocator import exercises, pool
from tests.answers import Right, Wrong
from tests.answers.n10_allocator import pools, programs, sizes

_MIB = exercises.MIB
_PREDICT = (
    Wrong("10-predict", "to the byte", sizes.exact, "", "Pool blocks are multiples of 512 bytes"),
    Wrong("10-predict", "rounds down", sizes.rounds_down, "", "Pool blocks are multiples of 512 bytes"),
    Wrong("10-predict", "pages in CuPy's pool", sizes.pages_in_cupy, "", "a segment of exactly this size"),
    Wrong("10-predict", "the same in both", sizes.same_in_both, "", "takes a segment of 2 MiB"),
    Wrong("10-predict", "segments of 2 MiB for all sizes", sizes.always_two_mib, "", "takes a segment of 20 MiB"),
    Wrong("10-predict", "small ends before 1 MiB", sizes.limit_at(_MIB - 1, 10 * _MIB), "", "Up to 1 MiB"),
    Wrong("10-predict", "large begins behind 10 MiB", sizes.limit_at(_MIB, 10 * _MIB + 1), "",
          "From 10 MiB on"),
    Wrong("10-predict", "always cuts segments", sizes.always_cuts, "", "all of it is used"),
    Wrong("10-predict", "a block for nothing", sizes.block_for_nothing, "", "0 bytes takes no pool block"),
    Wrong("10-predict", "one number", lambda size: size, "", "should return four numbers"),
    Wrong("10-predict", "returns nothing", lambda size: None, "", "returns nothing"),
    Wrong("10-predict", "returns strings", lambda size: tuple(map(str, exercises.after_one(size))), "", "should return four numbers"),
    Wrong("10-predict", "numbers of MiB", lambda size: tuple(n / _MIB for n in exercises.after_one(size)), "", "512 bytes"),
    Wrong("10-predict", "blocks in single precision", lambda size: exercises.after_one(int(np.float32(size))), "", "512 bytes"),
    Wrong("10-predict", "cuts where 1 MiB is left", sizes.cuts_at_one_mib, "", "all of it is used"),
    Right("10-predict", "the reference", exercises.after_one),
    Right("10-predict", "a list of floats", lambda size: list(map(float, exercises.after_one(size)))),
    Right("10-predict", "by what was asked", sizes.small_by_asked),
    Right("10-predict", "a table", sizes.with_a_table),
    Right("10-predict", "in MiB", sizes.by_numpy),
)

_SCALE = (
    Wrong("10-scale", "by less than 1", programs.by_what_there_is, "results", ""),
    Wrong("10-scale", "the given program, unchanged", exercises.scaled_naive, "counts", "in place"),
    Wrong("10-scale", "changes its input", programs.changes_its_input, "results", "belongs to its caller"),
    Wrong("10-scale", "frees one step late", programs.deletes_too_late, "counts", "in place"),
    Wrong("10-scale", "one expression", programs.one_expression, "counts", "in place"),
    Wrong("10-scale", "only the last step has out=", programs.out_of_a_new_one, "counts", "in place"),
    Wrong(
        "10-scale", "copies numbers to the host", programs.numbers_of_the_host, "counts", "Nothing here needs the"
    ),
    Wrong("10-scale", "by way of the host", programs.by_the_host, "counts", ""),
    Wrong("10-scale", "to 0 ... 1", programs.not_two, "results", ""),
    Wrong("10-scale", "in doubles", programs.in_doubles, "counts", "in place"),
    Wrong("10-scale", "nothing is below 1", programs.above_one, "results", "it should be"),
    Wrong("10-scale", "divides so that no element is above 0", programs.below_zero, "results", "it should be"),
    Wrong("10-scale", "divides by zero", programs.divides_by_zero, "results", ""),
    Wrong("10-scale", "from another pool", programs.from_another_pool, "counts", "in place"),
    Wrong("10-scale", "without a pool", programs.without_a_pool, "counts", "in place"),
    Wrong(
        "10-scale",
        "changes x, and changes it back",
        programs.shifts_its_input_and_back,
        "results",
        "belongs to",
    ),
    Right("10-scale", "the reference", exercises.scaled),
    Right("10-scale", "out=", programs.by_outs),
    Right("10-scale", "a copy, in place", programs.by_a_copy),
    Right("10-scale", "one kernel", programs.by_a_kernel),
)

_SITS = "The rows stay in the middle"
_FIT = (
    Wrong("10-fit", "the given program, unchanged", exercises.tops_in_freed_memory, "results", _SITS),
    Wrong("10-fit", "empties the cache each time",
          programs.tops(kept_first=False, fixed_work=False, clean=True), "results", _SITS),
    Wrong("10-fit", "copies numbers to the host", programs.tops(host=True), "counts", "Nothing here needs the host"),
    Wrong("10-fit", "and no workspace, either",
          programs.tops(kept_first=False, fixed_work=False, host=True), "results", _SITS),
    Wrong("10-fit", "changes the limit of the pool", programs.tops_without_limit, "counts", "cannot be returned to the driver"),
    Wrong("10-fit", "without the root", programs.tops(abs_only=True), "results", ""),
    Wrong("10-fit", "the largest of all", programs.tops_by_shared_max, "results", ""),
    Wrong("10-fit", "managed memory", programs.tops_managed, "counts", ""),
    Wrong("10-fit", "the driver's own pool", programs.tops_ordered, "counts", "cannot be returned to the driver"),
    Wrong("10-fit", "empties the cache, what stays first",
          programs.tops(fixed_work=False, clean=True), "counts", "One workspace is enough for all"),
    Wrong("10-fit", "windows one element short", programs.tops_of_shorter_windows, "results", "it should be"),
    Wrong("10-fit", "computes equal windows only once", programs.tops_by_start, "results", "should be ("),
    Right("10-fit", "the reference", exercises.tops),
    Right("10-fit", "in pieces", programs.tops_in_pieces),
    Right("10-fit", "what stays first", programs.tops(fixed_work=False)),
    Right("10-fit", "a workspace that stays", programs.tops(kept_first=False)),
    Right("10-fit", "no workspace at all", programs.tops_without_workspace),
    Right("10-fit", "rows first", programs.tops_small_first),
    Right("10-fit", "kernels of its own", programs.tops_by_kernels),
    Right("10-fit", "numbers first", programs.tops_numbers_first),
)

_SIDE = (
    Wrong("10-side", "the given program, unchanged", exercises.both_freed_early, "hazards", "uses its memory again"),
    Wrong("10-side", "the side stream does not wait", programs.both(wait_first=False), "hazards", ""),
    Wrong("10-side", "no join", programs.both(join=False), "hazards", ""),
    Wrong("10-side", "the host waits", programs.both(keep=False, host=True), "counts", "Nothing here needs"),
    Wrong("10-side", "one stream instead of two", programs.one_stream, "counts", "two streams"),
    Wrong("10-side", "results swapped", programs.swapped, "results", ""),
    Wrong("10-side", "frees the array after a copy", programs.keeps_by_copy_on_main, "hazards",
          "while side may still be reading"),
    Wrong("10-side", "its own array for the rest", programs.own_array_for_the_rest, "hazards",
          "uses its memory again"),
    Wrong("10-side", "no order at all", programs.both(wait_first=False, join=False), "hazards", ""),
    Wrong("10-side", "joins the streams too early", programs.both(keep=False, join_early=True), "counts",
          "at the same time"),
    Wrong("10-side", "joined halfway before the other way", programs.both(join_half=True), "counts",
          "wait for the side stream at the end"),
    Wrong("10-side", "the side stream is for show", programs.second_stream_for_show, "counts", "two streams"),
    Right("10-side", "the reference", exercises.both),
    Right("10-side", "kept until the end", programs.both()),
    Right("10-side", "all on the side stream", programs.all_on_the_side),
    Right("10-side", "a stream for each way", programs.other_stream_for_the_rest),
    Right("10-side", "the short way first", programs.main_first),
)

_JOIN = "join free neighbours"
_POOL = (
    Wrong("10-pool", "calls the driver for every request", pool.NoPool, "results", "only empty_cache() returns segments"),
    Wrong("10-pool", "never joins free neighbours", pools.NeverJoins, "results", _JOIN),
    Wrong("10-pool", "joins with the right neighbour alone", pools.JoinsToTheRight, "results", _JOIN),
    Wrong("10-pool", "never splits", pools.NeverSplits, "results", "cut large ones"),
    Wrong("10-pool", "cuts only what is large", pools.SplitsLargeOnes, "results", "cut large ones"),
    Wrong("10-pool", "first fit", pools.FirstFit, "results", "the smallest pool block that fits"),
    Wrong("10-pool", "largest first", pools.WorstFit, "results", "the smallest pool block that fits"),
    Wrong("10-pool", "multiples of 256", pools.rounded_to(256), "results", "multiples of 512 bytes"),
    Wrong("10-pool", "multiples of 1,024", pools.rounded_to(1024), "results", "a free pool block of"),
    Wrong("10-pool", "one dictionary for all pools", pools.Shared, "results", "only the segments that your pool requested"),
    Wrong("10-pool", "forgets nothing of what it gave back", pools.RemembersSegments, "results", ""),
    Wrong("10-pool", "joins across segments", pools.JoinsAcrossSegments, "results",
          "not join pool blocks of two segments"),
    Wrong("10-pool", "ignores streams", pools.IgnoresStreams, "results", "Keep separate lists of free pool blocks"),
    Wrong("10-pool", "tells streams apart by two bits", pools.FewStreams, "results", "Keep separate lists of free pool blocks"),
    Wrong("10-pool", "no rest of 512 bytes", pools.LeavesLittle, "results", "cut large ones"),
    Wrong("10-pool", "takes a double free", pools.TakesDoubleFrees, "results", "should raise an error"),
    Wrong("10-pool", "takes a free of what it gave back", pools.TakesLateFrees, "results", "should raise an error"),
    Wrong("10-pool", "joins with what is in use", pools.CrashesOnJoin, "results", ""),
    Wrong("10-pool", "does not round sizes", pools.NoRounding, "results", "multiples of 512 bytes"),
    Wrong("10-pool", "gives nothing back", pools.KeepsAll, "results", "after empty_cache()"),
    Wrong("10-pool", "gives back what is in use", pools.GivesBackTooMuch, "results", "still in use"),
    Wrong("10-pool", "keeps nothing", pools.GivesBackAtOnce, "results", "keep the pool block for the next request"),
    Wrong("10-pool", "takes far too much", pools.OneHugeSegment, "counts", "smallest pool block that fits"),
    Wrong("10-pool", "an instance instead of the class", pool.MyPool(None), "results", "not MyPool"),
    Right("10-pool", "the reference", pool.MyPool),
    Right("10-pool", "sorted lists", pools.Lists),
    Right("10-pool", "a map of each segment", pools.Units),
    Right("10-pool", "cut from the end", pools.CutsFromTheEnd),
    Right("10-pool", "an array of NumPy's whole numbers", pools.NumpyAddresses),
    Right("10-pool", "joins when asked", pools.JoinsWhenAsked),
)

_ROWS = (
    Wrong("10-rows", "all rows at once", exercises.attend_naive, "counts", "some rows at a time"),
    Wrong("10-rows", "a new array in each step", programs.attention(in_place=False), "counts", "in place"),
    Wrong("10-rows", "row by row", programs.attention(rows=1), "counts", "Take more rows at a time"),
    Wrong("10-rows", "half of the rows at once", programs.attention(rows=256), "counts", "some rows at a time"),
    Wrong("10-rows", "the ragged end left out", programs.attention(ragged=False), "results", ""),
    Wrong("10-rows", "not scaled", programs.attention(scale=False), "results", ""),
    Wrong("10-rows", "over the wrong axis", programs.attention(axis=0), "results", ""),
    Wrong("10-rows", "copies a number to the host for each block", programs.attention(host=True), "counts", "Nothing here needs"),
    Wrong("10-rows", "keeps all scores", programs.attention_kept, "counts", "some rows at a time"),
    Wrong("10-rows", "by the host", programs.attention_by_the_host, "counts", ""),
    Wrong("10-rows", "small numbers need no maximum", programs.attention(minus_max=False), "results", "nan"),
    Right("10-rows", "the reference", exercises.attend),
    Right("10-rows", "blocks of 48", programs.attention(rows=48)),
    Right("10-rows", "online, by columns", programs.attention_online),
    Right("10-rows", "one buffer", programs.attention_in_one_buffer),
)

_ALL: tuple[Wrong | Right, ...] = (*_PREDICT, *_SCALE, *_FIT, *_SIDE, *_POOL, *_ROWS)
WRONG = tuple(item for item in _ALL if isinstance(item, Wrong))
RIGHT = tuple(item for item in _ALL if isinstance(item, Right))
