// Everyday floating-point kernels whose last bits depend on which products and sums become one fma.
// Each writes `n` results to its first argument; `x` and `y` hold 2 n numbers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define AT (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL(name, type) extern "C" __global__ void name(type *out, const type *x, const type *y, int n)

struct Complex {
    float re, im;
    __device__ Complex operator*(Complex b) const { return {re * b.re - im * b.im, re * b.im + im * b.re}; }
    __device__ Complex operator+(Complex b) const { return {re + b.re, im + b.im}; }
    __device__ float norm() const { return re * re + im * im; }
};

KERNEL(dot, float) {
    __shared__ float part[128];
    float sum = 0;
    for (int i = AT; i < 2 * n; i += gridDim.x * blockDim.x) sum += x[i] * y[i];
    part[threadIdx.x] = sum;
    for (int half = 64; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    __syncthreads();
    out[AT] = part[0] + x[AT] * sum;
}

KERNEL(saxpy_chain, float) {
    float a = x[AT], b = y[AT], c = a;
    for (int k = 0; k < 6; k++) {
        float step = a * b;
        c = c - step;
        b = b + step;
        a = 0.5f * a * (1.5f - a * b) + c * b;
    }
    out[AT] = a + b * c;
}

KERNEL(polynomial, float) {
    float t = x[AT], square = t * t, cube = square * t;
    out[AT] = 1.25f * cube - 0.75f * square + 3.1f * t - (square * square - cube) * y[AT];
}

KERNEL(complex_powers, float) {
    Complex z{x[AT], y[AT]}, c{x[AT + n], y[AT + n]}, sum{0, 0};
    for (int k = 0; k < 8; k++) {
        z = z * z + c * z;
        float scale = 1 / (1 + z.norm());
        z = {z.re * scale, z.im * scale};
        sum = sum + z * c;
    }
    out[AT] = sum.re * sum.im - sum.norm();
}

KERNEL(julia, float) {
    Complex z{1.5f * x[AT], 1.5f * y[AT]}, c{-0.8f, 0.156f};
    int k = 0;
    while (k < 200 && z.norm() < 1000) z = z * z + c, k++;
    out[AT] = k + z.re;
}

KERNEL(mandelbrot, double) {
    double cx = 1.2 * x[AT] - 0.6, cy = 1.1 * y[AT], zx = 0, zy = 0, xx = 0, yy = 0;
    int k = 0;
    for (; k < 300 && xx + yy < 4; k++) {
        zy = 2 * zx * zy + cy;
        zx = xx - yy + cx;
        xx = zx * zx;
        yy = zy * zy;
    }
    out[AT] = k + xx + yy;
}

KERNEL(n_body, float) {
    float px = x[AT], py = y[AT], pz = x[AT + n], fx = 0, fy = 0, fz = 0;
    for (int j = 0; j < 64; j++) {
        float dx = x[j] - px, dy = y[j] - py, dz = x[j + n] - pz;
        float square = dx * dx + dy * dy + dz * dz + 0.01f, inverse = 1 / sqrtf(square);
        float pull = y[j + n] * inverse * inverse * inverse;
        fx += dx * pull;
        fy += dy * pull;
        fz += dz * pull;
    }
    out[AT] = fx * fy + fy * fz - fz * fx;
}

KERNEL(blur, float) {
    float sum = 0, weights = 0;
    for (int k = -3; k <= 3; k++) {
        float weight = 1 / (1 + 0.3f * k * k), pixel = x[(AT + k + 2 * n) % (2 * n)];
        sum += weight * pixel;
        weights += weight;
    }
    out[AT] = sum / weights - y[AT] * (1 - sum);
}

KERNEL(matmul_complex, float) {
    int row = AT / 16 % 16 * 16, column = AT % 16;
    Complex sum{0, 0};
    for (int k = 0; k < 16; k++) {
        Complex a{x[row + k], y[row + k]}, b{x[n + 16 * k + column], y[n + 16 * k + column]};
        sum = sum + a * b;
    }
    out[AT] = sum.re - 2 * sum.im;
}

__device__ void cosine_transform(float *v) {
    const float a = 1.3870398f, b = 1.3065630f, c = 1.1758756f, d = 0.78569496f, e = 0.54119610f, f = 0.27589938f;
    float s0 = v[0] + v[7], s1 = v[1] + v[6], s2 = v[2] + v[5], s3 = v[3] + v[4];
    float d0 = v[0] - v[7], d1 = v[1] - v[6], d2 = v[2] - v[5], d3 = v[3] - v[4];
    float even = s0 + s3, odd = s1 + s2, left = s0 - s3, right = s1 - s2;
    v[0] = even + odd;
    v[4] = even - odd;
    v[2] = b * left + e * right;
    v[6] = e * left - b * right;
    v[1] = a * d0 + c * d1 + d * d2 + f * d3;
    v[3] = c * d0 - f * d1 - a * d2 - d * d3;
    v[5] = d * d0 - a * d1 + f * d2 + c * d3;
    v[7] = f * d0 - d * d1 + c * d2 - a * d3;
}

KERNEL(dct_8x8, float) {
    __shared__ float tile[16][8][9];
    int block = threadIdx.x / 8, lane = threadIdx.x % 8;
    float v[8];
    for (int k = 0; k < 8; k++) v[k] = x[(AT * 8 + k) % (2 * n)];
    cosine_transform(v);
    for (int k = 0; k < 8; k++) tile[block][lane][k] = v[k];
    __syncthreads();
    for (int k = 0; k < 8; k++) v[k] = tile[block][k][lane];
    cosine_transform(v);
    out[AT] = v[0] - v[1] + v[2] - v[3] + v[4] * v[5] + v[6] - v[7];
}

KERNEL(cyclic_reduction, float) {
    __shared__ float a[128], b[128], c[128], d[128];
    int i = threadIdx.x;
    a[i] = i ? x[AT] : 0, c[i] = i < 127 ? y[AT] : 0, b[i] = 4 + x[AT + n], d[i] = y[AT + n];
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        int left = max(i - step, 0), right = min(i + step, 127);
        float p = a[i] / b[left], q = c[i] / b[right];
        float new_b = b[i] - c[left] * p - a[right] * q, new_d = d[i] - d[left] * p - d[right] * q;
        float new_a = -a[left] * p, new_c = -c[right] * q;
        __syncthreads();
        a[i] = new_a, b[i] = new_b, c[i] = new_c, d[i] = new_d;
        __syncthreads();
    }
    out[AT] = d[i] / b[i];
}

