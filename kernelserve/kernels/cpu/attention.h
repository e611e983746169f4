// Attention over a paged KV cache with an online softmax (Milakov and Gimelshein 2018; Dao et al. 2022).
//
// Keys and values of a layer lie as [slots, kv heads, head dim]; a request's position p is in slot
// block_table[p / block_size] * block_size + p % block_size. The query heads that share a K/V head are taken together,
// and keys in tiles, so that each key is read once for all of them.
#pragma once

#include <algorithm>

#include "linear.h"
#include "pointwise.h"

namespace ks {

constexpr int KEYS = 64;        // of a tile
constexpr int QUERY_ROWS = 16;  // positions of one request that share a tile
constexpr int MAX_HEAD_DIM = 256;
constexpr int MAX_GROUP = 16;   // query heads to a K/V head

struct AttentionShape {
    int32_t heads, kv_heads, head_dim, block_size;
    float scale, soft_cap;  // soft_cap 0: none
    int32_t window;         // positions that a row sees, itself included; 0: all
    int32_t reserved;
};

struct Requests {
    const int32_t* starts;       // [n + 1] rows of each request
    const int32_t* seq_lens;     // [n]
    const int32_t* block_table;  // [n, ld_block_table]
    int64_t ld_block_table;
    int32_t count;
    int32_t reserved;
};

// Some consecutive rows of one request.
struct Piece {
    int32_t request, first_row, rows, first_position;
};

class Attention {
  public:
    Attention(const AttentionShape& shape, const Requests& requests, const float* keys, const float* values)
        : s_(shape), requests_(requests), keys_(keys), values_(values), group_(shape.heads / shape.kv_heads) {}

    // queries: row r at r * ldq, [heads, head_dim]; out: row r at r * heads * head_dim
    void run(const Piece& piece, int kv_head, const float* queries, int64_t ldq, float* out) const {
        if (piece.rows == 1) one_row(piece, kv_head, queries + piece.first_row * ldq, out);
        else rows(piece, kv_head, queries, ldq, out);
    }

  private:
    const AttentionShape& s_;
    const Requests& requests_;
    const float* keys_;
    const float* values_;
    const int group_;

    const float* slot(const float* cache, int request, int position, int kv_head) const {
        const int32_t block = requests_.block_table[request * requests_.ld_block_table + position / s_.block_size];
        const int64_t index = int64_t(block) * s_.block_size + position % s_.block_size;
        return cache + (index * s_.kv_heads + kv_head) * s_.head_dim;
    }

    int first_key(int position) const { return s_.window ? std::max(0, position - s_.window + 1) : 0; }

    void cap(float* scores, int count) const {
        if (s_.soft_cap == 0) return;
        for (int i = 0; i < count; i++) scores[i] = s_.soft_cap * std::tanh(scores[i] / s_.soft_cap);
    }

    // Turns scores into weights e^(score - top), and returns the factor for what was added up before.
    static float weigh(float* scores, int count, float& top, float& total) {
        float peak = top;
        for (int i = 0; i < count; i++) peak = std::max(peak, scores[i]);
        for (int i = count; i < (count + LANES - 1) / LANES * LANES; i++) scores[i] = -INFINITY;
        const float factor = top == -INFINITY ? 0.0f : std::exp(top - peak);
        Vec sum{};
        for (int i = 0; i < count; i += LANES) {
            const Vec e = exp(load(scores + i) - peak);
            store(scores + i, e);
            sum += e;
        }
        total = total * factor + sum_lanes(sum);
        top = peak;
        return factor;
    }

    void one_row(const Piece& piece, int kv_head, const float* queries, float* out) const {
        const int dim = s_.head_dim, last = piece.first_position;
        alignas(64) float scores[MAX_GROUP][KEYS], sums[MAX_GROUP][MAX_HEAD_DIM] = {};
        float top[MAX_GROUP], total[MAX_GROUP] = {};
        std::fill(top, top + group_, -INFINITY);
        const float* query = queries + int64_t(kv_head) * group_ * dim;
        const float* places[KEYS];
        for (int first = first_key(last); first <= last; first += KEYS) {
            const int count = std::min(KEYS, last + 1 - first);
            for (int i = 0; i < count; i++) places[i] = slot(keys_, piece.request, first + i, kv_head);
            for (int g = 0; g < group_; g++) dot_all(query + g * dim, places, count, scores[g]);
            for (int i = 0; i < count; i++) places[i] = slot(values_, piece.request, first + i, kv_head);
            for (int g = 0; g < group_; g++) {
                cap(scores[g], count);
                const float factor = weigh(scores[g], count, top[g], total[g]);
                add_weighted(places, count, scores[g], factor, sums[g]);
            }
        }
        float* to = out + (int64_t(piece.first_row) * s_.heads + kv_head * group_) * dim;
        for (int g = 0; g < group_; g++)
            for (int d = 0; d < dim; d++) to[g * dim + d] = sums[g][d] / total[g];
    }

