"""Answers to 15-halo and 15-shard, right unless told otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def _on(cp: Any, gpu: int, work: Any) -> Any:
    with cp.cuda.Device(gpu):
        return work()


# 15-halo


def exchange_with(**how: Any) -> Any:
    """A halo exchange, rows and then columns, right unless told otherwise."""

    def exchange(cp: Any, parts: Any, streams: Any) -> None:
        rows = len(parts)
        cols = len(parts[0])
        inner = np.s_[1:-1] if how.get("no_corners") else np.s_[:]
        edge = 0 if how.get("stale") else 1
        own: dict[Any, Any] = {}

        def send(source: tuple[int, int], target: tuple[int, int], out: Any, into: Any, ready: Any) -> None:
            # In a stream of the GPU that gets it: CuPy copies columns with a kernel over there.
            gpu = target[0] * cols + target[1]
            with cp.cuda.Device(gpu):
                if how.get("one_stream"):
                    side = own.setdefault(gpu, cp.cuda.Stream(non_blocking=True))
                else:
                    side = cp.cuda.Stream(non_blocking=True)
                if how.get("begin", True):
                    side.wait_event(ready[source])
                    side.wait_event(ready[target])
                with side:
                    sent = parts[source[0]][source[1]][out]
                    sent = sent.astype(how["kind"]) if "kind" in how else sent
                    cp.copyto(parts[target[0]][target[1]][into], sent)
                    done = side.record()
                if how.get("host"):
                    side.synchronize()
            if how.get("end", True):
                for place in (source, target):
                    _on(cp, place[0] * cols + place[1], lambda p=place: streams[p[0]][p[1]].wait_event(done))

        places = [(i, j) for i in range(rows) for j in range(cols)]
        for di, dj in ((0, 1), (1, 0)) if how.get("columns_first") else ((1, 0), (0, 1)):
            if how.get("once") and "ready" in own:
                ready = own["ready"]
            else:
                ready = {p: _on(cp, p[0] * cols + p[1], streams[p[0]][p[1]].record) for p in places}
                own["ready"] = ready
            for i, j in places:
                near = (i, j)
                far = (i + di, j + dj)
                if far not in ready:
                    if not how.get("torus"):
                        continue
                    far = (far[0] % rows, far[1] % cols)
                    if far == near:
                        continue
                cut = [(np.s_[k, inner] if di else np.s_[inner, k]) for k in (-1 - edge, 0, edge, -1)]
                send(near, far, cut[0], cut[1], ready)
                if not how.get("one_way"):
                    send(far, near, cut[2], cut[3], ready)
        own.clear()

    return exchange


def _line(is_row: int, at: int) -> Any:
    return np.s_[at, :] if is_row else np.s_[:, at]


def in_streams(cp: Any, parts: Any, streams: Any) -> None:
    """Everything in the streams that are given, so that both directions follow each other."""
    rows = len(parts)
    cols = len(parts[0])
    places = [(i, j) for i in range(rows) for j in range(cols)]
    for di, dj in ((1, 0), (0, 1)):
        ready = {p: _on(cp, p[0] * cols + p[1], streams[p[0]][p[1]].record) for p in places}
        done: dict[Any, Any] = {}
        for i, j in places:
            with cp.cuda.Device(i * cols + j), streams[i][j]:
                for sign, out, into in ((1, -2, 0), (-1, 1, -1)):
                    to = (i + sign * di, j + sign * dj)
                    if to in ready:
                        streams[i][j].wait_event(ready[to])
                        cp.copyto(parts[to[0]][to[1]][_line(di, into)], parts[i][j][_line(di, out)])
                done[i, j] = streams[i][j].record()
        for i, j in places:
            for sign in (1, -1):
                frm = (i + sign * di, j + sign * dj)
                if frm in done:
                    _on(cp, i * cols + j, lambda i=i, j=j, e=done[frm]: streams[i][j].wait_event(e))


def whole_parts(cp: Any, parts: Any, streams: Any) -> None:
    """Right rims, from whole parts that are sent to all eight neighbours."""
    rows = len(parts)
    cols = len(parts[0])
    places = [(i, j) for i in range(rows) for j in range(cols)]
    ready = {p: _on(cp, p[0] * cols + p[1], streams[p[0]][p[1]].record) for p in places}
    boxes = []
    for i, j in places:
        for di in (-1, 0, 1):
            for dj in (-1, 0, 1):
                frm = (i + di, j + dj)
                if frm == (i, j) or frm not in ready:
                    continue
                with cp.cuda.Device(i * cols + j):
                    side = cp.cuda.Stream(non_blocking=True)
                    with side:
                        side.wait_event(ready[frm])
                        box = cp.empty_like(parts[i][j])
                        cp.copyto(box, parts[frm[0]][frm[1]])
                        boxes.append(((i, j), frm, (di, dj), box, side.record()))
    for place, frm, (di, dj), box, event in boxes:
        _on(cp, frm[0] * cols + frm[1], lambda f=frm, e=event: streams[f[0]][f[1]].wait_event(e))
        rows_of = {-1: (0, -2), 1: (-1, 1), 0: (slice(1, -1), slice(1, -1))}
        i, j = place
        with cp.cuda.Device(i * cols + j), streams[i][j]:
            streams[i][j].wait_event(event)
            parts[i][j][rows_of[di][0], rows_of[dj][0]] = box[rows_of[di][1], rows_of[dj][1]]


def pulled(cp: Any, parts: Any, streams: Any) -> None:
    """Whoever needs an edge fetches it, diagonals by themselves."""
    rows = len(parts)
    cols = len(parts[0])
    places = [(i, j) for i in range(rows) for j in range(cols)]
    ready = {p: _on(cp, p[0] * cols + p[1], streams[p[0]][p[1]].record) for p in places}
    ghost = {-1: 0, 0: np.s_[1:-1], 1: -1}
    edge = {-1: -2, 0: np.s_[1:-1], 1: 1}
    for i, j in places:
        for di in (-1, 0, 1):
            for dj in (-1, 0, 1):
                frm = (i + di, j + dj)
                if frm == (i, j) or frm not in ready:
                    continue
                with cp.cuda.Device(i * cols + j):
                    side = cp.cuda.Stream(non_blocking=True)
                    side.wait_event(ready[i, j])
                    side.wait_event(ready[frm])
                    with side:
                        cp.copyto(
                            parts[i][j][ghost[di], ghost[dj]], parts[frm[0]][frm[1]][edge[di], edge[dj]]
                        )
                        done = side.record()
                for a, b in ((i, j), frm):
                    _on(cp, a * cols + b, lambda a=a, b=b, e=done: streams[a][b].wait_event(e))


# 15-shard


def _whole(cp: Any, parts: Any, gpu: int) -> Any:
    with cp.cuda.Device(gpu):
        whole = cp.empty((sum(len(p) for p in parts), parts[0].shape[1]), "float32")
        at = 0
        for part in parts:
            cp.copyto(whole[at : at + len(part)], part)
            at += len(part)
        return whole


def _gelu(cp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + cp.tanh(0.79788456 * (x + 0.044715 * x**3)))


def _attended(cp: Any, own: Any, keys: Any, values: Any, **how: Any) -> Any:
    scores = own @ keys.T
    if how.get("scaled", True):
        width = len(keys) if how.get("rows") else how.get("width", own.shape[1])
        scores = scores / np.float32(np.sqrt(width))
    if how.get("own_maximum"):
        scores = scores - (own @ own.T / np.float32(np.sqrt(own.shape[1]))).max(axis=1, keepdims=True)
    elif how.get("maximum", True):
        scores = scores - scores.max(axis=1, keepdims=True)
    powers = cp.exp(scores)
    mixed = powers / powers.sum(axis=1, keepdims=True) @ (_gelu(cp, values) if how.get("early") else values)
    return _gelu(cp, mixed) if how.get("gelu", True) else mixed


def shard_with(**how: Any) -> Any:
    """Attention over shards of rows, right unless told otherwise."""

    def shard(cp: Any, parts: Any) -> Any:
        outs = []
        for gpu, own in enumerate(parts):
            with cp.cuda.Device(gpu):
                if how.get("aside"):
                    with cp.cuda.Stream(non_blocking=True):
                        keys = _whole(cp, parts, gpu)
                else:
                    keys = own if how.get("local") else _whole(cp, parts, gpu)
                values = _whole(cp, parts, gpu) if how.get("again") else keys
                if how.get("nobody_waits"):
                    made = cp.cuda.Event()
                    made.record()
                    stream = cp.cuda.Stream(non_blocking=True)
                    stream.wait_event(made)
                    with stream:
                        outs.append(_attended(cp, own, keys, values))
                    continue
                out = _attended(cp, own, keys, values, **how).astype(how.get("kind", "float32"))
                out += how.get("more", 0)
                outs.append(_whole(cp, parts, gpu) * 0 + 1 if how.get("all") else out)
        return outs

    return shard


def even(cp: Any, parts: Any) -> Any:
    """Counts on as many rows everywhere."""
    outs = []
    each = len(parts[0])
    for gpu, own in enumerate(parts):
        with cp.cuda.Device(gpu):
            whole = cp.zeros((each * len(parts), own.shape[1]), "float32")
            for k, part in enumerate(parts):
                cp.copyto(whole[k * each : k * each + min(each, len(part))], part[:each])
            outs.append(_attended(cp, own, whole, whole))
    return outs


def on_zero(cp: Any, parts: Any) -> Any:
    """GPU 0 does it all, and gives each its rows."""
    whole = _whole(cp, parts, 0)
    outs = []
    at = 0
    with cp.cuda.Device(0):
        out = _attended(cp, whole, whole, whole)
    for gpu, part in enumerate(parts):
        with cp.cuda.Device(gpu):
            mine = cp.empty(part.shape, "float32")
            cp.copyto(mine, out[at : at + len(part)])
        outs.append(mine)
        at += len(part)
    return outs


def softmax_of_shards(cp: Any, parts: Any) -> Any:
    """The maximum of all, but sums over each shard."""
    outs = []
    for gpu, own in enumerate(parts):
        with cp.cuda.Device(gpu):
            whole = _whole(cp, parts, gpu)
            mixed = 0
            at = 0
            for part in parts:
                keys = whole[at : at + len(part)]
                scores = own @ keys.T / np.float32(np.sqrt(own.shape[1]))
                powers = cp.exp(scores - scores.max(axis=1, keepdims=True))
                mixed = mixed + powers / powers.sum(axis=1, keepdims=True) @ keys
                at += len(part)
            outs.append(_gelu(cp, mixed / len(parts)))
    return outs


def online(cp: Any, parts: Any) -> Any:
    """One shard after the other, with a maximum and a sum that are carried along."""
    outs = []
    for gpu, own in enumerate(parts):
        with cp.cuda.Device(gpu):
            most = cp.full((len(own), 1), -np.inf, "float32")
            total = cp.zeros((len(own), 1), "float32")
            mixed = cp.zeros(own.shape, "float32")
            for k, part in enumerate(parts):
                keys = own if k == gpu else cp.empty(part.shape, "float32")
                if k != gpu:
                    cp.copyto(keys, part)
                scores = own @ keys.T / np.float32(np.sqrt(own.shape[1]))
                new = cp.maximum(most, scores.max(axis=1, keepdims=True))
                powers = cp.exp(scores - new)
                shrink = cp.exp(most - new)
                total = total * shrink + powers.sum(axis=1, keepdims=True)
                mixed = mixed * shrink + powers @ keys
                most = new
            outs.append(_gelu(cp, mixed / total))
    return outs


def passed_round(cp: Any, parts: Any) -> Any:
    """Rows are gathered round a ring."""
    n = len(parts)
    held: list[dict[int, Any]] = [{gpu: parts[gpu]} for gpu in range(n)]
    for step in range(n - 1):
        for gpu in range(n):
            k = (gpu - step) % n
            to = (gpu + 1) % n
            with cp.cuda.Device(to):
                held[to][k] = cp.empty(parts[k].shape, "float32")
            with cp.cuda.Device(gpu):
                cp.copyto(held[to][k], held[gpu][k])
    outs = []
    for gpu in range(n):
        with cp.cuda.Device(gpu):
            whole = cp.concatenate([held[gpu][k] for k in range(n)])
            outs.append(_attended(cp, parts[gpu], whole, whole))
    return outs


def host_gather(cp: Any, parts: Any) -> Any:
    """Gathered in the host's memory."""
    whole = np.concatenate([part.get() for part in parts])
    outs = []
    for gpu, own in enumerate(parts):
        with cp.cuda.Device(gpu):
            there = cp.asarray(whole)
            outs.append(_attended(cp, own, there, there))
    return outs


def scales_its_parts(cp: Any, parts: Any) -> Any:
    """Queries are scaled where they lie."""
    outs = []
    for gpu, own in enumerate(parts):
        with cp.cuda.Device(gpu):
            whole = _whole(cp, parts, gpu)
            own *= np.float32(1 / np.sqrt(own.shape[1]))
            outs.append(_attended(cp, own, whole, whole, scaled=False))
    return outs


def in_place(cp: Any, parts: Any) -> Any:
    """Results take the place of the parts."""
    outs = shard_with()(cp, parts)
    for part, out in zip(parts, outs, strict=True):
        cp.copyto(part, out)
    return list(parts)


def last_first(cp: Any, parts: Any) -> Any:
    """From the last GPU to the first."""
    outs: dict[int, Any] = {}
    for gpu in reversed(range(len(parts))):
        with cp.cuda.Device(gpu):
            whole = _whole(cp, parts, gpu)
            outs[gpu] = _attended(cp, parts[gpu], whole, whole.copy())
    return tuple(outs[gpu] for gpu in range(len(parts)))


def backwards(parts: Sequence[Any]) -> Any:
    """The list turned round."""
    return list(parts)[::-1]
