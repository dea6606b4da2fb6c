// The Python side: it takes buffers, releases the GIL and puts threads to work.
//
// The Python files next to this one check all arguments, because an error message takes only one line there
// (arguments.py). Only the stable ABI of Python is used (see setup.py), so that one build serves all versions.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "gil.h"
#include "kernel.h"
#include "pool.h"
#include "processor.h"

namespace elmo {
namespace {

constexpr char HANDLE[] = "elmo._native._kernel.handle";

// What a handle holds: one packed weight, or a recurrence's two.
struct Weights {
    const Kernels* kernels;
    std::unique_ptr<Packed> first, second;
    std::vector<float> bias;
    float cell_clip = INFINITY, proj_clip = INFINITY;
};

const Kernels* find(const char* level) {
    for (const Kernels* kernels : supported())
        if (std::strcmp(kernels->name, level) == 0) return kernels;
    PyErr_Format(PyExc_ValueError, "this machine has no kernels named %s", level);
    return nullptr;
}

// A Python buffer for the time of a call.
struct Buffer {
    Py_buffer view{};
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    ~Buffer() {
        if (view.obj) PyBuffer_Release(&view);
    }
    float* floats() const { return static_cast<float*>(view.buf); }
};

// Memory for the rows that each of `threads` threads encodes, for products with either weight. It is not zeroed:
// threads that divide the rows use only a part of theirs, and what is never written takes no pages of memory.
class Scratches {
  public:
    Scratches(const Packed& first, const Packed* second, size_t rows, size_t threads)
        : words_(rows * std::max(first.groups, second ? second->groups : 0)), rows_(rows), scales_(threads * rows) {
        if (first.precision != Precision::float32) memory_.reset(new int32_t[threads * words_]);  // float32 needs none
    }

    Scratch of(size_t thread) {
        return {memory_ ? &memory_[thread * words_] : nullptr, scales_.data() + thread * rows_};
    }

