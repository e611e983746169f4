// From rows, as checkpoints hold them, to panels (weights.h).
#pragma once

#include "weights.h"

namespace ks {

// How the rows of a matrix are stored: plain numbers, or GGUF blocks of 32.
enum class Source : int32_t { float32 = 0, bfloat16 = 1, float16 = 2, q8_0 = 3, q4_0 = 4, q4_1 = 5 };

inline Format format_of(Source source) {
    return source == Source::q4_1 ? Format::q4 : Format(int32_t(source));
}

inline int64_t row_bytes(Source source, int64_t k) {
    switch (source) {
        case Source::float32: return k * 4;
        case Source::bfloat16:
        case Source::float16: return k * 2;
        case Source::q8_0: return k / BLOCK * 34;  // scale, 32 int8
        case Source::q4_0: return k / BLOCK * 18;  // scale, 16 bytes: numbers 0 .. 15 in the low halves, 16 .. 31 in the high
        case Source::q4_1: return k / BLOCK * 20;  // scale, offset, 16 bytes
    }
    return 0;
}

template <class Number>
inline void pack_plain(const uint8_t* row, int lane, int64_t k, uint8_t* panel) {
    for (int64_t i = 0; i < k; i++) std::memcpy(panel + (i * PANEL + lane) * sizeof(Number), row + i * sizeof(Number), sizeof(Number));
}

inline void pack_q8_0(const uint8_t* row, int lane, int64_t k, uint8_t* panel) {
    for (int64_t b = 0; b < k / BLOCK; b++, row += 34, panel += Q8Reader::BYTES) {
        std::memcpy(panel + 2 * lane, row, 2);
        for (int i = 0; i < BLOCK; i++) panel[2 * PANEL + i * PANEL + lane] = row[2 + i];
    }
}

inline uint16_t minus_eight_times(uint16_t half) {
    // Exact but for scales that no file has: beyond 8192.
    const float value = half_to_float(half) * -8.0f;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (!(half & 0x7fff)) return 0;
    const int exponent = half >> 10 & 31;
    if (exponent) return uint16_t((half ^ 0x8000) + (3 << 10));
    // A subnormal: eight times it may have become normal.
    const int e = int(bits >> 23 & 255) - 112;
    const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    if (e > 0) return uint16_t(sign | e << 10 | (bits >> 13 & 0x3ff));
    return uint16_t(sign | (half & 0x3ff) << 3);
}

inline void pack_q4(const uint8_t* row, int lane, int64_t k, uint8_t* panel, bool has_offset) {
    const int head = has_offset ? 4 : 2;
    for (int64_t b = 0; b < k / BLOCK; b++, row += head + 16, panel += Q4Reader::BYTES) {
        uint16_t scale, offset;
        std::memcpy(&scale, row, 2);
        if (has_offset) std::memcpy(&offset, row + 2, 2);
        else offset = minus_eight_times(scale);
        std::memcpy(panel + 2 * lane, &scale, 2);
        std::memcpy(panel + 2 * PANEL + 2 * lane, &offset, 2);
        const uint8_t* numbers = row + head;
        for (int w = 0; w < 4; w++) {
            uint32_t word = 0;
            for (int i = 0; i < 8; i++) {
                const int at = 8 * w + i;
                const uint32_t number = at < 16 ? numbers[at] & 15 : numbers[at - 16] >> 4;
                word |= number << (4 * i);
            }
            std::memcpy(panel + 4 * PANEL + (w * PANEL + lane) * 4, &word, 4);
        }
    }
}

inline void pack_panel(Source source, const uint8_t* from, const int64_t* order, int64_t first, int64_t n, int64_t k,
                       uint8_t* panel) {
    if (first + PANEL > n) std::memset(panel, 0, panel_bytes(format_of(source), k));
    for (int lane = 0; lane < PANEL && first + lane < n; lane++) {
        const int64_t index = order ? order[first + lane] : first + lane;
        const uint8_t* row = from + index * row_bytes(source, k);
        switch (source) {
            case Source::float32: pack_plain<float>(row, lane, k, panel); break;
            case Source::bfloat16:
            case Source::float16: pack_plain<uint16_t>(row, lane, k, panel); break;
            case Source::q8_0: pack_q8_0(row, lane, k, panel); break;
            case Source::q4_0: pack_q4(row, lane, k, panel, false); break;
            case Source::q4_1: pack_q4(row, lane, k, panel, true); break;
        }
    }
}

}  // namespace ks
