"""From whatever a person wrote to a compiled subscription: `understand("patients with fever", v)`.

The grammar goes first, and what it reads stays as it is. Else everyday words are read (`everyday`),
in each language, and become a sentence of the grammar. Only this file decides what an ambiguous
word is taken for, and it says so; what is not understood is refused, with sentences that compile.

A word with several meanings keeps those that compile, then those of the event that is spoken of,
then those that devices here sense and the subscriber may see (`Vocabulary.present`). If its table
says that one goes first, that is taken and said (`notes`); else the person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product, zip_longest
from typing import Any

from denwatch.client import plugins, syntax
from denwatch.client.compiler import CompiledSubscription, compile_subscription
from denwatch.client.compiler.stories import CompiledStory, compile_story
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import detect_surface, parse
from denwatch.client.language.everyday import (
    EverydayReading,
    ReadingTrouble,
    SpokenAlternative,
    SpokenPredicate,
    list_predicates,
    read_everyday,
    write_sentence,
)
from denwatch.client.language.localisation import (
    DEFAULT,
    Lexicon,
    Locale,
    fold_text,
    list_locales,
    load_lexicon,
    split_phrase,
)
from denwatch.client.language.stories import StoryTree, is_story, print_story
from denwatch.client.language.story_surfaces import parse_any_story
from denwatch.client.language.words_printer import print_words
from denwatch.client.vocabulary import EventType, ValueKind, Vocabulary, fold_name

MOST_HINTS = 4
_MOST_CHARACTERS = 1_000  # of everyday words
_MOST_COMBINATIONS = 48  # of alternatives, each costs a compilation
_MOST_UNKNOWN = 5  # words that are looked up by spelling
_MOST_GUESSES = 16  # of hints that are tried
_MISSING = ("which_condition", "no_such_term", "hedge")
_PROBE = "x is y"  # a condition before options


@dataclass(frozen=True)
class Understood:
    """A subscription as it was understood.

    `words` are the person's own if the grammar reads them, else the sentence that they stand for
    (`is_restated`). `notes` say what ambiguous words were taken for, in the person's language; of
    words that were restated the first says as what.
    """

    tree: syntax.SubscriptionTree
    compiled: CompiledSubscription
    words: str
    is_restated: bool = False
    notes: tuple[str, ...] = ()
    language: str = DEFAULT


@dataclass
class _Settings:
    """How a sentence is compiled."""

    vocabulary: Vocabulary
    registry: plugins.PluginRegistry | None
    handle: int
    compact: bool
    language: str | None = None

    def compile(self, text: str) -> tuple[syntax.SubscriptionTree, CompiledSubscription]:
        """Compile what the grammar reads; LanguageError says what is wrong."""
        tree = parse(text, self.registry)
        return tree, compile_subscription(
            tree,
            self.vocabulary,
            registry=self.registry,
            handle=self.handle,
            compact=self.compact,
        )

    def can_compile(self, text: str) -> bool:
        """Return whether a sentence compiles, or the story that it tells."""
        try:
            if is_story(text):
                understand_story(text, self.vocabulary, language=self.language)
            else:
                self.compile(text)
        except (LanguageError, RecursionError):
            return False
        return True


def understand(
    text: str,
    vocabulary: Vocabulary,
    *,
    organisation: str | None = None,
    registry: plugins.PluginRegistry | None = None,
    handle: int = 0,
    compact: bool = True,
    language: str | None = None,
) -> Understood:
    """Return what a text in any surface means; LanguageError says what is wrong and what may help.

    `language` is the one that is tried first; without it, English.
    """
    vocabulary = vocabulary.prefer(organisation)
    settings = _Settings(vocabulary, registry, handle, compact, language)
    try:
        tree, compiled = settings.compile(text)
    except LanguageError as error:
        if detect_surface(text) != "words" or len(text) > _MOST_CHARACTERS:
            raise
        return _Attempt(text, settings, language, error).understand()
    notes: tuple[str, ...] = ()
    if detect_surface(text) == "words":
        notes = tuple(_explain_names(tree, compiled.event, vocabulary, language or DEFAULT))
    return Understood(tree, compiled, text, notes=notes, language=language or DEFAULT)


@dataclass(frozen=True)
class UnderstoodStory:
    """A story as it was understood: its words, and what everyday words in it were taken for."""

    tree: StoryTree
    compiled: CompiledStory
    words: str
    notes: tuple[str, ...] = ()


def understand_story(
    source: Any, vocabulary: Vocabulary, *, compact: bool = True, language: str | None = None
) -> UnderstoodStory:
    """Return what a story in any surface means; its parts may be in everyday words."""
    settings = _Settings(vocabulary, None, 0, compact, language)
    notes: list[str] = []

    def read(text: str, start: int, subject: int) -> syntax.SubscriptionTree:
        try:
            return settings.compile(" " * start + text[start:])[0]
        except LanguageError:
            pass
        try:
            found = understand(" " * subject + text[subject:], vocabulary, language=language)
        except LanguageError as error:
            if isinstance(source, str) and source.startswith(text):
                whole = [f"{text[:start]}{hint} {source[len(text) :]}" for hint in error.hints]
                error.hints = tuple(
                    filter(settings.can_compile, (" ".join(w.split()) for w in whole))
                )
            raise
        notes.extend(found.notes)
        return found.tree

    tree = parse_any_story(source, read)
    compiled = compile_story(tree, vocabulary, compact=compact)
    return UnderstoodStory(tree, compiled, print_story(tree), tuple(notes))


@lru_cache(maxsize=16)
def _find_doubtful(lexicon: Lexicon) -> dict[str, tuple[str, ...]]:
    """Return the names of attributes that people use for another one, too."""
    return {
        word: tuple(choice.attribute for choice in choices if choice.attribute)
        for word, choices in lexicon.list_doubtful().items()
    }


def _explain_names(
    tree: syntax.SubscriptionTree, event: EventType, vocabulary: Vocabulary, code: str
) -> Iterator[str]:
    """Yield what names were taken for that mean another thing, too."""
    lexicon = load_lexicon(code, vocabulary)
    doubtful = _find_doubtful(lexicon)
    names = dict.fromkeys(p.attribute.text for p in syntax.iterate_predicates(tree.condition))
    for name in names:
        paths = doubtful.get(fold_name(name))
        if paths:
            taken = next((path for path in paths if path.startswith(f"{event.name}.")), paths[0])
            yield _explain_choice(lexicon, name, taken, paths)


def _explain_choice(lexicon: Lexicon, word: str, taken: str, paths: Iterable[str]) -> str:
    names = [_name(lexicon, path) for path in dict.fromkeys(paths) if path != taken]
    return lexicon.locale.say("taken", word, _name(lexicon, taken), ", ".join(names))


def _name(lexicon: Lexicon, path: str) -> str:
    if path not in lexicon.attributes:
        return path
    name = lexicon.name_attribute(path)
    return f"{name} ({path.partition('.')[0]})" if name != path else path


class _Attempt:
    """One text that the grammar does not read: what it means in everyday words, or why not."""

    def __init__(
        self, text: str, settings: _Settings, language: str | None, error: LanguageError
    ) -> None:
        self.text = text
        self.settings = settings
        self.error = error
        self.failure: LanguageError | None = None  # of the first sentence that did not compile
        self.is_narrowed = False  # by what devices here sense
        self.language = language
        self.codes = list(dict.fromkeys([language or DEFAULT, *list_locales()]))
        self.head, self.tail = self._split_options()

    def _split_options(self) -> tuple[str, str]:
        """Return the condition and, as they are, the options that the grammar reads."""
        for match in re.finditer(",", self.text):
            tail = self.text[match.start() :]
            try:
                parse(_PROBE + tail, self.settings.registry)
            except LanguageError:
                continue
            return self.text[: match.start()], tail.rstrip().removesuffix(".")
        return self.text, ""

    def understand(self, can_guess: bool = True) -> Understood:
        """Return the meaning in the first language that has one, or raise the best refusal."""
        readings: list[EverydayReading] = []
        for code in self.codes:
            reading = read_everyday(self.head, load_lexicon(code, self.settings.vocabulary))
            found = self._resolve(reading)
            if found is not None:
                return found
            readings.append(reading)
        if not can_guess:
            raise self.error
        raise self._refuse(min(readings, key=self._count_unknown))

    def _count_unknown(self, reading: EverydayReading) -> tuple[int, bool, int]:
        """The language that was asked for is left for another only if that knows two words more."""
        is_own = reading.lexicon.locale.code == self.language
        return reading.unknown - is_own, not is_own, -reading.known

    # What is meant ---------------------------------------------------------------------------

    def _resolve(self, reading: EverydayReading) -> Understood | None:
        """Return what a reading means if that is one thing; note what stands against it."""
        if self.text.rstrip().endswith(","):  # an option is to follow
            reading.troubles.append(ReadingTrouble("nothing", len(self.head), len(self.text)))
        if reading.troubles:
            return None
        predicates = list_predicates(reading)
        if not predicates:
            reading.troubles.append(ReadingTrouble("nothing", 0, len(self.head.rstrip())))
            return None
        fitting = self._list_fitting(reading, predicates)
        if not fitting:
            return None
        for place, predicate in enumerate(predicates):  # what goes first decides for the rest
            if predicate.mode != "|":
                first = min(
                    (one[place].attribute for one in fitting),
                    key=[each.attribute for each in predicate.alternatives].index,
                )
                fitting = [one for one in fitting if one[place].attribute == first]
        chosen = fitting[0]
        for place, predicate in enumerate(predicates):
            others = {combination[place].attribute for combination in fitting}
            if predicate.mode == "|" and len(others) > 1:
                word = chosen[place].word
                reading.troubles.append(
                    ReadingTrouble("ambiguous", predicate.start, predicate.end, (word,))
                )
        if reading.troubles:
            return None
        sentence = write_sentence(reading, chosen) + self.tail
        tree, compiled = self.settings.compile(sentence)
        locale, words = reading.lexicon.locale, print_words(tree)
        said = locale.say("understood_as", words)
        notes = said, *self._explain(reading, predicates, chosen)
        return Understood(tree, compiled, words, True, notes, locale.code)

    def _list_fitting(
        self, reading: EverydayReading, predicates: Sequence[SpokenPredicate]
    ) -> list[tuple[SpokenAlternative, ...]]:
        """Return the choices of alternatives that compile, narrowed by what is spoken of."""
        every = self._combine(reading, predicates)
        found: list[tuple[str, tuple[SpokenAlternative, ...]]] = []
        if len(every) > _MOST_COMBINATIONS:  # what is not looked at must not be ruled out
            reading.troubles.append(ReadingTrouble("too_long", 0, len(self.head.rstrip())))
            return []
        for chosen in every:
            try:
                _, compiled = self.settings.compile(write_sentence(reading, chosen) + self.tail)
            except LanguageError as error:
                self.failure = self.failure or error
                continue
            found.append((compiled.event.name, chosen))
        if not found:
            span = predicates[0].start, predicates[-1].end
            reading.troubles.append(ReadingTrouble("no_fit", *span))
            for predicate in predicates:
                way = predicate.value.direction if predicate.value is not None else ""
                paths = list(dict.fromkeys(each.attribute for each in predicate.alternatives))
                paths = paths[:1] if predicate.mode == ">>" else paths
                reading.mentioned += [(p, way) for p in paths if p in reading.lexicon.attributes]
            return []
        events = set(reading.events)
        spoken = [pair for pair in found if events <= {pair[0]}]
        if not spoken:
            name = next((each for each in reading.events if each != found[0][0]), "")
            reading.troubles.append(
                ReadingTrouble("other_event", 0, len(self.head.rstrip()), (name,))
            )
        present = self.settings.vocabulary.present
        near = [
            pair
            for pair in spoken
            if all(a.attribute in present or "." not in a.attribute for a in pair[1])
        ]
        self.is_narrowed = 0 < len(near) < len(spoken)
        return [chosen for _, chosen in (near or spoken or found)]

    def _combine(
        self, reading: EverydayReading, predicates: Sequence[SpokenPredicate]
    ) -> list[tuple[SpokenAlternative, ...]]:
        """Return the choices of alternatives that are of one event; cut behind the most.

        A word that is said twice means the same both times. Of several units the first counts that
        can be meant.
        """
        known = reading.lexicon.attributes
        lists = [self._choose_units(predicate) for predicate in predicates]
        found: dict[tuple[SpokenAlternative, ...], None] = {}

        def walk(chosen: tuple[SpokenAlternative, ...], meant: dict[str, str], event: str) -> None:
            if len(chosen) == len(lists):
                found[chosen] = None
                return
            for each in lists[len(chosen)]:
                is_other = each.attribute in known and not each.attribute.startswith(f"{event}.")
                is_same = meant.get(each.word, each.attribute) == each.attribute
                if is_same and not is_other and len(found) <= _MOST_COMBINATIONS:
                    walk((*chosen, each), {**meant, each.word: each.attribute}, event)

        for event in self.settings.vocabulary.events:
            walk((), {}, event)
        if not found:  # of several events; compiling it says so
            found[tuple(each[0] for each in lists)] = None
        return list(found)

    def _choose_units(self, predicate: SpokenPredicate) -> list[SpokenAlternative]:
        """Return one alternative for each attribute: the first that compiles alone."""
        found: dict[str, SpokenAlternative] = {}
        for each in predicate.alternatives:
            if len(predicate.alternatives) == 1 or self.settings.can_compile(each.text):
                found.setdefault(each.attribute, each)
        return list(found.values()) or predicate.alternatives[:1]

    def _explain(
        self,
        reading: EverydayReading,
        predicates: Sequence[SpokenPredicate],
        chosen: Sequence[SpokenAlternative],
    ) -> Iterator[str]:
        """Yield what was taken for words that may mean something else."""
        lexicon = reading.lexicon
        said = set()
        for predicate, alternative in zip(predicates, chosen, strict=True):
            paths = [each.attribute for each in predicate.alternatives]
            is_doubtful = predicate.mode == "|" and self.is_narrowed and len(set(paths)) > 1
            if predicate.mode == ">" and predicate.attribute is None:
                is_doubtful = len(set(paths)) > 1
            elif predicate.attribute is not None and predicate.mode == ">":
                paths = [c.attribute for c in predicate.attribute.entry.choices if c.attribute]
                is_doubtful = len(paths) > 1
            if is_doubtful and alternative.word not in said:
                said.add(alternative.word)
                yield _explain_choice(lexicon, alternative.word, alternative.attribute, paths)
            if predicate.value is not None and len(predicate.value.values) > 1:
                yield lexicon.locale.say("taken_as", predicate.value.text, alternative.text)
            elif predicate.term is not None and alternative.attribute in lexicon.attributes:
                term = predicate.term.entry.terms.get(alternative.attribute, "")
                spoken = fold_text(predicate.term.text)
                if not predicate.term.entry.choices and fold_name(spoken) != fold_name(term):
                    yield lexicon.locale.say("taken_as", predicate.term.text, alternative.text)

    # What is refused -------------------------------------------------------------------------

    def _refuse(self, reading: EverydayReading) -> LanguageError:
        locale = reading.lexicon.locale
        hints = tuple(islice(self._list_hints(reading), MOST_HINTS))
        if self._is_nearly_right(reading):
            return localise_error(self.error, locale, hints)
        trouble = min(reading.troubles, key=_rank_trouble)
        suggestions = []
        if trouble.key == "unknown":
            suggestions = self._suggest_words(reading.lexicon, trouble)
        message, hint = locale.say(trouble.key, *trouble.parts), ""
        if trouble.key == "no_fit" and self.failure is not None:
            message, hint = self.failure.message, self.failure.hint
        length = trouble.end - trouble.start
        error = LanguageError(message, trouble.start + 1, length, hint, suggestions, hints=hints)
        found = localise_error(error, locale, hints)
        found.is_question = trouble.key == "ambiguous"
        return found

    def _is_nearly_right(self, reading: EverydayReading) -> bool:
        """Return whether the grammar's own message says more: its names are found, or misspelt."""
        at = (self.error.at or 0) - 1
        end = at + self.error.length
        is_word = not re.search(r"\s", self.text[at:end])
        if at >= len(self.text.rstrip()):  # it only ends too early
            return True
        if self.error.suggestions and any(
            trouble.key == "unknown" and is_word and at <= trouble.start and trouble.end <= end
            for trouble in reading.troubles
        ):
            return True
        if self.failure is not None and self.failure.message == self.error.message:
            return True
        if any(trouble.key == "too_long" for trouble in reading.troubles):
            return True
        if any(t.key not in ("unknown", "no_fit", "nothing") for t in reading.troubles):
            return False
        if not self.text.strip():
            return True
        try:
            tree = parse(self.text, self.settings.registry)
            for predicate in syntax.iterate_predicates(tree.condition):
                self.settings.vocabulary.find_attributes(predicate.attribute)
        except LanguageError:
            return False
        return True

    def _suggest_words(self, lexicon: Lexicon, trouble: ReadingTrouble) -> list[str]:
        word = " ".join(split_phrase(trouble.parts[0]))
        return suggest_names(word, lexicon.list_words())[:1]  # the next may be its contrary

    def _list_hints(self, reading: EverydayReading) -> Iterator[str]:
        """Yield sentences that compile, the likeliest first, each once."""
        seen: set[str] = set()
        found = 0
        for sentence in islice(self._guess(reading), _MOST_GUESSES):
            words = " ".join(sentence.split())
            if words not in seen and self.settings.can_compile(words):
                yield words
                found += 1
            seen.add(words)
        if not found:
            yield from filter(self.settings.can_compile, self._list_examples(reading))

    def _guess(self, reading: EverydayReading) -> Iterator[str]:
        """Yield what may have been meant: by the grammar's names, by meaning, then by spelling."""
        misspelt = self._guess_misspelt(self.error.at, self.error.length, self.error.suggestions)
        if reading.unknown:
            yield from misspelt
        yield from self._guess_meant(reading)
        for trouble in reading.troubles:
            if trouble.key == "unknown" and reading.unknown <= _MOST_UNKNOWN:
                names = self._suggest_words(reading.lexicon, trouble)
                for name in names:
                    text = f"{self.head[: trouble.start]}{name}{self.head[trouble.end :]}"
                    yield from self._understand_again(text + self.tail)
        yield from misspelt
        yield from self._understand_again(re.sub(r"(\d),(\d)", r"\1.\2", self.text))
        for path, direction in dict(reversed(reading.mentioned)).items():
            yield from islice(_list_conditions(reading.lexicon, path, direction), 1)

    def _guess_misspelt(self, at: int | None, length: int, names: Iterable[str]) -> Iterator[str]:
        if at is None:
            return
        for name in names:
            text = f"{self.text[: at - 1]}{name}{self.text[at - 1 + length :]}"
            yield text
            yield from self._understand_again(text)

    def _understand_again(self, text: str) -> Iterator[str]:
        if text == self.text:
            return
        try:
            yield _Attempt(text, self.settings, self.codes[0], self.error).understand(False).words
        except LanguageError:
            return

    def _guess_meant(self, reading: EverydayReading) -> Iterator[str]:
        """Yield the sentence of what was understood, with what may be missing put in."""
        lexicon = reading.lexicon
        keys = {trouble.key for trouble in reading.troubles}
        for clause in reading.clauses:
            for predicate in clause.predicates:
                owner = predicate.attribute
                if owner is None or predicate.value is not None:
                    continue
                if predicate.alternatives and "trend" not in keys:
                    continue
                ways = dict(reversed(reading.mentioned))  # the first word on it counts
                lists = [
                    [SpokenAlternative(text, path) for text in _list_conditions(lexicon, path, way)]
                    for path in (c.attribute for c in owner.entry.choices if c.attribute)
                    for way in (ways.get(path, ""),)
                ]
                # of several attributes each goes first once
                mixed = [one for row in zip_longest(*lists) for one in row if one is not None]
                predicate.alternatives = mixed + predicate.alternatives
        predicates = list_predicates(reading)
        if not predicates:
            return
        for predicate in predicates:
            if predicate.mode == ">>" and not reading.events:
                first = predicate.alternatives[0].attribute
                predicate.alternatives = [
                    each for each in predicate.alternatives if each.attribute == first
                ]
        sentences = [
            write_sentence(reading, chosen)
            for chosen in islice(product(*(p.alternatives for p in predicates)), 8)
        ]
        events = dict.fromkeys(reading.events)
        sentences.sort(key=lambda text: not any(f"{event}" in text for event in events))
        if "which_joint" in keys or "no_fit" in keys:
            for sentence in sentences[:2]:
                yield sentence.replace(" or ", " and ") + self.tail
                yield sentence.replace(" and ", " or ") + self.tail
        if "no_fit" in keys:
            yield from self._guess_units(predicates)
        if "scope" in keys:
            yield from self._guess_scope(reading, predicates)
        for trouble in reading.troubles:
            if trouble.key == "for" and trouble.suggestions:
                span = trouble.suggestions[0]
                for option in (", 3 of 3", "", f", in the last {span}", f", valid for {span}"):
                    yield f"{sentences[0]}{option}{self.tail}"
            elif trouble.key == "how_many":
                for count in trouble.suggestions:
                    yield f"{count} or more devices with ({sentences[0]}) within 10 min"
            elif trouble.key == "every" and trouble.suggestions:
                span = trouble.suggestions[0]
                yield f"{sentences[0]}, heartbeat {span}{self.tail}"
                yield f"{sentences[0]}, quiet for {span}{self.tail}"
        for sentence in sentences:
            yield sentence + self.tail
        for predicate in predicates if keys & {"no_fit", "unknown"} else ():
            yield predicate.alternatives[0].text + self.tail

    def _guess_units(self, predicates: list[SpokenPredicate]) -> Iterator[str]:
        """Yield a number outside the domain in the other unit that people use: 102 °F."""
        for predicate in predicates:
            for alternative in predicate.alternatives:
                if predicate.value is not None and alternative.text[-1:].isdigit():
                    yield f"{alternative.text} °F{self.tail}"

    def _guess_scope(
        self, reading: EverydayReading, predicates: list[SpokenPredicate]
    ) -> Iterator[str]:
        """Yield both readings of a "no" before two things."""
        chosen = [predicate.alternatives[0] for predicate in predicates]
        both = [chosen[0]]
        for predicate, alternative in zip(predicates[1:], chosen[1:], strict=True):
            text = alternative.text
            both.append(
                alternative if predicate.is_negated else replace(alternative, text=f"not ({text})")
            )
        yield write_sentence(reading, both).replace(" or ", " and ") + self.tail
        yield write_sentence(reading, chosen) + self.tail

    def _list_examples(self, reading: EverydayReading) -> Iterator[str]:
        """Yield something that can be asked: of the event spoken of, of what devices sense."""
        lexicon = reading.lexicon
        present = self.settings.vocabulary.present
        paths = sorted(
            lexicon.attributes,
            key=lambda path: (
                path.partition(".")[0] not in reading.events,
                path not in present,
            ),
        )
        for path in paths:
            yield from islice(_list_conditions(lexicon, path, "up"), 1)