  private:
    size_t words_, rows_;
    std::unique_ptr<int32_t[]> memory_;
    std::vector<float> scales_;
};

void destroy(PyObject* handle) { delete static_cast<Weights*>(PyCapsule_GetPointer(handle, HANDLE)); }

PyObject* handle_of(std::unique_ptr<Weights> weights) {
    PyObject* handle = PyCapsule_New(weights.get(), HANDLE, destroy);
    if (handle) weights.release();
    return handle;
}

PyObject* levels(PyObject*, PyObject*) {
    PyObject* names = PyList_New(0);
    for (const Kernels* kernels : supported()) {
        PyObject* name = names ? PyUnicode_FromString(kernels->name) : nullptr;
        if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

PyObject* is_intel(PyObject*, PyObject*) { return PyBool_FromLong(made_by_intel()); }

PyObject* pack_linear(PyObject*, PyObject* args) {
    Buffer weight, bias;
    Py_ssize_t columns, depth;
    int precision;
    const char* level;
    if (!PyArg_ParseTuple(args, "y*z*nnis", &weight.view, &bias.view, &columns, &depth, &precision, &level))
        return nullptr;
    std::unique_ptr<Weights> packed(new Weights);
    packed->kernels = find(level);
    if (!packed->kernels) return nullptr;
    if (bias.view.buf) packed->bias.assign(bias.floats(), bias.floats() + columns);
    {
        Released gil;
        packed->first.reset(new Packed(weight.floats(), columns, depth, false, Precision(precision), *packed->kernels));
    }
    return handle_of(std::move(packed));
}

PyObject* pack_recurrence(PyObject*, PyObject* args) {
    Buffer weight_hh, weight_hr;
    Py_ssize_t size, out_size;
    float cell_clip, proj_clip;
    int precision;
    const char* level;
    if (!PyArg_ParseTuple(args, "y*z*nnffis", &weight_hh.view, &weight_hr.view, &size, &out_size, &cell_clip,
                          &proj_clip, &precision, &level))
        return nullptr;
    std::unique_ptr<Weights> packed(new Weights);
    packed->kernels = find(level);
    if (!packed->kernels) return nullptr;
    packed->cell_clip = cell_clip;
    packed->proj_clip = proj_clip;
    {
        Released gil;
        const Kernels& kernels = *packed->kernels;
        packed->first.reset(new Packed(weight_hh.floats(), 4 * size, out_size, true, Precision(precision), kernels));
        if (weight_hr.view.buf)
            packed->second.reset(new Packed(weight_hr.floats(), out_size, size, false, Precision(precision), kernels));
    }
    return handle_of(std::move(packed));
}

PyObject* run_linear(PyObject*, PyObject* args) {
    PyObject* handle;
    Buffer x, out;
    Py_ssize_t rows, threads;
    if (!PyArg_ParseTuple(args, "Oy*w*nn", &handle, &x.view, &out.view, &rows, &threads)) return nullptr;
    const Weights* weights = static_cast<Weights*>(PyCapsule_GetPointer(handle, HANDLE));
    if (!weights) return nullptr;
    {
        Released gil;
        const Packed& weight = *weights->first;
        const float* bias = weights->bias.empty() ? nullptr : weights->bias.data();
        const LinearCall call{&weight, bias, x.floats(), out.floats(), static_cast<size_t>(rows)};
        const size_t wanted = std::min<size_t>(threads, weight.blocks);
        Scratches scratches(weight, nullptr, std::min<size_t>(rows, CHUNK), wanted);
        Pool::instance().run(wanted, [&](size_t thread, size_t count, Barrier&) {
            weights->kernels->linear(call, share(weight.blocks, thread, count), scratches.of(thread));
        });
    }
    Py_RETURN_NONE;
}

PyObject* run_recurrence(PyObject*, PyObject* args) {
    PyObject* handle;
    Buffer gates, batch_sizes, hidden, cell, outputs;
    Py_ssize_t steps, threads;
    if (!PyArg_ParseTuple(args, "Oy*y*w*w*w*nn", &handle, &gates.view, &batch_sizes.view, &hidden.view, &cell.view,
                          &outputs.view, &steps, &threads))
        return nullptr;
    const Weights* weights = static_cast<Weights*>(PyCapsule_GetPointer(handle, HANDLE));
    if (!weights) return nullptr;
    if (steps > 0) {
        Released gil;
        const Packed &weight_hh = *weights->first, *weight_hr = weights->second.get();
        const int64_t* sizes = static_cast<const int64_t*>(batch_sizes.view.buf);
        // A vector that spans two cache lines takes longer to load, so this begins at the start of one.
        std::vector<float> room(weight_hr ? sizes[0] * weight_hr->depth + 16 : 0);
        float* mixed = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(room.data()) + 63) & ~uintptr_t{63});
        const RecurrenceCall call{&weight_hh, weight_hr, weights->cell_clip, weights->proj_clip, gates.floats(), sizes,
                                  static_cast<size_t>(steps), hidden.floats(), cell.floats(), outputs.floats(), mixed};
        const size_t wanted = std::min<size_t>(threads, weight_hh.blocks);
        Scratches scratches(weight_hh, weight_hr, sizes[0], wanted);
        Pool::instance().run(wanted, [&](size_t thread, size_t count, Barrier& barrier) {
            weights->kernels->recurrence(call, thread, count, scratches.of(thread), barrier);
        });
        const float* out = outputs.floats();
        const size_t width = weight_hh.depth;
        // The rows that the next step lacks have their last output in this one.
        for (Py_ssize_t t = 0; t < steps; out += sizes[t++] * width) {
            const size_t next = t + 1 < steps ? sizes[t + 1] : 0;
            std::memcpy(hidden.floats() + next * width, out + next * width, (sizes[t] - next) * width * sizeof(float));
        }
    }
    Py_RETURN_NONE;
}

// Threads share the rows (or blocks) of a call, of which there is at least one.
void for_rows(Py_ssize_t rows, Py_ssize_t threads, const std::function<void(Range, size_t thread)>& work) {
    Released gil;
    Pool::instance().run(std::min(threads, rows), [&](size_t thread, size_t count, Barrier&) {
        work(share(rows, thread, count), thread);
    });
}

// A weight of training, packed for one call; null if there is none.
std::unique_ptr<Packed> pack_once(const Buffer& weight, size_t columns, size_t depth, bool gates, Precision precision,
                                  const Kernels& kernels, Packed::Source source = Packed::AS_IT_IS) {
    if (!weight.view.buf) return nullptr;
    std::unique_ptr<Packed> packed(new Packed(weight.floats(), columns, depth, gates, precision, kernels, source));
    packed->for_one_call = true;
    return packed;
}

PyObject* run_lstm_forward(PyObject*, PyObject* args) {
    Buffer weight, weight_hr, bias, batch_sizes, cell_before, joined, gates, cell, mixed, outputs;
    Py_ssize_t size, width, out_size, steps, threads;
    float cell_clip, proj_clip;
    int precision;
    const char* level;
    if (!PyArg_ParseTuple(args, "y*z*y*y*y*w*w*w*z*w*nnnnffins", &weight.view, &weight_hr.view, &bias.view,
                          &batch_sizes.view, &cell_before.view, &joined.view, &gates.view, &cell.view, &mixed.view,
                          &outputs.view, &size, &width, &out_size, &steps, &cell_clip, &proj_clip, &precision,
                          &threads, &level))
        return nullptr;
    const Kernels* kernels = find(level);
    if (!kernels) return nullptr;
    {
        Released gil;
        const auto packed = pack_once(weight, 4 * size, width, true, Precision(precision), *kernels);
        const auto projection = pack_once(weight_hr, out_size, size, false, Precision(precision), *kernels);
        const int64_t* sizes = static_cast<const int64_t*>(batch_sizes.view.buf);
        const LSTMForwardCall call{packed.get(), projection.get(), static_cast<size_t>(out_size), cell_clip, proj_clip,
                                   sizes, static_cast<size_t>(steps), bias.floats(), cell_before.floats(),
                                   joined.view.buf, gates.floats(), cell.floats(), mixed.view.buf, outputs.floats()};
        Pool::instance().run(std::min<size_t>(threads, sizes[0]), [&](size_t thread, size_t count, Barrier&) {
            kernels->lstm_forward(call, thread, count);
        });
    }
    Py_RETURN_NONE;
}

PyObject* run_lstm_backward(PyObject*, PyObject* args) {
    Buffer weight, weight_hr, batch_sizes, cell_before, gates, cell, outputs;
    Buffer d_outputs, d_cells, d_cell, d_gates, d_out, d_joined;
    Py_ssize_t size, width, out_size, steps, threads;
    float cell_clip, proj_clip;
    int precision;
    const char* level;
    if (!PyArg_ParseTuple(args, "y*z*y*y*y*y*y*y*z*w*w*z*w*nnnnffins", &weight.view, &weight_hr.view,
                          &batch_sizes.view, &cell_before.view, &gates.view, &cell.view, &outputs.view,
                          &d_outputs.view, &d_cells.view, &d_cell.view, &d_gates.view, &d_out.view, &d_joined.view,
                          &size, &width, &out_size, &steps, &cell_clip, &proj_clip, &precision, &threads, &level))
        return nullptr;
    const Kernels* kernels = find(level);
    if (!kernels) return nullptr;
    {
        Released gil;
        const auto packed = pack_once(weight, width, 4 * size, false, Precision(precision), *kernels,
                                      Packed::TRANSPOSED_INTERLEAVED);
        const auto projection = pack_once(weight_hr, size, out_size, false, Precision(precision), *kernels,
                                          Packed::TRANSPOSED);
        const int64_t* sizes = static_cast<const int64_t*>(batch_sizes.view.buf);
        const LSTMBackwardCall call{packed.get(), projection.get(), static_cast<size_t>(size),
                                    static_cast<size_t>(out_size), cell_clip, proj_clip, sizes,
                                    static_cast<size_t>(steps), cell_before.floats(), gates.floats(), cell.floats(),
                                    outputs.floats(), d_outputs.floats(), d_cells.floats(), d_cell.floats(),
                                    d_gates.view.buf, d_out.view.buf, d_joined.floats()};
        Pool::instance().run(std::min<size_t>(threads, sizes[0]), [&](size_t thread, size_t count, Barrier&) {
            kernels->lstm_backward(call, thread, count);
        });
    }
    Py_RETURN_NONE;
}

PyObject* run_softmax(PyObject*, PyObject* args) {
    Buffer products, bias, target_scores, own, losses, target_probs, d_bias;
    Py_ssize_t rows, columns, threads;
    int bf16;
    const char* level;
    if (!PyArg_ParseTuple(args, "w*y*y*y*w*w*w*nnpns", &products.view, &bias.view, &target_scores.view, &own.view,
                          &losses.view, &target_probs.view, &d_bias.view, &rows, &columns, &bf16, &threads, &level))
        return nullptr;
    const Kernels* kernels = find(level);
    if (!kernels) return nullptr;
    const SoftmaxCall call{static_cast<size_t>(columns), bf16 != 0, products.view.buf, bias.floats(),
                           target_scores.floats(), static_cast<const int64_t*>(own.view.buf), losses.floats(),
                           target_probs.floats()};
    const size_t width = columns + kernels->lanes;
    std::unique_ptr<float[]> powers(new float[std::max<Py_ssize_t>(1, std::min(threads, rows)) * width]);
    for_rows(rows, threads, [&](Range range, size_t thread) {
        kernels->softmax(call, range, d_bias.floats() + thread * columns, powers.get() + thread * width);
    });
    Py_RETURN_NONE;
}

PyObject* run_windows(PyObject*, PyObject* args) {
    Buffer table, bias, ids, lengths, out, places;
    Py_ssize_t rows, columns, width, alphabet, filters, stride, offset, threads;
    int tanh;
    const char* level;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*z*nnnnnnnpns", &table.view, &bias.view, &ids.view, &lengths.view, &out.view,
                          &places.view, &rows, &columns, &width, &alphabet, &filters, &stride, &offset, &tanh,
                          &threads, &level))
        return nullptr;
    const Kernels* kernels = find(level);
    if (!kernels) return nullptr;
    const WindowsCall call{static_cast<size_t>(columns), static_cast<size_t>(width), static_cast<size_t>(alphabet),
                           static_cast<size_t>(filters), static_cast<size_t>(stride), tanh != 0, table.floats(),
                           bias.floats(), static_cast<const int32_t*>(ids.view.buf),
                           static_cast<const int32_t*>(lengths.view.buf), out.floats() + offset,
                           static_cast<uint8_t*>(places.view.buf)};
    for_rows(rows, threads, [&](Range range, size_t) { kernels->windows(call, range); });
    Py_RETURN_NONE;
}

