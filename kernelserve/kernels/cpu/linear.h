// y = x W^T (+ bias) (+ y): for each row the same sums in the same order, whatever other rows there are.
//
// Products are added up in chunks of CHUNK inputs, in input order, and the chunks one after the other. Few rows read the
// weights as they are stored; many rows unpack a chunk of a panel once, into memory that stays in the first cache.
#pragma once

#include <algorithm>

#include "quantized.h"
#include "threads.h"
#include "weights.h"

namespace ks {

constexpr int CHUNK = 256;
constexpr int MAX_DIRECT_ROWS = 6;

// c[r][0..16) (+)= sum over k of x[r][k] * w[k][0..16)
template <int ROWS>
inline void tile(const float* x, int64_t ldx, const float* w, int64_t ldw, int k_count, float* c, int64_t ldc,
                 bool add) {
    Vec sums[ROWS][VECS] = {};
    for (int k = 0; k < k_count; k++) {
        Vec weights[VECS];
        for (int v = 0; v < VECS; v++) weights[v] = load(w + k * ldw + v * LANES);
        for (int r = 0; r < ROWS; r++) {
            const Vec input = all(x[r * ldx + k]);
            for (int v = 0; v < VECS; v++) sums[r][v] = fma(input, weights[v], sums[r][v]);
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECS; v++) {
            float* to = c + r * ldc + v * LANES;
            store(to, add ? load(to) + sums[r][v] : sums[r][v]);
        }
}

inline void tile_rows(int rows, const float* x, int64_t ldx, const float* w, int64_t ldw, int k_count, float* c,
                      int64_t ldc, bool add) {
    for (; rows == 6 || rows >= 9; rows -= 6, x += 6 * ldx, c += 6 * ldc) tile<6>(x, ldx, w, ldw, k_count, c, ldc, add);
    if (rows > 6) tile<4>(x, ldx, w, ldw, k_count, c, ldc, add), rows -= 4, x += 4 * ldx, c += 4 * ldc;
    switch (rows) {
        case 5: tile<5>(x, ldx, w, ldw, k_count, c, ldc, add); break;
        case 4: tile<4>(x, ldx, w, ldw, k_count, c, ldc, add); break;
        case 3: tile<3>(x, ldx, w, ldw, k_count, c, ldc, add); break;
        case 2: tile<2>(x, ldx, w, ldw, k_count, c, ldc, add); break;
        case 1: tile<1>(x, ldx, w, ldw, k_count, c, ldc, add); break;
    }
}

// c[r][0 .. 16 * PANELS) = the sums of neighbouring panels for ROWS rows, straight from the stored weights.
template <class Reader, int ROWS, int PANELS>
inline void direct(const uint8_t* data, int64_t bytes, int64_t k_count, const float* x, int64_t ldx, float* c) {
    constexpr int N = PANELS * VECS;
    Reader readers[2] = {Reader(data), Reader(data + (PANELS - 1) * bytes)};
    Vec total[ROWS][N] = {};
    for (int64_t chunk = 0; chunk < k_count; chunk += CHUNK) {
        Vec sums[ROWS][N] = {};
        const int64_t end = std::min<int64_t>(chunk + CHUNK, k_count);
        for (int64_t first = chunk; first < end; first += BLOCK) {
            for (int p = 0; p < PANELS; p++) readers[p].block(first / BLOCK);
            const int count = int(std::min<int64_t>(BLOCK, end - first));
            const float* inputs = x + first;
            const auto add_input = [&](int o, int j) __attribute__((always_inline)) {
                Vec weights[N];
                for (int p = 0; p < PANELS; p++)
                    for (int v = 0; v < VECS; v++) weights[p * VECS + v] = readers[p].at(o, j, v);
                for (int r = 0; r < ROWS; r++) {
                    const Vec input = all(inputs[r * ldx + 8 * o + j]);
                    for (int i = 0; i < N; i++) sums[r][i] = fma(input, weights[i], sums[r][i]);
                }
            };
            for (int o = 0; o < count / 8; o++)
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) add_input(o, j);
            for (int j = 0; j < count % 8; j++) add_input(count / 8, j);
        }
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < N; i++) total[r][i] = chunk ? total[r][i] + sums[r][i] : sums[r][i];
    }
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < N; i++) store(c + (r * N + i) * LANES, total[r][i]);
}

template <class Reader>
inline void unpack(const uint8_t* data, int64_t first, int64_t end, float* to) {
    Reader reader(data);
    for (int64_t start = first; start < end; start += BLOCK) {
        reader.block(start / BLOCK);
        const int count = int(std::min<int64_t>(BLOCK, end - start));
        for (int o = 0; o < count / 8; o++)
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++, to += PANEL)
                for (int v = 0; v < VECS; v++) store(to + v * LANES, reader.at(o, j, v));
        for (int j = 0; j < count % 8; j++, to += PANEL)
            for (int v = 0; v < VECS; v++) store(to + v * LANES, reader.at(count / 8, j, v));
    }
}

