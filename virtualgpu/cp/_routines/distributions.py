"""The rarer distributions of ``cp.random``, from NumPy's generators."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray

_FLOAT, _INT = np.dtype(np.float64), np.dtype(np.int64)
_REQUIRED = Parameter.empty


def _signature(parameters: dict[str, Any], dtype: np.dtype[Any]) -> Signature:
    either = Parameter.POSITIONAL_OR_KEYWORD
    ordered = [Parameter(name, either, default=default) for name, default in parameters.items()]
    size, kind = Parameter("size", either, default=None), Parameter("dtype", either, default=dtype)
    return Signature([*ordered, size, kind])


def _distribution(name: str, dtype: np.dtype[Any] = _FLOAT, **parameters: Any) -> Callable[..., ndarray]:
    """A method that draws from NumPy's distribution `name`, with its parameters and their defaults."""
    signature = _signature(parameters, dtype)

    def method(self: Any, *args: Any, **kwargs: Any) -> ndarray:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        values = given.arguments
        drawn: ndarray = self._draw(
            name, values["size"], values["dtype"], *(values[parameter] for parameter in parameters)
        )
        return drawn

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Like ``numpy.random.Generator.{name}``; the array lies on the device."
    return method


class RarerDistributions:
    """Distributions by NumPy's names and parameters."""

    chisquare = _distribution("chisquare", df=_REQUIRED)
    dirichlet = _distribution("dirichlet", alpha=_REQUIRED)
    f = _distribution("f", dfnum=_REQUIRED, dfden=_REQUIRED)
    geometric = _distribution("geometric", _INT, p=_REQUIRED)
    gumbel = _distribution("gumbel", loc=0.0, scale=1.0)
    hypergeometric = _distribution("hypergeometric", _INT, ngood=_REQUIRED, nbad=_REQUIRED, nsample=_REQUIRED)
    laplace = _distribution("laplace", loc=0.0, scale=1.0)
    logistic = _distribution("logistic", loc=0.0, scale=1.0)
    lognormal = _distribution("lognormal", mean=0.0, sigma=1.0)
    logseries = _distribution("logseries", _INT, p=_REQUIRED)
    multinomial = _distribution("multinomial", _INT, n=_REQUIRED, pvals=_REQUIRED)
    multivariate_normal = _distribution("multivariate_normal", mean=_REQUIRED, cov=_REQUIRED)
    negative_binomial = _distribution("negative_binomial", _INT, n=_REQUIRED, p=_REQUIRED)
    noncentral_chisquare = _distribution("noncentral_chisquare", df=_REQUIRED, nonc=_REQUIRED)
    noncentral_f = _distribution("noncentral_f", dfnum=_REQUIRED, dfden=_REQUIRED, nonc=_REQUIRED)
    pareto = _distribution("pareto", a=_REQUIRED)
    power = _distribution("power", a=_REQUIRED)
    rayleigh = _distribution("rayleigh", scale=1.0)
    standard_cauchy = _distribution("standard_cauchy")
    standard_gamma = _distribution("standard_gamma", shape=_REQUIRED)
    standard_t = _distribution("standard_t", df=_REQUIRED)
    triangular = _distribution("triangular", left=_REQUIRED, mode=_REQUIRED, right=_REQUIRED)
    vonmises = _distribution("vonmises", mu=_REQUIRED, kappa=_REQUIRED)
    wald = _distribution("wald", mean=_REQUIRED, scale=_REQUIRED)
    weibull = _distribution("weibull", a=_REQUIRED)
    zipf = _distribution("zipf", _INT, a=_REQUIRED)