PyObject* run_windows_backward(PyObject*, PyObject* args) {
    Buffer out, d_out, ids, places, d_table, d_bias;
    Py_ssize_t rows, columns, width, alphabet, filters, stride, offset, threads;
    int tanh;
    const char* level;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*w*nnnnnnnpns", &out.view, &d_out.view, &ids.view, &places.view,
                          &d_table.view, &d_bias.view, &rows, &columns, &width, &alphabet, &filters, &stride, &offset,
                          &tanh, &threads, &level))
        return nullptr;
    const Kernels* kernels = find(level);
    if (!kernels) return nullptr;
    const WindowsBackwardCall call{static_cast<size_t>(rows), static_cast<size_t>(columns), static_cast<size_t>(width),
                                   static_cast<size_t>(alphabet), static_cast<size_t>(filters),
                                   static_cast<size_t>(stride), tanh != 0, out.floats() + offset,
                                   d_out.floats() + offset, static_cast<const int32_t*>(ids.view.buf),
                                   static_cast<const uint8_t*>(places.view.buf), d_table.floats(), d_bias.floats()};
    const size_t blocks = ceil_div(call.filters, FILTERS_AT_ONCE), size = width * alphabet * FILTERS_AT_ONCE;
    std::unique_ptr<float[]> room(new float[std::min<size_t>(threads, blocks) * size]);
    for_rows(blocks, threads, [&](Range range, size_t thread) {
        kernels->windows_backward(call, range, room.get() + thread * size);
    });
    Py_RETURN_NONE;
}

