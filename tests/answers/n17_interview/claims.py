"""Wrong and right ways to settle a claim, with what the judge says of each."""

from __future__ import annotations

import statistics
from typing import Any

from tests.answers import Right, Wrong


def _times(claim: Any, run: Any, value: Any, runs: int = 12) -> list[float]:
    setting = {**claim["setting"], claim["change"]: value}
    return [run(claim["device"], **setting) for _ in range(runs)]


def _verdict(claim: Any, ratio: float) -> str:
    return "holds" if ratio >= claim["times_as_fast"] else "refuted"


def settle(claim: Any, run: Any) -> str:
    """Medians of both settings, all else as claimed."""
    before = statistics.median(_times(claim, run, claim["from"]))
    after = statistics.median(_times(claim, run, claim["to"]))
    return _verdict(claim, before / after)


def always_refuted(_claim: Any, _run: Any) -> str:
    return "refuted"


def cannot_fail(claim: Any, run: Any) -> str:
    _times(claim, run, claim["from"])
    _times(claim, run, claim["to"])
    return "refuted"


def believes(claim: Any, run: Any) -> str:
    _times(claim, run, claim["from"])
    _times(claim, run, claim["to"])
    return "holds"


def same_twice(claim: Any, run: Any) -> str:
    before = min(_times(claim, run, claim["to"]))
    after = min(_times(claim, run, claim["to"]))
    return _verdict(claim, before / after)


def default_device(claim: Any, run: Any) -> str:
    return settle(claim, lambda _device, **setting: run(**setting))


def other_device(claim: Any, run: Any) -> str:
    return settle({**claim, "device": "RTX 4090"}, run)


def left_out(claim: Any, run: Any) -> str:
    return settle({**claim, "setting": {}}, run)


def one_left_out(claim: Any, run: Any) -> str:
    setting = dict(claim["setting"])
    setting.pop("n")
    return settle({**claim, "setting": setting}, run)


def two_changed(claim: Any, run: Any) -> str:
    before = statistics.median(_times(claim, run, claim["from"]))
    wider = {**claim["setting"], "n": 2 * claim["setting"]["n"]}
    after = statistics.median(_times({**claim, "setting": wider}, run, claim["to"]))
    return _verdict(claim, before / after)


def one_run(claim: Any, run: Any) -> str:
    return _verdict(claim, _times(claim, run, claim["from"], 1)[0] / _times(claim, run, claim["to"], 1)[0])


def means(claim: Any, run: Any) -> str:
    first = _times(claim, run, claim["from"], 4)
    return _verdict(claim, statistics.mean(first) / statistics.mean(_times(claim, run, claim["to"], 4)))


def second_run(claim: Any, run: Any) -> str:
    return _verdict(claim, _times(claim, run, claim["from"], 2)[1] / _times(claim, run, claim["to"], 2)[1])


def mean_of_many(claim: Any, run: Any) -> str:
    first, then = (statistics.mean(_times(claim, run, claim[side], 20)[1:]) for side in ("from", "to"))
    return _verdict(claim, first / then)


def nearly(claim: Any, run: Any) -> str:
    return settle({**claim, "times_as_fast": 0.8 * claim["times_as_fast"]}, run)


def twice_as_fast(claim: Any, run: Any) -> str:
    return settle({**claim, "times_as_fast": 2.0}, run)


def upside_down(claim: Any, run: Any) -> str:
    before = statistics.median(_times(claim, run, claim["from"]))
    return _verdict(claim, statistics.median(_times(claim, run, claim["to"])) / before)


def any_gain(claim: Any, run: Any) -> str:
    before = statistics.median(_times(claim, run, claim["from"]))
    return "holds" if before > statistics.median(_times(claim, run, claim["to"])) else "refuted"


def too_many(claim: Any, run: Any) -> str:
    before = statistics.median(_times(claim, run, claim["from"], 100))
    return _verdict(claim, before / statistics.median(_times(claim, run, claim["to"], 100)))


def nine_tenths(claim: Any, run: Any) -> str:
    return settle({**claim, "times_as_fast": 0.9 * claim["times_as_fast"]}, run)


def a_tenth_more(claim: Any, run: Any) -> str:
    return settle({**claim, "times_as_fast": 1.1 * claim["times_as_fast"]}, run)


