"""The CUDA C++ that generated kernels begin with: strided arrays, indexers, half and complex numbers."""

from __future__ import annotations

ARRAYS = """\
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

# Half precision as storage: arithmetic happens in float, as in CuPy.
FLOAT16 = """\
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

COMPLEX = """\
template <typename T>
struct alignas(2 * sizeof(T)) complex {
  T re_, im_;
  __device__ complex(T re = T(), T im = T()) : re_(re), im_(im) {}
  template <typename U> __device__ complex(const complex<U>& z) : re_(T(z.real())), im_(T(z.imag())) {}
  __device__ T real() const { return re_; }
  __device__ T imag() const { return im_; }
  __device__ void real(T value) { re_ = value; }
  __device__ void imag(T value) { im_ = value; }
  __device__ complex operator-() const { return complex(-re_, -im_); }
  __device__ complex operator+() const { return *this; }
  __device__ complex& operator+=(const complex& z) { return *this = *this + z; }
  __device__ complex& operator-=(const complex& z) { return *this = *this - z; }
  __device__ complex& operator*=(const complex& z) { return *this = *this * z; }
  __device__ complex& operator/=(const complex& z) { return *this = *this / z; }
  friend __device__ complex operator+(const complex& a, const complex& b) {
    return complex(a.re_ + b.re_, a.im_ + b.im_);
  }
  friend __device__ complex operator-(const complex& a, const complex& b) {
    return complex(a.re_ - b.re_, a.im_ - b.im_);
  }
  friend __device__ complex operator*(const complex& a, const complex& b) {
    return complex(a.re_ * b.re_ - a.im_ * b.im_, a.re_ * b.im_ + a.im_ * b.re_);
  }
  friend __device__ complex operator/(const complex& a, const complex& b) {
    // Scaled by the larger part of the divisor (Smith's method), so that squares do not overflow.
    if (fabs(b.re_) >= fabs(b.im_)) {
      T ratio = b.im_ / b.re_, scale = T(1) / (b.re_ + b.im_ * ratio);
      return complex((a.re_ + a.im_ * ratio) * scale, (a.im_ - a.re_ * ratio) * scale);
    }
    T ratio = b.re_ / b.im_, scale = T(1) / (b.re_ * ratio + b.im_);
    return complex((a.re_ * ratio + a.im_) * scale, (a.im_ * ratio - a.re_) * scale);
  }
  friend __device__ bool operator==(const complex& a, const complex& b) {
    return a.re_ == b.re_ && a.im_ == b.im_;
  }
  friend __device__ bool operator!=(const complex& a, const complex& b) { return !(a == b); }
};
template <typename T> __device__ T real(const complex<T>& z) { return z.real(); }
template <typename T> __device__ T imag(const complex<T>& z) { return z.imag(); }
template <typename T> __device__ complex<T> conj(const complex<T>& z) {
  return complex<T>(z.real(), -z.imag());
}
template <typename T> __device__ T norm(const complex<T>& z) {
  return z.real() * z.real() + z.imag() * z.imag();
}
template <typename T> __device__ T abs(const complex<T>& z) { return hypot(z.real(), z.imag()); }
template <typename T> __device__ T arg(const complex<T>& z) { return atan2(z.imag(), z.real()); }
template <typename T> __device__ complex<T> polar(T length, T angle) {
  return complex<T>(length * cos(angle), length * sin(angle));
}
template <typename T> __device__ complex<T> exp(const complex<T>& z) {
  return polar(exp(z.real()), z.imag());
}
template <typename T> __device__ complex<T> log(const complex<T>& z) {
  return complex<T>(log(abs(z)), arg(z));
}
template <typename T> __device__ complex<T> sqrt(const complex<T>& z) {
  return polar(sqrt(abs(z)), arg(z) / T(2));
}
"""


def header(type_names: frozenset[str]) -> str:
    """What a kernel needs that uses these C++ types."""
    parts = [ARRAYS]
    if "float16" in type_names:
        parts.append(FLOAT16)
    if any(name.startswith("complex") for name in type_names):
        parts.append(COMPLEX)
    return "\n".join(parts)
