"""The result of ``gl.diagnose`` as sentences, the most profitable remedy first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpulab._deprecated import old_property
from gpulab.views.tables import SOURCE, Cell, Column, Shown, Table, place
from gpulab.words import count, duration, listing, noun, number, percent, shape
from virtualgpu.records.launch.causes import Cause, CauseKind, LaunchCosts

WORTH = 1.25
"""The least speedup for which a remedy is worth an hour of work."""

COMMON: Mapping[CauseKind, float] = {"tail": 1.025, "in flight": 1.08, "latency": 1.08}
"""Causes that most kernels have to some degree must cost this factor more."""
UNEVEN = 1.5
"""The longest block over the mean from which on it is its length that is told, and not the waves."""

NOTEBOOKS: Mapping[CauseKind, str] = {
    "launch": "11a",
    "tail": "02",
    "grid": "02",
    "occupancy": "02",
    "divergence": "03",
    "uncoalesced": "05a",
    "re-reading": "05b",
    "bank conflicts": "05b",
    "atomics": "06",
    "spills": "02",
    "in flight": "02",
    "latency": "02",
    "compute": "01",
}
NAMES: Mapping[CauseKind, str] = {
    "launch": "launch-bound",
    "tail": "tail",
    "grid": "too few blocks",
    "occupancy": "occupancy",
    "divergence": "divergence",
    "uncoalesced": "uncoalesced",
    "re-reading": "re-reading",
    "bank conflicts": "bank conflicts",
    "atomics": "contended atomics",
    "spills": "spills",
    "in flight": "too few bytes in flight",
    "latency": "latency-bound",
    "compute": "compute-bound",
}
BOUND = {
    "DRAM": ("memory-bound", "DRAM moves its bytes"),
    "L2": ("bound by L2", "L2 gives its sectors"),
    "load/store": ("bound by load/store units", "the SMs' load/store units serve its requests"),
    "constant": ("bound by the constant cache", "the constant cache serves its words"),
    "atomics": ("bound by atomics", "atomic units do its additions"),
    "latency": ("latency-bound", "its warps wait for what they asked"),
    "start": ("launch-bound", "it starts"),
    "issue": ("compute-bound", "its instructions are issued"),
}
PIPES = {
    "fp64": "FP64",
    "fma": "FP32",
    "xu": "special-function",
    "alu": "integer",
    "imad": "multiply-add",
    "half": "FP16",
    "uniform": "uniform",
}


@dataclass(frozen=True, slots=True, repr=False)
class DiagnosisTable(Shown[LaunchCosts], LaunchCosts):
    """Reasons for the time of a launch.

    ``code`` is the source that lines refer to, ``baseline`` another launch that it is compared with, and
    ``measured_ns`` a real GPU's time.
    """

    code: str = ""
    note: str = ""
    measured_ns: float = 0.0
    baseline: LaunchCosts | None = None

    # Not a field: it has no annotation.
    beside = old_property("beside", "baseline")

    @property
    def worth_mending(self) -> tuple[Cause, ...]:
        """Causes whose remedy makes the launch 1.25 times as fast or more, the most profitable first.

        What waits for others (latency) has to gain as much once the others are mended, too.
        """
        return tuple(
            cause
            for cause in self.causes
            if (cause.gain if cause.kind == "tail" else min(cause.gain, cause.remaining))
            >= WORTH * COMMON.get(cause.kind, 1.0)
        )

    @property
    def main(self) -> Cause | None:
        """The most profitable cause; None if no cause is worth fixing."""
        return next(iter(self.worth_mending), None)

    @property
    def caption(self) -> str:
        launch = f"{self.kernel_name}: grid {shape(self.grid)}, block {shape(self.block)}"
        measured = f"; measured: {duration(self.measured_ns)}" if self.measured_ns else ""
        return f"{launch}; {duration(self.time_ns)} {self.provenance.label}{measured}" + (
            f". {self.note}" if self.note else ""
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the causes that are worth fixing, with their lines and gains."""
        rows = tuple(
            (
                NAMES[cause.kind],
                *self._place(cause),
                cause.gain,
                cause.after_ns,
                NOTEBOOKS[cause.kind],
            )
            for cause in self.worth_mending
        )
        columns = (
            "cause",
            "line",
            SOURCE,
            Column("gain, modelled", "gain", _factor),
            Column("time after", "after_ns", duration),
            "notebook",
        )
        return (Table("", columns, rows),) if rows else ()

    def sentences(self) -> list[str]:
        """Return the verdict, each cause with its remedy, and the changes compared with another launch."""
        return [self.verdict, *map(self.told, self.worth_mending), *self._spilled(), *self._changes()]

    @property
    def verdict(self) -> str:
        """The main cause and the limit of the launch, in a sentence."""
        share = percent(min(1.0, self.stages[self.bound] / self.time_ns))
        name, does = _bound(self.bound)
        bound = f"{name}: {share} of its time {does}"
        if self.main is not None:
            others = len(self.worth_mending) - 1
            then = f", and {count(others, 'lesser cause')}" if others else ""
            return f"Main cause: {NAMES[self.main.kind]}{then}. As it is, the kernel is {bound}."
        only = (
            " Only fewer bytes would help: narrower types, or one kernel with the one before or after it."
            if self.bound == "DRAM"
            else ""
        )
        return f"Nothing worth mending. The kernel is {bound}.{only}"

    def told(self, cause: Cause) -> str:
        """Return a cause in up to three sentences: location, counts, ceiling, remedy and gain."""
        line, source = self._place(cause)
        where = f"Line {line}, {source.text}: " if line else ""
        counted, remedy = _TOLD[cause.kind](cause, self)
        share = percent(min(1.0, self.stages[self.bound] / self.time_ns))
        ceiling = f"Ceiling: {share} of the time {_bound(self.bound)[1]}."
        gain = f"{number(cause.gain)} × as fast, {duration(cause.before_ns)} → {duration(cause.after_ns)}"
        text = f"{counted}. {ceiling} {remedy}: {gain}, modelled. Notebook {NOTEBOOKS[cause.kind]} shows how."
        return where + text if where else _sentence(text)

    def _spilled(self) -> list[str]:
        if not self.spilled_bytes:
            return []
        sentence = (
            f"ptxas keeps {count(self.spilled_bytes, 'byte')} of a thread's registers in local memory "
            "(spills), which the model does not price. Let a thread do less, or allow it more registers. "
            f"Notebook {NOTEBOOKS['spills']} shows how."
        )
        return [sentence]

    def _place(self, cause: Cause) -> tuple[int | None, Cell]:
        return place(self.code, cause.line, cause.text, cause.column, access=bool(cause.text))

    def _changes(self) -> list[str]:
        other = self.baseline
        if other is None:
            return []
        gain = other.time_ns / self.time_ns
        text = f"Beside it {other.kernel_name} takes {duration(other.time_ns)}: this one is "
        text += f"{number(gain)} × as fast" if gain >= 1 else f"{number(1 / gain)} × as slow"
        before, after = ([NAMES[c.kind] for c in costs.causes if c.gain >= WORTH] for costs in (other, self))
        text += f" ({duration(self.time_ns)}). "
        for word, names in (
            ("Mended", [name for name in before if name not in after]),
            ("Left", [name for name in after if name in before]),
            ("New", [name for name in after if name not in before]),
        ):
            text += f"{word}: {listing(list(dict.fromkeys(names)))}. " if names else ""
        saved = {stage: other.stages[stage] - ns for stage, ns in self.stages.items()}
        most = max(saved, key=lambda stage: saved[stage])
        if saved[most] > 0.3 * (other.time_ns - self.time_ns) > 0.0:
            took = f"{duration(other.stages[most])} → {duration(self.stages[most])}"
            text += f"{_sentence(_bound(most)[1])}: {took}."
        return [text.rstrip()]


