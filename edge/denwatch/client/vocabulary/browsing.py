"""A vocabulary as text to read: for the command line, and for people who look for a word."""

from __future__ import annotations

from denwatch.client.errors import LanguageError
from denwatch.client.syntax import Name
from denwatch.client.vocabulary.attributes import Attribute, EventType, VocabularyTerm
from denwatch.client.vocabulary.directory import PublisherDirectory
from denwatch.client.vocabulary.vocabulary import Vocabulary

HASH_DIGITS = 16  # of the hash in a device's configuration, and in what it says at a node


def describe_vocabulary(vocabulary: Vocabulary) -> str:
    """Return name and hash as devices write it, then the events with their attributes."""
    lines = [f"{vocabulary.name} {vocabulary.hash[:HASH_DIGITS]}"]
    if vocabulary.description:
        lines.append(vocabulary.description)
    for event in vocabulary.events.values():
        lines += ["", *_list_event(vocabulary, event)]
    return "\n".join(lines)


def describe_event(vocabulary: Vocabulary, event: EventType) -> str:
    """Return one event with its attributes."""
    return "\n".join(_list_event(vocabulary, event))


def _list_event(vocabulary: Vocabulary, event: EventType) -> list[str]:
    title = f"{event.name} ({event.number})"
    lines = [f"{title}: {event.description}" if event.description else title]
    width = max(len(name) for name in event.attributes)
    for attribute in event.attributes.values():
        words = ", ".join(attribute.terms)
        lines.append(
            f"  {attribute.name:{width}}  {attribute.describe_domain():28}  {words}".rstrip()
        )
    synonyms = [entry.word for entry in vocabulary.thesaurus.list_synonyms(event.name)]
    return [*lines, f"  also: {', '.join(synonyms)}"] if synonyms else lines


def describe_attribute(
    vocabulary: Vocabulary, attribute: Attribute, directory: PublisherDirectory | None = None
) -> str:
    """Return all about one attribute: domain, terms with their fit, synonyms, publishers."""
    bits = 16 if attribute.wide else 8
    lines = [
        attribute.path + (f": {attribute.description}" if attribute.description else ""),
        f"  {attribute.kind.value}, {attribute.describe_domain()}, bit {attribute.bit}, "
        f"{bits} bits, step {attribute.step:.4g}",
    ]
    lines += [f"  {describe_term(attribute, term)}" for term in attribute.terms.values()]
    for entry in vocabulary.thesaurus.entries:
        if entry.target == attribute.path:
            lines.append(f'  "{entry.word}" says {entry.organisation}')
        elif entry.target.startswith(f"{attribute.path}."):
            term = entry.target.rpartition(".")[2]
            lines.append(f'  "{entry.word}" says {entry.organisation} for {term}')
    if directory is not None:
        names = [f.publisher for f in directory.look_up([attribute.path])]
        lines.append(f"  published by {', '.join(names) if names else 'nobody'}")
    return "\n".join(lines)


def describe_term(attribute: Attribute, term: VocabularyTerm) -> str:
    """Return a term's definition and how well the wire follows it."""
    if term.base is not None:
        meaning = f"{' '.join(term.hedges)} {term.base}"
    else:
        points = " ".join(f"{point:g}" for point in term.membership.points)
        meaning = f"{term.membership.kind} {points}"
    fit = attribute.fit_term(term)
    return f"{term.name}: {meaning} (at most {fit.error:.1%} off)"


def browse(vocabulary: Vocabulary, word: str, directory: PublisherDirectory | None = None) -> str:
    """Return what a word means: an event, or every attribute that is called so."""
    try:
        return describe_event(vocabulary, vocabulary.find_event(Name(word)))
    except LanguageError as not_an_event:
        try:
            found = vocabulary.find_attributes(Name(word))
        except LanguageError as not_an_attribute:
            names = dict.fromkeys((*not_an_attribute.suggestions, *not_an_event.suggestions))
            raise LanguageError(
                f'nothing is called "{word}"', suggestions=list(names)[:3]
            ) from None
        return "\n\n".join(describe_attribute(vocabulary, a, directory) for a in found)
