// Threads that are started once and sleep between calls.
//
// A step of a recurrence may take only some ten microseconds, no more than waking a thread takes, and it has two
// barriers. So threads that wait for each other inside a call spin, and sleep only between calls.

#pragma once

#include <pthread.h>
#include <signal.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernel.h"

namespace elmo {

// Tells the processor that this loop only waits, so that it leaves the time to the core's other thread, or saves power.
inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Waits for others that are about to be done. If they are not, they may be waiting for this core, so it is given away.
template <class Done>
void spin_until(Done done) {
    for (int i = 0; i < 4000; ++i) {
        if (done()) return;
        relax();
    }
    while (!done()) std::this_thread::yield();
}

class SpinBarrier final : public Barrier {
  public:
    explicit SpinBarrier(size_t count) : count_(count) {}

    void wait() override {
        const size_t round = round_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
            // The count is reset before the round is published: a thread that sees the new round may arrive at the next
            // barrier at once.
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
        } else {
            spin_until([&] { return round_.load(std::memory_order_acquire) != round; });
        }
    }

  private:
    const size_t count_;
    std::atomic<size_t> arrived_{0}, round_{0};
};

// One sleeping thread. It runs what `start` is given, and `done` says whether it has finished.
class Worker {
  public:
    Worker() : thread_([this] { live(); }) { thread_.detach(); }

    void start(std::function<void()> job) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            job_ = std::move(job);
            busy_.store(true, std::memory_order_release);
        }
        wake_.notify_one();
    }
    bool done() const { return !busy_.load(std::memory_order_acquire); }

  private:
    void live() {
        for (;;) {
            // The next call often follows at once, and a thread that is still awake starts sooner.
            for (int i = 0; i < 2000 && done(); ++i) relax();
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [this] { return !done(); });
            }
            job_();
            busy_.store(false, std::memory_order_release);
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::function<void()> job_;
    std::atomic<bool> busy_{false};
    std::thread thread_;  // the last member, as it uses the others as soon as it exists
};

// The workers that no call uses now. Several calls may run at the same time, each with workers of its own. A pool is
// never destroyed: its threads sleep until the process ends.
class Pool {
  public:
    static Pool& instance() { return *current(); }

    // Gives the process a pool: at first, and after a fork, which copies the pool but not its threads.
    static void renew() { current() = new Pool; }

    // Called as job(index, count, barrier) for all indices below `count`, which is the number of threads that were
    // wanted, or fewer if the system has no more.
    typedef std::function<void(size_t, size_t, Barrier&)> Job;

    void run(size_t wanted, const Job& job) {
        if (wanted == 0) return;
        std::vector<Worker*> team = take(wanted - 1);
        const size_t count = team.size() + 1;
        SpinBarrier barrier(count);
        // A program may have its thread flush subnormal numbers to zero. Workers have to do what that thread does, or
        // results would depend on their number.
        std::fenv_t mode;
        std::fegetenv(&mode);
        // Nothing may throw while workers use the variables of this call. Two words are stored in a std::function
        // itself, where more would need memory, which can run out.
        const auto part = [&](size_t i) {
            std::fesetenv(&mode);
            job(i, count, barrier);
        };
        for (size_t i = 1; i < count; ++i) team[i - 1]->start([&part, i] { part(i); });
        job(0, count, barrier);  // the calling thread works too
        for (Worker* worker : team) spin_until([worker] { return worker->done(); });
        std::lock_guard<std::mutex> lock(mutex_);
        idle_.insert(idle_.end(), team.begin(), team.end());
    }

  private:
    static Pool*& current() {
        static Pool* pool = nullptr;
        return pool;
    }

    // Takes up to `wanted` workers: fewer if the system has no more threads or memory. They take longer, but suffice.
    std::vector<Worker*> take(size_t wanted) {
        std::lock_guard<std::mutex> lock(mutex_);
        std::vector<Worker*> team;
        try {
            team.reserve(wanted);
            while (team.size() < wanted && !idle_.empty()) {
                team.push_back(idle_.back());
                idle_.pop_back();
            }
            if (team.size() < wanted) add_new(team, wanted);
        } catch (const std::exception&) {
        }
        return team;
    }

    // Starts workers until the team has as many as are wanted.
    void add_new(std::vector<Worker*>& team, size_t wanted) {
        // A thread inherits which signals it takes. A worker must take none: a program that blocks a signal later, to
        // wait for it, would be killed by one that reached a worker.
        const Blocked signals;
        while (team.size() < wanted) {
            idle_.reserve(num_workers_ + 1);  // so that `run`, at its end, never lacks the memory to give workers back
            team.push_back(new Worker);
            ++num_workers_;
        }
    }

    // All signals are blocked in this thread for the time of a scope.
    struct Blocked {
        sigset_t before;
        Blocked() {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    };

    std::mutex mutex_;
    std::vector<Worker*> idle_;
    size_t num_workers_ = 0;  // all that were ever started
};

}  // namespace elmo
