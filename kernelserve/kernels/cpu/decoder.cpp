// What Python calls: plain C functions on addresses and structures (structures.py).

#include <omp.h>

#include "layers.h"
#include "pack.h"

using namespace ks;

namespace {

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
    return Run::scratch_floats(*d, rows);
}

void ks_decode(const Decoder* decoder, const Step* step, int32_t threads) {
    const AttentionShape& attention = decoder->layers[0].attention;
    const int at_once = rows_at_once(attention);
    const AttentionPlan plan(step->requests, attention.block_size, at_once, true);
    const AttentionPlan windowed(step->requests, attention.block_size, at_once, false);
    in_parallel(threads, [&](Team& team) {
        const Run run(*decoder, *step, team, plan, windowed);
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
