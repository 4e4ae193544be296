"""Wrong and right answers to the exercises of notebook 11."""

from gpulab_course.content.n11_graphs import exercises
from tests.answers import Right, Wrong
from tests.answers.n11_graphs import noises, programs

_REPLAY = (
    Wrong("11-replay", "no graph", exercises.relax_naive, "counts", "one launch for three kernels"),
    Wrong("11-replay", "captures every round", programs.recaptures, "counts", "Capture once"),
    Wrong("11-replay", "never launches", programs.never_launches, "results", "launching the graph does"),
    Wrong("11-replay", "takes the capture for a round", programs.capture_is_a_round, "results", "capturing"),
    Wrong("11-replay", "warms up on x", programs.warms_up_on_x, "results", "warm up on a copy"),
    Wrong("11-replay", "on the default stream", programs.default_stream, "results", "a stream of your own"),
    Wrong(
        "11-replay",
        "reads a result inside",
        programs.looks_inside,
        "results",
        "While a stream captures, nothing runs",
    ),
    Wrong(
        "11-replay", "waits during the capture", programs.waits_inside, "results", "While a stream captures, nothing runs"
    ),
    Wrong("11-replay", "assigns a new array to the name x", programs.rebinds, "results", "a graph contains addresses, not names"),
    Wrong("11-replay", "work beside the stream", programs.blocking_stream, "results", "with stream: …"),
    Wrong("11-replay", "nobody waits at the end", programs.nobody_waits, "hazards", ""),
    Wrong("11-replay", "does not wait for the copy", programs.warms_up_unseen, "hazards", ""),
    Wrong("11-replay", "two graphs in turn", programs.two_graphs, "counts", "Capture once"),
    Wrong("11-replay", "returns a host array", programs.host_numbers, "results", "stay on the device"),
    Wrong(
        "11-replay", "waits for the default stream", programs.follows_the_default_stream, "hazards", "current"
    ),
    Wrong("11-replay", "a graph for show", programs.graph_for_show, "counts", "by launching a graph"),
    Right("11-replay", "in the caller's stream, warm", programs.in_the_callers_stream),
    Right("11-replay", "the reference", exercises.relax),
    Right("11-replay", "the warm-up is the first round", programs.warm_round_counts),
    Right("11-replay", "all rounds in one graph", programs.all_rounds_in_one),
    Right("11-replay", "temporaries, copied back", programs.in_place_by_hand),
    Right("11-replay", "one kernel of its own", programs.fused),
    Right("11-replay", "an event at the end", programs.host_func),
)

_STATIC = (
    Wrong("11-static", "the given program, unchanged", programs.serve_as_given, "results", "which the graph was captured"),
    Wrong(
        "11-static", "rebinds, copies the answer", programs.serve(rebind=True), "results", "x[...] = batch"
    ),
    Wrong(
        "11-static",
        "copies the input, not the answer",
        programs.serve(alias=True),
        "results",
        "All rows contain the last",
    ),
    Wrong("11-static", "copies the answer too early", programs.serve(late=True), "results", ""),
    Wrong("11-static", "writes into batch 0", programs.serve(view=True), "results", ""),
    Wrong("11-static", "nobody waits at the end", programs.serve(sync=False), "hazards", ""),
    Wrong(
        "11-static", "does not wait for what comes before", programs.serve(early_wait=False), "hazards", ""
    ),
    Wrong("11-static", "copies the input on another stream", programs.serve(outside=True), "hazards", ""),
    Wrong(
        "11-static", "captures for every request", programs.serve(recapture=True), "counts", "Capture once"
    ),
    Wrong(
        "11-static",
        "copies answers to the host",
        programs.serve(host=True),
        "counts",
        "Keep the answers on the device",
    ),
    Wrong("11-static", "no graph", programs.serve_eagerly, "counts", "with a launch of the graph"),
    Wrong("11-static", "one launch for all", programs.serve_once, "counts", "with a launch of the graph"),
    Wrong(
        "11-static",
        "launches a graph, but returns other results",
        programs.serve_beside_a_graph,
        "counts",
        "return what it has computed",
    ),
    Wrong(
        "11-static",
        "the host launches the last step",
        programs.serve_in_place(outside=True),
        "counts",
        "only copy",
    ),
    Right("11-static", "the reference", exercises.serve),
    Right("11-static", "copies and a stack", programs.serve()),
    Right("11-static", "in place, no temporaries", programs.serve_in_place()),
    Right("11-static", "a callable with static buffers", programs.serve_by_callable),
)

