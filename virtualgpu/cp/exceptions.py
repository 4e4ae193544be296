"""``cp.exceptions``: the exception classes of NumPy that CuPy raises."""

from numpy.exceptions import AxisError, ComplexWarning, RankWarning, TooHardError, VisibleDeprecationWarning

__all__ = ["AxisError", "ComplexWarning", "RankWarning", "TooHardError", "VisibleDeprecationWarning"]
