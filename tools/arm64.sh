#!/usr/bin/env bash
# Run tests as an arm64 processor would: bash tools/arm64.sh FOLDER tests/engine/test_half_atomics.py ...
# Makes in FOLDER, once, a Debian root with Python and wheels for arm64, and an emulator (apt-get, x86-64 Debian).
# Emulated, a test takes some hundred times as long: choose few.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" && there=$(cd "$1" && pwd)
shift
root=$there/root
site=$root/usr/lib/python3/dist-packages
if [ ! -e "$there/ready" ]; then
    mkdir -p "$root" "$site" "$there"/{debs/partial,apt/lists/partial,qemu,wheels}
    : >"$there/apt/status"
    apt-get update -qq
    (cd "$there" && apt-get download -qq qemu-user-static && dpkg -x qemu-user-static_*.deb qemu)
    arm=(-oAPT::Architecture=arm64 -oAPT::Architectures=arm64 "-oDir::State::Lists=$there/apt/lists"
        "-oDir::State::status=$there/apt/status" "-oDir::Cache::archives=$there/debs" -oDebug::NoLocking=1
        -oDir::Cache::pkgcache= -oDir::Cache::srcpkgcache=)
    apt-get "${arm[@]}" update -qq
    apt-get "${arm[@]}" -y -qq --no-install-recommends --download-only install python3 libstdc++6
    for package in "$there"/debs/*.deb; do dpkg -x "$package" "$root"; done
    version=$(basename "$(ls -d "$root"/usr/lib/python3.*)")
    number=${version#python}
    platforms=()
    for glibc in 2_17 2_26 2_27 2_28 2_34; do platforms+=(--platform "manylinux_${glibc}_aarch64"); done
    python3 -m pip download -q -d "$there/wheels" --only-binary :all: --python-version "$number" \
        --implementation cp --abi "cp${number/./}" --abi abi3 --abi none \
        "${platforms[@]}" --platform manylinux2014_aarch64 --platform linux_aarch64 \
        numpy llvmlite nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt nvidia-ml-py \
        cloudpickle cuda-pathfinder filelock hypothesis platformdirs psutil pytest pytest-xdist PyYAML
    for wheel in "$there"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$site"; done
    touch "$there/ready"
fi
cd "$here"
export PYTHONHOME=$root/usr PYTHONPATH=$here:$site GPULAB_CACHE_DIR=$there/cache
exec "$there/qemu/usr/bin/qemu-aarch64-static" -L "$root" "$root/usr/bin/python3" \
    -m pytest -p no:cacheprovider --without-gpu "$@"
