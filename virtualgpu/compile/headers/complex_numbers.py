"""Complex numbers in kernels: what ``#include <cupy/complex.cuh>`` gives, as CuPy's own header does."""

from __future__ import annotations

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
    /* Scaled by the larger part of the divisor (Smith's method), so that squares do not overflow. */
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
template <typename T> __device__ complex<T> pow(const complex<T>& z, const complex<T>& w) {
  return z == complex<T>() ? complex<T>() : exp(w * log(z));
}
template <typename T> __device__ complex<T> pow(const complex<T>& z, T w) { return pow(z, complex<T>(w)); }
template <typename T> __device__ complex<T> sin(const complex<T>& z) {
  return complex<T>(sin(z.real()) * cosh(z.imag()), cos(z.real()) * sinh(z.imag()));
}
template <typename T> __device__ complex<T> cos(const complex<T>& z) {
  return complex<T>(cos(z.real()) * cosh(z.imag()), -sin(z.real()) * sinh(z.imag()));
}
template <typename T> __device__ complex<T> sinh(const complex<T>& z) {
  return complex<T>(sinh(z.real()) * cos(z.imag()), cosh(z.real()) * sin(z.imag()));
}
template <typename T> __device__ complex<T> cosh(const complex<T>& z) {
  return complex<T>(cosh(z.real()) * cos(z.imag()), sinh(z.real()) * sin(z.imag()));
}
template <typename T> __device__ complex<T> tan(const complex<T>& z) { return sin(z) / cos(z); }
template <typename T> __device__ complex<T> tanh(const complex<T>& z) { return sinh(z) / cosh(z); }
"""
