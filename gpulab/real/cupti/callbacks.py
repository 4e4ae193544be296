"""CUPTI's callbacks, which run before and after each CUDA call, in the calling thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_uint32, c_void_p
from typing import Any

from gpulab.real.cupti.library import Cupti


class CallData(ctypes.Structure):
    """The layout of the C structure CUpti_CallbackData from the header cupti_callbacks.h."""

    _fields_ = (
        ("site", c_int),
        ("function_name", c_char_p),
        ("params", c_void_p),
        ("return_value", ctypes.POINTER(c_int)),
        ("symbol_name", c_char_p),
        ("context", c_void_p),
        ("context_uid", c_uint32),
        ("correlation_data", c_void_p),
        ("correlation_id", c_uint32),
    )


_Callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_uint32, ctypes.POINTER(CallData))
# The function's name, whether it has returned, and CUPTI's data.
Handler = Callable[[str, bool, CallData], None]


@contextmanager
def subscribe_to_calls(
    library: Cupti, functions: Mapping[int, frozenset[str]], handler: Handler
) -> Iterator[None]:
    """Call `handler` before and after each call of the given CUDA functions within a ``with`` block.

    The functions are given by name for each domain (runtime, driver). On drivers before r610, CUPTI supports
    one subscriber per process. Errors in the handler do not reach the program, so the handler must store
    them.

    Raises
    ------
    CuptiError
        If the process already has a subscriber.
    """
    names_by_cbid = {domain: library.list_call_names(domain) for domain in functions}

    def on_call(_: Any, domain: int, cbid: int, data: Any) -> None:
        call_data = data.contents
        handler(names_by_cbid[domain].get(cbid, ""), bool(call_data.site), call_data)

    callback = _Callback(on_call)
    subscriber = c_void_p()
    library.call("cuptiSubscribe", ctypes.byref(subscriber), callback, None)
    try:
        for domain, names_of_domain in functions.items():
            for cbid in [cbid for cbid, name in names_by_cbid[domain].items() if name in names_of_domain]:
                library.call("cuptiEnableCallback", c_uint32(1), subscriber, domain, c_uint32(cbid))
        yield
    finally:
        library.call("cuptiUnsubscribe", subscriber)
