#!/usr/bin/env bash
# Runs the tests of the native kernels on 64-bit Arm processors that qemu emulates: with the instructions for bf16 and
# int8 products, without those for bf16, and without any.
#
# On Debian, this needs the packages qemu-user-static and g++-aarch64-linux-gnu, and apt's lists of the arm64 packages
# (dpkg --add-architecture arm64 && apt-get update). Everything else is kept in build/arm.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build/arm python=3.11
mkdir -p "$root"/{debs,wheels}

for tool in qemu-aarch64-static aarch64-linux-gnu-g++; do
    command -v $tool > /dev/null || { echo "$tool is missing; see the beginning of $0" >&2; exit 2; }
done

if [ ! -d "$root/system" ]; then  # an Arm Python with the libraries that it needs
    names=(python$python-minimal libpython$python-{minimal,stdlib,dev} libpython$python libstdc++6 libgcc-s1 libc6 zlib1g
           libexpat1 libffi8 libbz2-1.0 liblzma5 libssl3 libsqlite3-0 libuuid1 libncursesw6 libtinfo6 libcrypt1)
    (cd "$root/debs" && apt-get download "${names[@]/%/:arm64}")
    for package in "$root"/debs/*.deb; do dpkg -x "$package" "$root/unpacked"; done
    mv "$root/unpacked" "$root/system"
fi

if [ ! -d "$root/site" ]; then
    .venv/bin/pip download --quiet --constraint constraints.txt --no-deps --only-binary=:all: --python-version $python \
        --platform manylinux2014_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 \
        --dest "$root/wheels" numpy pytest pytest-timeout pluggy iniconfig packaging pygments
    for wheel in "$root"/wheels/*.whl; do .venv/bin/python -m zipfile -e "$wheel" "$root/unpacked"; done
    mv "$root/unpacked" "$root/site"
fi

# The kernels, and what `import elmo` runs. They need NumPy alone.
package=$root/package/elmo
rm -rf "$package"
mkdir -p "$package/_native"
cp src/elmo/_native/*.py "$package/_native/"
cp src/elmo/{__init__,lazy}.py "$package/"
aarch64-linux-gnu-g++ -std=c++17 -O3 -ffp-contract=fast -fno-strict-aliasing -fvisibility=hidden -Wall -Wextra \
    -Wno-psabi -Wno-maybe-uninitialized -pthread -fPIC -shared -DPy_LIMITED_API=0x030B0000 \
    -I"$root/system/usr/include" -I"$root/system/usr/include/python$python" \
    src/elmo/_native/*.cpp -o "$package/_native/_kernel.abi3.so"

for processor in max neoverse-n1 cortex-a57; do
    # The kernel of this machine can't start Arm programs by itself, so tests that start Python start this script.
    cat > "$root/python" <<END
#!/bin/sh
exec qemu-aarch64-static -cpu $processor -L "$root/system" "$root/system/usr/bin/python$python" "\$@"
END
    chmod +x "$root/python"
    PYTHONPATH=$root/package:$root/site:tests PYTHONDONTWRITEBYTECODE=1 "$root/python" -c "
import sys
import pytest
from elmo import _native
print('$processor:', ', '.join(_native.LEVELS))
assert _native.LEVELS, 'the kernels did not load, and all of their tests would be skipped'
sys.executable = '$root/python'
sys.exit(pytest.main(['-q', '--noconftest', '-p', 'levels', '-p', 'no:cacheprovider', 'tests/native']))"
done
