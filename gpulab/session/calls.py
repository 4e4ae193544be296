"""Recording of the CUDA runtime and driver calls that a function makes on a real GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from gpulab.analysis.cupti.kinds import DRIVER_API, RUNTIME_API
from gpulab.real.cupti import callbacks, library
from virtualgpu.records.libraries.layers import CallCounts, sort_queries_last


def count_driver_calls(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[CallCounts, ...]:
    """Count the CUDA runtime and driver calls of a function on a real GPU. Pure queries are listed last."""
    cupti = library.load_cupti()
    if cupti is None:
        return (), ()
    calls_by_domain = {
        api_domain: frozenset(cupti.list_call_names(api_domain).values())
        for api_domain in (RUNTIME_API, DRIVER_API)
    }
    call_counts: Counter[str] = Counter()

    def count_call(name: str, has_returned: bool, _: Any) -> None:
        if not has_returned:
            call_counts[name] += 1

    with callbacks.subscribe_to_calls(cupti, calls_by_domain, count_call):
        function(*args)
    api_domains = (RUNTIME_API, DRIVER_API)
    return tuple(
        sort_queries_last((n, call_counts[n]) for n in call_counts if n in calls_by_domain[api_domain])
        for api_domain in api_domains
    )