def warm_then_one(claim: Any, run: Any) -> str:
    return _verdict(claim, _times(claim, run, claim["from"], 4)[3] / _times(claim, run, claim["to"], 4)[3])


def the_last_run(claim: Any, run: Any) -> str:
    return _verdict(claim, _times(claim, run, claim["from"])[-1] / _times(claim, run, claim["to"])[-1])


def truth_value(claim: Any, run: Any) -> Any:
    return settle(claim, run) == "holds"


def by_the_least(claim: Any, run: Any) -> str:
    return _verdict(
        claim, min(_times(claim, run, claim["from"], 10)) / min(_times(claim, run, claim["to"], 10))
    )


def ratios(claim: Any, run: Any) -> str:
    """The median of what each pair of runs says."""
    pairs = [[_times(claim, run, claim[side], 1)[0] for side in ("from", "to")] for _ in range(25)]
    return _verdict(claim, statistics.median(before / after for before, after in pairs))


def in_turns(claim: Any, run: Any) -> str:
    before, after = [], []
    for _ in range(15):
        before += _times(claim, run, claim["from"], 1)
        after += _times(claim, run, claim["to"], 1)
    return _verdict(claim, statistics.median(before[2:]) / statistics.median(after[2:]))


def warmed(claim: Any, run: Any) -> str:
    lowest = {}
    for name in ("from", "to"):
        setting = dict(claim["setting"])
        setting[claim["change"]] = claim[name]
        run(claim["device"], **setting)
        lowest[name] = sorted(run(device=claim["device"], **setting) for _ in range(20))[4]
    return "refuted" if lowest["from"] < claim["times_as_fast"] * lowest["to"] else "holds"


SETTLED = (
    Wrong("17-refute", "nothing is run", always_refuted, "", "never runs the program"),
    Wrong("17-refute", "an experiment that cannot fail", cannot_fail, "", "but settle returns 'refuted'"),
    Wrong("17-refute", "believes every claim", believes, "", "but settle returns 'holds'"),
    Wrong("17-refute", "the same thing twice", same_twice, "", "never runs the two settings"),
    Wrong("17-refute", "the bench's own device", default_device, "", "measures on another device"),
    Wrong("17-refute", "measures on another device", other_device, "", "measures on another device"),
    Wrong("17-refute", "the setting is left out", left_out, "", "cannot tell the effects apart"),
    Wrong("17-refute", "the size is left out", one_left_out, "", "cannot tell the effects apart"),
    Wrong("17-refute", "two things are changed", two_changed, "", "cannot tell the effects apart"),
    Wrong("17-refute", "only one run for each setting", one_run, "", "cold first run"),
    Wrong("17-refute", "means of a few", means, "", "cold first run"),
    Wrong("17-refute", "the second run each", second_run, "", "cold first run"),
    Wrong("17-refute", "means of many, without the first", mean_of_many, "", "cold first run"),
    Wrong("17-refute", "four fifths will do", nearly, "", "but settle returns 'holds'"),
    Wrong("17-refute", "nine tenths will do", nine_tenths, "", "but settle returns 'holds'"),
    Wrong("17-refute", "a tenth more is asked for", a_tenth_more, "", "but settle returns 'refuted'"),
    Wrong("17-refute", "three to warm up, then one", warm_then_one, "", "cold first run"),
    Wrong("17-refute", "the last run each", the_last_run, "", "cold first run"),
    Wrong("17-refute", "twice, whatever is claimed", twice_as_fast, "", "with the claimed number"),
    Wrong("17-refute", "divides the wrong way round", upside_down, "", "Divide the time of the first setting"),
    Wrong("17-refute", "any gain will do", any_gain, "", "but settle returns 'holds'"),
    Wrong("17-refute", "200 runs", too_many, "", "60 are enough"),
    Wrong("17-refute", "returns True or False", truth_value, "", "Return 'holds' or 'refuted'"),
    Wrong(
        "17-refute",
        "looks into the bench",
        lambda claim, run: "holds" if run._claim[4] >= claim["times_as_fast"] else "refuted",
        "",
        "no attribute",
    ),
    Right("17-refute", "medians", settle),
    Right("17-refute", "by the least", by_the_least),
    Right("17-refute", "in turns", in_turns),
    Right("17-refute", "ratios of pairs", ratios),
    Right("17-refute", "warmed up, a low quantile", warmed),
)