KERNEL(filter, double) {
    double z[3][2] = {};
    for (int k = 0; k < 32; k++) {
        double value = x[(AT + 37 * k) % (2 * n)];
        for (int s = 0; s < 3; s++) {
            double b0 = 0.2 + 0.1 * s, b1 = y[s], b2 = y[s + 3], a1 = y[s + 6] * 0.5, a2 = 0.25 * y[s + 9];
            double next = b0 * value + z[s][0];
            z[s][0] = b1 * value - a1 * next + z[s][1];
            z[s][1] = b2 * value - a2 * next;
            value = next;
        }
        out[AT] = value;
    }
}

KERNEL(layer_norm, float) {
    float sum = 0, squares = 0, value = x[AT];
    for (int k = 0; k < 32; k++) {
        float v = __shfl_sync(~0u, value, k);
        sum += v;
        squares += v * v;
    }
    float mean = sum / 32, variance = squares / 32 - mean * mean;
    out[AT] = (value - mean) * (1 / sqrtf(variance + 1e-5f)) * y[AT] + y[AT + n];
}

KERNEL(welford, float) {
    float mean = 0, spread = 0;
    for (int k = 0; k < 24; k++) {
        float v = x[(AT + 5 * k) % (2 * n)], away = v - mean;
        mean += away / (k + 1);
        spread += away * (v - mean);
    }
    out[AT] = spread / 24 + mean * mean;
}

