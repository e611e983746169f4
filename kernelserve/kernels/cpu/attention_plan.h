// How the rows of a step are divided into work for attention, once for all layers.
#pragma once

#include <algorithm>
#include <vector>

#include "attention.h"

namespace ks {

// Some requests with one row each that begin with the same blocks.
struct SharedPrefix {
    std::vector<int> requests;
    int length;  // in tokens, whole tiles
};

// A request whose next rows are computed together.
struct Piece {
    int request, first_row, rows, first_position;
    int done;  // positions that a shared prefix has covered already
};

// How the rows of a step are divided into work: the same for every layer without a window.
struct AttentionPlan {
    std::vector<SharedPrefix> prefixes;
    std::vector<Piece> pieces;

    AttentionPlan(const Requests& requests, int block_size, int rows_at_once, bool share) {
        std::vector<int> done(requests.count, 0);
        if (share) find_prefixes(requests, block_size, rows_at_once, done);
        for (int r = 0; r < requests.count; r++) {
            const int start = requests.starts[r], end = requests.starts[r + 1];
            for (int row = start; row < end; row += rows_at_once)
                pieces.push_back({r, row, std::min(rows_at_once, end - row), requests.seq_lens[r] - (end - row), done[r]});
        }
    }

  private:
    // Sorted by their first blocks, requests with the same prefix are neighbours.
    void find_prefixes(const Requests& requests, int block_size, int most, std::vector<int>& done) {
        if (KEYS % block_size) return;
        const int first_blocks = KEYS / block_size;
        std::vector<int> order;
        for (int r = 0; r < requests.count; r++)
            if (requests.rows(r) == 1 && requests.seq_lens[r] > KEYS) order.push_back(r);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
            return std::lexicographical_compare(requests.blocks(a), requests.blocks(a) + first_blocks, requests.blocks(b),
                                                requests.blocks(b) + first_blocks);
        });
        SharedPrefix found{{}, 0};
        const auto close = [&] {
            if (found.requests.size() > 1) {
                for (int r : found.requests) done[r] = found.length;
                prefixes.push_back(found);
            }
            found = {{}, 0};
        };
        for (int r : order) {
            const int own = (requests.seq_lens[r] - 1) / KEYS * KEYS;  // its newest token is always its own
            int length = own;
            if (!found.requests.empty()) length = common(requests, found.requests[0], r, std::min(own, found.length), block_size);
            // Joining must not shorten what is shared too much.
            if (!found.requests.empty() && (length == 0 || 2 * length < found.length || int(found.requests.size()) == most)) {
                close();
                length = own;
            }
            found.requests.push_back(r);
            found.length = length;
        }
        close();
    }

    static int common(const Requests& requests, int a, int b, int most, int block_size) {
        int blocks = 0;
        while (blocks * block_size < most && requests.blocks(a)[blocks] == requests.blocks(b)[blocks]) blocks++;
        return blocks * block_size / KEYS * KEYS;
    }
};

}  // namespace ks
