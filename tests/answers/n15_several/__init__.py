"""Wrong and right answers to the exercises of notebook 15."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import numpy as np

from tests.answers import Right, Wrong
from tests.answers.n15_several import answers

# 15-ring


def _ring(**how: Any) -> Any:
    """A ring all-reduce, right unless told otherwise."""

    def ring(cp: Any, parts: Any, streams: Any) -> None:
        n, length = len(parts), parts[0].size
        if how.get("floor"):
            cut = [k * (length // n) for k in range(n + 1)]
        elif how.get("ceil"):
            cut = [min(length, k * -(-length // n)) for k in range(n + 1)]
        else:
            cut = [k * length // n for k in range(n + 1)]
        pieces = [slice(cut[k], cut[k + 1]) for k in range(n)]
        if how.get("whole"):
            pieces = [slice(None)] * n
        inbox = []
        for r in range(n):
            with cp.cuda.Device(r), streams[r]:
                inbox.append(cp.empty_like(parts[r]))
        if how.get("begin", True):
            begun = [_on(cp, r, streams[r].record) for r in range(n)]
            for r in range(n):
                _on(cp, r, lambda r=r: streams[r].wait_event(begun[(r + 1) % n]))
        rounds = how.get("rounds", 2 * n - 2)
        for step in range(rounds):
            first = step < n - 1
            at = [(r - step - 1) % n if first else (r - step + n - 1) % n for r in range(n)]
            sent = []
            for r in range(n):
                to = (r + how.get("stride", 1)) % n
                boxes = inbox if first and not how.get("overwrite") else parts
                with cp.cuda.Device(r), streams[r]:
                    if how.get("kernel"):
                        boxes[to][pieces[at[r]]] = parts[r][pieces[at[r]]]
                    else:
                        cp.copyto(boxes[to][pieces[at[r]]], parts[r][pieces[at[r]]])
                    sent.append(streams[r].record())
            for r in range(n):
                came = (r - 1) % n
                piece = pieces[at[came]]
                with cp.cuda.Device(r), streams[r]:
                    if how.get("events", True) and not (how.get("last_wait") is False and step == rounds - 1):
                        streams[r].wait_event(sent[came])
                    if how.get("host"):
                        streams[came].synchronize()
                    if first and not how.get("overwrite"):
                        if how.get("late") and step == n - 2:
                            continue
                        parts[r][piece] += inbox[r][piece]
        if how.get("mean"):
            for r in range(n):
                with cp.cuda.Device(r), streams[r]:
                    parts[r] //= n

    return ring


def _on(cp: Any, gpu: int, work: Any) -> Any:
    with cp.cuda.Device(gpu):
        return work()


def _through_zero(cp: Any, parts: Any, streams: Any) -> None:
    n = len(parts)
    begun = [_on(cp, r, streams[r].record) for r in range(n)]
    with cp.cuda.Device(0), streams[0]:
        for r in range(1, n):
            streams[0].wait_event(begun[r])
            box = cp.empty_like(parts[0])
            cp.copyto(box, parts[r])
            parts[0] += box
        for r in range(1, n):
            cp.copyto(parts[r], parts[0])
        done = streams[0].record()
    for r in range(1, n):
        _on(cp, r, lambda r=r: streams[r].wait_event(done))


def _zero_alone(cp: Any, parts: Any, streams: Any) -> None:
    begun = [_on(cp, r, streams[r].record) for r in range(len(parts))]
    with cp.cuda.Device(0), streams[0]:
        for r in range(1, len(parts)):
            streams[0].wait_event(begun[r])
            box = cp.empty_like(parts[0])
            cp.copyto(box, parts[r])
            parts[0] += box


def _by_host(cp: Any, parts: Any, streams: Any) -> None:
    total = sum(_on(cp, r, lambda r=r: parts[r].get(stream=streams[r])) for r in range(len(parts)))
    for r, part in enumerate(parts):
        with cp.cuda.Device(r), streams[r]:
            part.set(total, stream=streams[r])


def _every_other(cp: Any, parts: Any, streams: Any) -> None:
    """All to all: each GPU fetches all arrays whole."""
    n = len(parts)
    boxes = []
    for r in range(n):
        with cp.cuda.Device(r), streams[r]:
            boxes.append([cp.empty_like(parts[r]) for _ in range(n)])
    begun = [_on(cp, r, streams[r].record) for r in range(n)]
    got = []
    for r in range(n):
        with cp.cuda.Device(r), streams[r]:
            for other in range(n):
                streams[r].wait_event(begun[other])
                if other != r:
                    cp.copyto(boxes[r][other], parts[other])
            got.append(streams[r].record())
    for r in range(n):
        with cp.cuda.Device(r), streams[r]:
            for each in got:
                streams[r].wait_event(each)
            for other in range(n):
                if other != r:
                    parts[r] += boxes[r][other]


def _ring_backwards(cp: Any, parts: Any, streams: Any) -> None:
    """The same ring the other way round."""
    gpus = [*range(len(parts))][::-1]
    n, length = len(parts), parts[0].size
    cut = [k * length // n for k in range(n + 1)]
    inbox: dict[int, Any] = {}
    for g in gpus:
        with cp.cuda.Device(g), streams[g]:
            inbox[g] = cp.empty_like(parts[g])
    ready = {g: _on(cp, g, streams[g].record) for g in gpus}
    for step in range(2 * n - 2):
        sent = {}
        for r, g in enumerate(gpus):
            k = (r - step - 1) % n if step < n - 1 else (r - step + n - 1) % n
            to = gpus[(r + 1) % n]
            with cp.cuda.Device(g), streams[g]:
                streams[g].wait_event(ready[to])
                cp.copyto(
                    (inbox if step < n - 1 else parts)[to][cut[k] : cut[k + 1]], parts[g][cut[k] : cut[k + 1]]
                )
                sent[to] = streams[g].record(), slice(cut[k], cut[k + 1])
        for g in gpus:
            event, piece = sent[g]
            with cp.cuda.Device(g), streams[g]:
                streams[g].wait_event(event)
                if step < n - 1:
                    parts[g][piece] += inbox[g][piece]
                ready[g] = streams[g].record()


def _all_to_all(cp: Any, parts: Any, streams: Any) -> None:
    """Each GPU sums one chunk of all, and gives it to all: the same bytes, in two steps."""
    n, length = len(parts), parts[0].size
    cut = [k * length // n for k in range(n + 1)]
    begun = [_on(cp, r, streams[r].record) for r in range(n)]
    done = []
    for r in range(n):
        piece = slice(cut[r], cut[r + 1])
        with cp.cuda.Device(r), streams[r]:
            for other in range(n):
                if other != r:
                    streams[r].wait_event(begun[other])
                    parts[r][piece] += parts[other][piece]
            for other in range(n):
                if other != r:
                    cp.copyto(parts[other][piece], parts[r][piece])
            done.append(streams[r].record())
    for r in range(n):
        with cp.cuda.Device(r):
            for event in done:
                streams[r].wait_event(event)


def _elsewhere(kind: str) -> Any:
    """Another type's arithmetic, or results that are not where they should be."""

    def ring(cp: Any, parts: Any, streams: Any) -> None:
        copies = []
        for r, part in enumerate(parts):
            with cp.cuda.Device(r), streams[r]:
                copies.append(part.astype(kind or part.dtype))
        _ring()(cp, copies, streams)
        for r, part in enumerate(parts):
            with cp.cuda.Device(r), streams[r]:
                if kind:
                    part[...] = copies[r].astype(part.dtype)
        parts[:] = parts if kind else copies

    return ring