def _factor(value: float) -> str:
    return f"{number(value)} ×"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _bound(stage: str) -> tuple[str, str]:
    return BOUND.get(stage, ("compute-bound", f"the {PIPES.get(stage, stage)} pipe works"))


Words = tuple[str, str]


def _uncoalesced(c: Cause, _: DiagnosisTable) -> Words:
    counted = (
        f"the lanes of a warp touch {number(c.figures['sectors'])} sectors a request where "
        f"{number(c.figures['ideal'])} would hold what they ask for"
    )
    return counted, (
        "Let neighbouring lanes take neighbouring addresses: another index or layout, or a shared tile"
    )


def _rereading(c: Cause, _: DiagnosisTable) -> Words:
    counted = f"a block asks for each byte {number(c.figures['times'])} times"
    return counted, "Read it once into shared memory or registers, and use it from there"


def _conflicts(c: Cause, _: DiagnosisTable) -> Words:
    waves = number(c.figures["wavefronts"])
    ideal = number(c.figures["ideal"])
    counted = (
        f"a request takes {waves} wavefronts where {ideal} would do: lanes want different words of a bank"
    )
    return counted, "Pad the rows by a word, or swizzle the index"


def _atomics(c: Cause, _: DiagnosisTable) -> Words:
    words = count(c.figures["words"], "word")
    after = number(c.figures["after"])
    counted = f"{count(c.figures['lanes'], 'lane')} change {words} of global memory, one after another"
    return counted, (
        "Sum in the warp by shuffles, or in the block's shared memory, and go to global memory "
        f"{after} times in all"
    )


def _spills(c: Cause, _: DiagnosisTable) -> Words:
    requests = count(c.figures["requests"], "request")
    return f"an array of each thread lies in local memory, which takes {requests}", (
        "Unroll the loops that index it, so that it fits in registers, or give each thread a column of "
        "shared memory"
    )


