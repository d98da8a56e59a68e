"""Runs test files on the WebAssembly port of MicroPython, under node.

Only this file starts node. The runtime has a file system in memory: the repository's Python files
that a device test may import are copied into it by `wasm/run.mjs`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from firmware_tests.device_files import AREAS
from firmware_tests.outcome import Outcome, read_outcome
from firmware_tests.runtimes import LIBRARY, REPOSITORY, find_wasm

TIME_LIMIT = 600

_RUN = Path(__file__).resolve().parent / "wasm" / "run.mjs"


def run_code(code: str, root: Path = REPOSITORY) -> tuple[str, int]:
    """Run a program that sets `exit_code`; (output, exit code)."""
    node, micropython = find_wasm()
    job = {
        "micropython": str(micropython),
        "files": dict(_list_files(root)),
        "path": ["/lib", "/code"],
        "code": code,
    }
    try:
        done = subprocess.run(
            [str(node), str(_RUN), json.dumps(job)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return f"{_decode(error.stdout)}\nstopped after {TIME_LIMIT} s", 1
    return _decode(done.stdout), done.returncode


def run_module(module: str, root: Path = REPOSITORY) -> Outcome:
    """Run one test file by its dotted name, for example `tests.protocol.test_fuzzify`."""
    code = "import sys, unittest\n"
    if (root / "tests" / "protocol" / "aes.py").exists():  # this runtime has no cryptolib
        code += "import tests.protocol.aes\n"
        code += "sys.modules['cryptolib'] = sys.modules['tests.protocol.aes']\n"
    code += (
        f"program = unittest.main({module!r}, exit=False)\n"
        "exit_code = 0 if program.result.wasSuccessful() else 1\n"
    )
    return read_outcome(*run_code(code, root))


def read_version() -> str:
    """Return for example `1.27`."""
    code = "import sys; print('%d.%d' % sys.implementation.version[:2]); exit_code = 0"
    return run_code(code)[0].strip()


def _list_files(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (path inside the runtime, path outside) of every Python file that it gets."""
    for path in sorted(LIBRARY.glob("*.py")):
        yield f"/lib/{path.name}", str(path)
    yield "/code/tests/__init__.py", str(root / "tests" / "__init__.py")
    for area, package in AREAS.items():
        for folder, place in (
            (root / package, f"denwatch/{area}"),
            (root / "tests" / area, f"tests/{area}"),
        ):
            for path in sorted(folder.rglob("*.py")):
                yield f"/code/{place}/{path.relative_to(folder).as_posix()}", str(path)


def _decode(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", "replace")
