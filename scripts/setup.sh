#!/bin/sh
# Make .venv with everything that tests, demo and benchmarks need. Called by make; safe to repeat.
# Uses the first Python >= 3.11 with venv; installs it with apt where that is possible.
# Everything is pinned with hashes in requirements/ (`make lock`). DENWATCH_SET chooses dev (the
# default), image, which has no test tools, or node: what a node and the demo need.
set -eu
cd "$(dirname "$0")/.."

find_python() { # prints a Python that can make the .venv
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return 0
        fi
    done
    return 1
}

if ! python=$(find_python); then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing Python with apt" >&2
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
            python3 python3-venv python3-dev gcc g++ >/dev/null
        python=$(find_python) || true
    fi
    if [ -z "${python:-}" ]; then
        echo "setup: Python 3.11 or later with venv is missing." >&2
        echo "setup: on Debian or Ubuntu: sudo apt-get install python3 python3-venv python3-dev g++" >&2
        exit 1
    fi
fi

if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi
set=${DENWATCH_SET:-dev}
case $set in
node) time="half a minute" ;;
*) time="a few minutes" ;;
esac
echo "setup: installing packages into .venv ($time the first time)"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
install() { .venv/bin/python -m pip install -q "$@"; }
# A lock is complete, so pip need not resolve anything. Without isolation a package that has to be
# built here is built by the setuptools that was just checked; a node's packages are all wheels.
if [ "$set" = node ]; then
    install --require-hashes --no-deps -r requirements/build.txt -r requirements/node.txt
else
    install --require-hashes -r requirements/build.txt
    install --require-hashes --no-deps --no-build-isolation -r "requirements/$set.txt"
fi
install --no-deps --no-build-isolation -e .
echo "setup: done"
