"""C++ declarations at the start of each generated kernel: arrays with strides, half and complex numbers."""

from __future__ import annotations

from virtualgpu.compile.headers.complex_numbers import COMPLEX_HEADER

ARRAY_CLASSES = """\
template <int ndim>
struct CLayout { ptrdiff_t shape[ndim]; ptrdiff_t strides[ndim]; };

template <typename T, int ndim_, bool contiguous>
class CArray {
  T* data_; ptrdiff_t size_; CLayout<ndim_> layout_;
 public:
  static const int ndim = ndim_;
  __device__ CArray(T* data, const CLayout<ndim_>& layout) : data_(data), size_(1), layout_(layout) {
    for (int axis = 0; axis < ndim_; ++axis) size_ *= layout.shape[axis];
  }
  __device__ ptrdiff_t size() const { return size_; }
  __device__ const ptrdiff_t* shape() const { return layout_.shape; }
  __device__ const ptrdiff_t* strides() const { return layout_.strides; }
  __device__ T& at(ptrdiff_t i) const {
    if (contiguous) return data_[i];
    ptrdiff_t offset = 0;
    for (int axis = ndim_ - 1; axis > 0; --axis) {
      ptrdiff_t next = i / layout_.shape[axis];
      offset += (i - next * layout_.shape[axis]) * layout_.strides[axis];
      i = next;
    }
    return *reinterpret_cast<T*>(reinterpret_cast<char*>(data_) + offset + i * layout_.strides[0]);
  }
  __device__ T& at(const ptrdiff_t* index) const {
    ptrdiff_t offset = 0;
    for (int axis = 0; axis < ndim_; ++axis) offset += index[axis] * layout_.strides[axis];
    return *reinterpret_cast<T*>(reinterpret_cast<char*>(data_) + offset);
  }
  template <typename I> __device__ T& operator[](const I& i) { return at(i); }
  template <typename I> __device__ const T& operator[](const I& i) const { return at(i); }
};

template <int ndim_>
class CIndexer {
  ptrdiff_t size_, shape_[ndim_], index_[ndim_];
 public:
  static const int ndim = ndim_;
  __device__ explicit CIndexer(const CLayout<ndim_>& layout) : size_(1) {
    for (int axis = 0; axis < ndim_; ++axis) {
      shape_[axis] = layout.shape[axis];
      size_ *= shape_[axis];
    }
  }
  __device__ ptrdiff_t size() const { return size_; }
  __device__ const ptrdiff_t* get() const { return index_; }
  __device__ void set(ptrdiff_t i) {
    for (int axis = ndim_ - 1; axis > 0; --axis) {
      ptrdiff_t next = i / shape_[axis];
      index_[axis] = i - next * shape_[axis];
      i = next;
    }
    index_[0] = i;
  }
};
"""

# Half precision is a storage type: arithmetic uses float, as in CuPy.
FLOAT16_STRUCT = """\
struct float16 {
  unsigned short bits_;
  float16() = default;
  __device__ float16(float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits_) : "f"(value)); }
  __device__ operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits_));
    return value;
  }
  template <typename U> __device__ float16& operator+=(U x) { return *this = float16(float(*this) + x); }
  template <typename U> __device__ float16& operator-=(U x) { return *this = float16(float(*this) - x); }
  template <typename U> __device__ float16& operator*=(U x) { return *this = float16(float(*this) * x); }
  template <typename U> __device__ float16& operator/=(U x) { return *this = float16(float(*this) / x); }
};
"""


def make_header(type_names: frozenset[str], code: str = "") -> str:
    """Return the C++ declarations that a kernel needs for its types and its code."""
    header_texts = [ARRAY_CLASSES]
    if "float16" in type_names or "float16" in code:
        header_texts.append(FLOAT16_STRUCT)
    if any(name.startswith("complex") for name in type_names) or "complex<" in code:
        header_texts.append(COMPLEX_HEADER)
    return "\n".join(header_texts)