def _divergence(c: Cause, _: DiagnosisTable) -> Words:
    partial = int(c.figures["partial"])
    divergent = c.figures["divergent"]
    if partial and not divergent:
        counted = f"the last warp of each block has {count(partial, 'lane')} of 32"
        return counted, "Make blocks of a multiple of 32 threads"
    lanes = f"{number(c.figures['lanes'])} of 32 lanes work on average"
    return f"{lanes}; branches part them {count(divergent, 'time')}", (
        "Let the lanes of a warp go the same way: sort or compact the work, or branch by warp"
    )


def _compute(c: Cause, _: DiagnosisTable) -> Words:
    if c.detail == "fp64":
        counted = f"{count(c.figures['operations'], 'operation')} in double precision"
        rate = f", each of which takes this GPU {number(c.figures['rate'])} times as long as in single"
        return counted + rate, "Use float, and write constants with an f, as 2.5f"
    if c.detail == "functions":
        counted = f"{percent(c.figures['share'])} of all instructions belong to functions of full accuracy"
        return (
            counted,
            "Where a few correct digits do, use intrinsics (__expf, __sinf, __powf) or --use_fast_math",
        )
    return f"{count(c.figures['operations'], 'division')}, each of some 20 instructions", (
        "Divide by powers of two with shifts and masks, multiply by a reciprocal, or move it out of loops"
    )


def _occupancy(c: Cause, _: DiagnosisTable) -> Words:
    warps = number(c.figures["warps"])
    room = number(c.figures["room"])
    limit, remedy = {
        "shared memory": (
            f"shared memory, {count(c.figures['size_bytes'], 'byte')} a block",
            "Use less of it",
        ),
        "registers": (
            f"registers, {number(c.figures['registers'])} a thread",
            "Let a thread do less, or give __launch_bounds__(threads, blocks)",
        ),
        "blocks": (
            f"the number of blocks, as each has {count(c.figures['threads'], 'thread')}",
            "Make blocks of 128 to 256 threads",
        ),
        "warps": ("the size of a block", "Choose a block size that divides what an SM holds"),
    }[c.detail]
    return f"an SM holds {warps} of {room} warps; the limit is {limit}", remedy


def _grid(c: Cause, _: DiagnosisTable) -> Words:
    counted = f"{count(c.figures['blocks'], 'block')} for {number(c.figures['sms'])} SMs"
    return counted, "Cut the work into more blocks"


def _tail(c: Cause, _: DiagnosisTable) -> Words:
    if c.figures["longest"] >= UNEVEN:
        counted = (
            f"the longest block takes {number(c.figures['longest'])} times the mean, and all wait for it"
        )
        return counted, "Share the work out evenly, or start the long blocks first"
    waves = f"{count(c.figures['blocks'], 'block')} make {number(c.figures['waves'])} waves"
    return f"{waves}, and the last one leaves room empty", (
        "Fill the waves: a grid-stride loop over as many blocks as fit, or smaller blocks"
    )


def _in_flight(c: Cause, _: DiagnosisTable) -> Words:
    if c.detail == "narrow":
        counted = f"a lane moves {count(c.figures['size_bytes'], 'byte')} at a time, too few in flight"
        return counted, "Move 4 to 16 bytes a lane, as uchar4 or int4"
    share = percent(c.figures["memory"])
    warps = c.figures["warps"]
    counted = (
        f"a warp waits for memory {share} of what it takes alone, and {count(warps, 'warp')} on an SM "
        f"{noun(warps, 'keeps', 'keep')} too few bytes in flight to fill its bandwidth"
    )
    return (
        counted,
        "Let a thread ask for several independent values before it uses the first, or have more warps",
    )


def _latency(c: Cause, _: DiagnosisTable) -> Words:
    if c.detail == "memory":
        return "each load waits for the address that another load gives", (
            "Follow several chains at once in a thread, or lay the data out so that addresses can be computed"
        )
    warps = count(c.figures["warps"], "warp")
    do = noun(c.figures["warps"], "does", "do")
    return f"each instruction waits for the one before it, and {warps} on an SM {do} not fill the gaps", (
        "Give a thread independent work, such as four accumulators, or have more warps"
    )


def _launch(_: Cause, d: DiagnosisTable) -> Words:
    return (
        f"the host takes {duration(d.host_ns)} to launch what runs for {duration(d.time_ns)}",
        "Do more in a launch, or launch many at once as a CUDA graph",
    )


_TOLD: Mapping[CauseKind, Callable[[Cause, DiagnosisTable], Words]] = {
    "launch": _launch,
    "tail": _tail,
    "grid": _grid,
    "occupancy": _occupancy,
    "divergence": _divergence,
    "uncoalesced": _uncoalesced,
    "re-reading": _rereading,
    "bank conflicts": _conflicts,
    "atomics": _atomics,
    "spills": _spills,
    "in flight": _in_flight,
    "latency": _latency,
    "compute": _compute,
}
