#!/bin/sh
# Build MicroPython with the watchdog frozen in for boards that QEMU emulates, into .cache/boards.
#
# usage: build.sh [MPS2_AN385] [MICROBIT] [VIRT_RV32]        all by default
#        -> .cache/boards/BOARD/firmware.elf
#
# The sources are Debian 13's, the compilers apt's (installed when missing, which needs root). A heap of
# 64 KiB, as small boards have it: the code stays in the flash.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
boards=${DENWATCH_CACHE:-$repository/.cache}/boards
mkdir -p "$boards"
boards=$(cd "$boards" && pwd)
compilers="gcc-arm-none-eabi gcc-riscv64-unknown-elf picolibc-arm-none-eabi picolibc-riscv64-unknown-elf"

if ! command -v arm-none-eabi-gcc >/dev/null || ! command -v riscv64-unknown-elf-gcc >/dev/null; then
    # shellcheck disable=SC2086 # a list
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $compilers gcc make >"$boards/apt.log" || {
        echo "build: install $compilers gcc make" >&2
        exit 2
    }
fi
"$repository/scripts/get-runtimes.sh" microbit riscv
port=$boards/source/root/ports/qemu
[ -d "$port" ] || "$repository/scripts/fetch-debs.sh" "$boards/source" trixie source micropython
[ -x "$boards/source/root/mpy-cross/build/mpy-cross" ] || make -s -C "$boards/source/root/mpy-cross" >"$boards/mpy-cross.log" 2>&1

for board in ${*:-MPS2_AN385 MICROBIT VIRT_RV32}; do
    case $board in
    MICROBIT) set -- "MPY_CROSS_FLAGS=-march=armv6m" ;; # the generator that port.h switches on
    VIRT_RV32) set -- "LIBS=-march=rv32imac" ;; # with gcc 12 the libraries are of this, without zicsr
    *) set -- ;;
    esac
    make -s -C "$port" BOARD="$board" BUILD="$boards/$board" MICROPY_HEAP_SIZE=65536 \
        USER_C_MODULES="$here" FROZEN_MANIFEST="$here/manifest.py" MICROPY_VFS_LFS2=1 "$@" >"$boards/$board.log" 2>&1 || {
        tail -20 "$boards/$board.log" >&2
        exit 1
    }
    echo "$board $boards/$board/firmware.elf"
done
