"""Answers to 04-hunt: who made the first NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab import session


def first_cell(array: Any) -> Any:
    """The first cell by rows that is NaN, None without one."""
    wrong = np.argwhere(np.isnan(array.get()))
    return tuple(wrong[0].tolist()) if wrong.size else None


def after_each(steps: Any, arrays: Any) -> Any:
    """Looks after each step."""
    found = None
    for name in ("x", *steps):
        if name != "x":
            steps[name]()
        if found is None and first_cell(arrays[name]) is not None:
            found = name, first_cell(arrays[name])
    return found


def on_the_device(steps: Any, arrays: Any) -> Any:
    """By isnan and argmax."""
    cp = session.cp()
    for name in arrays:
        if name in steps:
            steps[name]()
        wrong = cp.isnan(arrays[name])
        if wrong.any():
            at = int(wrong.ravel().argmax())
            rest = list(steps)[list(steps).index(name) + 1 :] if name in steps else list(steps)
            for later in rest:
                steps[later]()
            return name, divmod(at, arrays[name].shape[1])
    return None


def stops_there(steps: Any, arrays: Any) -> Any:
    """Runs nothing behind the first NaN."""
    if (cell := first_cell(arrays["x"])) is not None:
        return "x", cell
    for name, step in steps.items():
        step()
        if (cell := first_cell(arrays[name])) is not None:
            return [name, list(cell)]
    return None


def goes_on(steps: Any, arrays: Any) -> Any:
    """Runs the rest without looking."""
    launches = iter(steps.items())
    cell = first_cell(arrays["x"])
    name = "x"
    while cell is None and (one := next(launches, None)):
        name, step = one
        step()
        cell = first_cell(arrays[name])
    for _, step in launches:
        step()
    return None if cell is None else [name, list(cell)]


def unequal_to_itself(steps: Any, arrays: Any) -> Any:
    """What is unequal to itself."""
    found = None
    launches = {"x": lambda: None, **steps}
    for name, launch in launches.items():
        launch()
        values = arrays[name].get()
        for row in range(values.shape[0]):
            for col in range(values.shape[1]):
                if found is None and values[row, col] != values[row, col]:
                    found = name, (row, col)
    return found


def at_the_end(steps: Any, arrays: Any) -> Any:
    """Looks when all have run."""
    for step in steps.values():
        step()
    for name in arrays:
        if (cell := first_cell(arrays[name])) is not None:
            return name, cell
    return None


def before_they_run(steps: Any, arrays: Any) -> Any:
    """Looks at all arrays before anything runs."""
    for name in arrays:
        if (cell := first_cell(arrays[name])) is not None:
            return name, cell
    return after_each(steps, arrays)


def the_last(steps: Any, arrays: Any) -> Any:
    """Tells the last array that has one."""
    found = None
    for name in ("x", *steps):
        if name != "x":
            steps[name]()
        if first_cell(arrays[name]) is not None:
            found = name, first_cell(arrays[name])
    return found


def silenced(steps: Any, arrays: Any) -> Any:
    """Replaces NaN on the way."""
    cp = session.cp()
    found = None
    for name in ("x", *steps):
        if name != "x":
            steps[name]()
        if found is None and first_cell(arrays[name]) is not None:
            found = name, first_cell(arrays[name])
        arrays[name][...] = cp.nan_to_num(arrays[name])
    return found


def infinity_too(steps: Any, arrays: Any) -> Any:
    """Takes infinities for NaN."""
    for name in ("x", *steps):
        if name != "x":
            steps[name]()
        wrong = np.argwhere(~np.isfinite(arrays[name].get()))
        if wrong.size:
            return name, tuple(wrong[0].tolist())
    return None


def compared_with_nan(steps: Any, arrays: Any) -> Any:
    """Compares with NaN."""
    for name in ("x", *steps):
        if name != "x":
            steps[name]()
        if (arrays[name] == np.nan).any():
            return name, first_cell(arrays[name])
    return None


def without_the_input(steps: Any, arrays: Any) -> Any:
    """Never looks at the input."""
    for name, step in steps.items():
        step()
        if (cell := first_cell(arrays[name])) is not None:
            return name, cell
    return None


def flat(steps: Any, arrays: Any) -> Any:
    """A number for a cell."""
    found = stops_there(steps, arrays)
    return found and (found[0], found[1][0] * arrays["x"].shape[1] + found[1][1])


def the_last_cell(steps: Any, arrays: Any) -> Any:
    """The last cell of the first array."""
    found = stops_there(steps, arrays)
    wrong = found and np.argwhere(np.isnan(arrays[found[0]].get()))
    return found and (found[0], tuple(wrong[-1].tolist()))


def without_the_last(steps: Any, arrays: Any) -> Any:
    """Never looks at the last array."""
    found = None
    for name in list(steps)[:-1]:
        steps[name]()
        found = found or next(((n, c) for n in ("x", name) if (c := first_cell(arrays[n])) is not None), None)
    steps[list(steps)[-1]]()
    return found


def sums_of_cells(steps: Any, arrays: Any) -> Any:
    """A sum is NaN if an element is; or if it has infinities of both signs."""
    for name in ("x", *steps):
        if name != "x":
            steps[name]()
        if session.cp().isnan(arrays[name].sum()):
            return name, first_cell(arrays[name]) or (0, 0)
    return None


def columns_first(steps: Any, arrays: Any) -> Any:
    """The first cell by columns."""
    for name in ("x", *steps):
        if name != "x":
            steps[name]()
        wrong = np.argwhere(np.isnan(arrays[name].get().T))
        if wrong.size:
            return name, tuple(wrong[0][::-1].tolist())
    return None


def runs_them_twice(steps: Any, arrays: Any) -> Any:
    """Runs all steps, and again to look."""
    for step in steps.values():
        step()
    return after_each(steps, arrays)


def new_ones(steps: Any, arrays: Any) -> Any:
    """Cells that are NaN and were not before: a NaN in an old one's place is missed."""
    found = None
    if (cell := first_cell(arrays["x"])) is not None:
        found = "x", cell
    for name, step in steps.items():
        before = np.isnan(arrays[name].get())
        step()
        wrong = np.argwhere(np.isnan(arrays[name].get()) & ~before)
        if found is None and wrong.size:
            found = name, tuple(wrong[0].tolist())
    return found


def sorted_steps(steps: Any, arrays: Any) -> Any:
    """Runs the steps by name."""
    return after_each({name: steps[name] for name in sorted(steps)}, arrays)