struct Linear {
    const Matrix& w;
    const float* x;
    int64_t ldx;
    float* y;
    int64_t ldy;
    int64_t rows;
    bool add;  // to what y holds
    const QuantizedRows* quantized = nullptr;  // x rounded to 8 bits, to be used in its place

    // One of the threads of `team`; the others do the same.
    void run(Team& team) const {
        if (rows == 0) return;
        if (quantized) return run_quantized(team);
        with_reader(w.format, [&]<class Reader>() { run<Reader>(team); });
    }

  private:
    void run_quantized(Team& team) const {
        const int64_t panels = w.panels(), bytes = panel_bytes(w.format, w.k);
        const int64_t row_blocks = (rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
        team.share(row_blocks * panels, 2, [&](int64_t first, int64_t end) {
            alignas(64) float c[ROWS_AT_ONCE * PANEL];
            for (int64_t unit = first; unit < end; unit++) {
                const int64_t panel = unit % panels, first_row = unit / panels * ROWS_AT_ONCE;
                const int count = int(std::min<int64_t>(ROWS_AT_ONCE, rows - first_row));
                quantized_panel(w.data + panel * bytes, *quantized, first_row, count, c);
                finish(c, PANEL, panel * PANEL, PANEL, first_row, count);
            }
        });
    }

    template <class Reader>
    void run(Team& team) const {
        const int64_t panels = w.panels(), bytes = panel_bytes(w.format, w.k);
        if (rows <= MAX_DIRECT_ROWS) {
            team.share(panels, 2, [&](int64_t first, int64_t end) { few<Reader>(first, end - first, bytes); });
            return;
        }
        const int64_t row_blocks = (rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
        team.share(row_blocks * panels, 2, [&](int64_t first, int64_t end) {
            for (int64_t unit = first; unit < end; unit++)
                many<Reader>(unit % panels, bytes, unit / panels * ROWS_AT_ONCE);
        });
    }

    template <class Reader>
    void few(int64_t panel, int64_t count, int64_t bytes) const {
        const uint8_t* data = w.data + panel * bytes;
        alignas(64) float c[MAX_DIRECT_ROWS * PANEL * 2];
        if (rows <= 2 && count == 2) {
            rows == 1 ? direct<Reader, 1, 2>(data, bytes, w.k, x, ldx, c)
                      : direct<Reader, 2, 2>(data, bytes, w.k, x, ldx, c);
            finish(c, 2 * PANEL, panel * PANEL, 2 * PANEL, 0, rows);
            return;
        }
        for (int64_t end = panel + count; panel < end; panel++, data += bytes) {
            switch (rows) {
                case 1: direct<Reader, 1, 1>(data, bytes, w.k, x, ldx, c); break;
                case 2: direct<Reader, 2, 1>(data, bytes, w.k, x, ldx, c); break;
                case 3: direct<Reader, 3, 1>(data, bytes, w.k, x, ldx, c); break;
                case 4: direct<Reader, 4, 1>(data, bytes, w.k, x, ldx, c); break;
                case 5: direct<Reader, 5, 1>(data, bytes, w.k, x, ldx, c); break;
                case 6: direct<Reader, 6, 1>(data, bytes, w.k, x, ldx, c); break;
            }
            finish(c, PANEL, panel * PANEL, PANEL, 0, rows);
        }
    }

    template <class Reader>
    void many(int64_t panel, int64_t bytes, int64_t first_row) const {
        const int count = int(std::min<int64_t>(ROWS_AT_ONCE, rows - first_row));
        alignas(64) float c[ROWS_AT_ONCE * PANEL], weights[CHUNK * PANEL];
        for (int64_t chunk = 0; chunk < w.k; chunk += CHUNK) {
            const int64_t end = std::min<int64_t>(chunk + CHUNK, w.k);
            unpack<Reader>(w.data + panel * bytes, chunk, end, weights);
            tile_rows(count, x + first_row * ldx + chunk, ldx, weights, PANEL, int(end - chunk), c, PANEL, chunk > 0);
        }
        finish(c, PANEL, panel * PANEL, PANEL, first_row, count);
    }

    // Takes sums [count, width] to columns first .. of y, as far as there are such.
    void finish(const float* c, int ldc, int64_t first, int width, int64_t first_row, int64_t count) const {
        const int n = int(std::min<int64_t>(width, w.n - first));
        for (int64_t r = 0; r < count; r++, c += ldc) {
            float* to = y + (first_row + r) * ldy + first;
            for (int i = 0; i < n; i++) {
                const float sum = w.bias ? c[i] + w.bias[first + i] : c[i];
                to[i] = add ? to[i] + sum : sum;
            }
        }
    }
};

}  // namespace ks
