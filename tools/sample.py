"""A fixed sample of tests that are much alike, drawn by a hash of their names.

``make test`` runs the sample; ``make test-all`` and plain pytest run all of them. The sample depends on the
commit alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

VARIABLE = "GPULAB_TEST_SAMPLE"
ALL = "GPULAB_TEST_ALL"

T = TypeVar("T")


def is_on() -> bool:
    """Return whether an environment variable selects only a sample of the tests."""
    return bool(os.environ.get(VARIABLE))


def draw_sample(
    items: Iterable[T],
    one_in: int,
    name: Callable[[T], str] = str,
    group: Callable[[T], Hashable] = lambda _: None,
) -> list[T]:
    """Return a sample with about one of `one_in` items, and at least one per group, or else all items.

    Parameters
    ----------
    items
        What could be tried.
    one_in
        The share: 4 for a quarter.
    name
        A name for each item, by which it is drawn.
    group
        What must not go untried, such as the stage of a judge.

    Examples
    --------
    >>> draw_sample(range(100), 10)  # doctest: +SKIP
    [7, 16, 30, 41, 59, 64, 78, 92]
    """
    items = list(items)
    if not is_on():
        return items
    selected_indices = {index for index, item in enumerate(items) if _hash(name(item)) % one_in == 0}
    chosen_groups = {group(items[index]) for index in selected_indices}
    for group_key in dict.fromkeys(map(group, items)):
        if group_key not in chosen_groups:
            members = [index for index, item in enumerate(items) if group(item) == group_key]
            selected_indices.add(min(members, key=lambda index: _hash(name(items[index]))))
    return [items[index] for index in sorted(selected_indices)]


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
