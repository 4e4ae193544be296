"""``gl.interview``: which cards an interview has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from random import Random, SystemRandom

from gpulab.words import count
from gpulab_course.teach.interview import again
from gpulab_course.teach.interview.cards import KINDS, Card
from gpulab_course.teach.interview.talk import Chair, Interview
from virtualgpu.errors import GpulabError, did_you_mean

CHAIRS: tuple[Chair, ...] = ("candidate", "interviewer")


class UnknownCardError(GpulabError, ValueError):
    """A kind or card that the course does not have; the message names the nearest."""


def interview(
    every: Sequence[Card],
    kind: str | None,
    seed: int | None,
    cards: int,
    chair: Chair,
    today: Callable[[], date],
) -> Interview:
    """Draw the cards of an interview; `every` holds all cards of the course."""
    if chair not in CHAIRS:
        raise ValueError(f"There is no chair {chair!r}: sit as 'candidate' or as 'interviewer'.")
    if cards < 1:
        raise ValueError(f"An interview has at least one card, not {cards}.")
    known = {card.key: card for card in every}
    if kind is not None and kind not in (*KINDS, *known):
        raise UnknownCardError(
            f"There is no kind of card and no card {kind!r}.{did_you_mean(kind, [*KINDS, *known])} "
            f"Kinds: {', '.join(KINDS)}."
        )
    if kind in known:
        return Interview([known[kind]], 0 if seed is None else seed, chair, today)
    of_kind = [card for card in known.values() if kind in (None, card.kind)]
    back: list[str] = []
    why = ""
    if seed is None:
        seed = SystemRandom().randrange(10_000)
        due = [card for card in of_kind if card.key in again.due([card.key for card in of_kind], today())]
        mixed = sorted(_drawn(due, seed, set()), key=lambda card: again.kept(card.key).due or today())
        back = [card.key for card in mixed][:cards]
        why = f" {count(len(back), 'card')} came back." if back else ""
        why += _due(of_kind, set(back), today())
    chosen = [known[key] for key in back] + _drawn(of_kind, seed, set(back))
    return Interview(chosen[:cards], seed, chair, today, why)


def _due(cards: list[Card], without: set[str], today: date) -> str:
    """Return a sentence about how many other cards come back, and when the next one does."""
    days = sorted(
        day for card in cards if card.key not in without and (day := again.kept(card.key).due) is not None
    )
    if not days:
        return ""
    when = "today" if days[0] <= today else f"on {days[0].isoformat()}"
    return f" {count(len(days), 'other card')} {'comes' if len(days) == 1 else 'come'} back, the next {when}."


def _drawn(cards: list[Card], seed: int, without: set[str]) -> list[Card]:
    """Cards in an order drawn by a seed, kind after kind in turn."""
    rng = Random(seed)
    piles = [[card for card in cards if card.kind == kind and card.key not in without] for kind in KINDS]
    for pile in piles:
        rng.shuffle(pile)
    piles = [pile for pile in piles if pile]
    taken: list[Card] = []
    while piles:
        taken += [pile.pop() for pile in piles]
        piles = [pile for pile in piles if pile]
    return taken
