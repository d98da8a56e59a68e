"""What people ask for: attributes and terms of all subscriptions, with what they matched."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from denwatch.client.errors import LanguageError
from denwatch.client.language import parse
from denwatch.client.syntax import (
    Constraint,
    CrispComparison,
    CrispRange,
    NamedTerm,
    PredicateNode,
    iterate_predicates,
)
from denwatch.node.matching.plugins import FUZZY
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

TERMS = "subscription_id bigint, attribute string, term string"
_UNREAD = "(in other words)"  # content filters, and what a newer language says


def count_terms(windows: DataFrame, matches: DataFrame) -> DataFrame:
    """Return attributes and terms: subscriptions, subscribers, and matches of those.

    `windows` and `matches` are those of `denwatch.spark.matching`. The most asked for come first.
    """
    words = windows.select("subscription_id", "words", "language")
    said = words.mapInPandas(_read_words, TERMS)
    matched = matches.groupBy("subscription_id").agg(F.count("*").alias("matches"))
    return (
        said.join(windows.select("subscription_id", "owner"), "subscription_id")
        .join(matched, "subscription_id", "left")
        .groupBy("attribute", "term")
        .agg(
            F.countDistinct("subscription_id").alias("subscriptions"),
            F.countDistinct("owner").alias("subscribers"),
            F.coalesce(F.sum("matches"), F.lit(0)).alias("matches"),
        )
        .orderBy(F.desc("subscriptions"), F.desc("matches"), "attribute", "term")
    )


def _read_words(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        rows = [
            (int(row.subscription_id), *pair)
            for row in batch.itertuples(index=False)
            for pair in _list_terms(row.words, row.language)
        ]
        yield pd.DataFrame(rows, columns=["subscription_id", "attribute", "term"])


def _list_terms(words: str, language: int) -> list[tuple[str, str]]:
    if language != FUZZY:
        return [(_UNREAD, "")]
    try:
        condition = parse(words).condition
    except LanguageError:
        return [(_UNREAD, "")]
    found = [_describe(predicate) for predicate in iterate_predicates(condition)]
    return list(dict.fromkeys(found))


def _describe(predicate: PredicateNode) -> tuple[str, str]:
    said = _name(predicate.constraint)
    hedges = " ".join(predicate.hedges)
    parts = ("not" if predicate.negated else "", hedges, said)
    name = predicate.attribute.text.rpartition(".")[2]
    return name, " ".join(part for part in parts if part)


def _name(constraint: Constraint) -> str:
    if isinstance(constraint, NamedTerm):
        return constraint.name.text
    if isinstance(constraint, CrispComparison):
        return str(constraint.operator.value)
    return "between" if isinstance(constraint, CrispRange) else type(constraint).__name__.lower()
