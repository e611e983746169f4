// Weight matrices [N, K] in panels of 16 outputs, so that one vector holds the same input of several outputs.
//
//   float32, bfloat16, float16  panel: K x 16 numbers
//   q8 (GGUF Q8_0)      panel: K / 32 blocks of { 16 scales, float16; 32 x 16 int8 }
//   q4 (GGUF Q4_0, Q4_1) panel: K / 32 blocks of { 16 scales, 16 offsets, float16; 4 x 16 words of 8 numbers }
//
// A number is read as what the file says: scale * q + offset, which float32 holds without a second rounding.
#pragma once

#include "simd.h"

namespace ks {

constexpr int PANEL = 16;
constexpr int VECS = PANEL / LANES;
constexpr int BLOCK = 32;

enum class Format : int32_t { float32 = 0, bfloat16 = 1, float16 = 2, q8 = 3, q4 = 4 };

struct Matrix {
    const uint8_t* data;
    int64_t n, k;
    Format format;
    int32_t reserved;
    const float* bias;  // [N] or null

    int64_t panels() const { return (n + PANEL - 1) / PANEL; }
};

inline int64_t panel_bytes(Format format, int64_t k) {
    switch (format) {
        case Format::float32: return k * PANEL * 4;
        case Format::bfloat16:
        case Format::float16: return k * PANEL * 2;
        case Format::q8: return k / BLOCK * PANEL * (2 + BLOCK);
        case Format::q4: return k / BLOCK * PANEL * (4 + BLOCK / 2);
    }
    return 0;
}

// Each reader yields the vectors of a panel, input after input: `block(b)`, then `at(o, j, v)` for input 8 * o + j of that
// block. With a fixed j, as in an unrolled loop, a word of eight 4-bit numbers is loaded once.

template <class Number, Vec (*LOAD)(const Number*)>
struct PlainReader {
    const Number* panel;
    const Number* numbers;
    explicit PlainReader(const uint8_t* data) : panel((const Number*)data) {}
    void block(int64_t b) { numbers = panel + b * BLOCK * PANEL; }
    Vec at(int o, int j, int v) const { return LOAD(numbers + (8 * o + j) * PANEL + v * LANES); }
};

using Float32Reader = PlainReader<float, load>;
using BFloat16Reader = PlainReader<uint16_t, load_bfloat16>;
using Float16Reader = PlainReader<uint16_t, load_half>;

struct Q8Reader {
    static constexpr int BYTES = PANEL * (2 + BLOCK);
    const uint8_t* panel;
    const int8_t* numbers;
    Vec scale[VECS];
    explicit Q8Reader(const uint8_t* data) : panel(data) {}
    void block(int64_t b) {
        const uint8_t* from = panel + b * BYTES;
        for (int v = 0; v < VECS; v++) scale[v] = load_half((const uint16_t*)from + v * LANES);
        numbers = (const int8_t*)from + PANEL * 2;
    }
    Vec at(int o, int j, int v) const { return load_int8(numbers + (8 * o + j) * PANEL + v * LANES) * scale[v]; }
};

struct Q4Reader {
    static constexpr int BYTES = PANEL * (4 + BLOCK / 2);
    const uint8_t* panel;
    const uint32_t* words;
    Vec scale[VECS], offset[VECS];
    explicit Q4Reader(const uint8_t* data) : panel(data) {}
    void block(int64_t b) {
        const uint8_t* from = panel + b * BYTES;
        for (int v = 0; v < VECS; v++) {
            scale[v] = load_half((const uint16_t*)from + v * LANES);
            offset[v] = load_half((const uint16_t*)from + PANEL + v * LANES);
        }
        words = (const uint32_t*)(from + PANEL * 4);
    }
    Vec at(int o, int j, int v) const {
        const IntVec word = load_as<IntVec>(words + o * PANEL + v * LANES);
        return fma(to_float(word >> (4 * j) & 15), scale[v], offset[v]);
    }
};

// Calls work.template operator()<Reader>() for the reader of a format.
template <class Work>
inline void with_reader(Format format, const Work& work) {
    switch (format) {
        case Format::float32: return work.template operator()<Float32Reader>();
        case Format::bfloat16: return work.template operator()<BFloat16Reader>();
        case Format::float16: return work.template operator()<Float16Reader>();
        case Format::q8: return work.template operator()<Q8Reader>();
        case Format::q4: return work.template operator()<Q4Reader>();
    }
}

}  // namespace ks
