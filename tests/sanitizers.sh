#!/usr/bin/env bash
# Runs the tests of the native kernels with the sanitizers of addresses and of undefined behavior, on Linux with GCC.
# The first fault ends the run. Everything is kept in build/sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build/sanitizers
rm -rf "$root"
mkdir -p "$root"
cp -r src/elmo "$root/"
g++ -std=c++17 -O1 -g -ffp-contract=fast -fno-strict-aliasing -fvisibility=hidden -Wall -Wextra -Wno-psabi \
    -Wno-maybe-uninitialized -pthread -fPIC -shared -DPy_LIMITED_API=0x030B0000 \
    -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer \
    -I"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
    src/elmo/_native/*.cpp -o "$root/elmo/_native/_kernel.abi3.so"

# Python itself is not built with sanitizers, so their libraries have to be there before it. It never frees some memory.
for library in libasan.so libubsan.so libstdc++.so.6; do
    LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}$(env -u LD_PRELOAD gcc -print-file-name=$library)
done
export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0 UBSAN_OPTIONS=print_stacktrace=1
export PYTHONPATH=$root PYTHONDONTWRITEBYTECODE=1
.venv/bin/python -c "
from elmo import _native
assert _native.__file__.startswith('$root') and _native.LEVELS, 'the kernels with sanitizers did not load'"
exec .venv/bin/python -m pytest -q -s -p no:cacheprovider --slow tests/native  # -s: a fault is told on stderr
