"""Predicate patterns of the XML surface: how numbered predicates are joined.

Either an expression, "p1 and (p2 or not p3)", or a code of the DENS paper, "d2c1": letter and count
of each group, c for conjunction and d for disjunction; a group of several is joined to the other by
the other operator, so d2c1 is (p1 or p2) and p3. Predicates count from 1 as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from denwatch.client.errors import LanguageError
from denwatch.client.syntax import And, Condition, Not, Or, PredicateNode, SourceSpan

MAX_DEPTH = 48

_TOKEN = re.compile(r"\s*(?:(and|or|not)\b|([()])|p(\d{1,3})\b)", re.IGNORECASE)
_CODE = re.compile(r"([cd])(\d{1,2})([cd])(\d{1,2})", re.IGNORECASE)


def read_pattern(text: str, predicates: Sequence[Condition], span: SourceSpan) -> Condition:
    """Return the condition that a pattern makes of the predicates; each must take part."""
    code = _CODE.fullmatch(text.strip())
    if code:
        return _read_code(code, predicates, span)
    return _PatternParser(text, predicates, span).parse()


def write_pattern(condition: Condition, predicates: list[PredicateNode]) -> str:
    """Return the pattern of a condition; its predicates are appended in the order they stand."""
    match condition:
        case PredicateNode():
            predicates.append(condition)
            return f"p{len(predicates)}"
        case Not(operand=operand):
            inner = write_pattern(operand, predicates)
            return f"not {inner if isinstance(operand, PredicateNode) else f'({inner})'}"
        case And(operands=operands) | Or(operands=operands):
            joint = " and " if isinstance(condition, And) else " or "
            parts = []
            for operand in operands:
                inner = write_pattern(operand, predicates)
                parts.append(f"({inner})" if isinstance(operand, And | Or) else inner)
            return joint.join(parts)


def _read_code(code: re.Match[str], predicates: Sequence[Condition], span: SourceSpan) -> Condition:
    letters = code[1].lower(), code[3].lower()
    counts = int(code[2]), int(code[4])
    inner = {letter for letter, count in zip(letters, counts, strict=True) if count > 1}
    if len(inner) != 1 or not all(counts):
        raise LanguageError.at_span(
            f'the pattern "{code[0]}" is not one of the kind c1d2, c2d1, c2c2, d3c1', span
        )
    if sum(counts) != len(predicates):
        raise LanguageError.at_span(
            f'the pattern "{code[0]}" joins {sum(counts)} predicates, there are {len(predicates)}',
            span,
        )
    join, outer = (And, Or) if inner == {"c"} else (Or, And)
    groups = predicates[: counts[0]], predicates[counts[0] :]
    parts = [group[0] if len(group) == 1 else join(tuple(group), span=span) for group in groups]
    return outer(tuple(parts), span=span)


class _PatternParser:
    """Recursive descent over a handful of tokens."""

    def __init__(self, text: str, predicates: Sequence[Condition], span: SourceSpan) -> None:
        self.predicates = predicates
        self.span = span
        self.unused = set(range(1, len(predicates) + 1))
        self.tokens: list[tuple[str, SourceSpan]] = []
        self.at = 0
        place = 0
        text = text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            start = place + len(text[place:]) - len(text[place:].lstrip())
            if match is None:
                raise self.refuse(
                    f'"{text[start : start + 1]}" means nothing', SourceSpan(start, start + 1)
                )
            self.tokens.append((match.group().strip().lower(), SourceSpan(start, match.end())))
            place = match.end()

    def refuse(self, message: str, local: SourceSpan | None) -> LanguageError:
        end = self.tokens[-1][1].end if self.tokens else 0
        place = local or SourceSpan(end, end)
        start = self.span.start + place.start
        return LanguageError.at_span(
            f"in the pattern: {message}",
            SourceSpan(start, start + max(1, place.end - place.start)),
            'as in "p1 and (p2 or not p3)"',
        )

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def place(self) -> SourceSpan | None:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def parse(self) -> Condition:
        condition = self.parse_joined(("or", "and"), 0)
        if self.peek():
            raise self.refuse(f'"{self.peek()}" is not expected', self.place())
        if self.unused:
            missing = ", ".join(f"p{number}" for number in sorted(self.unused))
            raise self.refuse(f"{missing} is missing", None)
        return condition

    def parse_joined(self, joints: tuple[str, ...], depth: int) -> Condition:
        """Parse operands of the first joint, whose operands are joined by the next ones."""
        if depth > MAX_DEPTH:
            raise self.refuse(f"nested more than {MAX_DEPTH} deep", self.place())
        if not joints:
            return self.parse_operand(depth)
        operands = [self.parse_joined(joints[1:], depth)]
        while self.peek() == joints[0]:
            self.at += 1
            operands.append(self.parse_joined(joints[1:], depth))
        if len(operands) == 1:
            return operands[0]
        return (Or if joints[0] == "or" else And)(tuple(operands), span=self.span)

    def parse_operand(self, depth: int) -> Condition:
        token, place = self.peek(), self.place()
        self.at += 1
        if token == "not":
            return Not(self.parse_joined((), depth + 1), span=self.span)
        if token == "(":
            condition = self.parse_joined(("or", "and"), depth + 1)
            if self.peek() != ")":
                raise self.refuse('this "(" is never closed', place)
            self.at += 1
            return condition
        if not token.startswith("p"):
            raise self.refuse(f'"{token or "the end"}" is not expected', place)
        number = int(token[1:])
        if not 1 <= number <= len(self.predicates):
            raise self.refuse(f"there is no {token}, only {len(self.predicates)} predicates", place)
        self.unused.discard(number)
        return replace(self.predicates[number - 1])
