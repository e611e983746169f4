// Vectors of float32 as wide as the machine's, in GCC's and Clang's own notation.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace ks {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

using Vec = float __attribute__((vector_size(4 * LANES)));
using IntVec = int32_t __attribute__((vector_size(4 * LANES)));
using ByteVec = int8_t __attribute__((vector_size(LANES)));
using HalfVec = uint16_t __attribute__((vector_size(2 * LANES)));

template <class V, class T>
inline V load_as(const T* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Vec load(const float* from) { return load_as<Vec>(from); }
inline void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }
inline Vec all(float x) { return x - Vec{}; }  // + would turn -0 into 0, so it costs an addition
inline Vec to_float(IntVec v) { return __builtin_convertvector(v, Vec); }

// a * b + c, rounded once where the machine can.
inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }

inline Vec max(Vec a, Vec b) { return a > b ? a : b; }

inline float max_lanes(Vec v) {
    float most = v[0];
    for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
    return most;
}

inline float sum_lanes(Vec v) {
    float total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

inline float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16, rest = half & 0x7fff;
    float f;
    if (rest >= 0x7c00) {
        const uint32_t bits = sign | 0x7f800000u | (rest & 0x3ff) << 13;
        std::memcpy(&f, &bits, 4);
        return f;
    }
    const uint32_t bits = rest << 13;  // an exponent that is 112 too small: also right for subnormals
    std::memcpy(&f, &bits, 4);
    f *= 0x1p112f;
    return sign ? -f : f;
}

inline Vec load_half(const uint16_t* from) {
#if defined(__AVX512F__)
    return (Vec)_mm512_cvtph_ps(load_as<__m256i>(from));
#elif defined(__AVX2__) && defined(__F16C__)
    return (Vec)_mm256_cvtph_ps(load_as<__m128i>(from));
#else
    Vec v;
    for (int i = 0; i < LANES; i++) v[i] = half_to_float(from[i]);
    return v;
#endif
}

inline Vec load_bfloat16(const uint16_t* from) {
#if defined(__AVX512F__)
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_as<__m256i>(from)), 16);
#elif defined(__AVX2__)
    return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_as<__m128i>(from)), 16);
#else
    return (Vec)(__builtin_convertvector(load_as<HalfVec>(from), IntVec) << 16);
#endif
}

inline Vec load_int8(const int8_t* from) {
#if defined(__AVX512F__)
    return to_float((IntVec)_mm512_cvtepi8_epi32(load_as<__m128i>(from)));
#elif defined(__AVX2__)
    return to_float((IntVec)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from)));
#else
    return to_float(__builtin_convertvector(load_as<ByteVec>(from), IntVec));
#endif
}

// e^x to within two units in the last place; 0 below -87.3, as softmax wants it.
inline Vec exp(Vec x) {
    const Vec low = all(-87.3f);
    const IntVec is_low = x < low;
    x = (Vec)((is_low & (IntVec)low) | (~is_low & (IntVec)x));
    const Vec magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to whole numbers
    const Vec n = (x * 1.44269504088896341f + magic) - magic;
    Vec r = fma(n, all(-0.693359375f), x);
    r = fma(n, all(2.12194440e-4f), r);
    Vec p = all(1.9875691500e-4f);
    p = fma(p, r, all(1.3981999507e-3f));
    p = fma(p, r, all(8.3334519073e-3f));
    p = fma(p, r, all(4.1665795894e-2f));
    p = fma(p, r, all(1.6666665459e-1f));
    p = fma(p, r, all(5.0000001201e-1f));
    p = fma(p, r * r, r + 1.0f);
    const IntVec scale = (__builtin_convertvector(n, IntVec) + 127) << 23;
    const Vec result = p * (Vec)scale;
    return (Vec)(~is_low & (IntVec)result);
}

}  // namespace ks