def _as_integers(cp: Any, parts: Any, streams: Any) -> None:
    """The bits of floats, added as integers of their size."""
    _ring()(cp, [part.view(f"int{8 * part.itemsize}") for part in parts], streams)


def _polling(cp: Any, parts: Any, streams: Any) -> None:
    for r, stream in enumerate(streams):
        with cp.cuda.Device(r):
            while not stream.done:
                pass
    _ring()(cp, parts, streams)


_RING = (
    Wrong("15-ring", "forgets the rest of the division by n", _ring(floor=True), "", "does not divide"),
    Wrong("15-ring", "overwrites before it forwards", _ring(overwrite=True), "", ""),
    Wrong("15-ring", "only GPU 0 has the sum", _zero_alone, "", "only GPU 0 has the sum"),
    Wrong("15-ring", "all through GPU 0", _through_zero, "", "a ring needs"),
    Wrong("15-ring", "no events between devices", _ring(events=False), "", "nothing orders the two"),
    Wrong("15-ring", "the last wait is missing", _ring(last_wait=False), "", "before that operation"),
    Wrong("15-ring", "the host waits in each step", _ring(host=True), "", "lets the host wait"),
    Wrong("15-ring", "copies through the host", _by_host, "", "through the host's memory"),
    Wrong("15-ring", "half of the steps", lambda cp, p, s: _ring(rounds=len(p) - 1)(cp, p, s), "", ""),
    Wrong("15-ring", "one step too few", lambda cp, p, s: _ring(rounds=2 * len(p) - 3)(cp, p, s), "", ""),
    Wrong("15-ring", "six steps", _ring(rounds=6), "", ""),
    Wrong("15-ring", "the mean", _ring(mean=True), "", ""),
    Wrong("15-ring", "whole arrays go round", _ring(whole=True), "", ""),
    Wrong("15-ring", "everybody fetches everything", _every_other, "", "a ring needs"),
    Wrong("15-ring", "the last chunk is not added", _ring(late=True), "", ""),
    Wrong("15-ring", "all through GPU 0, of eight alone", lambda cp, p, s: (_through_zero if len(p) == 8 else _ring())(cp, p, s), "", "a ring needs"),
    Wrong("15-ring", "no events on five GPUs", lambda cp, p, s: _ring(events=len(p) != 5)(cp, p, s), "", "nothing orders the two"),
    Wrong("15-ring", "into other arrays", _elsewhere(""), "", ""),
    Wrong("15-ring", "in single precision", _elsewhere("float32"), "", ""),
    Wrong("15-ring", "asks streams until they are done", _polling, "", "lets the host wait"),
    Wrong("15-ring", "floats added as integers", _as_integers, "", "does not have the sum"),
    Right("15-ring", "the reference", _ring()),
    Right("15-ring", "chunks rounded up", _ring(ceil=True)),
    Right("15-ring", "the other way round", _ring_backwards),
    Right("15-ring", "kernels that write over there", _ring(kernel=True)),
    Right("15-ring", "a chunk a GPU, all to all", _all_to_all),
)