_FORK = (
    Wrong("11-fork", "the branches run one after the other", exercises.branches_naive, "counts", "run one after the other"),
    Wrong("11-fork", "the second stream never joins in", programs.branches(fork=False), "results", ""),
    Wrong(
        "11-fork",
        "forks after the first branch",
        programs.branches(fork_late=True),
        "counts",
        "run one after the other",
    ),
    Wrong("11-fork", "the second stream is not joined", programs.branches(joined="never"), "results", "before end_capture()"),
    Wrong(
        "11-fork",
        "the join's event comes too early",
        programs.branches(joined="early"),
        "results",
        "before end_capture()",
    ),
    Wrong("11-fork", "joins after the join", programs.branches(joined="too late"), "hazards", ""),
    Wrong(
        "11-fork",
        "the host waits during the capture",
        programs.branches(host_wait=True),
        "results",
        "While a stream captures",
    ),
    Wrong(
        "11-fork",
        "the output is one array",
        programs.branches(alias=True),
        "results",
        "All rows contain the last",
    ),
    Wrong(
        "11-fork", "assigns a new array to the input's name", programs.branches(rebind=True), "results", "All rows contain the first"
    ),
    Wrong("11-fork", "no graph", programs.branches_eagerly, "counts", "once for each input"),
    Wrong("11-fork", "joins outside of the graph", programs.joins_outside, "counts", "belong in the graph"),
    Right("11-fork", "the reference", exercises.branches),
    Right("11-fork", "the branches exchanged", programs.branches(other=True)),
    Right("11-fork", "three streams", programs.three_streams),
    Right("11-fork", "joined on the second stream", programs.join_on_the_second),
)

_NOISE = (
    Wrong("11-noise", "the round is captured as a constant", noises.draws(fixed=True), "results", "Every launch drew round 0"),
    Wrong("11-noise", "advances the round before the draw", noises.draws(first=True), "results", "one round ahead"),
    Wrong("11-noise", "the warm-up advances", noises.draws(warm=True), "results", "one round ahead"),
    Wrong(
        "11-noise",
        "the output is one array",
        noises.draws(alias=True),
        "results",
        "All rows contain the last round",
    ),
    Wrong("11-noise", "copies rows to the host", noises.draws(host=True), "results", "stay on the device"),
    Wrong(
        "11-noise",
        "the host sets the round",
        noises.draws(set_it=True),
        "counts",
        "Leave the round on the device",
    ),
    Wrong("11-noise", "nobody waits at the end", noises.draws(wait=False), "hazards", ""),
    Wrong("11-noise", "captures every round", noises.draws(recapture=True), "counts", "Capture once"),
    Wrong("11-noise", "no graph", noises.draws_eagerly, "counts", "with a launch of the graph"),
    Wrong(
        "11-noise", "one launch for all rounds", noises.draws_at_once, "counts", "with a launch of the graph"
    ),
    Wrong("11-noise", "copies too late", noises.draws_late, "results", ""),
    Wrong("11-noise", "eight rounds", noises.draws_of_few_rounds, "results", ""),
    Wrong("11-noise", "eight blocks", noises.draws(blocks=8), "results", ""),
    Wrong(
        "11-noise",
        "seeds of 31 bits",
        lambda source, seed, *sizes: exercises.draws(source, seed & 0x7FFFFFFF, *sizes),
        "results",
        "",
    ),
    Wrong(
        "11-noise",
        "converts to int64",
        lambda *given: exercises.draws(*given).astype("int64"),
        "results",
        "should be uint32",
    ),
    Right("11-noise", "the reference", exercises.draws),
    Right("11-noise", "copies and a stack", noises.draws()),
    Right("11-noise", "the round copied on the device", noises.draws_by_copies),
    Right("11-noise", "advanced by an addition", noises.draws_by_add),
)

WRONG = tuple(one for one in (*_REPLAY, *_STATIC, *_FORK, *_NOISE) if isinstance(one, Wrong))
RIGHT = tuple(one for one in (*_REPLAY, *_STATIC, *_FORK, *_NOISE) if isinstance(one, Right))
