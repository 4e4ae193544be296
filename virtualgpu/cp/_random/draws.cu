// What cp.random.Generator launches: thread t draws from state t, elements t, t + threads, t + 2 threads, ...
// STATE is Philox, Xorwow or Mrg. States lie in memory as cuRAND's do; see states.py.

#define TURN (0x1p-32f * 6.2831855f)

struct Philox {
    unsigned counter[4], output[4], key[2], at;
    int has_float, has_double;
    float other;
    double other_double;

    __device__ void advance()
    {
        for (int i = 0; i < 4 && ++counter[i] == 0; i++) {}
        unsigned c[4] = {counter[0], counter[1], counter[2], counter[3]}, k0 = key[0], k1 = key[1];
        for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
            unsigned high0 = __umulhi(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
            unsigned high1 = __umulhi(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
            c[0] = high1 ^ c[1] ^ k0;
            c[1] = low1;
            c[2] = high0 ^ c[3] ^ k1;
            c[3] = low0;
        }
        for (int i = 0; i < 4; i++) output[i] = c[i];
    }
    __device__ unsigned bits()
    {
        unsigned word = at == 0 ? output[0] : at == 1 ? output[1] : at == 2 ? output[2] : output[3];
        if (++at == 4) { advance(); at = 0; }
        return word;
    }
    __device__ float uniform() { return bits() * 0x1p-32f + 0x1p-33f; }
    __device__ double uniform_double() { return bits() * 0x1p-32 + 0x1p-32; }
};

struct Xorwow {
    unsigned d, v[5];
    int has_float, has_double;
    float other;
    double other_double;

    __device__ unsigned bits()
    {
        unsigned t = v[0] ^ v[0] >> 2;
        for (int i = 0; i < 4; i++) v[i] = v[i + 1];
        v[4] = v[4] ^ v[4] << 4 ^ t ^ t << 1;
        d += 362437;
        return v[4] + d;
    }
    __device__ float uniform() { return bits() * 0x1p-32f + 0x1p-33f; }
    __device__ double uniform_double()
    {
        unsigned long long low = bits(), high = bits();
        return (low ^ high << 21) * 0x1p-53 + 0x1p-54;
    }
};

struct Mrg {
    unsigned s1[3], s2[3];
    int has_float, has_double;
    float other;
    double other_double;

    __device__ double next()
    {
        const unsigned long long m1 = 4294967087ull, m2 = 4294944443ull;
        unsigned p1 = (1403580ull * s1[1] + 810728ull * (m1 - s1[0])) % m1;
        unsigned p2 = (527612ull * s2[2] + 1370589ull * (m2 - s2[0])) % m2;
        for (int i = 0; i < 2; i++) { s1[i] = s1[i + 1]; s2[i] = s2[i + 1]; }
        s1[2] = p1;
        s2[2] = p2;
        return p1 <= p2 ? p1 + (m1 - p2) : p1 - p2;
    }
    __device__ unsigned bits() { return next() * 1.000000048662; }
    __device__ float uniform() { return next() * 2.3283065498378288e-10; }
    __device__ double uniform_double() { return next() * 2.3283065498378288e-10; }
};

// Two uniform numbers are the length and the direction of a pair of normal ones (Box and Muller).
__device__ void directions(Philox &s, float &length, float &turn)
{
    length = s.uniform();
    turn = s.bits() * TURN + TURN / 2;
}
__device__ void directions(Xorwow &s, float &length, float &turn)
{
    length = s.uniform();
    turn = s.bits() * TURN + TURN / 2;
}
__device__ void directions(Mrg &s, float &length, float &turn)
{
    length = s.uniform();
    turn = s.uniform() * 6.2831855f;
}
template <typename State> __device__ void directions(State &s, double &length, double &turn)
{
    unsigned long long a = s.bits(), b = s.bits(), c = s.bits(), d = s.bits();
    length = (a ^ b << 21) * 0x1p-53 + 0x1p-54;
    turn = (c ^ d << 21) * 0x1p-52 + 0x1p-53;
}
__device__ void directions(Mrg &s, double &length, double &turn)
{
    length = s.uniform_double();
    turn = s.uniform_double() * 2.0;
}

template <typename State> __device__ float normal(State &s)
{
    if (s.has_float == 1) { s.has_float = 0; return s.other; }
    float length, turn, sine, cosine;
    directions(s, length, turn);
    length = sqrtf(-2.0f * logf(length));
    __sincosf(turn, &sine, &cosine);
    s.has_float = 1;
    s.other = cosine * length;
    return sine * length;
}
template <typename State> __device__ double normal_double(State &s)
{
    if (s.has_double == 1) { s.has_double = 0; return s.other_double; }
    double length, turn, sine, cosine;
    directions(s, length, turn);
    length = sqrt(-2.0 * log(length));
    sincospi(turn, &sine, &cosine);
    s.has_double = 1;
    s.other_double = cosine * length;
    return sine * length;
}

// cuRAND's numbers are above 0 and at most 1, NumPy's at least 0 and below 1.
template <typename T> __device__ T below_one(T x) { return x >= 1 ? 0 : x; }

#define DRAW(NAME, TYPE, VALUE)                                                                        \
    extern "C" __global__ void NAME(STATE *states, long long threads, TYPE *out, long long size,       \
                                    unsigned long long most, unsigned long long mask)                  \
    {                                                                                                  \
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;                                \
        if (i >= threads || i >= size) return;                                                         \
        STATE s = states[i];                                                                           \
        for (long long at = i; at < size; at += threads) out[at] = VALUE;                              \
        states[i] = s;                                                                                 \
    }

__device__ unsigned interval(STATE &s, unsigned most, unsigned mask)
{
    unsigned x;
    do x = s.bits() & mask; while (x > most);
    return x;
}
__device__ unsigned long long interval_wide(STATE &s, unsigned long long most, unsigned long long mask)
{
    unsigned long long x;
    do {
        x = (unsigned long long)s.bits() << 32;
        x = (x | s.bits()) & mask;
    } while (x > most);
    return x;
}

DRAW(random_raw, unsigned, s.bits())
DRAW(random_uniform, double, below_one(s.uniform_double()))
DRAW(random_uniform_float, float, below_one(s.uniform()))
DRAW(random_interval_32, unsigned, interval(s, most, mask))
DRAW(random_interval_64, unsigned long long, interval_wide(s, most, mask))
DRAW(random_normal, double, normal_double(s))
DRAW(random_normal_float, float, normal(s))
DRAW(random_exponential, double, -log(1.0 - below_one(s.uniform_double())))
