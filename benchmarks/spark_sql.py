"""The same matching in SQL, for Spark and for DuckDB: a stab join.

Every subscription is filed under each value of its most selective interval, and a notification
looks up its values there: an equality join, which both engines hash. What passes is cut down by
mask, intervals and time, and its degree is computed. All numbers are prepared in the tables, no
vector has to be decoded. On DuckDB two other forms were tried with 20,000 notifications and
stopped: lists by mask and value (after 60 s), and lists that hold only ids with a second join for
the rest (after more than 100 s); this one took 2 s. On Spark only this form was tried, its lists
broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.spark_work import WIDEST

CHECKED = "count(*) as matches, sum(possible) as degrees, sum(mixed) as mixed"


@dataclass(frozen=True)
class Dialect:
    """What differs between the two engines."""

    name: str
    first: int  # the index of a list's first element
    explode: str
    shift: str  # a right shift by 8, of {}
    spread: str  # rows for a range of numbers, {low} to {high}, as column v


SPARK = Dialect(
    "spark",
    0,
    "select note_id, `at`, doubt, event, features, vals, event * 4096 + p * 256 + x as key"
    " from notes lateral view posexplode(vals) as p, x where x is not null",
    "shiftright({}, 8)",
    "lateral view explode(sequence({low}, {high})) as v",
)
DUCKDB = Dialect(
    "duckdb",
    1,
    'select note_id, "at", doubt, event, features, vals, event * 4096 + p * 256 + x as key from'
    ' (select note_id, "at", doubt, event, features, vals, unnest(range(0, 16)) as p,'
    " unnest(vals) as x from notes) where x is not null",
    "(({}) >> 8)",
    ", unnest(range({low}, {high} + 1)) as spread(v)",
)


def _pick(stem: str) -> str:
    """Return the column of the most selective predicate."""
    cases = " ".join(f"when {i} then {stem}{i}" for i in range(WIDEST - 1))
    return f"(case best {cases} else {stem}{WIDEST - 1} end)"


def list_stabs(dialect: Dialect) -> str:
    """Return the query that files subscriptions under values."""
    spans = [f"case when width > {i} then last{i} - first{i} else 999 end" for i in range(WIDEST)]
    least = f"least({', '.join(spans)})"
    best = " ".join(f"when {span} = {least} then {i}" for i, span in enumerate(spans[:-1]))
    key = f"event * 4096 + {_pick('a')} * 256 + v as key"
    spread = dialect.spread.format(low=_pick("first"), high=_pick("last"))
    inner = f"select *, case {best} else {WIDEST - 1} end as best from subscriptions"
    return f"select {key}, {_list_columns()} from ({inner}) s {spread}"


def _list_columns() -> str:
    stems = ("a", "first", "last", "low", "high", "slope")
    numbers = [f"{stem}{i}" for i in range(WIDEST) for stem in stems]
    return ", ".join(["subscription_id", "features", "begins", "ends", "width", *numbers])


def match(dialect: Dialect) -> str:
    """Return the query that counts matches and sums what shows that they are the same."""
    at = '"at"' if dialect is DUCKDB else "`at`"
    values = [f"n.vals[s.a{i} + {dialect.first}]" for i in range(WIDEST)]
    held = [
        f"(s.width <= {i} or {value} between s.first{i} and s.last{i})"
        for i, value in enumerate(values)
    ]
    degrees = []
    for i, value in enumerate(values):
        away = f"greatest(s.low{i} - {value}, {value} - s.high{i}, 0) * s.slope{i} + 128"
        lost = dialect.shift.format(away)
        degrees.append(f"case when s.width > {i} then 255 - least(255, {lost}) else 256 end")
    possible = f"least({', '.join(degrees)})"
    mixed = "(n.note_id % 1000003) * (s.subscription_id % 1009)"
    joined = f"({dialect.explode}) n join stabs s on n.key = s.key"
    return (
        f"select {CHECKED} from (select {possible} as possible, {mixed} as mixed from {joined}"
        f" where (s.features & ~n.features) = 0 and {' and '.join(held)}"
        f" and s.begins - n.doubt <= n.{at} and n.{at} < s.ends) found"
    )
