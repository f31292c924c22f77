/* What a reduction over ranks that hold the same comes to: for the device, and for a processor.
 *
 * NVRTC compiles this for a GPU; a C compiler makes of it the function that tests run in its place.
 * It needs no header of CUDA's: half precision is unpacked by hand, rounded to nearest even.
 */
#ifdef __CUDACC_RTC__
#define KERNEL extern "C" __global__
#define INSIDE static __device__
#define FIRST (blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x)
#define STRIDE ((unsigned long long)gridDim.x * blockDim.x)
#else
#define KERNEL
#define INSIDE static
#define FIRST 0ull
#define STRIDE 1ull
#endif

typedef unsigned long long u64;

union bits { float value; unsigned int word; };

/* Of 16 bits: 5 of exponent in half precision, 8 in bfloat16. */
INSIDE float widen(unsigned short half, int is_bfloat)
{
    union bits wide;
    unsigned int sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (is_bfloat) {
        wide.word = (unsigned int)half << 16;
    } else if (rest >= 0x7c00u) {
        wide.word = sign | 0x7f800000u | (rest & 0x3ffu) << 13;
    } else if (rest >= 0x400u) {
        wide.word = sign | ((rest << 13) + (112u << 23));
    } else { /* subnormal: multiples of 2^-24 */
        wide.value = (float)rest * 5.9604644775390625e-8f;
        wide.word |= sign;
    }
    return wide.value;
}

INSIDE unsigned short narrow(float value, int is_bfloat)
{
    union bits wide;
    wide.value = value;
    unsigned int sign = wide.word >> 16 & 0x8000u, rest = wide.word & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return (unsigned short)(sign | (is_bfloat ? 0x7fc0u : 0x7e00u));
    unsigned int drop = is_bfloat ? 16 : 13, kept;
    if (is_bfloat) {
        kept = rest;
    } else if (rest >= 0x47800000u) { /* 65,536 and more */
        return (unsigned short)(sign | 0x7c00u);
    } else if (rest >= 0x38800000u) { /* 2^-14: the smallest that is normal */
        kept = rest - (112u << 23);
    } else if (rest < 0x33000000u) { /* below 2^-25: rounds to nothing */
        return (unsigned short)sign;
    } else {
        drop = 126 - (rest >> 23);
        kept = (rest & 0x7fffffu) | 0x800000u;
    }
    unsigned int half = kept >> drop, lost = kept & ((1u << drop) - 1), tie = 1u << (drop - 1);
    half += lost > tie || (lost == tie && (half & 1));
    return (unsigned short)(sign | half);
}

#define TO_POWER(type, base)              \
    type result = 1, square = (base);     \
    for (int left = power; left; left >>= 1) { \
        if (left & 1)                     \
            result *= square;             \
        square *= square;                 \
    }

INSIDE double real_power(double base, int power)
{
    TO_POWER(double, base)
    return result;
}

INSIDE u64 whole_power(u64 base, int power)
{
    TO_POWER(u64, base)
    return result;
}

INSIDE double scalar(const void *at, int type)
{
    switch (type) {
    case 6: return widen(*(const unsigned short *)at, 0);
    case 7: return *(const float *)at;
    case 8: return *(const double *)at;
    case 9: return widen(*(const unsigned short *)at, 1);
    default: return 1;
    }
}

#define EACH(type, expression)                  \
    for (u64 i = FIRST; i < count; i += STRIDE) { \
        type x = ((const type *)in)[i];         \
        ((type *)out)[i] = (expression);        \
    }                                           \
    break

#define REAL(x) (power ? real_power(x, power) : (x) * f)
#define WHOLE(x) (power ? whole_power(x, power) : (x) * w)

/* Write `in` to `out`: times `factor` and the scalar at `by`, or to a power where one is given.
 * `type` is an ncclDataType_t; whole numbers wrap, and their `factor` is whole. */
KERNEL void multiply(void *out, const void *in, u64 count, int type, double factor,
                     const void *by, int power)
{
    double f = by ? factor * scalar(by, type) : factor;
    u64 w = (u64)(long long)factor;
    switch (type) {
    case 0:
    case 1: EACH(unsigned char, (unsigned char)WHOLE(x));
    case 2:
    case 3: EACH(unsigned int, (unsigned int)WHOLE(x));
    case 4:
    case 5: EACH(u64, WHOLE(x));
    case 6: EACH(unsigned short, narrow((float)REAL(widen(x, 0)), 0));
    case 7: EACH(float, (float)REAL(x));
    case 8: EACH(double, REAL(x));
    case 9: EACH(unsigned short, narrow((float)REAL(widen(x, 1)), 1));
    }
}
