// What happens to one row of numbers: norms, activations, rotary position embedding.
#pragma once

#include "simd.h"

namespace ks {

// RMSNorm (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * weight
inline void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
    Vec squares[4] = {};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int j = 0; j < 4; j++) {
            const Vec v = load(x + i + j * LANES);
            squares[j] = fma(v, v, squares[j]);
        }
    float total = sum_lanes((squares[0] + squares[1]) + (squares[2] + squares[3]));
    for (; i < n; i++) total += x[i] * x[i];
    const float factor = 1.0f / std::sqrt(total / float(n) + eps);
    for (i = 0; i < n; i++) y[i] = weight[i] * (x[i] * factor);
}

enum class Activation : int32_t { silu = 0, gelu_tanh = 1 };

inline Vec activate(Vec x, Activation kind) {
    if (kind == Activation::silu) return x / (1.0f + exp(-x));
    // x * (1 + tanh(u)) / 2 = x / (1 + e^(-2u)), u = sqrt(2 / pi) * (x + 0.044715 x^3)
    const Vec u2 = (x + 0.044715f * x * x * x) * 1.5957691216057308f;
    return x / (1.0f + exp(-u2));
}

// y[i] = activation(gate[i]) * up[i]
inline void gate_up(const float* gate, const float* up, int64_t n, Activation kind, float* y) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(y + i, activate(load(gate + i), kind) * load(up + i));
    if (i == n) return;
    float rest[2 * LANES] = {};
    for (int64_t j = i; j < n; j++) rest[j - i] = gate[j], rest[LANES + j - i] = up[j];
    store(rest, activate(load(rest), kind) * load(rest + LANES));
    for (int64_t j = i; j < n; j++) y[j] = rest[j - i];
}

// Rotates the pairs (i, i + half) of a head by the angles of its position (Su et al. 2021); the rest of it stays.
inline void rotate(float* head, const float* cosines, const float* sines, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        const float a = head[i], b = head[half + i];
        head[i] = a * cosines[i] - b * sines[i];
        head[half + i] = b * cosines[i] + a * sines[i];
    }
}

}  // namespace ks
