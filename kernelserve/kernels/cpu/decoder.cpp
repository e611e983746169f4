// The layers of a decoder in one call: pre-norm, grouped-query attention with rotary positions, gated MLP.
//
// All threads walk through the same stages and meet between them; a stage's work is taken from a shared counter.

#include <omp.h>
#include <vector>

#include "attention.h"
#include "pack.h"

using namespace ks;

extern "C" {

struct Layer {
    Matrix qkv, attention_out, gate_up, mlp_out;
    const float* attention_norm;  // [hidden]
    const float* mlp_norm;
    const float* query_norm;  // [head_dim] or null: on each head, before the rotation
    const float* key_norm;
    float* keys;  // [slots, kv_heads, head_dim]
    float* values;
    AttentionShape attention;
};

struct Decoder {
    const Layer* layers;
    int32_t num_layers, hidden, intermediate, rotary_dim;
    float eps;
    Activation activation;
};

struct Step {
    Requests requests;
    int64_t rows;
    const float* cosines;  // [positions, rotary_dim / 2]
    const float* sines;
    const int64_t* positions;     // [rows]
    const int64_t* slot_mapping;  // [rows]
    float* hidden_states;         // [rows, hidden], in and out
    float* scratch;               // ks_scratch_floats(...)
};
}

namespace {

int64_t qkv_width(const Decoder& d) { return d.layers[0].qkv.n; }
int64_t heads_width(const Decoder& d) { return int64_t(d.layers[0].attention.heads) * d.layers[0].attention.head_dim; }

std::vector<Piece> pieces_of(const Requests& requests) {
    std::vector<Piece> pieces;
    for (int r = 0; r < requests.count; r++) {
        const int start = requests.starts[r], end = requests.starts[r + 1];
        for (int row = start; row < end; row += QUERY_ROWS)
            pieces.push_back({r, row, std::min(QUERY_ROWS, end - row), requests.seq_lens[r] - (end - row)});
    }
    return pieces;
}

class Run {
  public:
    Run(const Decoder& decoder, const Step& step, Team& team, const std::vector<Piece>& pieces)
        : d_(decoder), s_(step), team_(team), pieces_(pieces), normed_(step.scratch),
          qkv_(normed_ + step.rows * decoder.hidden), heads_(qkv_ + step.rows * qkv_width(decoder)),
          gate_up_(heads_ + step.rows * heads_width(decoder)), mlp_(gate_up_ + step.rows * 2 * decoder.intermediate) {}

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
    const std::vector<Piece>& pieces_;
    float *normed_, *qkv_, *heads_, *gate_up_, *mlp_;

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
        Linear{w, x, ldx, y, ldy, s_.rows, add}.run(team_);
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
        std::memcpy(l.keys + s_.slot_mapping[row] * width, key, width * sizeof(float));
        std::memcpy(l.values + s_.slot_mapping[row] * width, key + width, width * sizeof(float));
    }

    void attend(const Layer& l) const {
        const Attention attention(l.attention, s_.requests, l.keys, l.values);
        const int kv_heads = l.attention.kv_heads;
        team_.share(int64_t(pieces_.size()) * kv_heads, 1, [&](int64_t first, int64_t end) {
            for (int64_t i = first; i < end; i++)
                attention.run(pieces_[i / kv_heads], int(i % kv_heads), qkv_, l.qkv.n, heads_);
        });
        team_.meet();
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

template <class Work>
void in_parallel(int threads, const Work& work) {
    Team team;
#pragma omp parallel num_threads(threads)
    {
#pragma omp single
        team.resize(omp_get_num_threads());
        work(team);
    }
}

}  // namespace

extern "C" {

int64_t ks_scratch_floats(const Decoder* d, int64_t rows) {
    return rows * (d->hidden + qkv_width(*d) + heads_width(*d) + 3 * int64_t(d->intermediate));
}

void ks_decode(const Decoder* decoder, const Step* step, int32_t threads) {
    const std::vector<Piece> pieces = pieces_of(step->requests);
    in_parallel(threads, [&](Team& team) {
        const Run run(*decoder, *step, team, pieces);
        for (int i = 0; i < decoder->num_layers; i++) run.layer(decoder->layers[i]);
    });
}

// y [rows, n] = x [rows, k] W^T + bias
void ks_linear(const Matrix* w, const float* x, float* y, int64_t rows, int32_t threads) {
    in_parallel(threads, [&](Team& team) { Linear{*w, x, w->k, y, w->n, rows, false}.run(team); });
}

// y [rows, n] = RMSNorm of the rows of x at `indices`
void ks_norm_rows(const float* x, const int64_t* indices, int64_t rows, int64_t n, const float* weight, float eps,
                  float* y) {
    for (int64_t r = 0; r < rows; r++) rms_norm(x + indices[r] * n, weight, eps, n, y + r * n);
}

// to [rows, k] = rows of W. Returns how many could be read: all, or those before an index that W does not have.
int64_t ks_read_rows(const Matrix* w, const int64_t* indices, int64_t rows, float* to) {
    alignas(64) float panel[BLOCK * PANEL];
    const int64_t bytes = panel_bytes(w->format, w->k);
    for (int64_t r = 0; r < rows; r++, to += w->k) {
        if (indices[r] < 0 || indices[r] >= w->n) return r;
        const uint8_t* data = w->data + indices[r] / PANEL * bytes;
        for (int64_t first = 0; first < w->k; first += BLOCK) {
            const int64_t end = std::min<int64_t>(first + BLOCK, w->k);
            with_reader(w->format, [&]<class Reader>() { unpack<Reader>(data, first, end, panel); });
            for (int64_t k = first; k < end; k++) to[k] = panel[(k - first) * PANEL + indices[r] % PANEL];
        }
    }
    return rows;
}

// Bytes that ks_pack writes.
int64_t ks_packed_bytes(Format format, int64_t n, int64_t k) {
    return (n + PANEL - 1) / PANEL * panel_bytes(format, k);
}

// Lays the rows of a matrix [n, k] out as panels; row i of it is row order[i] of `from`, or row i if order is null.
void ks_pack(Source source, const uint8_t* from, const int64_t* order, int64_t n, int64_t k, uint8_t* to,
             int32_t threads) {
    const int64_t panels = (n + PANEL - 1) / PANEL, bytes = panel_bytes(format_of(source), k);
#pragma omp parallel for num_threads(threads)
    for (int64_t p = 0; p < panels; p++) pack_panel(source, from, order, p * PANEL, n, k, to + p * bytes);
}
}
