#!/usr/bin/env bash
# The codecs on 64-bit ARM, under an emulator: tests/arm/run.sh
#
# Compiles kernels' codecs and their unit tests for aarch64 and runs them with qemu-user: the NEON
# form gives the scalar form's bytes, both give the goldens, and bad payloads are refused. Ends with
# `N passed, N failed`. Needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user, which it
# installs as root (or with sudo) where they are missing; exit status 77: they can't be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests=(codec_forms codec codec_bad rice half)
cc=aarch64-linux-gnu-gcc
out=build/arm

if ! command -v $cc >/dev/null || ! command -v qemu-aarch64 >/dev/null ||
    [ ! -e /usr/aarch64-linux-gnu/include/stdio.h ]; then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
    { "${apt[@]}" update && "${apt[@]}" \
        install --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user; } ||
        { echo "run: no cross compiler and no emulator for aarch64 to be had"; exit 77; }
fi

# libsodium's headers fit any processor, and nothing here calls it: the linker drops the unreached
# sections before it looks for the library.
mkdir -p "$out/include"
ln -sfn "$(pkg-config --variable=includedir libsodium)/sodium.h" "$out/include/sodium.h"
ln -sfn "$(pkg-config --variable=includedir libsodium)/sodium" "$out/include/sodium"
: >"$out/include/cmocka.h" # tests/arm/stand_in.h, before all else
flags=(-std=gnu17 -O2 -g -Wall -Wextra -Wconversion -Wshadow -Werror -D_GNU_SOURCE
    -ffp-contract=off -fno-math-errno -fno-strict-overflow -fopenmp-simd -fno-trapping-math
    -ffunction-sections -fdata-sections -I. -isystem "$out/include")
sources=(kernels/codec.c kernels/cpu/{payload,rice,cpu_features}.c kernels/cpu/codec_*.c
    common/base/{buf,check,err,nearest,pool,text}.c)
objects=() running=()
for source in "${sources[@]}"; do
    object=$out/$(basename "$source" .c).o
    objects+=("$object")
    $cc "${flags[@]}" -c "$source" -o "$object"
done

for name in "${tests[@]}"; do
    $cc "${flags[@]}" -includetests/arm/stand_in.h tests/test.c \
        "$(find tests/unit -name "$name.c")" "${objects[@]}" -static -Wl,--gc-sections -lm \
        -o "$out/$name"
    qemu-aarch64 "$out/$name" >"$out/$name.log" 2>&1 &
    running+=($!)
done
passed=0 failed=0
for i in "${!tests[@]}"; do
    if wait "${running[$i]}"; then
        echo "ok     arm.${tests[$i]}"
        passed=$((passed + 1))
    else
        tail -n 20 "$out/${tests[$i]}.log"
        echo "FAILED arm.${tests[$i]}"
        failed=$((failed + 1))
    fi
done
grep -q '^comparing scalar with neon$' "$out/codec_forms.log" ||
    { echo "FAILED arm.neon: codec_forms did not compare it"; failed=$((failed + 1)); }
echo "$passed passed, $failed failed"
[ $failed = 0 ]
