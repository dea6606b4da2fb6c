#!/usr/bin/env bash
# Runs the tests of the native kernels with sanitizers, on Linux with GCC: all tests with those of addresses and of
# undefined behavior, then the tests whose calls use several threads with that of threads, which finds races. The first
# fault ends the run. Everything is kept in build/sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build/sanitizers
python=(.venv/bin/python)
include=$("${python[@]}" -c 'import sysconfig; print(sysconfig.get_path("include"))')
rm -rf "$root"

# Puts a copy of the package into a folder of $root, with kernels that are compiled with the given flags. GCC's own
# headers cause hundreds of warnings at -O1; make setup shows those that matter.
build() {
    mkdir -p "$root/$1"
    cp -r src/elmo "$root/$1/"
    g++ -std=c++17 -O1 -g -ffp-contract=fast -fno-strict-aliasing -fvisibility=hidden -w -pthread -fPIC -shared \
        -DPy_LIMITED_API=0x030B0000 -fno-omit-frame-pointer "${@:2}" -I"$include" \
        src/elmo/_native/*.cpp -o "$root/$1/elmo/_native/_kernel.abi3.so"
}

# Names libraries for LD_PRELOAD. Python itself is not built with sanitizers, so theirs have to be there before it.
libraries() {
    local name paths=
    for name in "$@"; do paths+=${paths:+:}$(gcc -print-file-name="$name"); done
    echo "$paths"
}

# Runs a Python command with the package of a folder of $root.
run() {
    export PYTHONPATH=$root/$1:$PWD/tests PYTHONDONTWRITEBYTECODE=1
    "${python[@]}" -c "
from elmo import _native
assert _native.__file__.startswith('$root/$1') and _native.LEVELS, 'the kernels with sanitizers did not load'"
    "${python[@]}" "${@:2}"
}

pytest=(-m pytest -q -s -p no:cacheprovider)  # -s: a fault is told on stderr

build addresses -fsanitize=address,undefined -fno-sanitize-recover=all
(
    # Python never frees some memory.
    export ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0 UBSAN_OPTIONS=print_stacktrace=1
    LD_PRELOAD=$(libraries libasan.so libubsan.so libstdc++.so.6)
    export LD_PRELOAD
    run addresses "${pytest[@]}" --slow tests/native
)

# Without torch, which the conftest imports, and without the threads of NumPy's products: neither is compiled for this,
# so that races would be seen where there are none. The sanitizer of threads follows no fork of a process with several
# threads, and refuses to start where some systems put memory at random (setarch -R).
build threads -fsanitize=thread
if setarch -R true 2> /dev/null; then python=(setarch -R "${python[@]}"); fi
export TSAN_OPTIONS=halt_on_error=1 OPENBLAS_NUM_THREADS=1
LD_PRELOAD=$(libraries libtsan.so)
export LD_PRELOAD
run threads "${pytest[@]}" --noconftest -p levels -m "not slow" -k "not subnormal and not fork" \
    tests/native/test_{kernels,training_kernels,optimizer}.py
