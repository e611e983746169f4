// Linear layers of 4-bit weights whose inputs are rounded to 8 bits, 32 at a time: products are whole numbers.
//
// x = s * q with q in -127 .. 127 for each block of inputs, w = scale * n + offset with n in 0 .. 15, so that a block adds
// scale * s * sum(n q) + offset * s * sum(q). Sums of whole numbers have no order: a row is the same in any company.
#pragma once

#include <algorithm>

#include "threads.h"
#include "weights.h"

namespace ks {

constexpr int ROWS_AT_ONCE = 60;  // that are multiplied with one panel

// Rows of inputs, in groups of ROWS_AT_ONCE: the first block of each row of a group, the second of each, ...
// The bytes of a block stand in the order in which words of weights are taken apart: 0 2 4 6, 1 3 5 7, 8 10 12 14, ...
struct QuantizedRows {
    int8_t* numbers;  // [groups, k / 32, ROWS_AT_ONCE, 32]
    float* scales;    // [groups, k / 32, ROWS_AT_ONCE]
    float* sums;      // the same; scale times the sum of a block
    int64_t blocks;

    static int64_t padded(int64_t rows) { return (rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE * ROWS_AT_ONCE; }
    static int64_t floats(int64_t rows, int64_t k) { return padded(rows) * (k / BLOCK) * (BLOCK / 4 + 2); }

    QuantizedRows(float* memory, int64_t rows, int64_t k)
        : numbers((int8_t*)memory), scales(memory + padded(rows) * (k / 4)),
          sums(scales + padded(rows) * (k / BLOCK)), blocks(k / BLOCK) {}

    int64_t place(int64_t row, int64_t block) const {
        return (row / ROWS_AT_ONCE * blocks + block) * ROWS_AT_ONCE + row % ROWS_AT_ONCE;
    }

    void round(int64_t row, const float* x) const {
        for (int64_t b = 0; b < blocks; b++) round_block(x + b * BLOCK, place(row, b));
    }

  private:
    void round_block(const float* x, int64_t at) const {
        Vec most{};
        for (int i = 0; i < BLOCK; i += LANES) {
            const Vec v = load(x + i);
            most = max(most, max(v, -v));
        }
        const float largest = max_lanes(most), inverse = largest > 0 ? 127.0f / largest : 0.0f;
        const Vec magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to whole numbers
        int32_t rounded[BLOCK];
        IntVec total{};
        for (int i = 0; i < BLOCK; i += LANES) {
            const IntVec number = __builtin_convertvector((load(x + i) * inverse + magic) - magic, IntVec);
            std::memcpy(rounded + i, &number, sizeof number);
            total += number;
        }
        int sum = 0;
        for (int i = 0; i < LANES; i++) sum += total[i];
        int8_t* to = numbers + at * BLOCK;
        for (int i = 0; i < BLOCK; i++) to[i / 8 * 8 + i % 2 * 4 + i % 8 / 2] = int8_t(rounded[i]);
        scales[at] = largest / 127.0f;
        sums[at] = scales[at] * float(sum);
    }
};

using Eight = float __attribute__((vector_size(32)));

inline Eight eight_halves(const uint16_t* from) {
#if defined(__AVX2__) && defined(__F16C__)
    return (Eight)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
    Eight result;
    for (int i = 0; i < 8; i++) result[i] = half_to_float(from[i]);
    return result;
#endif
}

// The products of 8 outputs with the block of a row, added up.
struct BlockOfEight {
#if defined(__AVX2__)
    __m256i bytes[8];

    explicit BlockOfEight(const uint32_t* words) {
        const __m256i low = _mm256_set1_epi8(15);
        for (int o = 0; o < 4; o++) {
            const __m256i word = _mm256_loadu_si256((const __m256i*)(words + o * PANEL));
            bytes[2 * o] = _mm256_and_si256(word, low);
            bytes[2 * o + 1] = _mm256_and_si256(_mm256_srli_epi16(word, 4), low);
        }
    }

    // At most 8 * 2 * 15 * 127 = 30,480 in each of the 16-bit sums.
    Eight times(const int8_t* numbers) const {
        __m256i sums = _mm256_setzero_si256();
        for (int i = 0; i < 8; i++) {
            int32_t four;
            std::memcpy(&four, numbers + 4 * i, 4);
            sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(bytes[i], _mm256_set1_epi32(four)));
        }
        return (Eight)_mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
    }
#else
    const uint32_t* words;

    explicit BlockOfEight(const uint32_t* words) : words(words) {}

    Eight times(const int8_t* numbers) const {
        int32_t sums[8] = {};
        for (int o = 0; o < 4; o++)
            for (int j = 0; j < 8; j++) {
                const int number = numbers[8 * o + j % 2 * 4 + j / 2];
                for (int i = 0; i < 8; i++) sums[i] += int(words[o * PANEL + i] >> (4 * j) & 15) * number;
            }
        Eight result;
        for (int i = 0; i < 8; i++) result[i] = float(sums[i]);
        return result;
    }
#endif
};

// One panel for `rows` rows of the group that begins with `first_row`: c[r][0 .. 16)
inline void quantized_panel(const uint8_t* panel, const QuantizedRows& x, int64_t first_row, int rows, float* c) {
    std::fill(c, c + rows * PANEL, 0.0f);
    for (int64_t b = 0; b < x.blocks; b++, panel += Q4Reader::BYTES) {
        const uint16_t* halves = (const uint16_t*)panel;
        const int64_t at = x.place(first_row, b);
        for (int part = 0; part < PANEL; part += 8) {
            const Eight scale = eight_halves(halves + part), offset = eight_halves(halves + PANEL + part);
            const BlockOfEight weights((const uint32_t*)(panel + 4 * PANEL) + part);
            for (int r = 0; r < rows; r++) {
                float* to = c + r * PANEL + part;
                Eight total = load_as<Eight>(to);
                total += offset * x.sums[at + r];
                total += weights.times(x.numbers + (at + r) * BLOCK) * (scale * x.scales[at + r]);
                std::memcpy(to, &total, sizeof total);
            }
        }
    }
}

}  // namespace ks