KERNEL(fourier_stage, float) {
    __shared__ float2 s[128];
    float angle = y[threadIdx.x % 64], c = 1 - angle * angle / 2, w = angle * (1 - angle * angle / 6);
    s[threadIdx.x] = make_float2(x[AT], x[AT + n]);
    for (int half = 1; half < 128; half *= 2) {
        __syncthreads();
        if (!(threadIdx.x & half)) {
            float2 p = s[threadIdx.x], q = s[threadIdx.x + half];
            float2 t = make_float2(q.x * c - q.y * w, q.x * w + q.y * c);
            s[threadIdx.x] = make_float2(p.x + t.x, p.y + t.y);
            s[threadIdx.x + half] = make_float2(p.x - t.x, p.y - t.y);
        }
    }
    __syncthreads();
    out[AT] = s[threadIdx.x].x * s[threadIdx.x].y;
}

KERNEL(runge_kutta, double) {
    double v = 0.5 + 0.4 * x[AT], h = 0.05, rate = 1 + y[AT] * y[AT];
    for (int k = 0; k < 30; k++) {
        double k1 = rate * v * (1 - v), u = v + 0.5 * h * k1;
        double k2 = rate * u * (1 - u);
        u = v + 0.5 * h * k2;
        double k3 = rate * u * (1 - u);
        u = v + h * k3;
        v += h / 6 * (k1 + 2 * k2 + 2 * k3 + rate * u * (1 - u));
    }
    out[AT] = v;
}

KERNEL(quaternions, float) {
    float a = x[AT], b = y[AT], c = x[AT + n], d = y[AT + n], p = b, q = c, r = d, s = a;
    for (int k = 0; k < 4; k++) {
        float e = a * p - b * q - c * r - d * s, f = a * q + b * p + c * s - d * r;
        float g = a * r - b * s + c * p + d * q, h = a * s + b * r - c * q + d * p;
        float size = 1 / sqrtf(e * e + f * f + g * g + h * h);
        p = e * size, q = f * size, r = g * size, s = h * size;
    }
    out[AT] = p * q - r * s;
}

KERNEL(blend, float) {
    float u = x[AT], v = y[AT], w = x[AT + n];
    float a = x[(AT + 1) % n], b = x[(AT + 2) % n], c = x[(AT + 3) % n], d = x[(AT + 4) % n];
    float top = a * (1 - u) + b * u, bottom = c * (1 - u) + d * u;
    out[AT] = (top * (1 - v) + bottom * v) * w + (1 - w) * (a * d - b * c);
}

KERNEL(far_from_its_sum, float) {
    // The product is by a literal, and its only sum is in a loop: ptxas takes it there.
    float away = y[AT] * 9, sum = 0;
    for (int k = 0; k < n % 61; k++) sum = sum * 0.875f + (x[(AT + k) % n] - away) * x[k];
    out[AT] = sum;
}

KERNEL(halves, __half) {
    __half a = x[AT], b = y[AT], c = x[AT + n], d = y[AT + n], both = a * c, q = b * d;
    __half sum = a * b + c * d;
    out[AT] = sum * (both + b) - (both - d) * (q + a) + q;
}

KERNEL(half_pairs, __half2) {
    __half2 a = x[AT], b = y[AT], c = x[AT + n], d = y[AT + n], both = a * c, q = b * d;
    __half2 sum = __hadd2(__hmul2(a, b), __hmul2(c, d));
    out[AT] = sum * (both + b) - (both - d) * (q + a) + __hadd2_rn(__hmul2_rn(a, d), q);
}

KERNEL(brain_floats, __nv_bfloat16) {
    __nv_bfloat16 a = x[AT], b = y[AT], c = x[AT + n], d = y[AT + n], both = a * c, q = b * d;
    __nv_bfloat16 sum = a * b + c * d;
    out[AT] = sum * (both + b) - (both - d) * (q + a) + q;
}

KERNEL(kept_apart, float) {
    float a = x[AT], b = y[AT], product = __fmul_rn(a, b);
    out[AT] = __fadd_rn(a * b, x[AT + n]) + (product - y[AT + n]) * 0.5f;
}
