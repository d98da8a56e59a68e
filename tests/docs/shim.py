"""Stands for a program of a page, so that pages with well-known ports run beside anything else.

`python -m tests.docs.shim PROGRAM ARGUMENT ...` runs `denwatch` of this Python, or the PROGRAM that
DENWATCH_PROGRAMS has, on the port that stands for 1883 where the page leaves the port out.
"""

from __future__ import annotations

import os
import sys

NODE_PORT = "DENWATCH_NODE_PORT"
PROGRAMS = "DENWATCH_PROGRAMS"  # name=path, separated by os.pathsep

_ASKS_A_NODE = ("find", "have", "login", "mine", "status", "subscribe")


def add_port(program: str, words: list[str], port: str) -> list[str]:
    """Return the arguments, with the port if there is none."""
    if program.startswith("mosquitto_"):
        return words if "-p" in words else ["-p", port, *words]
    if program != "denwatch" or not words or "--help" in words:
        return words
    url = f"mqtt://127.0.0.1:{port}"
    if words[0] == "node" and "--init" in words and "--listen" not in words:
        return [*words, "--listen", url]
    if words[0] in _ASKS_A_NODE and "--node" not in words:
        return [*words, "--node", url]
    return words


def main() -> None:
    """Become the program."""
    program, *words = sys.argv[1:]
    words = add_port(program, words, os.environ[NODE_PORT])
    if program == "denwatch":
        os.execv(sys.executable, [sys.executable, "-m", "denwatch.cli", *words])
    paths = dict(entry.split("=", 1) for entry in os.environ[PROGRAMS].split(os.pathsep))
    os.execv(paths[program], [program, *words])


if __name__ == "__main__":
    main()
