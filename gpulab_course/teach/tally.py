"""Summary of a learner's predictions and passed exercises, which ``gpulab tally`` counts for a class.

A teacher sets ``GPULAB_TALLY`` to a shared folder. Each learner's kernel writes one small file there whenever
an answer is locked or an exercise is passed; programs are not written. Without the variable, no file is
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

FOLDER_VARIABLE = "GPULAB_TALLY"
FORMAT = "gpulab-tally"
VERSION = 1

_log = logging.getLogger(__name__)


def publish_summary(learner_file: Path, sections: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a summary of the learner's file to the folder of the class. Errors only cause a warning.

    Parameters
    ----------
    learner_file : Path
        The path of the learner's file, which distinguishes learners who share one account.
    sections : mapping
        The contents of the learner's file.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    try:
        path = Path(folder) / _make_file_name(learner_file)
        replace_file(path, json.dumps(summarise_sections(sections)).encode())
        path.chmod(0o644)  # a learner of a hub hides new files from others, also from the teacher
    except OSError as error:
        _log.warning("The summary for the teacher was not written to %s: %s", folder, error)


def summarise_sections(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the locked predictions and the passed exercises, which ``gpulab tally`` counts.

    Examples
    --------
    >>> sections = {"predictions": {"02-tail": {"value": 52, "sure": True}}, "exercises": {"00-saxpy": {}}}
    >>> summarise_sections(sections)["predictions"]
    {'02-tail': {'value': 52, 'sure': True}}
    """
    predictions = {
        key: {"value": record["value"], "sure": record.get("sure")}
        for key, record in sections.get("predictions", {}).items()
        if isinstance(record, dict) and record.get("value") is not None
    }
    passed_names = sorted(name for name, record in sections.get("exercises", {}).items() if record)
    return {"format": FORMAT, "version": VERSION, "predictions": predictions, "exercises": passed_names}


def _make_file_name(learner_file: Path) -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # an account without a name, as in some containers
        user = "learner"
    user = re.sub(r"[^\w.-]", "_", user)
    return f"{user}-{hashlib.sha256(str(learner_file.absolute()).encode()).hexdigest()[:8]}.json"
