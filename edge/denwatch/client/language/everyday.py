"""Everyday words to the sentences of the grammar: "kids with a fast pulse" is "age is child and
heart_rate is high". Pure; nothing here is compiled or taken for granted.

A text is read in four steps, each over the result of the one before:

1. `read_items`: words to items, by the longest phrase that the lexicon has (`everyday_items`).
2. `join_numbers`: comparisons, numbers and units to values; spans of time, places with a number.
3. `_split`: clauses, between "and", "or", commas and brackets.
4. `_ClauseReader`: what a clause says: predicates, each an attribute with a term or a value.

INVARIANT  every word counts. It is a part of a predicate, or it is a filler by name; whatever is
           left over is a `ReadingTrouble`, and a reading with trouble is never taken, only offered.

A reading is a list of clauses with alternatives ("temperature" may be of four attributes); which of
them fit is decided in `understanding`, by compiling them.

Example: "no high fever or pulse over 120"
  items      no·not  high fever·condition  or·or  pulse·attribute  over·above  120
  clauses    [not: patient_temperature is very high]  or  [heart_rate above 120]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from denwatch.client.language.everyday_items import (
    COMPARISONS,
    PhraseItem,
    join_numbers,
    read_items,
)
from denwatch.client.language.localisation import (
    Lexicon,
    PhraseChoice,
    PhraseEntry,
    find_dimension,
)

MAX_ITEMS = 80
_HEDGES = ("very", "extremely", "somewhat", "more_or_less")
# What no subscription can say, by keyword; the sentence without it is offered.
_CANNOT = ("place", "day", "every", "for", "count", "person", "story", "change", "hardly", "except")
_NEGATING = ("not", "hardly", "except")  # the last two only in what is offered


@dataclass(frozen=True)
class ReadingTrouble:
    """Why a reading must not be taken: a message's key with its parts, and where."""

    key: str
    start: int
    end: int
    parts: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()


@dataclass(frozen=True)
class SpokenAlternative:
    """One way to write a predicate, and the word with what it was taken for, if that is said."""

    text: str
    attribute: str = ""
    word: str = ""


