"""A warp's steps by source line: which runs of steps are one visit of a line.

A compiler moves instructions. Pieces of a line that do nothing but compute are not where the line "runs" if
its memory accesses, barriers or shuffles are elsewhere, or if the line goes on later in the same straight
run of code: such a piece belongs to the visit beside it, which says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WarpTrace
from virtualgpu.records.warp.loops import Ints

# Reading parameters and renaming addresses is nothing that a source line says.
_PLUMBING = re.compile(r"(?:@!?%\w+\s+)?(?:ld\.param|st\.param|cvta|bra\.uni)\b")
_EFFECT = re.compile(
    r"(?:@!?%\w+\s+)?(?:bar|barrier|call|shfl|vote|match|redux|membar|fence|nanosleep|trap)\b"
)
_JUMP = re.compile(r"(?:@!?%\w+\s+)?(?:bra|brx|call|ret|exit)\b")
# One line that branches or repeats may rightly be visited in pieces, by some lanes only.
_CONTROL = re.compile(r"\b(?:if|else|for|while|do|switch|case)\b|\?|&&|\|\|")
_COMMENT = re.compile(r"//.*|/\*.*?\*/")


@dataclass(frozen=True, kw_only=True)
class Visits:
    """Visits of source lines in the order of time; visit i is the steps ``begin[i]`` to ``end[i]``.

    ``lanes`` are those that take part: of the line's memory accesses where it has any. ``moved`` names, for
    each visit, the lines of which instructions run within it because the compiler moved them there. ``of`` is
    the visit of each step, ``step_line`` its line, or the one beside it for a step that has none.
    """

    begin: Ints
    end: Ints
    line: Ints
    active: npt.NDArray[np.uint32]
    lanes: npt.NDArray[np.uint32]
    moved: tuple[tuple[int, ...], ...]
    of: Ints
    step_line: Ints

    def __len__(self) -> int:
        return int(self.begin.size)


def find_visits(trace: WarpTrace) -> Visits:
    """Group a trace's steps into visits of source lines."""
    total = len(trace)
    if not total:
        none = np.zeros(0, np.int32)
        masks = np.zeros(0, np.uint32)
        return Visits(
            begin=none, end=none, line=none, active=masks, lanes=masks, moved=(), of=none, step_line=none
        )
    here = np.arange(total)
    mask = trace.active_mask
    plumbing, effect, jump = (
        np.array([bool(found.match(text.strip())) for text in trace.instruction], np.bool_)[trace.text_index]
        for found in (_PLUMBING, _EFFECT, _JUMP)
    )
    if trace.access_space is not None:
        far = np.array([name in ("global", "shared", "generic") for name in (*trace.space, "")], np.bool_)
        effect |= far[trace.access_space] & ~plumbing
    turns = np.zeros(total, np.bool_)
    place = trace.pc if trace.detail is None else trace.detail.order[trace.text_index]
    turns[1:] = (np.diff(place) <= 0) | (mask[1:] != mask[:-1])
    if trace.detail is not None:
        turns[1:] |= np.diff(trace.detail.depth) != 0
    runs = turns.copy()
    runs[1:] |= jump[:-1]
    line = _lines(trace, plumbing, np.cumsum(turns))
    cut = turns.copy()
    cut[1:] |= line[1:] != line[:-1]
    cut[0] = True
    first = np.flatnonzero(cut)
    run = np.cumsum(runs)[first].astype(np.int64)
    its_line = line[first]
    does = np.logical_or.reduceat(effect, first)
    forward, backward = _moved(trace.code, run, its_line, does, mask[first])
    strays = forward | backward
    # A piece that goes forward joins the next one, one that goes backward the one before.
    starts = ~backward
    starts[1:] &= ~forward[:-1]
    starts[0] = True
    group = np.cumsum(starts) - 1
    named = np.full(int(group[-1]) + 1, -1)
    named[group[strays]] = its_line[strays]
    named[group[~strays]] = its_line[~strays]
    opens = first[starts]
    again = np.zeros(opens.size, np.bool_)
    again[1:] = (named[1:] == named[:-1]) & (run[starts][1:] == run[starts][:-1])
    begin = opens[~again].astype(np.int32)
    its = named[~again].astype(np.int32)
    of = (np.searchsorted(begin, here, side="right") - 1).astype(np.int32)
    moved: list[set[int]] = [set() for _ in begin]
    for piece in np.flatnonzero(strays).tolist():
        visit = int(of[first[piece]])
        if its_line[piece] != its[visit]:
            moved[visit].add(int(its_line[piece]))
    end = np.append(begin[1:] - 1, total - 1).astype(np.int32)
    took = np.bitwise_or.reduceat(np.where(effect, trace.executed_mask, 0).astype(np.uint32), begin)
    active = mask[begin].astype(np.uint32)
    step_line = np.where(trace.line > 0, trace.line, line).astype(np.int32)
    strayed = tuple(tuple(sorted(lines)) for lines in moved)
    return Visits(
        begin=begin,
        end=end,
        line=its,
        active=active,
        lanes=np.where(took > 0, took, active),
        moved=strayed,
        of=of,
        step_line=step_line,
    )


def _lines(
    trace: WarpTrace, plumbing: npt.NDArray[np.bool_], turn: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The line of each step; one that has none goes with what follows it, else with what was before."""
    own = (trace.line > 0) & ~plumbing
    here = np.arange(len(trace))
    total = len(trace)
    after = np.minimum.accumulate(np.where(own, here, total)[::-1])[::-1]
    before = np.maximum.accumulate(np.where(own, here, -1))
    padded = np.append(turn, -1)
    onward = padded[after] == turn
    source = np.where(onward, after, np.where(before >= 0, before, after))
    return np.append(trace.line, 0)[source].astype(np.int64)


def _moved(
    code: str,
    run: npt.NDArray[np.int64],
    line: npt.NDArray[np.int64],
    does: npt.NDArray[np.bool_],
    mask: npt.NDArray[np.uint32],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which pieces of lines are not the line's own visit: those that join the next one, and the last one."""
    texts = [_COMMENT.sub("", text) for text in code.splitlines()]
    control = np.array([True, *(bool(_CONTROL.search(text)) for text in texts), True], np.bool_)
    plain = ~control[np.minimum(line, len(texts) + 1)]
    order = np.lexsort((np.arange(line.size), line, run))
    goes_on = np.zeros(line.size, np.bool_)
    same = (line[order][1:] == line[order][:-1]) & (run[order][1:] == run[order][:-1])
    goes_on[order[:-1]] = same
    acts = np.isin(line, np.unique(line[does]))
    stray = ~does & (goes_on | (acts & plain))
    follows, precedes = np.zeros((2, line.size), np.bool_)
    follows[:-1] = run[1:] == run[:-1]
    precedes[1:] = mask[1:] == mask[:-1]
    forward = stray & follows
    return forward, stray & ~forward & precedes
