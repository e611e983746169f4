// One layer after the other for the rows of a step: pre-norm, grouped-query attention with rotary positions, gated MLP.
//
// All threads walk through the same stages and meet between them; a stage's work is taken from a shared counter.
#pragma once

#include "attention_plan.h"

namespace ks {

struct Layer {
    Matrix qkv, attention_out, gate_up, mlp_out;
    const float* attention_norm;  // [hidden]
    const float* mlp_norm;
    const float* query_norm;  // [head_dim] or null: on each head, before the rotation
    const float* key_norm;
    float *keys, *values;  // LayerCache
    AttentionShape attention;
};

struct Decoder {
    const Layer* layers;
    int32_t num_layers, hidden, intermediate, rotary_dim;
    float eps;
    Activation activation;
    int32_t rounds_inputs;  // to 8 bits, where weights have 4
    int32_t reserved;
};

struct Step {
    Requests requests;
    int64_t rows;
    const float* cosines;  // [positions, rotary_dim / 2]
    const float* sines;
    const int64_t* positions;     // [rows]
    const int64_t* slot_mapping;  // [rows]
    float* hidden_states;         // [rows, hidden], in and out
    float* scratch;               // Run::scratch_floats(...)
};

inline int64_t qkv_width(const Decoder& d) { return d.layers[0].qkv.n; }
inline int64_t heads_width(const Decoder& d) { return int64_t(d.layers[0].attention.heads) * d.layers[0].attention.head_dim; }
inline int64_t states_width(const Decoder& d) { return heads_width(d) + 2 * d.layers[0].attention.heads; }

// Of one request, for attention.
inline int rows_at_once(const AttentionShape& a) { return std::max(1, std::min(MAX_ROWS, 48 / a.group())); }

class Run {
  public:
    Run(const Decoder& decoder, const Step& step, Team& team, const AttentionPlan& plan, const AttentionPlan& windowed)
        : d_(decoder), s_(step), team_(team), plan_(plan), windowed_(windowed), normed_(step.scratch),
          qkv_(normed_ + step.rows * decoder.hidden), heads_(qkv_ + step.rows * qkv_width(decoder)),
          gate_up_(heads_ + step.rows * heads_width(decoder)), mlp_(gate_up_ + step.rows * 2 * decoder.intermediate),
          states_(mlp_ + step.rows * decoder.intermediate),
          rounded_(states_ + step.rows * states_width(decoder)) {}

    static int64_t scratch_floats(const Decoder& d, int64_t rows) {
        const int64_t widest = std::max<int64_t>({d.hidden, heads_width(d), d.intermediate});
        return rows * (d.hidden + qkv_width(d) + heads_width(d) + 3 * int64_t(d.intermediate) + states_width(d)) +
               QuantizedRows::floats(rows, widest);
    }

    void layer(const Layer& l) const {
        const int64_t rows = s_.rows, hidden = d_.hidden, inner = d_.intermediate;
        norm(l.attention_norm);
        linear(l.qkv, normed_, hidden, qkv_, l.qkv.n, false);
        each_row(4, [&](int64_t row) { rotate_and_write(l, row); });
        attend(l);
        linear(l.attention_out, heads_, heads_width(d_), s_.hidden_states, hidden, true);
        norm(l.mlp_norm);
        linear(l.gate_up, normed_, hidden, gate_up_, 2 * inner, false);
        activate(rows, inner);
        linear(l.mlp_out, mlp_, inner, s_.hidden_states, hidden, true);
    }

  private:
    const Decoder& d_;
    const Step& s_;
    Team& team_;
    const AttentionPlan &plan_, &windowed_;
    float *normed_, *qkv_, *heads_, *gate_up_, *mlp_, *states_, *rounded_;

    template <class Work>
    void each_row(int64_t at_once, const Work& work) const {
        team_.share(s_.rows, at_once, [&](int64_t first, int64_t end) {
            for (int64_t row = first; row < end; row++) work(row);
        });
        team_.meet();
    }

    void norm(const float* weight) const {
        const int64_t hidden = d_.hidden;
        each_row(4, [&](int64_t row) {
            rms_norm(s_.hidden_states + row * hidden, weight, d_.eps, hidden, normed_ + row * hidden);
        });
    }

    void linear(const Matrix& w, const float* x, int64_t ldx, float* y, int64_t ldy, bool add) const {
        const QuantizedRows rounded(rounded_, s_.rows, w.k);
        const bool rounds = d_.rounds_inputs && w.format == Format::q4;
        if (rounds) each_row(2, [&](int64_t row) { rounded.round(row, x + row * ldx); });
        Linear{w, x, ldx, y, ldy, s_.rows, add, rounds ? &rounded : nullptr}.run(team_);
        team_.meet();
    }

    void rotate_and_write(const Layer& l, int64_t row) const {
        const AttentionShape& a = l.attention;
        const int64_t dim = a.head_dim, half = d_.rotary_dim / 2, width = a.kv_heads * dim;
        float* query = qkv_ + row * l.qkv.n;
        float* key = query + a.heads * dim;
        const float* cosines = s_.cosines + s_.positions[row] * half;
        const float* sines = s_.sines + s_.positions[row] * half;
        for (int h = 0; h < a.heads + a.kv_heads; h++) {
            float* head = query + h * dim;
            const float* weight = h < a.heads ? l.query_norm : l.key_norm;
            if (weight) rms_norm(head, weight, d_.eps, dim, head);
            rotate(head, cosines, sines, half);
        }
        for (int i = 0; i < a.heads * dim; i++) query[i] *= a.scale;
        const LayerCache cache{a, l.keys, l.values};
        for (int h = 0; h < a.kv_heads; h++)
            cache.write(s_.slot_mapping[row], h, key + h * dim, key + width + h * dim);
    }