PyObject* run_highway(PyObject*, PyObject* args) {
    Buffer products, bias, x, out;
    Py_ssize_t rows, size, threads;
    int bf16;
    const char* level;
    if (!PyArg_ParseTuple(args, "y*z*y*w*nnpns", &products.view, &bias.view, &x.view, &out.view, &rows, &size, &bf16,
                          &threads, &level))
        return nullptr;
    const Kernels* kernels = find(level);
    if (!kernels) return nullptr;
    const HighwayCall call{static_cast<size_t>(size), bf16 != 0, products.view.buf, bias.floats(), x.floats(),
                           out.floats()};
    for_rows(rows, threads, [&](Range range, size_t) { kernels->highway(call, range); });
    Py_RETURN_NONE;
}

PyObject* run_highway_backward(PyObject*, PyObject* args) {
    Buffer products, bias, x, d_out, d_products, d_x, d_bias;
    Py_ssize_t rows, size, threads;
    int bf16;
    const char* level;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*w*w*nnpns", &products.view, &bias.view, &x.view, &d_out.view,
                          &d_products.view, &d_x.view, &d_bias.view, &rows, &size, &bf16, &threads, &level))
        return nullptr;
    const Kernels* kernels = find(level);
    if (!kernels) return nullptr;
    const HighwayBackwardCall call{static_cast<size_t>(size), bf16 != 0, products.view.buf, bias.floats(), x.floats(),
                                   d_out.floats(), d_products.view.buf, d_x.floats()};
    for_rows(rows, threads, [&](Range range, size_t thread) {
        kernels->highway_backward(call, range, d_bias.floats() + thread * 2 * size);
    });
    Py_RETURN_NONE;
}

