// What the threads of one parallel region share: a barrier and a counter to take work from.
#pragma once

#include <atomic>
#include <sched.h>

namespace ks {

// Threads meet some hundred times in a step, microseconds apart: they spin, but let others run when it takes longer.
class Team {
  public:
    // Before the first meeting.
    void resize(int size) { size_ = size; }

    // Every thread calls it; none goes on before all have. Also starts the next `take` at zero.
    void meet() {
        if (size_ == 1) {
            next_.store(0, std::memory_order_relaxed);
            return;
        }
        const unsigned round = round_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            next_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; round_.load(std::memory_order_acquire) == round; spins++) {
            if (spins < SPINS) pause();
            else sched_yield();
        }
    }

    // Calls work(first, last) for parts of 0 .. count until nothing is left. A `meet` must lie between two of them.
    template <class Work>
    void share(long count, long at_once, const Work& work) {
        long first;
        while ((first = next_.fetch_add(at_once, std::memory_order_relaxed)) < count)
            work(first, first + at_once < count ? first + at_once : count);
    }

  private:
    static constexpr int SPINS = 4000;

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    int size_ = 1;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
    alignas(64) std::atomic<long> next_{0};
};

}  // namespace ks
