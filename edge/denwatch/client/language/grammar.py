"""The parser of the words, from tables that were built beforehand: this is the only file that
builds or loads a lark parser.

Building LALR tables from words.lark costs more than all the rest of a compilation, so they are
shipped as words.tables.json, made by `python -m denwatch.client.language.grammar`. They name the
grammar and the lark version that they were made from; if either is another, the parser is built
afresh. Plug-ins add words, never rules, so the tables hold with any plug-ins.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import lark
from denwatch.client.plugins import PluginRegistry
from lark.grammar import Rule
from lark.lexer import TerminalDef

GRAMMAR = Path(__file__).with_name("words.lark")
TABLES = Path(__file__).with_name("words.tables.json")
# Words of the core that may stand before an argument of a plug-in; the grammar has them already.
CORE_PARAMETERS = ("from", "to", "within", "of", "by")
KEYWORD = 2  # the priority of keywords in the grammar
_WIDEST = 1 << 16


def build_parser() -> lark.Lark:
    """Return a parser built from the grammar."""
    return lark.Lark(
        GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
        maybe_placeholders=False,
    )


def digest_grammar() -> str:
    """Return what the tables must say to be those of this grammar and this lark."""
    grammar = hashlib.sha256(GRAMMAR.read_bytes()).hexdigest()
    return f"lark {lark.__version__}, grammar {grammar}"


def dump_tables() -> str:
    """Return the tables as JSON."""
    data, memo = _serialize(build_parser())
    tables = {"of": digest_grammar(), "data": data, "memo": memo}
    return json.dumps(tables, ensure_ascii=True, separators=(",", ":")) + "\n"


def load_tables() -> tuple[dict[str, Any], dict[int, Any]]:
    """Return the shipped tables, or tables built afresh where those are of something else."""
    try:
        tables = json.loads(TABLES.read_text(encoding="utf-8"))
    except FileNotFoundError:
        tables = {}
    if tables.get("of") != digest_grammar():
        return _serialize(build_parser())
    data = tables["data"]
    automaton = data["parser"]["parser"]
    # JSON has no integer keys.
    automaton["tokens"] = {int(key): token for key, token in automaton["tokens"].items()}
    automaton["states"] = {
        int(state): {int(token): action for token, action in actions.items()}
        for state, actions in automaton["states"].items()
    }
    return data, {int(key): value for key, value in tables["memo"].items()}


def load_parser(registry: PluginRegistry) -> lark.Lark:
    """Return the parser with the words of the registry's plug-ins; the core's own go first."""
    return _load(*registry.words)


@lru_cache(maxsize=8)
def _load(extensions: Sequence[str], parameters: Sequence[str]) -> lark.Lark:
    data, memo = load_tables()
    terminals = {entry["name"]: entry for entry in memo.values() if "pattern" in entry}
    core = [
        re.compile(entry["pattern"]["value"], re.IGNORECASE)
        for name, entry in terminals.items()
        if entry["priority"] == KEYWORD and name not in ("EXTENSION", "PARAMETER")
    ]
    free_parameters = [word for word in parameters if word not in CORE_PARAMETERS]
    for name, phrases in (("EXTENSION", extensions), ("PARAMETER", free_parameters)):
        # What the core says already keeps its meaning: "from 40 to 50" is a range.
        free = [phrase for phrase in phrases if not any(word.match(phrase) for word in core)]
        if free:
            longest_first = sorted(free, key=lambda phrase: (-len(phrase), phrase))
            choices = [r"\s+".join(map(re.escape, phrase.split())) for phrase in longest_first]
            value = rf"(?:{'|'.join(choices)})(?!\w)"
            terminals[name]["pattern"] |= {"value": value, "raw": None, "_width": [1, _WIDEST]}
    load: Callable[..., lark.Lark] = lark.Lark._load_from_dict  # as lark's stand-alone parsers do
    return load(data, memo)


def _serialize(parser: lark.Lark) -> tuple[dict[str, Any], dict[int, Any]]:
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    return data, memo


if __name__ == "__main__":
    TABLES.write_text(dump_tables(), encoding="utf-8")
