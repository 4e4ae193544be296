"""Long chains and wide fans of a graph as a few groups: ``40 × add`` instead of forty nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtualgpu.records import GraphNode, GraphRecord

LEAST_FOLDED = 4
LONGEST_PATTERN = 12


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are drawn as one: ``times`` × ``pattern``, one after the other or side by side.

    Parameters
    ----------
    members
        Numbers of the nodes, in the order of their work.
    pattern
        What comes again.
    """

    members: tuple[int, ...]
    pattern: tuple[GraphNode, ...]
    times: int = 1
    is_fan: bool = False

    @property
    def like(self) -> object:
        """Return a key that equal groups share."""
        return tuple(map(kind_of, self.pattern)), self.times, self.is_fan


def kind_of(node: GraphNode) -> object:
    """Return a key that nodes with the same operation share."""
    return node.kind, node.name, node.grid, node.block, node.size_bytes, node.copy_kind


def groups(
    record: GraphRecord, apart: frozenset[int] = frozenset(), fold: bool = True
) -> tuple[list[Group], list[tuple[int, int]]]:
    """The groups of nodes that are drawn, and the edges between them.

    Parameters
    ----------
    apart
        Nodes that stay alone.
    fold
        Draw what comes again as one; else each node is a group.
    """
    whole = [Group((node.number,), (node,)) for node in record.nodes]
    if not fold:
        return whole, list(record.edges)
    result = [group for chain in _chains(record) for group in _folded(record, chain, apart)]
    while True:
        edges = _edges_between(result, record.edges)
        fans = _fans(result, edges, apart)
        if len(fans) == len(result):
            return result, edges
        result = fans  # fewer


def _chains(record: GraphRecord) -> list[list[int]]:
    """Return the nodes in paths, whose inner nodes have one predecessor and one successor."""
    after: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    for first, then in record.edges:
        after.setdefault(first, []).append(then)
        before.setdefault(then, []).append(first)

    def follows(node: int) -> int | None:
        """Return the node that continues the path of a node."""
        only = after.get(node, ())
        return only[0] if len(only) == 1 and len(before[only[0]]) == 1 else None

    chains = []
    for start in {node.number for node in record.nodes} - {follows(node.number) for node in record.nodes}:
        chain = [start]
        following = follows(start)
        while following is not None:
            chain.append(following)
            following = follows(following)
        chains.append(chain)
    return sorted(chains)


def _folded(record: GraphRecord, chain: Sequence[int], apart: frozenset[int]) -> list[Group]:
    """Return a path whose repeated parts are merged into one group each."""
    nodes = [record.nodes[number] for number in chain]
    kinds = [object() if number in apart else kind_of(record.nodes[number]) for number in chain]
    result = []
    index = 0
    while index < len(chain):
        length, times = max(
            (_repeats(kinds, index, length) for length in range(1, LONGEST_PATTERN + 1)),
            key=lambda group: (group[0] * group[1], -group[0]) if group[1] > 1 else (0, 0),
        )
        if length * times < LEAST_FOLDED:
            length = 1
            times = 1
        end = index + length * times
        result.append(Group(tuple(chain[index:end]), tuple(nodes[index : index + length]), times))
        index = end
    return result


def _repeats(kinds: Sequence[object], start: int, length: int) -> tuple[int, int]:
    """Return the length of the pattern that repeats at `start`, and the number of repetitions."""
    pattern = kinds[start : start + length]
    times = 1
    while kinds[start + times * length : start + (times + 1) * length] == pattern:
        times += 1
    return length, times


def _edges_between(found: Sequence[Group], edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    owner = {member: at for at, group in enumerate(found) for member in group.members}
    pairs = ((owner[first], owner[then]) for first, then in edges)
    return list(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))


def _fans(found: Sequence[Group], edges: Sequence[tuple[int, int]], apart: frozenset[int]) -> list[Group]:
    """Return the groups, with groups that do the same between the same neighbours merged into one."""
    around: list[tuple[list[int], list[int]]] = [([], []) for _ in found]
    for first, then in edges:
        around[first][1].append(then)
        around[then][0].append(first)
    alike: dict[object, list[int]] = {}
    for at, group in enumerate(found):
        alone = apart.intersection(group.members) or group.is_fan
        key = at if alone else (group.like, tuple(around[at][0]), tuple(around[at][1]))
        alike.setdefault(key, []).append(at)
    return [group for many in alike.values() for group in _as_fan([found[at] for at in many])]


def _as_fan(many: list[Group]) -> list[Group]:
    if len(many) < LEAST_FOLDED:
        return many
    first = many[0]
    members = tuple(member for group in many for member in group.members)
    return [Group(members, first.pattern, first.times * len(many), is_fan=True)]
