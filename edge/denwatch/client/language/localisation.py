"""What a human language brings: everyday words, endings, units, numbers, messages. One file each.

`locales/<code>.toml` is all there is to a language; `locales/common.toml` is what holds in all of
them. Only this file reads them. `Lexicon` is a language together with a vocabulary: every phrase
that can be understood, with what it may mean there. It is built once for a vocabulary.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Any

from denwatch.client.vocabulary import Attribute, Vocabulary
from denwatch.client.vocabulary.values import UnitError, find_unit

DEFAULT = "en"
_FOLDER = resources.files("denwatch.client.language") / "locales"
_SPELLINGS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "\u2019": "'"})
_FIELD = re.compile(r"\{\{(.+?)\}\}")  # of a page without scripts
_PART = re.compile(r"[^\W_]+(?:'[^\W_]+)*'?|[^\w\s]+")
_SHORTEST = 3  # letters that an ending leaves
_SHORTEST_STEM = 4  # letters that two words must share if both lose an ending: "pules" is no Puls
_MOST_ENDINGS = 2  # "bewusstlos-e", where the "s" looks like one
_MODES = (">>", ">", "|")  # taken without a word, taken and said, asked


@dataclass(frozen=True)
class Locale:
    """A human language: its code and its tables."""

    code: str
    tables: Mapping[str, Any] = field(repr=False, hash=False, compare=False)

    @cached_property
    def messages(self) -> Mapping[str, str]:
        """The sentences of everyday words, by their key."""
        return dict(self.tables["message"])

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str]]:
        """The other sentences: how they are in English, and here."""
        found = []
        for english, own in self.tables.get("translation", {}).items():
            pattern = "(.+?)".join(re.escape(part) for part in english.split("{}"))
            found.append((re.compile(pattern, re.DOTALL), own))
        return found

    def say(self, key: str, *parts: object) -> str:
        """Return a sentence with its parts put in."""
        return self.messages[key].format(*parts)

    def translate(self, message: str) -> str:
        """Return a message in this language; as it is where no translation fits."""
        for pattern, own in self._patterns:
            match = pattern.fullmatch(message)
            if match:
                return own.format(*(self.translate(part) for part in match.groups()))
        return message

    def fill(self, page: str, fields: Mapping[str, str]) -> str:
        """Return a page in this language: {{what}} is a field, or a text to be translated."""

        def write(found: re.Match[str]) -> str:
            what = found[1]
            return fields[what] if what in fields else self.translate(what)

        return _FIELD.sub(write, page)


def choose_locale(chosen: str, accepted: str) -> str:
    """Return the code of the language that was chosen, or that Accept-Language prefers."""
    wanted = [chosen, *(part.strip()[:2].lower() for part in accepted[:200].split(","))]
    return next((code for code in wanted if code in list_locales()), DEFAULT)


@cache
def load_locale(code: str) -> Locale:
    """Return a language by its code; KeyError if there is no such file."""
    path = _FOLDER / f"{code}.toml"
    if code not in list_locales():
        raise KeyError(code)
    return Locale(code, tomllib.loads(path.read_text(encoding="utf-8")))


@cache
def list_locales() -> tuple[str, ...]:
    """Return the codes of all languages, the default first."""
    names = sorted(file.name.removesuffix(".toml") for file in _FOLDER.iterdir())
    codes = [name for name in names if name not in ("common", DEFAULT)]
    return (DEFAULT, *codes)


@cache
def _load_common() -> Mapping[str, Any]:
    return tomllib.loads((_FOLDER / "common.toml").read_text(encoding="utf-8"))


@cache
def load_severities() -> tuple[frozenset[str], frozenset[str]]:
    """Return the terms and symbols that stand for danger, and those that say that all is well."""
    table = _load_common()["severity"]
    return frozenset(table["danger"]), frozenset(table["well"])


def fold_text(text: str) -> str:
    """Return a text as phrases are compared: small letters, umlauts as two."""
    return text.casefold().translate(_SPELLINGS)


def split_phrase(text: str) -> tuple[str, ...]:
    """Return the parts of a phrase or name: words without blanks, hyphens and underscores."""
    return tuple(_PART.findall(fold_text(text).replace("-", " ").replace("_", " "))) or (text,)


@dataclass(frozen=True)
class PhraseChoice:
    """One thing that a phrase may mean: exactly one of the fields but `comparison` is set."""

    event: str = ""
    attribute: str = ""  # a path
    term: str = ""  # of the attribute, then `attribute` is set too; "not normal" is allowed
    condition: str = ""
    comparison: str = ""  # goes with the attribute: "above"


@dataclass
class PhraseEntry:
    """What a phrase may be: keywords of the language, a unit, a number, things, terms."""

    keywords: list[str] = field(default_factory=list)
    units: tuple[str, ...] = ()
    number: float | None = None
    choices: tuple[PhraseChoice, ...] = ()
    mode: str = ""  # of the choices, one of _MODES
    terms: dict[str, str] = field(default_factory=dict)  # by path of the attribute


class Lexicon:
    """The phrases of a language with a vocabulary."""

    def __init__(self, locale: Locale, vocabulary: Vocabulary) -> None:
        self.locale = locale
        self.vocabulary = vocabulary
        self.attributes = {a.path: a for a in vocabulary.iterate_attributes()}
        common = _load_common()
        self.presence: Mapping[str, list[str]] = common.get(vocabulary.name, {}).get("presence", {})
        self.measures: Mapping[str, str] = common.get(vocabulary.name, {}).get("measure", {})
        self.ends: Mapping[str, list[str]] = common["ends"]
        self.places: list[str] = common["places"]
        self._entries: dict[tuple[str, ...], PhraseEntry] = {}
        self._stems: dict[tuple[str, ...], tuple[str, ...]] = {}  # to the phrase as it is written
        self.endings = [fold_text(ending) for ending in locale.tables.get("endings", ())]
        self._add_language(locale.tables)
        self._add_names()
        own = {**locale.tables["vocabulary"].get(vocabulary.name, {})}
        own.update(vocabulary.labels.get(locale.code, {}))
        self._add_things(own)
        for key in self._entries:
            self._stems.setdefault(self._strip(key), key)
        self.longest = max(map(len, self._entries))

    def find(self, parts: tuple[str, ...]) -> PhraseEntry | None:
        """Return what a phrase may be; its endings may differ."""
        known = self._entries.get(parts)
        if known is not None:
            return known
        stem = self._strip(parts)
        written = self._stems.get(stem)
        if written is None:
            return None
        is_same = all(
            part in (own, said) or len(part) >= _SHORTEST_STEM
            for part, own, said in zip(stem, written, parts, strict=True)
        )
        return self._entries[written] if is_same else None

    def list_words(self) -> Iterator[str]:
        """Yield every word that means a thing or a term: for suggestions."""
        for parts, entry in self._entries.items():
            if entry.choices or entry.terms:
                yield " ".join(parts)

    def list_doubtful(self) -> dict[str, tuple[PhraseChoice, ...]]:
        """Return the names that mean another thing, too, which must be said."""
        return {
            "_".join(parts): entry.choices
            for parts, entry in self._entries.items()
            if entry.mode == ">"
        }

    def find_label(self, path: str) -> str:
        """Return what people call an attribute: its first word in this language."""
        own = {
            **self.locale.tables["vocabulary"].get(self.vocabulary.name, {}),
            **self.vocabulary.labels.get(self.locale.code, {}),
        }
        name = path.partition(".")[2].replace("_", " ")
        return next((w for w, t in own.items() if t.split(" ")[0] == path), name)

    def find_term_label(self, path: str, term: str) -> str:
        """Return what people call a term of an attribute: its first word, after "not" or "very"."""
        for hedge, keyword in (("not ", "not"), ("very_", "very")):
            if term.startswith(hedge):
                word = self.locale.tables["keyword"][keyword][0]
                return f"{word} {self.find_term_label(path, term.removeprefix(hedge))}"
        for phrase, wanted in self.locale.tables["adjective"].items():
            if self._find_term(self.attributes[path], wanted) == term:
                return str(phrase)
        return term.replace("_", " ")

    def find_end(self, path: str, direction: str) -> str | None:
        """Return the attribute's term at its upper or lower end."""
        attribute = self.attributes[path]
        return next((term for term in self.ends[direction] if term in attribute.terms), None)

    def name_attribute(self, path: str) -> str:
        """Return the shortest name by which the grammar finds an attribute."""
        name = path.partition(".")[2]
        is_unique = sum(other.endswith(f".{name}") for other in self.attributes) == 1
        return name if is_unique else path

    def _strip(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self._strip_word(part) for part in parts)

    def _strip_word(self, word: str) -> str:
        for _ in range(_MOST_ENDINGS):
            for ending in self.endings:
                if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
                    word = word.removesuffix(ending)
                    break
        return word

    def _entry(self, phrase: str) -> PhraseEntry:
        return self._entries.setdefault(split_phrase(phrase), PhraseEntry())

    def _add_language(self, tables: Mapping[str, Any]) -> None:
        for keyword, phrases in tables["keyword"].items():
            for phrase in phrases:
                self._entry(phrase).keywords.append(keyword)
        for phrase, units in tables["unit"].items():
            self._entry(phrase).units = tuple(units)
        for phrase, number in tables["number"].items():
            self._entry(phrase).number = float(number)
        for phrase, terms in tables["adjective"].items():
            meant = self._entry(phrase).terms
            for path, attribute in self.attributes.items():
                term = self._find_term(attribute, terms)
                if term:
                    meant.setdefault(path, term)

    def _find_term(self, attribute: Attribute, wanted: Iterable[str]) -> str:
        """Return the first of some terms that an attribute has, "" for none."""
        known = (*attribute.symbols, *attribute.terms)
        for each in wanted:
            term = each
            if term.startswith("@"):
                found = self.find_end(attribute.path, term[1:])
                if found:
                    return found
                continue
            term, _, unit = term.partition("@")
            if unit and attribute.unit != unit:
                continue
            if term.removeprefix("not ").removeprefix("very ") in known:
                return term
        return ""

    def _add_names(self) -> None:
        """Add the vocabulary's own names, and the synonyms of its organisations."""
        for event in self.vocabulary.events:
            self._entry(event).choices = (PhraseChoice(event=event),)
        for path, attribute in self.attributes.items():
            entry = self._entry(attribute.name)
            entry.choices = (
                *(c for c in entry.choices if c.attribute),
                PhraseChoice(attribute=path),
            )
            entry.mode = "|"
            for term in (*attribute.symbols, *attribute.terms):
                self._entry(term).terms[path] = term
        targets: dict[str, list[str]] = {}
        for synonym in self.vocabulary.thesaurus.entries:
            if synonym.organisation == self.vocabulary.organisation:
                targets.setdefault(synonym.word, []).insert(0, synonym.target)
        for synonym in self.vocabulary.thesaurus.entries:
            targets.setdefault(synonym.word, []).append(synonym.target)
        for word, paths in targets.items():
            own = paths[:1] if self.vocabulary.organisation else paths
            self._set(word, [self._read_target(path) for path in own], "|")

    def _add_things(self, words: Mapping[str, Any]) -> None:
        for word, target in words.items():
            mode = next((mode for mode in _MODES if f" {mode} " in target), "|")
            self._set(word, [self._read_target(t.strip()) for t in target.split(f" {mode} ")], mode)

    def _set(self, word: str, choices: list[PhraseChoice], mode: str) -> None:
        entry = self._entry(word)
        entry.choices, entry.mode = tuple(dict.fromkeys(choices)), mode
        for choice in choices:
            if choice.term:
                entry.terms[choice.attribute] = choice.term

    def _read_target(self, target: str) -> PhraseChoice:
        path, _, rest = target.partition(" ")
        if target in self.vocabulary.events:
            return PhraseChoice(event=target)
        if target in self.attributes:
            return PhraseChoice(attribute=target)
        if path in self.attributes and rest in ("above", "below", "at least", "at most"):
            return PhraseChoice(attribute=path, comparison=rest)
        if not rest and target.rpartition(".")[0] in self.attributes:
            attribute, _, term = target.rpartition(".")
            return PhraseChoice(attribute=attribute, term=term)
        return PhraseChoice(condition=target)


def find_dimension(unit: str) -> str:
    """Return what a unit measures, "" if there is no such unit."""
    try:
        return find_unit(unit).dimension
    except UnitError:
        return ""


@lru_cache(maxsize=32)
def _build(code: str, content: str, organisation: str | None, holder: _Holder) -> Lexicon:
    del content, organisation
    return Lexicon(load_locale(code), holder.vocabulary)


class _Holder:
    """A vocabulary that does not count in the key of the memo: its content hash does."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Holder)


def load_lexicon(code: str, vocabulary: Vocabulary) -> Lexicon:
    """Return the lexicon of a language and a vocabulary; remembered."""
    return _build(code, vocabulary.hash, vocabulary.organisation, _Holder(vocabulary))