def _rank_trouble(trouble: ReadingTrouble) -> tuple[bool, bool, int]:
    """What is not understood is said first, what is only missing last."""
    return trouble.key != "unknown", trouble.key in _MISSING, trouble.start


def _list_conditions(lexicon: Lexicon, path: str, direction: str) -> Iterator[str]:
    """Yield conditions on an attribute that people may mean: one end, not normal, the other.

    With a direction, nothing of the other end: that would be the contrary.
    """
    attribute, name = lexicon.attributes[path], lexicon.name_attribute(path)
    if attribute.kind is ValueKind.TEXT:
        symbols = attribute.symbols if direction == "down" else attribute.symbols[::-1]
        yield from (f"{name} = {symbol}" for symbol in (symbols[:1] if direction else symbols))
        return
    ends = [lexicon.find_end(path, way) for way in ((direction,) if direction else ("up", "down"))]
    terms = [end for end in ends if end]
    if not direction:
        if "normal" in attribute.terms:
            terms.insert(1, "not normal")
        terms += attribute.terms
    yield from (f"{name} is {term}" for term in terms)
    if attribute.kind is ValueKind.NUMBER and not terms:
        middle = attribute.to_value(attribute.last // 2)
        yield f"{name} {'below' if direction == 'down' else 'above'} {middle:g}"


def localise_error(error: LanguageError, locale: Locale, hints: Sequence[str]) -> LanguageError:
    """Return an error in a language, with sentences that compile."""
    return LanguageError(
        locale.translate(error.message),
        error.at,
        error.length,
        locale.translate(error.hint) if error.hint else "",
        error.suggestions,
        hints=hints,
        phrases={key: locale.messages[key] for key in ("did_you_mean", "try", "or")},
    )
