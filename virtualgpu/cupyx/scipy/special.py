"""``cupyx.scipy.special``: special functions of each element, by SciPy on the host."""

from __future__ import annotations

from virtualgpu.cupyx.scipy._lifted import make_lifted_getattr

_ONE_ARRAY_FUNCTIONS = (
    "cbrt digamma entr erf erfc erfcinv erfcx erfinv exp10 exp2 expit expm1 gamma gammaln i0 i0e i1 i1e "
    "j0 j1 log1p log_expit log_ndtr log_softmax logit loggamma logsumexp ndtr ndtri psi round softmax y0 y1"
)
_TWO_ARRAY_FUNCTIONS = "beta betaln gammainc gammaincc kl_div rel_entr xlog1py xlogy zeta"

__getattr__ = make_lifted_getattr(
    "special",
    {**dict.fromkeys(_ONE_ARRAY_FUNCTIONS.split(), 1), **dict.fromkeys(_TWO_ARRAY_FUNCTIONS.split(), 2)},
    globals(),
)