PyObject* run_adam_rows(PyObject*, PyObject* args) {
    Buffer weight, average, average_square, rows, gradient;
    Py_ssize_t count, width, threads;
    float share, share_of_square, step_size, epsilon;
    const char* level;
    if (!PyArg_ParseTuple(args, "w*w*w*y*y*nnffffns", &weight.view, &average.view, &average_square.view, &rows.view,
                          &gradient.view, &count, &width, &share, &share_of_square, &step_size, &epsilon, &threads,
                          &level))
        return nullptr;
    const Kernels* kernels = find(level);
    if (!kernels) return nullptr;
    const AdamRowsCall call{static_cast<size_t>(width), static_cast<const int64_t*>(rows.view.buf), gradient.floats(),
                            weight.floats(), average.floats(), average_square.floats(), share, share_of_square,
                            step_size, epsilon};
    for_rows(count, threads, [&](Range range, size_t) { kernels->adam_rows(call, range); });
    Py_RETURN_NONE;
}

// A C++ exception must not pass through Python's frames. The only one that is expected is that memory runs out.
template <PyObject* (*BODY)(PyObject*, PyObject*)>
PyObject* guarded(PyObject* self, PyObject* args) {
    try {
        return BODY(self, args);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }
}

PyMethodDef METHODS[] = {
    {"end", guarded<end>, METH_NOARGS, "Keep other threads from asking for the GIL, because Python is about to end."},
    {"levels", guarded<levels>, METH_NOARGS, "The instruction sets that this machine has kernels for, the best first."},
    {"is_intel", is_intel, METH_NOARGS, "Whether the processor is one of Intel's."},
    {"pack_linear", guarded<pack_linear>, METH_VARARGS, "A handle on the packed weight of a product."},
    {"pack_recurrence", guarded<pack_recurrence>, METH_VARARGS, "A handle on the packed weights of a recurrence."},
    {"run_linear", guarded<run_linear>, METH_VARARGS, "Multiply rows with a packed weight."},
    {"run_recurrence", guarded<run_recurrence>, METH_VARARGS, "Run a recurrence over a packed batch."},
    {"run_lstm_forward", guarded<run_lstm_forward>, METH_VARARGS, "Run a layer over a packed batch in training."},
    {"run_lstm_backward", guarded<run_lstm_backward>, METH_VARARGS, "The way back through `run_lstm_forward`."},
    {"run_softmax", guarded<run_softmax>, METH_VARARGS, "The softmax of training over rows of scores."},
    {"run_windows", guarded<run_windows>, METH_VARARGS, "Convolutions of words, and their maxima."},
    {"run_windows_backward", guarded<run_windows_backward>, METH_VARARGS, "The way back through `run_windows`."},
    {"run_highway", guarded<run_highway>, METH_VARARGS, "What a highway does with its products."},
    {"run_highway_backward", guarded<run_highway_backward>, METH_VARARGS, "The way back through `run_highway`."},
    {"run_adam_rows", guarded<run_adam_rows>, METH_VARARGS, "Adam on some rows of a matrix."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernel", "What is computed in C++, for embedding and for training.",
                      -1, METHODS, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace elmo

PyMODINIT_FUNC PyInit__kernel() {
    // A fork has none of the other threads: those of the pool, those that may have held a lock, and those that may have
    // been asking for the GIL.
    static bool is_ready = false;  // Python may make the module again, and a second pool would not know the first one's
    if (!is_ready) {
        const auto renew = [] {
            elmo::Pool::renew();
            elmo::renew_kept_memory();
            elmo::asking.store(0);
        };
        renew();
        if (pthread_atfork(nullptr, nullptr, renew) != 0) return PyErr_NoMemory();
        is_ready = true;
    }
    return PyModule_Create(&elmo::MODULE);
}
