"""Records with many fields are made by name: a field put between two others must not shift those after it."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import virtualgpu.records

MOST_BY_PLACE = 6


def test_records_of_more_than_six_fields_are_keyword_only() -> None:
    modules = pkgutil.walk_packages(virtualgpu.records.__path__, "virtualgpu.records.")
    kinds = {
        kind
        for module in modules
        for kind in vars(importlib.import_module(module.name)).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    }
    large = {kind for kind in kinds if len(dataclasses.fields(kind)) > MOST_BY_PLACE}
    assert len(large) > 30
    by_place = {
        f"{kind.__module__}.{kind.__name__}"
        for kind in large
        if not all(field.kw_only for field in dataclasses.fields(kind) if field.init)
    }
    assert not by_place, f"Give these kw_only=True: {sorted(by_place)}"
