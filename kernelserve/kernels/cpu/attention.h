// Attention over a paged KV cache with an online softmax (Milakov and Gimelshein 2018; Dao et al. 2022).
//
// A block of a layer's cache holds, for each K/V head, its keys as [head dim, block size] and its values as
// [block size, head dim]: both are what `tile` multiplies with. The query heads that share a K/V head are taken
// together, a tile of KEYS keys at a time, so that each key is read once for all of them.
//
// The numbers of a row come out the same whether it is decoded alone, is one of many rows of a prompt, or starts behind
// a prefix that is computed for several requests at once: tiles begin at the same positions, and sums have one order.
#pragma once

#include "linear.h"
#include "pointwise.h"

namespace ks {

constexpr int KEYS = 64;  // of a tile
constexpr int MAX_HEAD_DIM = 256;
constexpr int MAX_GROUP = 16;   // query heads to a K/V head
constexpr int MAX_ROWS = 8;     // positions that are taken together, MAX_GROUP query heads each
constexpr int MAX_QUERIES = MAX_ROWS * MAX_GROUP;

struct AttentionShape {
    int32_t heads, kv_heads, head_dim, block_size;
    float scale, soft_cap;  // soft_cap 0: none
    int32_t window;         // positions that a row sees, itself included; 0: all
    int32_t reserved;

    int group() const { return heads / kv_heads; }
};

struct Requests {
    const int32_t* starts;       // [count + 1] rows of each request
    const int32_t* seq_lens;     // [count]
    const int32_t* block_table;  // [count, ld_block_table]
    int64_t ld_block_table;
    int32_t count;
    int32_t reserved;

    int rows(int request) const { return starts[request + 1] - starts[request]; }
    const int32_t* blocks(int request) const { return block_table + request * ld_block_table; }
};

// The layer's part of a KV cache.
struct LayerCache {
    const AttentionShape& shape;
    float* keys;
    float* values;

    int64_t block_head(int64_t block, int kv_head) const {
        return (block * shape.kv_heads + kv_head) * shape.block_size * shape.head_dim;
    }

    void write(int64_t slot, int kv_head, const float* key, const float* value) const {
        const int64_t start = block_head(slot / shape.block_size, kv_head), place = slot % shape.block_size;
        float* to = keys + start + place;
        for (int d = 0; d < shape.head_dim; d++) to[d * shape.block_size] = key[d];
        std::memcpy(values + start + place * shape.head_dim, value, shape.head_dim * sizeof(float));
    }

    const float* value(const int32_t* blocks, int position, int kv_head) const {
        const int64_t start = block_head(blocks[position / shape.block_size], kv_head);
        return values + start + position % shape.block_size * shape.head_dim;
    }

    // 16 keys from `position` on as [head dim, 16]; `ld` is set to the distance of its rows. Small blocks are copied.
    const float* key_panel(const int32_t* blocks, int position, int count, int kv_head, float* buffer, int64_t& ld) const {
        const int size = shape.block_size;
        if (size % PANEL == 0) {
            ld = size;
            return keys + block_head(blocks[position / size], kv_head) + position % size;
        }
        ld = PANEL;
        for (int i = 0; i < count; i++) {
            const float* from = keys + block_head(blocks[(position + i) / size], kv_head) + (position + i) % size;
            for (int d = 0; d < shape.head_dim; d++) buffer[d * PANEL + i] = from[d * size];
        }
        for (int i = count; i < PANEL; i++)
            for (int d = 0; d < shape.head_dim; d++) buffer[d * PANEL + i] = 0.0f;
        return buffer;
    }
};

// What is known of some queries after some keys: the largest score, and sums weighted with e^(score - largest).
struct Softmax {
    float top[MAX_QUERIES], total[MAX_QUERIES];
    float sums[MAX_QUERIES * MAX_HEAD_DIM];

    void clear(int count, int dim) {
        std::fill(top, top + count, -INFINITY);
        std::fill(total, total + count, 0.0f);
        std::fill(sums, sums + count * dim, 0.0f);
    }

    // Turns the scores [KEYS] of query i, -inf where it must not look, into weights. Returns what its sums shrink by.
    float weigh(int i, float* scores) {
        Vec most = load(scores);
        for (int k = LANES; k < KEYS; k += LANES) most = max(most, load(scores + k));
        const float peak = std::max(top[i], max_lanes(most));
        if (peak == -INFINITY) {
            std::fill(scores, scores + KEYS, 0.0f);
            return 1.0f;
        }
        const float factor = top[i] == peak ? 1.0f : std::exp(top[i] - peak);
        Vec sum{};
        for (int k = 0; k < KEYS; k += LANES) {
            const Vec e = exp(load(scores + k) - peak);
            store(scores + k, e);
            sum += e;
        }
        total[i] = total[i] * factor + sum_lanes(sum);
        top[i] = peak;
        return factor;
    }
};

// Rows that look at the same keys of one K/V head.
class Attention {
  public:
    Attention(const LayerCache& cache, int kv_head) : cache_(cache), s_(cache.shape), kv_head_(kv_head) {}

