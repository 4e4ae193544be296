"""The cards of `gl.interview`, one module per kind."""

from gpulab_course.content.n17_interview.cards import (
    bugs,
    diagnoses,
    estimates,
    ladders,
    napkins,
    refutations,
    whiteboard,
)

CARDS = (
    *estimates.CARDS,
    *napkins.CARDS,
    *diagnoses.CARDS,
    *whiteboard.CARDS,
    *bugs.CARDS,
    *refutations.CARDS,
    *ladders.CARDS,
)