    void dot_all(const float* query, const float* const* keys, int count, float* scores) const {
        const int dim = s_.head_dim;
        int i = 0;
        for (; i + 4 <= count; i += 4) {
            Vec sums[4] = {};
            for (int d = 0; d < dim; d += LANES) {
                const Vec q = load(query + d);
                for (int j = 0; j < 4; j++) sums[j] = fma(q, load(keys[i + j] + d), sums[j]);
            }
            for (int j = 0; j < 4; j++) scores[i + j] = sum_lanes(sums[j]) * s_.scale;
        }
        for (; i < count; i++) {
            Vec sum{};
            for (int d = 0; d < dim; d += LANES) sum = fma(load(query + d), load(keys[i] + d), sum);
            scores[i] = sum_lanes(sum) * s_.scale;
        }
    }

    void add_weighted(const float* const* values, int count, const float* weights, float factor, float* sums) const {
        constexpr int N = 8;
        const int dim = s_.head_dim;
        int d = 0;
        for (; d + N * LANES <= dim; d += N * LANES) {
            Vec part[N];
            for (int j = 0; j < N; j++) part[j] = load(sums + d + j * LANES) * factor;
            for (int i = 0; i < count; i++) {
                const Vec weight = all(weights[i]);
                for (int j = 0; j < N; j++) part[j] = fma(weight, load(values[i] + d + j * LANES), part[j]);
            }
            for (int j = 0; j < N; j++) store(sums + d + j * LANES, part[j]);
        }
        for (; d < dim; d += LANES) {
            Vec part = load(sums + d) * factor;
            for (int i = 0; i < count; i++) part = fma(all(weights[i]), load(values[i] + d), part);
            store(sums + d, part);
        }
    }

    void rows(const Piece& piece, int kv_head, const float* queries, int64_t ldq, float* out) const {
        constexpr int MOST = QUERY_ROWS * MAX_GROUP;
        const int dim = s_.head_dim, count = piece.rows * group_;
        static thread_local float keys[MAX_HEAD_DIM * KEYS], values[KEYS * MAX_HEAD_DIM];
        static thread_local float scores[MOST * KEYS], sums[MOST * MAX_HEAD_DIM], packed[MOST * MAX_HEAD_DIM];
        float top[MOST], total[MOST] = {};
        std::fill(top, top + count, -INFINITY);
        std::fill(sums, sums + count * dim, 0.0f);
        for (int r = 0; r < piece.rows; r++) {
            const float* from = queries + (piece.first_row + r) * ldq + int64_t(kv_head) * group_ * dim;
            for (int i = 0; i < group_ * dim; i++) packed[r * group_ * dim + i] = from[i] * s_.scale;
        }
        const int last = piece.first_position + piece.rows - 1;
        for (int first = first_key(piece.first_position); first <= last; first += KEYS) {
            const int here = std::min(KEYS, last + 1 - first);
            gather(piece.request, first, here, kv_head, keys, values);
            for (int k = 0; k < here; k += PANEL)
                tile_rows(count, packed, dim, keys + k, KEYS, dim, scores + k, KEYS, false);
            for (int i = 0; i < count; i++) {
                const int position = piece.first_position + i / group_;
                float* row = scores + i * KEYS;
                cap(row, here);
                hide(row, first, here, position);
                const float factor = row_is_hidden(row, here) ? 1.0f : weigh(row, here, top[i], total[i]);
                if (factor != 1.0f)
                    for (int d = 0; d < dim; d++) sums[i * dim + d] *= factor;
            }
            for (int d = 0; d < dim; d += PANEL)
                tile_rows(count, scores, KEYS, values + d, dim, here, sums + d, dim, true);
        }
        for (int i = 0; i < count; i++) {
            const int row = piece.first_row + i / group_, head = kv_head * group_ + i % group_;
            float* to = out + (int64_t(row) * s_.heads + head) * dim;
            for (int d = 0; d < dim; d++) to[d] = sums[i * dim + d] / total[i];
        }
    }

    // Keys as [dim, KEYS], values as [KEYS, dim].
    void gather(int request, int first, int count, int kv_head, float* keys, float* values) const {
        const int dim = s_.head_dim;
        for (int i = 0; i < count; i++) {
            const float* key = slot(keys_, request, first + i, kv_head);
            for (int d = 0; d < dim; d++) keys[d * KEYS + i] = key[d];
            std::memcpy(values + i * dim, slot(values_, request, first + i, kv_head), dim * sizeof(float));
        }
        for (int i = count; i < (count + PANEL - 1) / PANEL * PANEL; i++)
            for (int d = 0; d < dim; d++) keys[d * KEYS + i] = 0.0f;
    }

    void hide(float* row, int first, int count, int position) const {
        for (int i = std::max(0, position + 1 - first); i < count; i++) row[i] = -INFINITY;
        for (int i = 0; i < std::min(count, first_key(position) - first); i++) row[i] = -INFINITY;
    }

    // Then its weights, which are still added up, must be zero.
    static bool row_is_hidden(float* row, int count) {
        for (int i = 0; i < count; i++)
            if (row[i] != -INFINITY) return false;
        std::fill(row, row + count, 0.0f);
        return true;
    }
};

}  // namespace ks
