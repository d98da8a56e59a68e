"""The command `denwatch`: finds a sub-command and runs it.

A sub-command is a string "file:function", imported only when it is called, so that
`denwatch compile` does not wait for what `denwatch node` needs. Each takes its arguments and
returns an exit status.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, TextIO

from denwatch.cli.errors import EXIT_STATUS, INTERRUPTED, WRONG_USAGE, CommandError


class Command(NamedTuple):
    """A sub-command's function, and a summary."""

    path: str
    summary: str


COMMANDS = {
    "login": Command("profile:run_login", "log in once, so that other commands need no login"),
    "profile": Command("profile:run_profile", "list, show, use and remove logins"),
    "doctor": Command("doctor:run", "say what is wrong with this machine, a node or a device"),
    "completion": Command("completion:run", "print what makes a shell complete denwatch"),
    "compile": Command(
        "compile:run_compile", "compile a subscription to the bytes a device evaluates"
    ),
    "explain": Command("compile:run_explain", "explain the bytes of a vector in words and values"),
    "plot": Command("plot:run", "draw membership functions, ideal and quantised"),
    "vocabulary": Command(
        "vocabulary:run", "make, list, show, search, check, merge, import vocabularies"
    ),
    "device": Command("device:run", "configure a watchdog, compile it for a board, install it"),
    "watchdog": Command("watchdog:run", "run a watchdog on this machine"),
    "bridge": Command("bridge:run", "bring devices without a network to their nodes"),
    "node": Command("node:run", "make or run a DENS node"),
    "keys": Command("keys:run", "manage names, keys and certificates of a site"),
    "subscribe": Command("subscribe:run", "subscribe in words, and see what matches"),
    "alert": Command("alert:run", "send on what is delivered, by webhook, ntfy, mail and the like"),
    "find": Command("find:run", "find who can measure or report something"),
    "have": Command("mine:run_have", "say that you have something, and see who has what"),
    "mine": Command("mine:run", "list, change, mute and end all of your subscriptions"),
    "publish": Command("publish:run", "send a reading as a device would"),
    "console": Command("console:run", "serve a web page for subscribing"),
    "status": Command("status:run", "show the state of the nodes"),
    "analyze": Command("spark:run_analyze", "analyse all nodes' logs on Spark, and write a report"),
    "stream": Command("spark:run_stream", "analyse all nodes' logs on Spark, as they grow"),
    "sql": Command("spark:run_sql", "query all nodes' logs in SQL"),
    "trace": Command("spark:run_trace", "follow one notification through all nodes' logs"),
}

_USAGE = "usage: denwatch COMMAND [ARGUMENT ...]"
_HELP = ("-h", "--help", "help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) > 1 and arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in _HELP:
        print_help(sys.stdout if arguments else sys.stderr)
        return 0 if arguments else WRONG_USAGE
    if arguments[0] in ("-V", "--version"):
        from denwatch.client.version import find_commit, find_version

        commit = find_commit()
        print(f"denwatch {find_version()}" + (f" ({commit})" if commit else ""))
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        print(f'denwatch: no command "{name}"{suggest(name)}\n{_USAGE}', file=sys.stderr)
        return WRONG_USAGE
    try:
        return load_command(name)(arguments[1:])
    except CommandError as error:
        print(f"denwatch {name}: {error}", file=sys.stderr)
        if "--json" in arguments:  # a program that reads it learns as much
            print(json.dumps({"ok": False, "error": str(error), "status": error.status}))
        return error.status
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def load_command(name: str) -> Callable[[list[str]], int]:
    """Import a sub-command."""
    module, _, function = COMMANDS[name].path.partition(":")
    found = importlib.import_module(f"denwatch.cli.{module}")
    command: Callable[[list[str]], int] = getattr(found, function)
    return command


def print_help(stream: TextIO) -> None:
    """Print all commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in sorted(COMMANDS.items())]
    about = "denwatch - approximate publish/subscribe for networks that are mostly broken"
    usage = f"{_USAGE}\n       denwatch help COMMAND"
    print(about, usage, "\n".join(["commands:", *lines]), EXIT_STATUS, sep="\n\n", file=stream)


def suggest(name: str) -> str:
    """Return "; did you mean ...?" if a command is spelled alike."""
    import difflib

    found = difflib.get_close_matches(name, COMMANDS, n=1)
    return f'; did you mean "{found[0]}"?' if found else ""
