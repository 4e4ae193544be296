"""Selection of the cards of ``gl.interview``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from random import Random, SystemRandom

from gpulab.words import count
from gpulab_course.teach.interview import again
from gpulab_course.teach.interview.cards import KINDS, Card
from gpulab_course.teach.interview.talk import Interview, Role
from virtualgpu.errors import GpulabError, did_you_mean

ROLES: tuple[Role, ...] = ("candidate", "interviewer")


class UnknownCardError(GpulabError, ValueError):
    """Error for an unknown interview card or kind of card. The message suggests the most similar name."""


def open_interview(
    all_cards: Sequence[Card],
    kind: str | None,
    seed: int | None,
    card_count: int,
    role: Role,
    today: Callable[[], date],
) -> Interview:
    """Choose interview cards, and return an interview with these cards. If no seed is given, cards that are
    due are chosen first.
    """
    if role not in ROLES:
        raise ValueError(f"`chair` must be 'candidate' or 'interviewer', not {role!r}.")
    if card_count < 1:
        raise ValueError(f"An interview must have at least one card, not {card_count}.")
    card_by_key = {card.key: card for card in all_cards}
    if kind is not None and kind not in (*KINDS, *card_by_key):
        raise UnknownCardError(
            f"{kind!r} is neither a kind of card nor the key of a "
            f"card.{did_you_mean(kind, [*KINDS, *card_by_key])} "
            f"Kinds: {', '.join(KINDS)}."
        )
    if kind in card_by_key:
        return Interview([card_by_key[kind]], 0 if seed is None else seed, role, today)
    matching_cards = [card for card in card_by_key.values() if kind in (None, card.kind)]
    repeated_keys: list[str] = []
    notice_text = ""
    if seed is None:
        seed = SystemRandom().randrange(10_000)
        due_keys = again.list_due_keys([card.key for card in matching_cards], today())
        due_cards = _shuffle_cards([card for card in matching_cards if card.key in due_keys], seed, set())
        due_cards.sort(key=lambda card: again.load_history(card.key).due_day or today())
        repeated_keys = [card.key for card in due_cards][:card_count]
        notice_text = f" {count(len(repeated_keys), 'card')} repeated." if repeated_keys else ""
        notice_text += _make_due_sentence(matching_cards, set(repeated_keys), today())
    chosen_cards = [card_by_key[key] for key in repeated_keys] + _shuffle_cards(
        matching_cards, seed, set(repeated_keys)
    )
    return Interview(chosen_cards[:card_count], seed, role, today, notice_text)


def _make_due_sentence(cards: list[Card], excluded_keys: set[str], today: date) -> str:
    """Return a sentence with the number of other cards to repeat, and the date of the next one."""
    due_days = sorted(
        due_day
        for card in cards
        if card.key not in excluded_keys and (due_day := again.load_history(card.key).due_day) is not None
    )
    if not due_days:
        return ""
    date_text = "today" if due_days[0] <= today else f"on {due_days[0].isoformat()}"
    return f" {count(len(due_days), 'other card')} will be repeated, the next {date_text}."


def _shuffle_cards(cards: list[Card], seed: int, excluded_keys: set[str]) -> list[Card]:
    """Return the cards in a random order that alternates between the kinds of cards."""
    rng = Random(seed)
    cards_by_kind = [
        [card for card in cards if card.kind == card_kind and card.key not in excluded_keys]
        for card_kind in KINDS
    ]
    for kind_cards in cards_by_kind:
        rng.shuffle(kind_cards)
    cards_by_kind = [kind_cards for kind_cards in cards_by_kind if kind_cards]
    shuffled_cards: list[Card] = []
    while cards_by_kind:
        shuffled_cards += [kind_cards.pop() for kind_cards in cards_by_kind]
        cards_by_kind = [kind_cards for kind_cards in cards_by_kind if kind_cards]
    return shuffled_cards
