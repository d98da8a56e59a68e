#!/bin/sh
# Pin what set-up installs, every file with its hash, into requirements/: `make lock` calls it.
# One lock serves all platforms and Python versions that pyproject.toml allows. Versions that are
# pinned already stay, unless --upgrade is given.
set -eu
cd "$(dirname "$0")/.."
lock() { # name, then the arguments that say what is in it
    name=$1
    shift
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url "$@" --output-file "requirements/$name.txt"
    echo "lock: requirements/$name.txt has $(grep -c '^[a-zA-Z]' "requirements/$name.txt") packages"
}
upgrade=${1:-}
mkdir -p requirements
# What builds the rest: setuptools, and the two that hnswlib, which has no wheels, is built with.
printf '%s\n' 'setuptools>=77,<81' 'numpy>=2.2,<3' pybind11 | lock build ${upgrade:+"$upgrade"} -
lock dev ${upgrade:+"$upgrade"} --constraint requirements/build.txt --extra dev pyproject.toml
lock image ${upgrade:+"$upgrade"} --constraint requirements/dev.txt \
    --extra node --extra spark --extra console pyproject.toml # what docker/Dockerfile installs
lock node ${upgrade:+"$upgrade"} --constraint requirements/dev.txt --extra node pyproject.toml
lock docs ${upgrade:+"$upgrade"} --constraint requirements/dev.txt --extra docs pyproject.toml
lock fuzz ${upgrade:+"$upgrade"} --constraint requirements/dev.txt --extra fuzz pyproject.toml
