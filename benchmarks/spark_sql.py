"""The same matching in SQL, for Spark and for DuckDB, in several forms; the best one is compared.

A form says under which keys subscriptions are filed (a table that is made before the time runs, as
our index is) and which keys a notification looks up: an equality join, which both engines hash.
What passes is cut down by mask, intervals and time, and its degree is computed. All numbers are
prepared in the tables; no vector has to be decoded. In packed forms the numbers of a predicate, and
a notification's values, are one or two 64-bit words: rows are shorter, and nothing is an array.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.spark_work import WIDEST

CHECKED = "count(*) as matches, sum(possible) as degrees, sum(mixed) as mixed"
_PLAIN = ("a", "first", "last", "low", "high", "slope")


@dataclass(frozen=True)
class Dialect:
    """What differs between the two engines."""

    name: str
    first: int  # the index of a list's first element
    at: str  # the column `at`, which is a word of SQL
    shift: str  # {} shifted right by {}
    spread: str  # rows for a range of numbers, {low} to {high}, as column {name}
    explode: str  # rows for the elements of the list {list} as column {name}, from {table}


SPARK = Dialect(
    "spark",
    0,
    "`at`",
    "shiftright({}, {})",
    "lateral view explode(sequence({low}, {high})) spread_{name} as {name}",
    "(select *, explode({list}) as {name} from {table})",
)
DUCKDB = Dialect(
    "duckdb",
    1,
    '"at"',
    "(({}) >> ({}))",
    ", unnest(range({low}, {high} + 1)) as spread_{name}({name})",
    "(select *, unnest({list}) as {name} from {table})",
)


@dataclass(frozen=True)
class Form:
    """A way to write the join."""

    name: str
    kind: str  # stab, pair, mask, cell, event or range
    is_packed: bool = True
    hint: str = "broadcast"  # to Spark: how to join

    @property
    def needs_masks(self) -> bool:
        """Whether notifications must list the masks that they have."""
        return self.kind in ("mask", "cell")


STAB = Form("stab join (attribute, value), columns and arrays", "stab", is_packed=False)
STAB_PACKED = Form("stab join (attribute, value), packed", "stab")
PAIR = Form("join by two attributes (value of one, cell of the other), packed", "pair")
MASK = Form("join by mask, packed", "mask")
CELL = Form("join by mask and cell, packed", "cell")
EVENT = Form("join by event, all else a condition, packed", "event")
RANGE = Form("range join: key between two keys, packed", "range")
SHUFFLED = Form("stab join, shuffled hash, packed", "stab", hint="shuffle_hash")
MERGED = Form("stab join, sort-merge, packed", "stab", hint="merge")

LEADERS = 2  # those that have ever been the best come first
SPARK_FORMS = (PAIR, STAB_PACKED, STAB, MASK, CELL, SHUFFLED, MERGED, EVENT)
DUCKDB_FORMS = (PAIR, STAB_PACKED, STAB, MASK, CELL, EVENT, RANGE)


def file_subscriptions(form: Form, dialect: Dialect) -> str:
    """Return the query that files subscriptions under keys."""
    shift = dialect.shift.format
    source, where, lowest = "subscriptions s", "", ""
    key = "event"
    if form.kind == "stab":
        source += " " + dialect.spread.format(low="first0", high="last0", name="v")
        key = "event * 4096 + a0 * 256 + v"
    elif form.kind == "pair":
        source += " " + dialect.spread.format(low="first0", high="last0", name="v")
        cells = shift("first_second", 4), shift("last_second", 4)
        source += " " + dialect.spread.format(low=cells[0], high=cells[1], name="c")
        key = "((event * 16 + a0) * 256 + v) * 256 + a_second * 16 + c"
        where = f" where width > 1 or c = {shift('v', 4)}"
    elif form.kind == "mask":
        key = "event * 65536 + features"
    elif form.kind == "cell":
        cells = shift("first_lowest", 4), shift("last_lowest", 4)
        source += " " + dialect.spread.format(low=cells[0], high=cells[1], name="c")
        key = "(event * 65536 + features) * 16 + c"
    elif form.kind == "range":
        key = "event * 4096 + a0 * 256 + last0"
        lowest = ", cast(event * 4096 + a0 * 256 + first0 as bigint) as lowest"
    names = ["subscription_id", "features", "begins", "ends", "width", *_list_columns(form)]
    kept = ", ".join(f"s.{name}" for name in names)
    return f"select cast({key} as bigint) as key{lowest}, {kept} from {source}{where}"


def _list_columns(form: Form) -> list[str]:
    stems = ("word",) if form.is_packed else _PLAIN
    return [f"{stem}{i}" for i in range(WIDEST) for stem in stems]


def look_up(form: Form, dialect: Dialect) -> str:
    """Return the notifications, a row for every key that they look up."""
    held = "values0, values1" if form.is_packed else "vals"
    columns = f"notification_id, {dialect.at}, doubt, features, {held}"
    one = dialect.explode.format(list="keys", name="k", table="notes")
    if form.kind in ("stab", "range"):
        return f"(select {columns}, cast(event * 4096 + k as bigint) as key from {one} n)"
    if form.kind == "pair":
        both = dialect.explode.format(list="keys", name="k2", table=f"{one} n1")
        cell = dialect.shift.format("k2", 4)
        key = f"cast((event * 4096 + k) * 256 + {cell} as bigint) as key"
        return f"(select {columns}, {key} from {both} n2)"
    if form.needs_masks:
        masks = dialect.explode.format(list="masks", name="m", table="notes")
        key = "m" if form.kind == "cell" else dialect.shift.format("m", 4)
        return f"(select {columns}, {key} as key from {masks} n1)"
    return f"(select {columns}, cast(event as bigint) as key from notes)"


def match(form: Form, dialect: Dialect) -> str:
    """Return the query that counts matches and sums what shows that they are the same."""
    parts = [_read_predicate(form, dialect, i) for i in range(WIDEST)]
    held = [
        f"(s.width <= {i} or {p['x']} between {p['first']} and {p['last']})"
        for i, p in enumerate(parts)
    ]
    degrees = []
    for i, p in enumerate(parts):
        away = f"greatest({p['low']} - {p['x']}, {p['x']} - {p['high']}, 0) * {p['slope']} + 128"
        lost = dialect.shift.format(away, 8)
        degrees.append(f"case when s.width > {i} then 255 - least(255, {lost}) else 256 end")
    possible = f"least({', '.join(degrees)})"
    mixed = "(n.notification_id & 1048575) * (s.subscription_id & 1023)"
    is_range = form.kind == "range"
    condition = "n.key between s.lowest and s.key" if is_range else "n.key = s.key"
    hint = f"/*+ {form.hint}(s) */ " if dialect is SPARK else ""
    return (
        f"select {CHECKED} from (select {hint}{possible} as possible, {mixed} as mixed"
        f" from {look_up(form, dialect)} n join filed s on {condition}"
        f" where (s.features & ~n.features) = 0 and {' and '.join(held)}"
        f" and s.begins - n.doubt <= n.{dialect.at} and n.{dialect.at} < s.ends) found"
    )


def _read_predicate(form: Form, dialect: Dialect, i: int) -> dict[str, str]:
    """Return the expressions for a predicate's numbers, and the value that it is about, `x`."""
    if not form.is_packed:
        parts = {stem: f"s.{stem}{i}" for stem in _PLAIN}
        return {**parts, "x": f"n.vals[s.a{i} + {dialect.first}]"}
    parts = {}
    for shift, stem in enumerate(_PLAIN):
        width = 65535 if stem == "slope" else 255
        taken = dialect.shift.format(f"s.word{i}", 8 * shift) if shift else f"s.word{i}"
        parts[stem] = f"cast({taken} & {width} as int)"
    side = f"case when {parts['a']} < 8 then n.values0 else n.values1 end"
    taken = dialect.shift.format(side, f"({parts['a']} & 7) * 8")
    return {**parts, "x": f"cast({taken} & 255 as int)"}