@dataclass
class SpokenPredicate:
    """One predicate in the making."""

    start: int
    end: int
    alternatives: list[SpokenAlternative] = field(default_factory=list)
    mode: str = "|"
    members: list[PhraseItem] = field(default_factory=list)
    is_negated: bool = False
    attribute: PhraseItem | None = None
    term: PhraseItem | None = None
    value: PhraseItem | None = None
    hedges: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether it is an attribute alone."""
        return self.term is None and self.value is None and not self.alternatives


@dataclass
class SpokenClause:
    """What stands between two joints; `joint` is what stands before it: "and", "or", "(", ")"."""

    joint: str
    predicates: list[SpokenPredicate] = field(default_factory=list)
    has_verb: bool = False


@dataclass
class EverydayReading:
    """A whole text as it was read."""

    lexicon: Lexicon
    clauses: list[SpokenClause] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    troubles: list[ReadingTrouble] = field(default_factory=list)
    known: int = 0  # words that mean something; languages are compared by it
    unknown: int = 0
    # What a refusal may offer: attributes that stand alone, and in which direction one looked.
    mentioned: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_everyday(text: str, lexicon: Lexicon) -> EverydayReading:
    """Return what a text says in everyday words, with whatever stands against taking it."""
    reading = EverydayReading(lexicon)
    items = read_items(text, lexicon)
    for item in items:
        reading.known += bool(item.entry.keywords or item.entry.choices or item.entry.terms)
        reading.unknown += item.kind == "unknown"
    if len(items) > MAX_ITEMS:
        reading.troubles.append(ReadingTrouble("too_long", 0, len(text)))
        return reading
    items = join_numbers(items, reading.options)
    parts = _split(items, reading)
    reader = _ClauseReader(reading)
    for joint, part in parts:
        reading.clauses.append(reader.read(joint, part))
    _share_terms(reading)
    _check_scope(reading)
    for clause in reading.clauses:
        for predicate in clause.predicates:
            _close(predicate, reading)
    return reading


# Clauses -------------------------------------------------------------------------------------


def _split(items: list[PhraseItem], reading: EverydayReading) -> list[tuple[str, list[PhraseItem]]]:
    """Return the clauses with what joins each to the one before."""
    parts: list[tuple[str, list[PhraseItem]]] = [("", [])]
    joint = ""
    for place, item in enumerate(items):
        if item.kind == "nor" and item.says("filler"):  # "noch": "nor" only behind "weder", a "not"
            item.kind = "nor" if any(before.says("not") for before in items[:place]) else "filler"
        if item.kind == "(":
            parts.append((f"{joint} (".strip(), []))
            joint = ""
        elif item.kind == ")":
            parts.append((")", []))
            joint = ""
        elif item.kind in ("and", "or", "nor", ","):
            said = {"nor": "and", ",": ","}.get(item.kind, item.kind)
            joint = said if joint in ("", ",") else joint
            if item.kind == "nor":
                negation = PhraseItem(item.start, item.end, item.text, item.entry, "not")
                parts.append((joint, [negation]))
                joint = ""
        else:
            if joint:
                parts.append((joint, []))
                joint = ""
            parts[-1][1].append(item)
    if joint in ("and", "or"):
        last = items[-1]
        reading.troubles.append(ReadingTrouble("unused", last.start, last.end, (last.text,)))
    return _settle_commas(_drop_empty(parts, reading), reading)


def _drop_empty(
    parts: list[tuple[str, list[PhraseItem]]], reading: EverydayReading
) -> list[tuple[str, list[PhraseItem]]]:
    """Return the clauses that say something; "tell me, when" says nothing before its comma."""
    found: list[tuple[str, list[PhraseItem]]] = []
    for joint, part in parts:
        is_bracket = joint.endswith(("(", ")"))
        if is_bracket or any(item.kind not in ("filler", "verb") for item in part):
            found.append((joint if found or is_bracket else "", part))
        elif joint in ("and", "or"):  # and nothing follows
            start, end = part[0].start, part[-1].end
            reading.troubles.append(ReadingTrouble("unused", start, end, (joint,)))
    return found


def _settle_commas(
    parts: list[tuple[str, list[PhraseItem]]], reading: EverydayReading
) -> list[tuple[str, list[PhraseItem]]]:
    """Return commas as what joins the list that they are in; it is trouble if nothing does."""
    found: list[tuple[str, list[PhraseItem]]] = []
    following = ""
    for joint, part in reversed(parts):
        if joint == ",":
            if not following:
                reading.troubles.append(ReadingTrouble("which_joint", part[0].start, part[0].end))
            joint = following or "and"
        elif joint in ("and", "or"):
            following = joint
        found.append((joint, part))
    return found[::-1]


class _ClauseReader:
    """Reads clause after clause; it remembers the attribute that the last one was about."""

    def __init__(self, reading: EverydayReading) -> None:
        self.reading = reading
        self.lexicon = reading.lexicon
        self.last: PhraseItem | None = None  # the attribute that a bare constraint is about

    def read(self, joint: str, items: list[PhraseItem]) -> SpokenClause:
        clause = SpokenClause(joint, has_verb=any(item.says("verb") for item in items))
        for item, after in pairwise(items):
            if item.kind == "term" and item.says("filler") and after.kind in ("term", "thing"):
                item.kind = "filler"  # "still burning"; not "standing still"
        self._check(items)
        items = [item for item in items if item.kind not in ("filler", "verb")]
        things = [item for item in items if item.kind == "thing"]
        values = [item for item in items if item.kind == "value"]
        terms = [item for item in items if item.kind == "term"]
        terms += self._find_adverbs(items, things, terms)
        self.reading.events += [
            item.entry.choices[0].event for item in items if item.kind == "event"
        ]
        found: list[SpokenPredicate] = []
        for value in [value for value in values if value.entry.choices]:  # "older than 65"
            predicate = SpokenPredicate(value.start, value.end, attribute=value, value=value)
            predicate.members = [value]
            found.append(predicate)
            values.remove(value)
        free = [value for value in values if self._find_measure(value, items) is None]
        held = [value for value in values if value not in free]
        for thing in things:
            found.append(self._constrain(thing, free, terms, items))
        values = held + free
        found += self._read_terms(terms, values, found, items)
        found += self._read_values(values, found, items)
        found.sort(key=lambda predicate: predicate.start)
        found = _drop_repeated(found)
        self._add_words(items, found)
        clause.predicates = found
        for predicate in found:
            if predicate.attribute is not None:
                self.last = predicate.attribute
        return clause

    def _check(self, items: list[PhraseItem]) -> None:
        """Note what cannot be said, and what is not understood."""
        add = self.reading.troubles.append
        for place, item in enumerate(items):
            after = items[place + 1] if place + 1 < len(items) else None
            if item.kind == "unknown":
                add(ReadingTrouble("unknown", item.start, item.end, (item.text,)))
            elif item.kind in _CANNOT:
                add(ReadingTrouble(item.kind, item.start, item.end, (item.text,), item.values))
            elif item.kind in (*COMPARISONS, "between", "from", "to", "within", "unit") or (
                item.kind in ("last", "next", "number", "moment", "or_more", "or_less")
            ):
                if not item.says("filler"):
                    add(ReadingTrouble("incomplete", item.start, item.end, (item.text,)))
            elif item.kind == "value" and after is not None and after.kind == "event":
                said = f"{item.text} {after.text}"
                add(
                    ReadingTrouble(
                        "how_many", item.start, after.end, (said,), _find_least(item.values[0])
                    )
                )

    def _find_adverbs(
        self, items: list[PhraseItem], things: list[PhraseItem], terms: list[PhraseItem]
    ) -> list[PhraseItem]:
        """Return hedges that are the term here: "bleeding badly"."""
        if terms:
            return []
        paths = [c.attribute for thing in things for c in thing.entry.choices]
        found = [i for i in items if i.kind in _HEDGES and any(p in i.entry.terms for p in paths)]
        for item in found:
            item.kind = "term"
        return found

    def _constrain(
        self,
        thing: PhraseItem,
        values: list[PhraseItem],
        terms: list[PhraseItem],
        items: list[PhraseItem],
    ) -> SpokenPredicate:
        """Return an attribute with the nearest term or value that it can have."""
        paths = [choice.attribute for choice in thing.entry.choices]
        fitting = [t for t in terms if any(path in t.entry.terms for path in paths)]
        fitting += values
        predicate = SpokenPredicate(thing.start, thing.end, attribute=thing, members=[thing])
        rivals = [item for item in items if item.kind == "thing" and item is not thing]

        def distance(item: PhraseItem) -> int:
            return item.start - thing.end if item.start >= thing.end else thing.start - item.end

        def is_mine(item: PhraseItem) -> bool:
            """Whether no other attribute is nearer, or could not have it."""
            for rival in rivals:
                theirs = [choice.attribute for choice in rival.entry.choices]
                can = item.kind == "value" or any(path in item.entry.terms for path in theirs)
                gap = item.start - rival.end if item.start >= rival.end else rival.start - item.end
                if can and gap < distance(item):
                    return False
            return True

        mine = [item for item in fitting if is_mine(item)]
        if mine:
            nearest = min(mine, key=distance)
            self._bind(predicate, nearest)
            (values if nearest.kind == "value" else terms).remove(nearest)
        return predicate

    def _bind(self, predicate: SpokenPredicate, item: PhraseItem) -> None:
        if item.kind == "value":
            predicate.value = item
        else:
            predicate.term = item
        predicate.members.append(item)
        predicate.start = min(predicate.start, item.start)
        predicate.end = max(predicate.end, item.end)

    def _read_terms(
        self,
        terms: list[PhraseItem],
        values: list[PhraseItem],
        found: list[SpokenPredicate],
        items: list[PhraseItem],
    ) -> list[SpokenPredicate]:
        """Return the terms that no attribute of the clause has."""
        added: list[SpokenPredicate] = []
        for term in sorted(terms, key=lambda item: item.start):
            before = items[items.index(term) - 1]
            if before.kind == "value" and any(
                choice.attribute in term.entry.terms and not term.entry.choices
                for each in found
                if each.value is before and each.attribute is not None
                for choice in each.attribute.entry.choices
            ):
                continue  # "20 cm deep": the number says how deep
            if (
                any(
                    c.attribute in term.entry.terms
                    for p in found
                    if p.attribute is not None and p.value is not None
                    for c in p.attribute.entry.choices
                )
                and term.entry.choices == ()
            ):
                term_owner = next(
                    p.attribute
                    for p in found
                    if p.attribute is not None
                    and any(c.attribute in term.entry.terms for c in p.attribute.entry.choices)
                )
                predicate = SpokenPredicate(term.start, term.end, attribute=term_owner, term=term)
                predicate.members = [term]
            elif term.entry.choices:
                predicate = SpokenPredicate(
                    term.start, term.end, members=[term], mode=term.entry.mode
                )
                only = term.entry.choices[0]
                after = items[items.index(term) + 1 :][:1]
                if only.term and after and after[0] in values:
                    # "fever above 39": the number says it more exactly
                    holder = replace(
                        term,
                        entry=PhraseEntry(
                            choices=(PhraseChoice(attribute=only.attribute),), mode="|"
                        ),
                    )
                    predicate.attribute = holder
                    self._bind(predicate, after[0])
                    values.remove(after[0])
                else:
                    predicate.term = term
                    if only.term:
                        owners = tuple(
                            PhraseChoice(attribute=c.attribute)
                            for c in term.entry.choices
                            if c.term
                        )
                        predicate.attribute = replace(
                            term, entry=PhraseEntry(choices=owners, mode=term.entry.mode)
                        )
                        predicate.attribute.kind = "implied"
            else:
                predicate = SpokenPredicate(term.start, term.end, members=[term], term=term)
                predicate.attribute = self._find_owner(term)
            added.append(predicate)
        return added

    def _find_owner(self, term: PhraseItem) -> PhraseItem:
        """Return what a term without an attribute is about: the last one, or all that have it."""
        if self.last is not None and any(
            choice.attribute in term.entry.terms for choice in self.last.entry.choices
        ):
            return self.last
        paths = tuple(PhraseChoice(attribute=path) for path in term.entry.terms)
        return replace(term, entry=PhraseEntry(choices=paths, mode="|"), kind="implied")

    def _find_measure(self, value: PhraseItem, items: list[PhraseItem]) -> PhraseItem | None:
        """Return what a number right behind an event is about: "patients over 65" is their age."""
        place = items.index(value)
        before = items[place - 1] if place else None
        if before is None or before.kind != "event" or value.values[0].startswith("="):
            return None
        if any(item.kind == "thing" for item in items[:place]):  # "pulse of patients over 120"
            return None
        path = self.lexicon.measures.get(before.entry.choices[0].event)
        if any(choice.attribute == path for item in items for choice in item.entry.choices):
            return None  # "patients over 65 years old" names it
        if path is None or not value.values[0][-1].isdigit():  # a unit says what it is about
            return None
        return replace(value, entry=PhraseEntry(choices=(PhraseChoice(attribute=path),), mode="|"))

    def _find_by_unit(self, value: PhraseItem) -> PhraseItem | None:
        """Return the attributes that are measured in the unit of a number, or in one like it."""
        units = {text.rpartition(" ")[2] for text in value.values}
        known = {p: a.unit or "" for p, a in self.lexicon.attributes.items() if a.unit}
        known = {p: u for p, u in known.items() if p.partition(".")[2] not in self.lexicon.places}
        like = {find_dimension(unit) for unit in units} - {""}
        paths = [path for path, unit in known.items() if unit in units]
        paths = paths or [path for path, unit in known.items() if find_dimension(unit) in like]
        if not paths:
            return None
        choices = tuple(PhraseChoice(attribute=path) for path in paths)
        return replace(value, entry=PhraseEntry(choices=choices, mode="|"))

    def _read_values(
        self, values: list[PhraseItem], found: list[SpokenPredicate], items: list[PhraseItem]
    ) -> list[SpokenPredicate]:
        added = []
        for value in values:
            owner = self._find_measure(value, items) or (None if found else self.last)
            owner = owner or self._find_by_unit(value)
            if owner is None:
                key = "which_attribute" if not found else "unused"
                self.reading.troubles.append(
                    ReadingTrouble(key, value.start, value.end, (value.text,))
                )
                continue
            predicate = SpokenPredicate(value.start, value.end, attribute=owner, value=value)
            predicate.members = [value]
            added.append(predicate)
        return added

    def _add_words(self, items: list[PhraseItem], found: list[SpokenPredicate]) -> None:
        """Give each "not" and each hedge to the predicate that it stands before."""
        add = self.reading.troubles.append
        for place, item in enumerate(items):
            if item.kind in _NEGATING:
                target = _find_next(item, found) or (found[-1] if found else None)
                after = items[place + 1] if place + 1 < len(items) else None
                is_of_event = after is not None and after.kind == "event"  # "no patients with"
                if target is None or target.is_negated or is_of_event:
                    add(ReadingTrouble("negation", item.start, item.end, (item.text,)))
                if target is not None:
                    target.is_negated = True
                    target.members.append(item)
                    target.start = min(target.start, item.start)
            elif item.kind in _HEDGES:
                after = items[place + 1] if place + 1 < len(items) else None
                owner = next((p for p in found if p.term is not None and p.term is after), None)
                if owner is None and after is not None and after.kind in _HEDGES:
                    owner = _find_next(item, found)
                if owner is None:
                    add(ReadingTrouble("hedge", item.start, item.end, (item.text,)))
                else:
                    owner.hedges.append(item.kind.replace("_", " "))
                    owner.start = min(owner.start, item.start)
            elif item.kind in ("rising", "falling"):
                self._check_trend(item, found)

    def _check_trend(self, item: PhraseItem, found: list[SpokenPredicate]) -> None:
        """A direction is allowed before a comparison; alone it cannot be said."""
        direction = "up" if item.kind == "rising" else "down"
        if any(predicate.value is not None for predicate in found):
            return
        for predicate in found:
            if predicate.attribute is not None:
                self.reading.mentioned += [
                    (choice.attribute, direction) for choice in predicate.attribute.entry.choices
                ]
        self.reading.troubles.append(ReadingTrouble("trend", item.start, item.end, (item.text,)))


def _find_least(value: str) -> tuple[str, ...]:
    """Return how many there are at least by a value: "= 3", "at least 3", "above 2"."""
    said, _, number = value.rpartition(" ")
    least = int(number) + (said == "above") if number.isdigit() else 0
    return (str(least),) if said in ("=", "at least", "above") and least > 1 else ()


def _drop_repeated(found: list[SpokenPredicate]) -> list[SpokenPredicate]:
    """Return the predicates without an attribute that is named once more: "10 trapped inside"."""

    def list_paths(predicate: SpokenPredicate) -> set[str]:
        owner = predicate.attribute
        return set() if owner is None else {choice.attribute for choice in owner.entry.choices}

    said = [list_paths(each) for each in found if not each.is_open]
    return [each for each in found if not each.is_open or list_paths(each) not in said]


def _find_next(item: PhraseItem, found: list[SpokenPredicate]) -> SpokenPredicate | None:
    later = [
        (member.start, predicate)
        for predicate in found
        for member in predicate.members
        if member.start >= item.end
    ]
    return min(later, key=lambda pair: pair[0])[1] if later else None


# Between clauses -----------------------------------------------------------------------------


def _share_terms(reading: EverydayReading) -> None:
    """ "Pulse and breathing are abnormal": the term at the end is said of both."""
    for place in range(len(reading.clauses) - 2, -1, -1):
        clause, after = reading.clauses[place], reading.clauses[place + 1]
        if len(clause.predicates) != 1 or not after.predicates or after.joint not in ("and", "or"):
            continue
        alone, full = clause.predicates[0], after.predicates[0]
        if not alone.is_open or alone.attribute is None or full.term is None:
            continue
        owner = full.attribute
        is_after = owner is not None and owner is not full.term and full.term.start > owner.start
        paths = [choice.attribute for choice in alone.attribute.entry.choices]
        if is_after and any(path in full.term.entry.terms for path in paths):
            alone.term, alone.hedges = full.term, full.hedges
            alone.is_negated = alone.is_negated or full.is_negated


def _check_scope(reading: EverydayReading) -> None:
    """ "No smoke or flames": whether the "no" is meant for both is asked."""
    for clause, after in zip(reading.clauses, reading.clauses[1:], strict=False):
        if after.joint not in ("and", "or") or not clause.predicates or not after.predicates:
            continue
        last, first = clause.predicates[-1], after.predicates[0]
        is_bare = not after.has_verb and first.value is None
        if clause.has_verb and after.joint == "and" and first.attribute is not last.attribute:
            is_bare = False
        own = any(member.kind == "not" for member in last.members)
        if own and not first.is_negated and is_bare:
            text = after.joint
            reading.troubles.append(ReadingTrouble("scope", first.start, first.end, (text,)))


# Predicates to sentences ---------------------------------------------------------------------


def _close(predicate: SpokenPredicate, reading: EverydayReading) -> None:
    """Write the alternatives of a predicate, or note what it lacks."""
    lexicon = reading.lexicon
    term, value, owner = predicate.term, predicate.value, predicate.attribute
    is_not = predicate.is_negated != any(
        member.is_negated for member in predicate.members if member is term
    )
    if term is not None and owner is None:  # conditions
        for choice in term.entry.choices:
            text = f"not ({choice.condition})" if is_not else choice.condition
            predicate.alternatives.append(SpokenAlternative(text, text, term.text))
        predicate.mode = term.entry.mode
        return
    assert owner is not None, "what is no condition is about an attribute"
    predicate.mode = owner.entry.mode
    said = owner.text
    for choice in owner.entry.choices:
        path = choice.attribute
        if not path:
            continue
        name = lexicon.name_attribute(path)
        for text in _write(predicate, path, is_not, lexicon):
            predicate.alternatives.append(SpokenAlternative(text.replace("@", name, 1), path, said))
    if predicate.is_open or not predicate.alternatives:
        paths = [choice.attribute for choice in owner.entry.choices if choice.attribute]
        paths = paths[:1] if owner.entry.mode == ">>" and not reading.events else paths
        direction = value.direction if value is not None else ("down" if is_not else "")
        reading.mentioned += [(path, direction) for path in paths]
        key = "which_condition" if term is None and value is None else "no_such_term"
        reading.troubles.append(ReadingTrouble(key, predicate.start, predicate.end, (said,)))


def _write(predicate: SpokenPredicate, path: str, is_not: bool, lexicon: Lexicon) -> Iterator[str]:
    """Yield a predicate on one attribute; "@" is its name."""
    negation = "not " if is_not else ""
    if predicate.value is not None:
        for value in predicate.value.values:
            if is_not and value.startswith("= "):
                yield f"@ != {value[2:]}"
            elif value.startswith("not "):
                yield f"@ is {value[4:] if is_not else value}"
            else:
                yield f"@ is {negation}{value}" if is_not else f"@ {value}"
        return
    if predicate.term is None:
        some, none = lexicon.presence.get(path, ("", ""))
        if none if is_not else some:
            yield none if is_not else some
        return
    term = predicate.term.entry.terms.get(path)
    if term is None:
        return
    attribute = lexicon.attributes[path]
    if term.startswith("not "):
        term, negation = term[4:], "" if is_not else "not "
    if term in attribute.symbols:
        if predicate.hedges and any(
            hedge not in ("very", "extremely") for hedge in predicate.hedges
        ):
            return
        yield f"@ {'!=' if negation else '='} {term}"
        return
    hedges = "".join(f"{hedge} " for hedge in predicate.hedges)
    yield f"@ is {negation}{hedges}{term}"


def write_sentence(reading: EverydayReading, chosen: Sequence[SpokenAlternative]) -> str:
    """Return the sentence of a reading with one alternative for each predicate."""
    rest = iter(chosen)
    words: list[str] = []
    for clause in reading.clauses:
        closed = [predicate for predicate in clause.predicates if predicate.alternatives]
        texts = [alternative.text for _, alternative in zip(closed, rest, strict=False)]
        joint, _, bracket = clause.joint.rpartition(" ")
        if bracket not in ("(", ")"):
            joint, bracket = bracket, ""
        if joint and words and words[-1] != "(" and (texts or bracket):
            words.append(joint)
        if bracket:
            words.append(bracket)
        if texts:
            words.append(" and ".join(f"({t})" if " or " in t else t for t in texts))
    return ", ".join([" ".join(words), *reading.options])


def list_predicates(reading: EverydayReading) -> list[SpokenPredicate]:
    """Return the predicates of a reading that can be written, in their order."""
    return [p for clause in reading.clauses for p in clause.predicates if p.alternatives]
