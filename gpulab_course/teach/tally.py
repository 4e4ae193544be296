"""Summary of a learner's answers for the teacher's screen: choices and passed exercises, no programs.

A class names a shared folder in ``GPULAB_TALLY``. Each learner's kernel writes one small file there whenever
an answer is locked or an exercise passes; ``gpulab tally`` counts them. Without the variable nothing is
written.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virtualgpu.compile.cache import replace_file

VARIABLE = "GPULAB_TALLY"
FORMAT = "gpulab-tally"
VERSION = 1

_log = logging.getLogger(__name__)


def publish(learner_file: Path, sections: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the summary of a learner's store into the class's folder; a failure never stops a lesson.

    Parameters
    ----------
    learner_file : Path
        The learner's store. Its path tells learners apart who use one account.
    sections : mapping
        The contents of the store.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    try:
        path = Path(folder) / _file_name(learner_file)
        replace_file(path, json.dumps(summary(sections)).encode())
        path.chmod(0o644)  # a learner of a hub hides new files from others, also from the teacher
    except OSError as error:
        _log.warning("The summary for the teacher was not written to %s: %s", folder, error)


def summary(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the teacher's screen counts: locked predictions, and exercises that have passed.

    Examples
    --------
    >>> sections = {"predictions": {"02-tail": {"value": 52, "sure": True}}, "exercises": {"00-saxpy": {}}}
    >>> summary(sections)["predictions"]
    {'02-tail': {'value': 52, 'sure': True}}
    """
    predictions = {
        key: {"value": record["value"], "sure": record.get("sure")}
        for key, record in sections.get("predictions", {}).items()
        if isinstance(record, dict) and record.get("value") is not None
    }
    passed = sorted(name for name, record in sections.get("exercises", {}).items() if record)
    return {"format": FORMAT, "version": VERSION, "predictions": predictions, "exercises": passed}


def _file_name(learner_file: Path) -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # an account without a name, as in some containers
        user = "learner"
    user = re.sub(r"[^\w.-]", "_", user)
    return f"{user}-{hashlib.sha256(str(learner_file.absolute()).encode()).hexdigest()[:8]}.json"
