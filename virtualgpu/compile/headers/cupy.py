"""Contents of CuPy's headers ``<cupy/complex.cuh>`` and ``<cupy/carray.cuh>``, and of some constants.

The contents replace the include on its one line, so that all later lines keep their numbers.
"""

from __future__ import annotations

import re

from virtualgpu.compile.headers.complex_numbers import COMPLEX_HEADER

# An array as a kernel's parameter: CuPy passes a pointer, the count, lengths and steps in bytes.
_CARRAY_HEADER = """\
template <typename T, int _ndim, bool _c_contiguous = false, bool _use_32bit_indexing = false>
class CArray {
 public:
  static const int ndim = _ndim;
  static const bool c_contiguous = _c_contiguous;
  __device__ ptrdiff_t size() const { return size_; }
  __device__ const ptrdiff_t* shape() const { return shape_; }
  __device__ const ptrdiff_t* strides() const { return strides_; }
  template <typename Int> __device__ T& operator[](const Int (&at)[_ndim]) const {
    ptrdiff_t bytes = 0;
    for (int axis = 0; axis < _ndim; ++axis) bytes += strides_[axis] * ptrdiff_t(at[axis]);
    return *reinterpret_cast<T*>(reinterpret_cast<char*>(data_) + bytes);
  }
  __device__ T& operator[](ptrdiff_t i) const {
    if (_c_contiguous) return data_[i];
    ptrdiff_t bytes = 0;
    for (int axis = _ndim; --axis > 0; i /= shape_[axis]) bytes += strides_[axis] * (i % shape_[axis]);
    return *reinterpret_cast<T*>(reinterpret_cast<char*>(data_) + bytes + strides_[0] * i);
  }
 private:
  T* data_; ptrdiff_t size_; ptrdiff_t shape_[_ndim]; ptrdiff_t strides_[_ndim];
};
template <typename T, bool _c_contiguous, bool _use_32bit_indexing>
class CArray<T, 0, _c_contiguous, _use_32bit_indexing> {
 public:
  static const int ndim = 0;
  __device__ ptrdiff_t size() const { return size_; }
  __device__ T& operator[](ptrdiff_t) const { return *data_; }
 private:
  T* data_; ptrdiff_t size_;
};
"""
# CUDA's own header contains all constants of CuPy's header.
_MATH_CONSTANTS = "#include <math_constants.h>"
_HEADERS = {"complex.cuh": COMPLEX_HEADER, "carray.cuh": _CARRAY_HEADER, "math_constants.h": _MATH_CONSTANTS}
_INCLUDE_PATTERN = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]cupy/([\w.]+)[>\"][^\n]*", re.M)


def insert_headers(code: str) -> str:
    """Replace the first ``#include`` of each CuPy header in the code with the header's contents."""
    included_names: set[str] = set()

    def replace_include(match: re.Match[str]) -> str:
        name = match[1]
        if name not in _HEADERS:
            return match[0]
        is_repeated = name in included_names
        included_names.add(name)
        return "" if is_repeated else " ".join(_HEADERS[name].split("\n"))

    return _INCLUDE_PATTERN.sub(replace_include, code)
