"""``cupyx.scipy.special``: special functions of each element, by SciPy on the host."""

from __future__ import annotations

from virtualgpu.cupyx.scipy._lifted import lifted

_ONE_ARRAY = (
    "cbrt digamma entr erf erfc erfcinv erfcx erfinv exp10 exp2 expit expm1 gamma gammaln i0 i0e i1 i1e "
    "j0 j1 log1p log_expit log_ndtr log_softmax logit loggamma logsumexp ndtr ndtri psi round softmax y0 y1"
)
_TWO_ARRAYS = "beta betaln gammainc gammaincc kl_div rel_entr xlog1py xlogy zeta"

__getattr__ = lifted(
    "special", {**dict.fromkeys(_ONE_ARRAY.split(), 1), **dict.fromkeys(_TWO_ARRAYS.split(), 2)}, globals()
)