# 15-broadcast


def _by_type(**how: Any) -> Any:
    """A coalesced broadcast, a message for each type, right unless told otherwise."""

    def broadcast(cp: Any, arrays: Any, targets: Any) -> Any:
        kinds = [*dict.fromkeys(str(a.dtype) for a in arrays)]
        groups = {kind: [k for k, a in enumerate(arrays) if str(a.dtype) == kind] for kind in kinds}
        with cp.cuda.Device(0):
            joined = {kind: cp.concatenate([arrays[k].ravel() for k in ks]) for kind, ks in groups.items()}
        out = []
        for target in targets[:1] if how.get("first") else targets:
            mine: list[Any] = [None] * len(arrays)
            for kind, ks in groups.items():
                with cp.cuda.Device(0 if how.get("here") else target):
                    there = cp.empty_like(joined[kind])
                    cp.copyto(there, joined[kind])
                at = 0
                for k in ks:
                    piece = there[at : at + arrays[k].size]
                    mine[k] = piece if how.get("flat") else piece.reshape(arrays[k].shape)
                    at += arrays[k].size
            out.append([mine[k] for ks in groups.values() for k in ks] if how.get("grouped") else mine)
        return out

    return broadcast


def _in_bytes(align: int, order: str = "C", extra: int = 0) -> Any:
    """A coalesced broadcast in one message of bytes."""

    def broadcast(cp: Any, arrays: Any, targets: Any) -> Any:
        starts, at = [], 0
        for a in arrays:
            at = -(-at // align) * align
            starts.append(at)
            at += a.nbytes
        with cp.cuda.Device(0):
            joined = cp.zeros(at + extra + 1, "uint8")
            for a, start in zip(arrays, starts, strict=True):
                if a.size:
                    flat = a.ravel(order) if order != "memory" else a.T.ravel() if a.ndim == 2 else a.ravel()
                    joined[start : start + a.nbytes] = flat.view("uint8")
        out = []
        for target in targets:
            with cp.cuda.Device(target):
                there = cp.empty_like(joined)
                cp.copyto(there, joined)
                out.append([
                    there[s : s + a.nbytes].view(a.dtype).reshape(a.shape) for a, s in zip(arrays, starts, strict=True)
                ])
        return out

    return broadcast


def _one_by_one(cp: Any, arrays: Any, targets: Any) -> Any:
    out = []
    for target in targets:
        with cp.cuda.Device(target):
            out.append([cp.asarray(cp.ascontiguousarray(a)) for a in arrays])
    return out


def _copied_one_by_one(cp: Any, arrays: Any, targets: Any) -> Any:
    out = []
    for target in targets:
        mine = []
        for a in arrays:
            with cp.cuda.Device(target):
                mine.append(cp.empty(a.shape, a.dtype))
            if a.size:
                cp.copyto(mine[-1], a)
        out.append(mine)
    return out


def _all_joined(kind: str | None) -> Any:
    def broadcast(cp: Any, arrays: Any, targets: Any) -> Any:
        with cp.cuda.Device(0):
            joined = cp.concatenate([(a.astype(kind) if kind else a).ravel() for a in arrays])
        out = []
        for target in targets:
            with cp.cuda.Device(target):
                there, at, mine = cp.empty_like(joined), 0, []
                cp.copyto(there, joined)
                for a in arrays:
                    piece = there[at : at + a.size].reshape(a.shape)
                    mine.append(piece.astype(a.dtype) if kind else piece)
                    at += a.size
            out.append(mine)
        return out

    return broadcast


def _carried(cp: Any, arrays: Any, targets: Any) -> Any:
    out = []
    for target in targets:
        with cp.cuda.Device(target):
            out.append([cp.asarray(a.get()) for a in arrays])
    return out


def _padded(cp: Any, arrays: Any, targets: Any) -> Any:
    """Every array takes the room of the largest, and some."""
    return _in_bytes(4096)(cp, arrays, targets)


def _as_they_lie(cp: Any, arrays: Any, targets: Any) -> Any:
    """Transposed arrays are joined as they lie in memory."""
    flat = [a.ravel("K") if a.ndim == 2 else a for a in arrays]
    sent = _by_type()(cp, flat, targets)
    return [[m.reshape(a.shape) for m, a in zip(mine, arrays, strict=True)] for mine in sent]


def _runs_ahead(cp: Any, arrays: Any, targets: Any) -> Any:
    """A stream of its own on each GPU, which does not wait for the joined array."""
    with cp.cuda.Device(0):
        joined = cp.concatenate([a.ravel().view("uint8") for a in _whole_words(cp, arrays)])
    out = []
    for target in targets:
        with cp.cuda.Device(target), cp.cuda.Stream(non_blocking=True):
            there, at, mine = cp.empty_like(joined), 0, []
            cp.copyto(there, joined)
            for a in arrays:
                mine.append(there[at : at + a.nbytes].view(a.dtype).reshape(a.shape))
                at += -(-a.nbytes // 16) * 16
        out.append(mine)
    return out


def _whole_words(cp: Any, arrays: Any) -> Any:
    for a in arrays:
        padded = cp.zeros(-(-a.nbytes // 16) * 16, "uint8")
        if a.size:
            padded[: a.nbytes] = a.ravel().view("uint8")
        yield padded


def _emptied(cp: Any, arrays: Any, targets: Any) -> Any:
    result = _by_type()(cp, arrays, targets)
    for array in arrays:
        array.fill(0)
    return result


_BROADCAST = (
    Wrong("15-broadcast", "400 copies", _copied_one_by_one, "", "messages, but 4 are enough"),
    Wrong("15-broadcast", "the order of the types", _by_type(grouped=True), "", ""),
    Wrong("15-broadcast", "arrays that are not aligned", _in_bytes(1), "", "bytes after a multiple"),
    Wrong("15-broadcast", "aligned to four bytes", _in_bytes(4), "", "bytes after a multiple"),
    Wrong("15-broadcast", "mixed types joined", _all_joined(None), "", "mixed types"),
    Wrong("15-broadcast", "as doubles, and back", _all_joined("float64"), "", "which rounds"),
    Wrong("15-broadcast", "as integers, and back", _all_joined("int64"), "", "at the index of its original"),
    Wrong("15-broadcast", "does not restore the shapes", _by_type(flat=True), "", "reshape"),
    Wrong("15-broadcast", "elements in another order", _in_bytes(16, "memory"), "", "the order of its elements"),
    Wrong("15-broadcast", "stays on GPU 0", _by_type(here=True), "", "is on GPU 0"),
    Wrong("15-broadcast", "the first GPU only", _by_type(first=True), "", "a list for each GPU"),
    Wrong("15-broadcast", "through the host", _carried, "", "through the host's memory"),
    Wrong("15-broadcast", "a page for each array", _padded, "", "are enough: the bytes of all"),
    Wrong("15-broadcast", "transposed ones as they lie", _as_they_lie, "", "the order of its elements"),
    Wrong("15-broadcast", "a stream that runs ahead", _runs_ahead, "", "nothing orders the two"),
    Wrong("15-broadcast", "the first ones are emptied", _emptied, "", "belong to the caller"),
    Wrong("15-broadcast", "returns a dictionary", lambda cp, arrays, targets: {}, "", "a list for each GPU"),
    Right("15-broadcast", "a message for each type", _by_type()),
    Right("15-broadcast", "bytes, 16 at a time", _in_bytes(16)),
    Right("15-broadcast", "bytes, 256 at a time", _in_bytes(256)),
    Right("15-broadcast", "bytes, eight at a time", _in_bytes(8, extra=100)),
)

# 15-halo

_HALO = (
    Wrong("15-halo", "both directions in one stream", answers.in_streams, "", "a separate stream"),
    Wrong("15-halo", "one stream of its own for all", answers.exchange_with(one_stream=True), "", "a separate stream"),
    Wrong("15-halo", "does not exchange the corners", answers.exchange_with(no_corners=True), "", "diagonal neighbour"),
    Wrong("15-halo", "the host waits", answers.exchange_with(host=True), "", "lets the host wait"),
    Wrong("15-halo", "the rim for the edge", answers.exchange_with(stale=True), "", "is a rim itself"),
    Wrong("15-halo", "does not wait for the edge", answers.exchange_with(begin=False), "", "nothing orders the two"),
    Wrong("15-halo", "nobody waits for the rim", answers.exchange_with(end=False), "", ""),
    Wrong("15-halo", "columns with old corners", answers.exchange_with(once=True), "", ""),
    Wrong("15-halo", "one way only", answers.exchange_with(one_way=True), "", "of the rim is"),
    Wrong("15-halo", "exchanges across the outer edge", answers.exchange_with(torus=True), "", "outside the whole field must not"),
    Wrong("15-halo", "sends whole parts", answers.whole_parts, "", "Send edges"),
    Wrong("15-halo", "exchanges nothing", lambda cp, parts, streams: None, "", "of the rim is"),
    Wrong("15-halo", "does not wait on 3 × 3 GPUs", lambda cp, p, s: answers.exchange_with(begin=len(p) * len(p[0]) < 9)(cp, p, s), "",
          "nothing orders the two"),
    Wrong("15-halo", "one stream on 3 × 3 GPUs", lambda cp, p, s: answers.exchange_with(one_stream=len(p) * len(p[0]) == 9)(cp, p, s), "",
          "a separate stream"),
    Wrong("15-halo", "through half precision", answers.exchange_with(kind="float16"), "", "of the rim is"),
    Wrong("15-halo", "through integers", answers.exchange_with(kind="int32"), "", "of the rim is"),
    Right("15-halo", "rows and then columns", answers.exchange_with()),
    Right("15-halo", "columns and then rows", answers.exchange_with(columns_first=True)),
    Right("15-halo", "fetched, diagonals too", answers.pulled),
    Right("15-halo", "with the current device moved about", lambda cp, p, s: (cp.cuda.Device(0).use(), answers.exchange_with()(cp, p, s))[1]),
)

# 15-place


def _searched(gpus: int, joined: Any, rings: Any, *, order: Any = None) -> list[int]:
    """Rank after rank, on the first free GPU that is joined with those it talks to; back where "
    "there is none."""
    links = {frozenset(pair) for pair in joined}
    talks = {
        frozenset((a, b)) for ring in rings for a, b in zip(ring, [*ring[1:], ring[0]], strict=True) if a != b
    }
    ranks = (
        order(rings) if order else [rank for ring in sorted(rings, key=len, reverse=True) for rank in ring]
    )
    found: dict[Any, int] = {}

    def fits(rank: int, gpu: int) -> bool:
        return all(
            frozenset((gpu, g)) in links for other, g in found.items() if frozenset((rank, other)) in talks
        )

    def go(at: int) -> bool:
        if at == len(ranks):
            return True
        for gpu in range(gpus):
            if gpu not in found.values() and fits(ranks[at], gpu):
                found[ranks[at]] = gpu
                if go(at + 1):
                    return True
                del found[ranks[at]]
        return False

    go(0)
    return [found.get(rank, 0) for rank in range(gpus)]


def _not_closed(gpus: int, joined: Any, rings: Any) -> list[int]:
    """Each rank beside the one before it; that the last one talks to the first is forgotten."""
    pairs = [[a, b] for ring in rings for a, b in pairwise(ring)]
    return _searched(gpus, joined, pairs, order=lambda _: [rank for ring in rings for rank in ring])


def _greedy(gpus: int, joined: Any, rings: Any) -> list[int]:
    links = {frozenset(pair) for pair in joined}
    found: dict[int, int] = {}
    for ring in rings:
        for rank in ring:
            free = [g for g in range(gpus) if g not in found.values()]
            near = [g for g in free if all(frozenset((g, found[o])) in links for o in ring if o in found)]
            found[rank] = (near or free)[0]
    return [found[rank] for rank in range(gpus)]


def _in_islands(gpus: int, joined: Any, rings: Any, *, least: int = 0) -> list[int]:
    """Rings one after the other onto islands, each onto the first that has room."""
    near: dict[int, set[int]] = {g: {g} for g in range(gpus)}
    for a, b in joined:
        near[a].add(b)
        near[b].add(a)
    islands = [sorted(i) for i in {frozenset(each) for each in near.values()}]
    found = [0] * gpus
    for ring in sorted(rings, key=len, reverse=True):
        room = [i for i in islands if len(i) >= max(least, len(ring))]
        island = min(room, key=len) if room else max(islands, key=len)
        for rank in ring:
            found[rank] = island.pop(0) if island else -1
    return found


def _every_way(gpus: int, joined: Any, rings: Any) -> list[int]:
    links = {frozenset(pair) for pair in joined}
    for order in permutations(range(gpus)):
        if all(
            a == b or frozenset((order[a], order[b])) in links
            for ring in rings for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)
        ):
            return list(order)
    return []


def _rings_in_order(gpus: int, joined: Any, rings: Any) -> list[int]:
    found = [0] * gpus
    for gpu, rank in enumerate(rank for ring in rings for rank in ring):
        found[rank] = gpu
    return found


_PLACE = (
    Wrong("15-place", "by number", lambda gpus, joined, rings: [*range(gpus)], "", "over PCIe"),
    Wrong("15-place", "ranks in reverse order", lambda gpus, joined, rings: [*range(gpus)][::-1], "", "over PCIe"),
    Wrong("15-place", "ring after ring, by number", _rings_in_order, "", "over PCIe"),
    Wrong("15-place", "good for 4, not for 8", lambda g, j, r: _every_way(g, j, r) if g <= 4 else [*range(g)], "", "over PCIe"),
    Wrong("15-place", "right for islands, but not for a cube", _in_islands, "", ""),
    Wrong("15-place", "never goes back", _greedy, "", "over PCIe"),
    Wrong("15-place", "rings that do not close", _not_closed, "", "over PCIe"),
    Wrong("15-place", "even ones, then odd ones", lambda g, j, r: [*range(0, g, 2), *range(1, g, 2)], "", "over PCIe"),
    Wrong("15-place", "one GPU for all", lambda g, j, r: [0] * g, "", "once"),
    Wrong("15-place", "a GPU is missing", lambda g, j, r: _searched(g, j, r)[:-1], "", "once"),
    Wrong("15-place", "ranks of GPUs", lambda g, j, r: [_searched(g, j, r).index(k) for k in range(g)], "", "over PCIe"),
    Wrong("15-place", "returns booleans", lambda g, j, r: [True] * g, "", "once"),
    Right("15-place", "search with going back", _searched),
    Right("15-place", "as an array", lambda g, j, r: np.array(_searched(g, j, r))),
    Right("15-place", "as a tuple", lambda g, j, r: tuple(_searched(g, j, r))),
    Right("15-place", "rings as they come", lambda g, j, r: _searched(g, j, r, order=lambda rings: [k for ring in rings for k in ring])),
    Right("15-place", "smallest rings last, from their ends", lambda g, j, r: _searched(
        g, j, r, order=lambda rings: [k for ring in sorted(rings, key=len)[::-1] for k in ring[::-1]])),
)

# 15-shard

_SHARD = (
    Wrong("15-shard", "softmax over a shard", answers.shard_with(local=True), "", "only its own rows"),
    Wrong("15-shard", "sums over shards", answers.softmax_of_shards, "", "division by the sum"),
    Wrong("15-shard", "gathers the rows twice", answers.shard_with(again=True), "", "Gather these rows once"),
    Wrong("15-shard", "even rows", answers.even, "", ""),
    Wrong("15-shard", "does not divide by √d", answers.shard_with(scaled=False), "", "not divided by √d"),
    Wrong("15-shard", "the root of the rows", answers.shard_with(rows=True), "", "d is the length of a row"),
    Wrong("15-shard", "GELU before the product", answers.shard_with(early=True, gelu=False), "", "Apply gelu last"),
    Wrong("15-shard", "scaled in place", answers.scales_its_parts, "", "belong to the caller"),
    Wrong("15-shard", "scaled for rows of 8", answers.shard_with(width=8), "", "is right"),
    Wrong("15-shard", "less the maximum of its own rows", answers.shard_with(own_maximum=True), "", "subtract their maximum"),
    Wrong("15-shard", "made in a stream that nobody waits for", answers.shard_with(nobody_waits=True), "", "may still be"),
    Wrong("15-shard", "a little more in each element", answers.shard_with(more=1e-5), "", "is right"),
    Wrong("15-shard", "does not apply GELU", answers.shard_with(gelu=False), "", "The last step, gelu, is missing"),
    Wrong("15-shard", "all rows everywhere", answers.shard_with(all=True), "", "has shape"),
    Wrong("15-shard", "GPU 0 does it all", answers.on_zero, "", ""),
    Wrong("15-shard", "through the host", answers.host_gather, "", "through the host's memory"),
    Wrong("15-shard", "writes into the parts", answers.in_place, "", "belong to the caller"),
    Wrong("15-shard", "results on the wrong GPUs", lambda cp, parts: answers.backwards(answers.shard_with()(cp, parts)), "", "entry k on GPU k"),
    Wrong("15-shard", "no maximum", answers.shard_with(maximum=False), "", ""),
    Wrong("15-shard", "in double precision", answers.shard_with(kind="float64"), "", "is float64"),
    Wrong("15-shard", "gathered in a stream that nobody waits for", answers.shard_with(aside=True), "", "nothing orders the two"),
    Right("15-shard", "rows gathered once", answers.shard_with()),
    Right("15-shard", "online, shard after shard", answers.online),
    Right("15-shard", "gathered round a ring", answers.passed_round),
    Right("15-shard", "the last GPU first", answers.last_first),
)

_ALL: tuple[Any, ...] = (*_RING, *_BROADCAST, *_HALO, *_PLACE, *_SHARD)
WRONG = tuple(one for one in _ALL if isinstance(one, Wrong))
RIGHT = tuple(one for one in _ALL if isinstance(one, Right))
