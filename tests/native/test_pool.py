"""The threads of the native kernels when memory runs out, in a program of its own that counts what it allocates."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "src/elmo/_native"

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <new>

#include "pool.h"

static thread_local int left = -1;  // how often this thread may still allocate; -1 is for ever

void* operator new(size_t bytes) {
    if (left == 0) throw std::bad_alloc();
    if (left > 0) --left;
    return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

static int num_threads() {
    std::FILE* status = std::fopen("/proc/self/status", "r");
    char line[200];
    int number = 0;
    while (std::fgets(line, sizeof line, status)) std::sscanf(line, "Threads: %d", &number);
    std::fclose(status);
    return number;
}

int main() {
    elmo::Pool::renew();
    for (int allowed = 0; allowed < 12; ++allowed) {
        std::atomic<size_t> done{0}, team{0};
        const elmo::Pool::Job job = [&](size_t, size_t count, elmo::Barrier&) {
            team = count;
            ++done;
        };
        left = allowed;
        elmo::Pool::instance().run(4, job);
        left = -1;
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        std::printf("%d: %zu of %zu, blocked %d\n", allowed, done.load(), team.load(), sigismember(&blocked, SIGINT));
        if (done != team || team < 1 || team > 4 || sigismember(&blocked, SIGINT)) return 1;
    }
    std::printf("%d threads\n", num_threads());
    return num_threads() == 4 ? 0 : 1;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux how many threads there are")
@pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="needs a C++ compiler")
def test_a_call_that_gets_no_memory_for_threads_runs_with_fewer(tmp_path: Path) -> None:
    """It used to fail, after which its caller took no signal, and the threads that it had begun with were lost."""
    source, program = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(PROGRAM, encoding="utf-8")
    compiler = os.environ.get("CXX", "g++")
    flags = ["-std=c++17", "-O1", "-w", "-pthread", f"-I{NATIVE}"]
    subprocess.run([compiler, *flags, source, "-o", program], check=True, timeout=300)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
