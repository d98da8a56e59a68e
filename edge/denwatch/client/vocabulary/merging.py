"""Two vocabularies into one, or a clear error at the first thing they disagree on.

What both say alike is fine; what only one says is taken over. Nothing is ever renamed or renumbered
silently: vectors on the air carry numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from denwatch.client.errors import LanguageError
from denwatch.client.plugins import PluginRegistry
from denwatch.client.vocabulary.loading import build_vocabulary
from denwatch.client.vocabulary.thesaurus import fold_name
from denwatch.client.vocabulary.vocabulary import Vocabulary

_LISTS = ("event", "attribute", "terms", "recent")


def merge_vocabularies(
    first: Vocabulary,
    second: Vocabulary,
    name: str | None = None,
    registry: PluginRegistry | None = None,
) -> Vocabulary:
    """Return a vocabulary that says what both say; its name is "first+second" unless given."""
    document = _merge(dict(first.document), dict(second.document), "", first.name, second.name)
    document["name"] = name if name is not None else f"{first.name}+{second.name}"
    texts = dict.fromkeys(text for text in (first.description, second.description) if text)
    if texts:
        document["description"] = "; ".join(texts)
    _check_synonyms(document.get("thesaurus", {}))
    try:
        return build_vocabulary(document, registry)
    except LanguageError as error:
        raise LanguageError(
            f"{first.name} and {second.name} do not go together: {error.message}"
        ) from None


def _merge(
    first: Mapping[str, Any], second: Mapping[str, Any], path: str, one: str, other: str
) -> dict[str, Any]:
    """Return both tables in one."""
    for has, lacks, owner in ((first, second, one), (second, first, other)):
        for key in has:
            if key not in lacks and not _may_add(path, key):
                raise LanguageError(f"conflict at {path}.{key}: only {owner} has it")
    merged = dict(first)
    for key, value in second.items():
        where = f"{path}.{key}" if path else key
        if key not in merged:
            merged[key] = value
        elif isinstance(value, dict) and isinstance(merged[key], dict) and not _is_term(path):
            merged[key] = _merge(merged[key], value, where, one, other)
        elif merged[key] != value and where not in ("name", "description"):
            raise LanguageError(
                f"conflict at {where}: {one} says {merged[key]!r}, {other} says {value!r}"
            )
    return merged


def _may_add(path: str, key: str) -> bool:
    """Return whether a key may be on one side only: things that are listed, and descriptions."""
    parts = path.split(".")
    listed = not path or parts[-1] in _LISTS or parts[0] == "thesaurus"
    return listed or key in ("terms", "description")


def _is_term(path: str) -> bool:
    return path.endswith(".terms")


def _check_synonyms(thesaurus: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse one organisation's word with two meanings, however it is written."""
    for organisation, words in thesaurus.items():
        seen: dict[str, tuple[str, str]] = {}
        for word, target in words.items():
            known = seen.setdefault(fold_name(word), (word, target))
            if known[1] != target:
                raise LanguageError(
                    f'conflict at thesaurus.{organisation}: "{known[0]}" is {known[1]}, '
                    f'"{word}" is {target}'
                )
