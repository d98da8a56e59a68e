#!/bin/sh
# What a newcomer meets: clone this repository into an empty folder with an empty HOME, then run the
# commands of README.md as they stand, and its tour, and compare what they print.
#
# usage: fresh-clone.sh [--first COMMAND]... [FOLDER]
#
# COMMANDs run in the clone before the page, and are left out of it: CI has its checks done there, so
# that one set-up serves both. FOLDER (a temporary one by default) gets clone/ and home/ and is removed
# at the end unless it was named. Only pip's cache is shared with the caller, because downloads are
# nobody's first impression.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
folder=
count=$#
while [ "$count" -gt 0 ]; do # the commands stay in "$@", a folder is ours
    case $1 in
        --first)
            set -- "$@" "$2"
            shift 2
            count=$((count - 2))
            ;;
        -*)
            echo "fresh-clone: $1? usage: fresh-clone.sh [--first COMMAND]... [FOLDER]" >&2
            exit 2
            ;;
        *)
            folder=$1
            shift
            count=$((count - 1))
            ;;
    esac
done

cache=$(python3 -m pip cache dir 2>/dev/null || true)
if [ -z "$folder" ]; then
    folder=$(mktemp -d)
    chmod 755 "$folder" # tests let other users read the clone
    trap 'rm -rf "$folder"' EXIT
else
    mkdir -p "$folder"
    [ -z "$(ls -A "$folder")" ] || { echo "fresh-clone: $folder is not empty" >&2; exit 2; }
fi
mkdir "$folder/home"
git -c safe.directory='*' clone --quiet "$repository" "$folder/clone"
cd "$folder/clone"

# Nothing of the caller's denwatch, Python or numba may help.
export HOME="$folder/home"
unset DENWATCH_CACHE NUMBA_CACHE_DIR PYTHONPATH VIRTUAL_ENV XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
[ -z "$cache" ] || export PIP_CACHE_DIR="$cache"

count=$#
while [ "$count" -gt 0 ]; do
    echo "\$ $1"
    sh -c "$1"
    set -- "$@" --without "$1"
    shift
    count=$((count - 1))
done

# The page is run by the clone's own Python, which its set-up makes; both commands do that by
# themselves, and `make demo` is run again below as the page has it.
make .venv/.done
.venv/bin/denwatch --version
.venv/bin/python -m tests.docs --here "$@" README.md