    // First what several requests share, then the rest of each, which goes on from there.
    void attend(const Layer& l) const {
        const AttentionPlan& plan = l.attention.window ? windowed_ : plan_;
        const LayerCache cache{l.attention, l.keys, l.values};
        const int kv_heads = l.attention.kv_heads;
        if (!plan.prefixes.empty()) {
            team_.share(int64_t(plan.prefixes.size()) * kv_heads, 1, [&](int64_t first, int64_t end) {
                for (int64_t i = first; i < end; i++) look_at_prefix(cache, plan.prefixes[i / kv_heads], int(i % kv_heads));
            });
            team_.meet();
        }
        team_.share(int64_t(plan.pieces.size()) * kv_heads, 1, [&](int64_t first, int64_t end) {
            for (int64_t i = first; i < end; i++) look_at_rest(cache, plan.pieces[i / kv_heads], int(i % kv_heads));
        });
        team_.meet();
    }

    // The queries of a row for one K/V head, [group, head dim].
    const float* queries(const AttentionShape& a, int64_t row, int kv_head) const {
        return qkv_ + row * d_.layers[0].qkv.n + int64_t(kv_head) * a.group() * a.head_dim;
    }

    // Where what a row knows after its prefix is kept: group * (head dim + 2) numbers.
    float* state(const AttentionShape& a, int64_t row, int kv_head) const {
        return states_ + (row * a.kv_heads + kv_head) * a.group() * (a.head_dim + 2);
    }

    void look_at_prefix(const LayerCache& cache, const SharedPrefix& prefix, int kv_head) const {
        const AttentionShape& a = cache.shape;
        const int size = a.group() * a.head_dim, rows = int(prefix.requests.size());
        static thread_local Softmax softmax;
        static thread_local float packed[MAX_QUERIES * MAX_HEAD_DIM];
        int positions[MAX_ROWS];
        for (int r = 0; r < rows; r++) {
            const int request = prefix.requests[r];
            std::memcpy(packed + r * size, queries(a, s_.requests.starts[request], kv_head), size * sizeof(float));
            positions[r] = s_.requests.seq_lens[request] - 1;
        }
        softmax.clear(rows * a.group(), a.head_dim);
        Attention(cache, kv_head)
            .look(s_.requests.blocks(prefix.requests[0]), 0, prefix.length, packed, positions, rows, softmax);
        for (int r = 0; r < rows; r++) {
            float* to = state(a, s_.requests.starts[prefix.requests[r]], kv_head);
            std::memcpy(to, softmax.top + r * a.group(), a.group() * sizeof(float));
            std::memcpy(to + a.group(), softmax.total + r * a.group(), a.group() * sizeof(float));
            std::memcpy(to + 2 * a.group(), softmax.sums + r * size, size * sizeof(float));
        }
    }

    void look_at_rest(const LayerCache& cache, const Piece& piece, int kv_head) const {
        const AttentionShape& a = cache.shape;
        const int group = a.group(), dim = a.head_dim, size = group * dim, count = piece.rows * group;
        static thread_local Softmax softmax;
        static thread_local float packed[MAX_QUERIES * MAX_HEAD_DIM];
        int positions[MAX_ROWS];
        for (int r = 0; r < piece.rows; r++) {
            std::memcpy(packed + r * size, queries(a, piece.first_row + r, kv_head), size * sizeof(float));
            positions[r] = piece.first_position + r;
        }
        if (piece.done) {
            const float* from = state(a, piece.first_row, kv_head);
            std::memcpy(softmax.top, from, group * sizeof(float));
            std::memcpy(softmax.total, from + group, group * sizeof(float));
            std::memcpy(softmax.sums, from + 2 * group, size * sizeof(float));
        } else {
            softmax.clear(count, dim);
        }
        const int first = a.window ? std::max(0, positions[0] + 1 - a.window) : piece.done;
        Attention(cache, kv_head)
            .look(s_.requests.blocks(piece.request), first, positions[piece.rows - 1] + 1, packed, positions, piece.rows,
                  softmax);
        for (int i = 0; i < count; i++) {
            const int64_t row = piece.first_row + i / group, head = kv_head * group + i % group;
            float* to = heads_ + (row * a.heads + head) * dim;
            for (int d = 0; d < dim; d++) to[d] = softmax.sums[i * dim + d] / softmax.total[i];
        }
    }

    void activate(int64_t rows, int64_t inner) const {
        constexpr int64_t PART = 512;
        const int64_t parts = (inner + PART - 1) / PART;
        team_.share(rows * parts, 4, [&](int64_t first, int64_t end) {
            for (int64_t i = first; i < end; i++) {
                const int64_t row = i / parts, from = i % parts * PART, count = std::min(PART, inner - from);
                const float* gate = gate_up_ + row * 2 * inner + from;
                gate_up(gate, gate + inner, count, d_.activation, mlp_ + row * inner + from);
            }
        });
        team_.meet();
    }
};

}  // namespace ks
