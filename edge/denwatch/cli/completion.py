"""`denwatch completion`: shells complete commands, actions, options, their values and files.

The script for a shell asks `denwatch completion words -- WORD...` at every TAB; the last word is
the one to complete. The answer comes from the parser of the one command on the line, so that it is
never out of date, and only that command is imported.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from denwatch.cli import common
from denwatch.cli.errors import WRONG_USAGE, CommandError

_DESCRIPTION = """
Prints a script for your shell. Afterwards TAB completes commands, actions, options, the names of
profiles and vocabularies, and files."""
_EXAMPLES = """
denwatch completion bash >> ~/.bashrc
denwatch completion zsh >> ~/.zshrc                           (after compinit)
denwatch completion fish > ~/.config/fish/completions/denwatch.fish"""

# A word that ends with "/" or that says <file> makes the shell offer files.
_SCRIPTS = {
    "bash": """\
_denwatch() {
    local line files=
    COMPREPLY=()
    while IFS= read -r line; do
        if [ "$line" = "<file>" ]; then files=1; else COMPREPLY+=("$line"); fi
    done < <(denwatch completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ -n "$files" ]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r line; do COMPREPLY+=("$line"); done \\
            < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
    fi
}
complete -F _denwatch denwatch
""",
    "zsh": """\
#compdef denwatch
_denwatch() {
    local -a found
    found=("${(@f)$(denwatch completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if (( ${found[(Ie)<file>]} )); then _files; fi
    found=("${(@)found:#<file>}")
    found=("${(@)found:#}")
    (( $#found )) && compadd -- "${found[@]}"
}
compdef _denwatch denwatch
""",
    "fish": """\
function __denwatch_words
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    for word in (denwatch completion words -- $words 2>/dev/null)
        if test "$word" = "<file>"
            __fish_complete_path (commandline -ct)
        else
            echo $word
        end
    end
end
complete -c denwatch -f -a '(__denwatch_words)'
""",
}
_FILE = "<file>"
_FILES = ("FILE", "FOLDER", "DIR", "DIRECTORY", "LOGS", "config", "file", "PROGRAM")


def run(argv: list[str]) -> int:
    """Print a script, or the words that may come next."""
    summary = "Print what makes a shell complete denwatch."
    parser = common.build_parser("completion", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("shell", help="bash, zsh or fish", choices=[*_SCRIPTS, "words"])
    parser.add_argument("word", nargs="*", help="with `words`: the line so far")
    arguments = parser.parse_args(argv)
    if arguments.shell == "words":
        print(*complete(arguments.word or [""]), sep="\n")
    elif arguments.word:
        raise CommandError(f"{arguments.shell} takes no words", WRONG_USAGE)
    else:
        print(_SCRIPTS[arguments.shell], end="")
    return 0


def complete(words: list[str]) -> list[str]:
    """Return what the last of these words may become."""
    from denwatch.cli import COMMANDS, load_command

    *before, begun = words
    if before[:1] == ["help"]:
        before = before[1:]
    if not before:
        return [name for name in (*sorted(COMMANDS), "help", "--version") if name.startswith(begun)]
    if before[0] not in COMMANDS:
        return []
    parser: argparse.ArgumentParser = common.intercept_parser(load_command(before[0]))
    places = 0  # how many positional arguments there were
    pending: argparse.Action | None = None  # an option that wants a value
    for word in before[1:]:
        if pending is not None:
            pending = None
        elif word.startswith("-"):
            pending = _find_option(parser, word)
        elif (inner := _find_actions(parser)) and word in inner:
            parser, places = inner[word], 0
        else:
            places += 1
    if pending is not None:
        return [*_list_values(pending, begun)]
    if begun.startswith("-"):
        names = [name for action in parser._actions for name in action.option_strings]
        return sorted({name for name in names if name.startswith(begun) and name.startswith("--")})
    places_left = [action for action in parser._actions if not action.option_strings][places:]
    return [*_list_values(places_left[0], begun)] if places_left else []


def _find_option(parser: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """Return the option, if a value follows it as another word."""
    for action in parser._actions:
        if word in action.option_strings and action.nargs != 0:
            return action
    return None


def _find_actions(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _list_values(action: argparse.Action, begun: str) -> Iterator[str]:
    """Yield the values of an option or argument that begin so."""
    known: Iterable[str] = map(str, action.choices or ())
    if action.dest in ("profile", "which", "name") and not action.choices:
        from denwatch.cli.profile import Profiles

        entries = Profiles().entries
        known = [entry["as"] for entry in entries.values()] if action.dest == "name" else entries
    elif action.dest == "vocabulary":
        from denwatch.client.vocabulary.loading import SHIPPED

        known = SHIPPED
    yield from sorted({word for word in known if word.startswith(begun)})
    if (
        str(action.metavar or action.dest).partition("|")[0] in _FILES
        or action.dest == "vocabulary"
    ):
        yield _FILE
