"""Source of ``<cupy/complex.cuh>``: complex numbers in kernels, with the interface of CuPy's own header."""

from __future__ import annotations

COMPLEX_HEADER = """\
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
  /* With a number by itself: an imaginary zero keeps its sign, and an infinity has no NaN beside it. */
  friend __device__ complex operator+(const complex& a, T b) { return complex(a.re_ + b, a.im_); }
  friend __device__ complex operator+(T a, const complex& b) { return complex(a + b.re_, b.im_); }
  friend __device__ complex operator-(const complex& a, T b) { return complex(a.re_ - b, a.im_); }
  friend __device__ complex operator-(T a, const complex& b) { return complex(a - b.re_, -b.im_); }
  friend __device__ complex operator*(const complex& a, T b) { return complex(a.re_ * b, a.im_ * b); }
  friend __device__ complex operator*(T a, const complex& b) { return complex(a * b.re_, a * b.im_); }
  friend __device__ complex operator/(const complex& a, T b) { return complex(a.re_ / b, a.im_ / b); }
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
template <typename T> __device__ complex<T> polar(T length, T angle = T()) {
  return complex<T>(length * cos(angle), length * sin(angle));
}
template <typename T> __device__ complex<T> exp(const complex<T>& z) {
  return polar(exp(z.real()), z.imag());
}
template <typename T> __device__ complex<T> log(const complex<T>& z) {
  return complex<T>(log(abs(z)), arg(z));
}
template <typename T> __device__ complex<T> log10(const complex<T>& z) {
  return log(z) * T(0.43429448190325182765);
}
template <typename T> __device__ complex<T> sqrt(const complex<T>& z) {
  /* Real and negative numbers have purely imaginary roots, which half of their angle would miss. */
  T half = sqrt((fabs(z.real()) + abs(z)) / T(2));
  if (half == T(0)) return complex<T>(T(), z.imag());
  if (z.real() >= T(0)) return complex<T>(half, z.imag() / (half + half));
  return complex<T>(fabs(z.imag()) / (half + half), copysign(half, z.imag()));
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
template <typename T> __device__ complex<T> tanh(const complex<T>& z) {
  if (fabs(z.real()) < T(20)) return sinh(z) / cosh(z);
  T rest = T(4) * exp(T(-2) * fabs(z.real()));  /* where sinh and cosh may overflow */
  return complex<T>(copysign(T(1), z.real()), rest * sin(z.imag()) * cos(z.imag()));
}
template <typename T> __device__ complex<T> pow(T x, const complex<T>& w) { return pow(complex<T>(x), w); }
/* Kahan's formulas ("Branch cuts for complex elementary functions", 1987). */
template <typename T> __device__ complex<T> acos(const complex<T>& z) {
  complex<T> below = sqrt(T(1) - z), above = sqrt(T(1) + z);
  return complex<T>(T(2) * atan2(below.real(), above.real()), asinh((conj(above) * below).imag()));
}
template <typename T> __device__ complex<T> asin(const complex<T>& z) {
  complex<T> below = sqrt(T(1) - z), above = sqrt(T(1) + z);
  return complex<T>(atan2(z.real(), (below * above).real()), asinh((conj(below) * above).imag()));
}
template <typename T> __device__ complex<T> acosh(const complex<T>& z) {
  complex<T> below = sqrt(z - T(1)), above = sqrt(z + T(1));
  return complex<T>(asinh((conj(below) * above).real()), T(2) * atan2(below.imag(), above.real()));
}
template <typename T> __device__ complex<T> atanh(const complex<T>& z) {
  T x = z.real(), y = z.imag(), away = (T(1) - x) * (T(1) - x) + y * y;
  return complex<T>(log1p(T(4) * x / away) / T(4), atan2(T(2) * y, (T(1) - x) * (T(1) + x) - y * y) / T(2));
}
/* f(z) of these is f(iz)/i of the ones above. */
template <typename T> __device__ complex<T> over_i(const complex<T>& z) {
  return complex<T>(z.imag(), -z.real());
}
template <typename T> __device__ complex<T> tan(const complex<T>& z) { return over_i(tanh(-over_i(z))); }
template <typename T> __device__ complex<T> atan(const complex<T>& z) { return over_i(atanh(-over_i(z))); }
template <typename T> __device__ complex<T> asinh(const complex<T>& z) { return over_i(asin(-over_i(z))); }
"""
