// The GIL, which calls release while they compute; part of module.cpp.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "pool.h"

namespace elmo {
namespace {

// What keeps threads from asking for the GIL when Python ends.
//
// Until Python 3.14, a thread that asks for the GIL then is ended by unwinding its stack. Frames of C++ do not survive
// that: some can't be unwound, some only by another unwinder than Python's, and the others would release Python's
// objects without the GIL. So such threads wait for the end of the process instead, as Python's own do from 3.14 on.
std::atomic<bool> is_ending{false};
std::atomic<size_t> asking{0};  // threads that ask for the GIL, or are about to see whether Python is ending
pthread_t ending_thread;        // the one that ends Python, and may still compute; set before `is_ending`

// The GIL is released for the time of a scope.
struct Released {
    PyThreadState* state = PyEval_SaveThread();
    Released() = default;
    Released(const Released&) = delete;
    ~Released() {
        asking.fetch_add(1);
        if (is_ending.load() && !pthread_equal(pthread_self(), ending_thread)) {
            asking.fetch_sub(1);
            for (;;) pause();
        }
        PyEval_RestoreThread(state);
        asking.fetch_sub(1);
    }
};

// Called before Python ends. No thread asks for the GIL any more when it returns: those that did have got it.
PyObject* end(PyObject*, PyObject*) {
    ending_thread = pthread_self();
    is_ending.store(true);
    PyThreadState* state = PyEval_SaveThread();
    spin_until([] { return asking.load() == 0; });
    PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

}  // namespace
}  // namespace elmo
