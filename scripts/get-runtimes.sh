#!/bin/sh
# Get every MicroPython that the device tests run on into .cache/runtimes (or $DENWATCH_CACHE/runtimes),
# and the other programs that tests and containers need.
#
# usage: get-runtimes.sh [unix] [microbit] [wasm] [broker] [java] [browser] [shells] [compose] [schemas]
#                         [mqttjs] [riscv]
#        all but riscv by default; unix64 is the half of unix that the demo needs
#
#   unix64/micropython, unix32/micropython   MicroPython 1.25 of Debian 13, in both word sizes
#   wasm/node_modules/...                    WebAssembly MicroPython, pinned in firmware_tests/wasm
#   microbit/qemu-system-arm, firmware.hex   the emulated Cortex-M0 and its MicroPython 1.9.2
#   riscv/qemu-system-riscv32                for `make boards`
#   compose/docker-compose                   Docker's, to check docker/compose.yaml; needs no engine
#   schemas/node_modules/...                 AsyncAPI's JSON schema, pinned in scripts/schemas
#   mqttjs/node_modules/...                  MQTT.js, pinned in scripts/mqttjs
#
# What is there and works is kept, so a second run takes a second. On Debian 12 and 13 nothing is
# installed except node, Mosquitto, Java and Chromium (when missing, which needs root): other Debian packages are
# unpacked into the cache. Elsewhere, programs on the PATH are used; what is missing is named, and the
# exit code is 1.
set -eu

wanted=" ${*:-unix microbit wasm broker java browser shells compose schemas mqttjs} "
wants() { case $wanted in *" $1 "*) ;; *) return 1 ;; esac; }

repository=$(cd "$(dirname "$0")/.." && pwd)
runtimes=${DENWATCH_CACHE:-$repository/.cache}/runtimes
mkdir -p "$runtimes"
runtimes=$(cd "$runtimes" && pwd)
scripts=$repository/scripts
missing=0

if command -v flock >/dev/null; then # two runs at once must not unpack over each other
    exec 9>"$runtimes/lock"
    flock 9
fi

say() { printf '%-8s %s\n' "$1" "$2"; }

report_missing() { # name, what to do
    name=$1
    shift
    say "$name" "MISSING: $*" >&2
    missing=1
}

write_wrapper() { # folder, program, its folder: runs FOLDER/root/usr/bin/PROGRAM with the libraries beside it
    where=${3:-usr/bin}
    loader=$(cd "$1" && find root \( -name 'ld-linux*.so.*' -o -name 'ld-*.so.?' \) | sort | head -1)
    libraries=$(cd "$1" && dirname "$(find root -name 'libc.so.6' | sort | head -1)")
    cat >"$1/$2.new" <<WRAPPER
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
exec "\$here/$loader" --library-path "\$here/$libraries" "\$here/root/$where/$2" "\$@"
WRAPPER
    chmod +x "$1/$2.new"
    mv "$1/$2.new" "$1/$2"
}

# --- unix, both word sizes

is_micropython() { # program, bits: is it MicroPython 1.25 or later with that word size?
    [ "$("$1" -c 'import sys
v = sys.implementation
print(v[0], v[1][:2] >= (1, 25), 64 if sys.maxsize >> 31 else 32)' 2>/dev/null)" = "micropython True $2" ]
}

get_unix() { # bits, Debian architecture
    folder=$runtimes/unix$1
    if ! is_micropython "$folder/micropython" "$1"; then
        if "$scripts/fetch-debs.sh" "$folder" trixie "$2" micropython; then
            write_wrapper "$folder" micropython
        elif found=$(command -v micropython) && is_micropython "$found" "$1"; then
            ln -sfn "$found" "$folder/micropython"
        fi
    fi
    if is_micropython "$folder/micropython" "$1"; then
        say "unix$1" "$folder/micropython"
    else
        report_missing "unix$1" "put a $1-bit unix MicroPython >= 1.25 at $folder/micropython" \
            "(Debian 13: apt-get install micropython)"
    fi
}

case $(uname -m) in
aarch64 | arm64) narrow=armhf wide=arm64 ;;
*) narrow=i386 wide=amd64 ;;
esac
if wants unix || wants unix64; then get_unix 64 "$wide"; fi
if wants unix; then get_unix 32 "$narrow"; fi

# --- micro:bit: the emulator, and the firmware, which Debian 13 no longer has

runs() { "$1" --version >/dev/null 2>&1; }

