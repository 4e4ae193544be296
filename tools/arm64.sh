#!/usr/bin/env bash
# Run tests as an arm64 processor would: bash tools/arm64.sh FOLDER [tests/engine/test_half_atomics.py ...]
# Makes in FOLDER, once, a Debian root with Python and wheels for arm64, and an emulator (apt-get, x86-64 Debian).
# Without tests it runs those of tools/arm64.txt, a batch a line; what each said is in FOLDER/logs.
# Emulated, compilers take a hundred times as long. Hence the tests first run here, where LLVM translates for arm64,
# too (tools/arm64_ahead.py), and then on the emulator, which finds PTX and machine code in its cache.
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
export GPULAB_CACHE_DIR=$there/cache ARM64_SITE=$site
python=$here/.venv/bin/python
[ -x "$python" ] || python=python3

here_first() {
    VIRTUALGPU_CPU=x86-64-v3 "$python" -m pytest -q -p tools.arm64_ahead -p no:cacheprovider --without-gpu "$@"
}

emulated() {
    PYTHONHOME=$root/usr PYTHONPATH=$here:$site VIRTUALGPU_CPU=armv8-a \
        "$there/qemu/usr/bin/qemu-aarch64-static" -L "$root" "$root/usr/bin/python3" \
        -m pytest -p no:cacheprovider --without-gpu "$@"
}

if [ $# -gt 0 ]; then
    here_first "$@" || true # what fails here has no bearing on arm64
    emulated "$@"
    exit
fi
mkdir -p "$there/logs"
status=0
number=0
while read -r line; do
    case $line in "#"*) continue ;; esac
    number=$((number + 1))
    eval "batch=($line)"
    # shellcheck disable=SC2154
    here_first "${batch[@]}" >"$there/logs/$number.here.log" 2>&1 </dev/null || true
    emulated -v "${batch[@]}" >"$there/logs/$number.log" 2>&1 </dev/null || status=1
    echo "$line: $(tail -1 "$there/logs/$number.log")"
done <"$here/tools/arm64.txt"
exit $status