    // Adds keys first .. end of the blocks to `state`, for `rows` rows of MAX_ROWS at most. Row r is at position
    // positions[r] and has its queries [group, head dim] at queries + r * group * head dim, scaled.
    void look(const int32_t* blocks, int first, int end, const float* queries, const int* positions, int rows,
              Softmax& state) const {
        const int dim = s_.head_dim, group = s_.group(), count = rows * group;
        alignas(64) float scores[MAX_QUERIES * KEYS], factors[MAX_QUERIES], buffer[MAX_HEAD_DIM * PANEL];
        const float* values[KEYS];
        for (first -= first % KEYS; first < end; first += KEYS) {
            const int here = std::min(KEYS, end - first);
            for (int k = 0; k < here; k += PANEL) {
                int64_t ld;
                const int panel = std::min(PANEL, here - k);
                const float* keys = cache_.key_panel(blocks, first + k, panel, kv_head_, buffer, ld);
                if (count <= 3 && k + 2 * PANEL <= here && s_.block_size % PANEL == 0) {
                    int64_t same;
                    const float* more = cache_.key_panel(blocks, first + k + PANEL, PANEL, kv_head_, buffer, same);
                    score_two(count, queries, keys, more, ld, scores + k);
                    k += PANEL;
                } else {
                    tile_rows(count, queries, dim, keys, ld, dim, scores + k, KEYS, false);
                }
            }
            for (int i = 0; i < count; i++) {
                float* row = scores + i * KEYS;
                cap(row, here);
                hide(row, first, here, positions[i / group]);
                factors[i] = state.weigh(i, row);
            }
            for (int k = 0; k < here; k++) values[k] = cache_.value(blocks, first + k, kv_head_);
            add_values(count, scores, values, here, factors, state.sums);
        }
    }

  private:
    const LayerCache& cache_;
    const AttentionShape& s_;
    const int kv_head_;

    void cap(float* scores, int count) const {
        if (s_.soft_cap == 0) return;
        for (int k = 0; k < count; k++) scores[k] = s_.soft_cap * std::tanh(scores[k] / s_.soft_cap);
    }

    // A row sees the positions up to its own, `window` of them at most.
    void hide(float* scores, int first, int count, int position) const {
        for (int k = std::min(count, std::max(0, position + 1 - first)); k < KEYS; k++) scores[k] = -INFINITY;
        if (s_.window)
            for (int k = 0; k < std::min(count, position + 1 - s_.window - first); k++) scores[k] = -INFINITY;
    }

    // sums[i] = sums[i] * factors[i] + weights[i] times the values
    void add_values(int queries, const float* weights, const float* const* values, int count, const float* factors,
                    float* sums) const {
        const int dim = s_.head_dim;
        int i = 0;
        for (; i + 4 <= queries; i += 4) add_to<4, 1>(weights + i * KEYS, values, count, factors + i, sums + i * dim);
        const float *w = weights + i * KEYS, *f = factors + i;
        float* to = sums + i * dim;
        const bool even = dim % (2 * PANEL) == 0;
        switch (queries - i) {
            case 3: even ? add_to<3, 2>(w, values, count, f, to) : add_to<3, 1>(w, values, count, f, to); break;
            case 2: even ? add_to<2, 2>(w, values, count, f, to) : add_to<2, 1>(w, values, count, f, to); break;
            case 1: even ? add_to<1, 2>(w, values, count, f, to) : add_to<1, 1>(w, values, count, f, to); break;
        }
    }

    template <int ROWS, int PANELS>
    void add_to(const float* weights, const float* const* values, int count, const float* factors, float* sums) const {
        constexpr int N = PANELS * VECS;
        const int dim = s_.head_dim;
        for (int d = 0; d < dim; d += PANELS * PANEL) {
            Vec part[ROWS][N] = {};
            for (int k = 0; k < count; k++) {
                Vec value[N];
                for (int v = 0; v < N; v++) value[v] = load(values[k] + d + v * LANES);
                for (int r = 0; r < ROWS; r++)
                    for (int v = 0; v < N; v++) part[r][v] = fma(all(weights[r * KEYS + k]), value[v], part[r][v]);
            }
            for (int r = 0; r < ROWS; r++)
                for (int v = 0; v < N; v++) {
                    float* to = sums + r * dim + d + v * LANES;
                    store(to, fma(load(to), all(factors[r]), part[r][v]));
                }
        }
    }

    // Scores of up to three queries with two panels of keys: enough independent sums to keep the machine busy.
    void score_two(int count, const float* queries, const float* keys, const float* more, int64_t ld, float* scores) const {
        switch (count) {
            case 1: score_two<1>(queries, keys, more, ld, scores); break;
            case 2: score_two<2>(queries, keys, more, ld, scores); break;
            case 3: score_two<3>(queries, keys, more, ld, scores); break;
        }
    }

    template <int ROWS>
    void score_two(const float* queries, const float* keys, const float* more, int64_t ld, float* scores) const {
        Vec sums[ROWS][2 * VECS] = {};
        for (int d = 0; d < s_.head_dim; d++) {
            Vec key[2 * VECS];
            for (int v = 0; v < VECS; v++) {
                key[v] = load(keys + d * ld + v * LANES);
                key[VECS + v] = load(more + d * ld + v * LANES);
            }
            for (int r = 0; r < ROWS; r++) {
                const Vec query = all(queries[r * s_.head_dim + d]);
                for (int v = 0; v < 2 * VECS; v++) sums[r][v] = fma(query, key[v], sums[r][v]);
            }
        }
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < 2 * VECS; v++) store(scores + r * KEYS + v * LANES, sums[r][v]);
    }
};

}  // namespace ks