get_microbit() {
    folder=$runtimes/microbit
    emulator=$folder/qemu-system-arm
    firmware=$folder/firmware.hex
    packaged=usr/share/firmware-microbit-micropython/firmware.hex
    if ! runs "$emulator"; then
        if "$scripts/fetch-debs.sh" "$folder" trixie "$wide" qemu-system-arm; then
            write_wrapper "$folder" qemu-system-arm
        elif found=$(command -v qemu-system-arm); then
            ln -sfn "$found" "$emulator"
        fi
    fi
    if ! [ -s "$firmware" ]; then
        if "$scripts/fetch-debs.sh" "$folder/firmware" bookworm "$wide" firmware-microbit-micropython; then
            cp "$folder/firmware/root/$packaged" "$firmware"
        elif [ -r "/$packaged" ]; then
            cp "/$packaged" "$firmware"
        fi
    fi
    if runs "$emulator"; then
        say microbit "$emulator"
    else
        report_missing microbit "install QEMU's qemu-system-arm (Debian: apt-get install qemu-system-arm)"
    fi
    if [ -s "$firmware" ]; then
        say microbit "$firmware"
    else
        report_missing microbit "put Debian's firmware-microbit-micropython at $firmware"
    fi
}
if wants microbit; then get_microbit; fi

get_riscv() {
    folder=$runtimes/riscv
    emulator=$folder/qemu-system-riscv32
    if ! runs "$emulator"; then
        if "$scripts/fetch-debs.sh" "$folder" trixie "$wide" qemu-system-riscv; then
            write_wrapper "$folder" qemu-system-riscv32
        elif found=$(command -v qemu-system-riscv32); then
            ln -sfn "$found" "$emulator"
        fi
    fi
    if runs "$emulator"; then
        say riscv "$emulator"
    else
        report_missing riscv "install QEMU's qemu-system-riscv32"
    fi
}
if wants riscv; then get_riscv; fi

# --- WebAssembly under node

has() { # programs: are all of them on the path, or where Debian keeps servers?
    for program in "$@"; do
        PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || return 1
    done
}

install_packages() { # packages, by apt where that is possible
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] && apt-get -qq update &&
        DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" \
            >"$runtimes/apt.log" 2>&1
}

get_npm() { # name, the folder in the repository with its package-lock.json
    folder=$runtimes/$1
    pinned=$repository/$2
    mkdir -p "$folder"
    has node npm || install_packages nodejs npm || :
    if ! has node npm; then
        report_missing "$1" "install node >= 18 and npm (Debian: apt-get install nodejs npm)"
    else
        if ! cmp -s "$pinned/package-lock.json" "$folder/node_modules/.pinned"; then
            cp "$pinned/package.json" "$pinned/package-lock.json" "$folder/"
            if (cd "$folder" && npm ci --no-audit --no-fund --loglevel=error); then
                cp "$pinned/package-lock.json" "$folder/node_modules/.pinned"
            fi
        fi
        if cmp -s "$pinned/package-lock.json" "$folder/node_modules/.pinned"; then
            say "$1" "$folder/node_modules"
        else
            report_missing "$1" "npm could not install $2/package-lock.json"
        fi
    fi
}
if wants wasm; then get_npm wasm firmware_tests/wasm; fi
if wants schemas; then get_npm schemas scripts/schemas; fi
if wants mqttjs; then get_npm mqttjs scripts/mqttjs; fi

# --- Mosquitto: a broker that is not ours, for the watchdog's fault tests

get_broker() {
    has mosquitto mosquitto_pub || install_packages mosquitto mosquitto-clients || :
    if has mosquitto mosquitto_pub; then
        say broker "$(PATH=$PATH:/usr/sbin command -v mosquitto)"
    else
        report_missing broker "install Mosquitto (Debian: apt-get install mosquitto mosquitto-clients)"
    fi
}
if wants broker; then get_broker; fi

# --- Java, for Spark; Chromium, for the tests of pages

get_java() {
    has java || install_packages openjdk-17-jre-headless || install_packages default-jre-headless || :
    if has java; then
        say java "$(command -v java)"
    else
        report_missing java "install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless)"
    fi
}
if wants java; then get_java; fi

get_browser() {
    has chromium || has chromium-browser || install_packages chromium || :
    if has chromium || has chromium-browser; then
        say browser "$(command -v chromium || command -v chromium-browser)"
    else
        report_missing browser "install Chromium (Debian: apt-get install chromium)"
    fi
}
if wants browser; then get_browser; fi

get_shells() { # whose completion is tested
    for name in zsh fish; do
        has "$name" || install_packages "$name" || :
        if has "$name"; then
            say "$name" "$(command -v "$name")"
        else
            report_missing "$name" "install it (Debian: apt-get install $name)"
        fi
    done
}
if wants shells; then get_shells; fi

# --- Docker's compose, which reads a file without an engine

get_compose() {
    folder=$runtimes/compose
    plugins=usr/libexec/docker/cli-plugins
    if ! "$folder/docker-compose" version >/dev/null 2>&1; then
        if "$scripts/fetch-debs.sh" "$folder" trixie "$wide" docker-compose; then
            write_wrapper "$folder" docker-compose "$plugins"
        elif found=$(command -v docker-compose); then
            ln -sfn "$found" "$folder/docker-compose"
        fi
    fi
    if "$folder/docker-compose" version >/dev/null 2>&1; then
        say compose "$folder/docker-compose"
    else
        report_missing compose "install Docker's compose (Debian 13: apt-get install docker-compose)"
    fi
}
if wants compose; then get_compose; fi

exit "$missing"
