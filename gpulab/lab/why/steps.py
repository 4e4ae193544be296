"""Convert a launch that a learner passes as a run, a tuple or a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gpulab import session
from gpulab._deprecated import warn_about_old_name
from virtualgpu.protocol import Launch

_LAUNCH_KEYS = ("kernel", "grid", "block", "args", "shared_mem", "stream")
_REQUIRED_KEYS = _LAUNCH_KEYS[:3]
_REMEDY = "pass the result of gl.launch, or (kernel, grid, block, args)"


def parse_launch(label: str, description: Any) -> Launch | session.KeptLaunch:
    """Return the launch that a run, a tuple or a mapping describes.

    A tuple has the form ``(kernel, grid, block, args)`` and may also contain `shared_mem` and `stream`. A
    mapping has these names as keys.

    Parameters
    ----------
    label
        The name of the launch in error messages.
    description
        The run, tuple or mapping.

    Returns
    -------
    Launch or KeptLaunch
        The launch. For a run, it includes the contents of its arrays before the launch.

    Raises
    ------
    TypeError
        For anything else.
    """
    kept_launch = getattr(description, "kept_launch", None)
    if isinstance(kept_launch, session.KeptLaunch):
        return kept_launch
    if isinstance(description, Mapping):
        options = dict(description)
        if "shared_bytes" in options:
            warn_about_old_name("'shared_bytes' of a launch", "'shared_mem'")
            options["shared_mem"] = options.pop("shared_bytes")
        unknown_names = [str(name) for name in options if name not in _LAUNCH_KEYS]
        missing_names = [name for name in _REQUIRED_KEYS if name not in options]
        if missing_names:
            raise TypeError(
                f"{label} has no value for {missing_names[0]!r}. A launch can have these values: "
                f"{', '.join(_LAUNCH_KEYS)}."
            )
        if unknown_names:
            raise TypeError(
                f"{label} has an unknown name {unknown_names[0]!r}. A launch can have "
                f"these values: {', '.join(_LAUNCH_KEYS)}."
            )
        return Launch.of(**options)
    if not isinstance(description, tuple | list):
        raise TypeError(f"{label} must be a launch, not {type(description).__name__}: {_REMEDY}.")
    if not len(_REQUIRED_KEYS) <= len(description) <= len(_LAUNCH_KEYS):
        raise TypeError(f"{label} is a sequence of {len(description)} elements: {_REMEDY}.")
    return Launch.of(*description)


def restore_arrays_of(launch: Launch | session.KeptLaunch) -> AbstractContextManager[Launch]:
    """Return a context manager that yields a launch whose arrays have their contents from before the
    launch.
    """
    return launch.with_initial_contents() if isinstance(launch, session.KeptLaunch) else nullcontext(launch)
