"""Records one by one: every kind there and back, and everything that does not fit refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cbor2
import pytest
from denwatch.node.log import KINDS, LogRecordError, encode_record
from denwatch.node.log.kinds import MAX_KINDS, TYPES
from denwatch.node.log.records import check_columns, check_row, name_fields
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.samples import CATALOGUE, EXAMPLES, NOW, build_full

README = Path(__file__).parents[2] / "edge" / "denwatch" / "node" / "log" / "README.md"


@pytest.mark.parametrize(("kind", "fields"), CATALOGUE)
def test_every_kind_there_and_back(kind: str, fields: dict[str, Any]) -> None:
    row = cbor2.loads(encode_record(kind, fields, NOW, 7))
    assert row[:3] == [KINDS[kind].id, NOW, 7]
    assert check_row(row) is None
    missing = {field.name: None for field in KINDS[kind].fields}
    assert name_fields(row) == missing | fields


def test_a_field_that_is_none_need_not_be_said() -> None:
    said = encode_record("clock", {"offset": 5, "bound": None, "source": None}, NOW)
    assert said == encode_record("clock", {"offset": 5}, NOW)
    assert len(said) < len(encode_record("clock", {"offset": 5, "source": "x"}, NOW))


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("lunch", {}, "no record of the kind 'lunch'"),
        ("stop", {}, "reason is missing"),
        ("stop", {"reason": None}, "reason is missing"),
        ("stop", {"reason": 5}, "reason is 5, not text"),
        ("stop", {"reason": "x", "why": 1}, "no field 'why'"),
        ("clock", {"offset": 1, "sorce": "x"}, "no field 'sorce'"),
        ("clock", {"offset": 1 << 63}, "offset is out of the range of int"),
        ("clock", {"offset": True}, "offset is True, not int"),
        ("purge", {"item": -1, "what": "", "why": ""}, "item is out of the range of id"),
        ("purge", {"item": 1 << 64, "what": "", "why": ""}, "item is out of the range of id"),
        ("attach", {"subscriber": "m", "is_up": 1}, "is_up is 1, not bool"),
        ("vocabulary", {"hash": "text"}, "hash is 'text', not bytes"),
        ("vocabulary", {"hash": b"", "document": "x" * (5 << 20)}, "more than"),
        ("start", {"software": "1", "settings": {1: 2}}, "settings is out of the range of map"),
        ("start", {"software": "1", "settings": {"x": object()}}, "start: "),
        (
            "learn_delivered",
            {"subscriber": "m", "notes": [1, "x"], "source": ""},
            "notes is out of the range of ids",
        ),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(LogRecordError, match=re.escape(reason)):
        encode_record(kind, fields, NOW)


def test_times_must_be_integers() -> None:
    for time, hybrid in ((1.5, 0), (0, "x"), (1 << 63, 0), (True, 0)):
        with pytest.raises(LogRecordError, match="time"):
            encode_record("stop", {"reason": "x"}, time, hybrid)  # type: ignore[arg-type]


def test_fields_of_a_newer_version_are_let_through() -> None:
    row = cbor2.loads(encode_record("revoke", {"name": "wd1", "by": "x", "reason": "y"}, NOW))
    assert check_row([*row, {"new": 1}]) is None
    assert name_fields([*row, {"new": 1}]) == name_fields(row)


def test_ids_and_names_are_unique_and_types_known() -> None:
    assert len({kind.id for kind in KINDS.values()}) == len(KINDS)
    for name, kind in KINDS.items():
        assert kind.name == name
        assert 0 < kind.id < MAX_KINDS
        fields = [field.name for field in kind.fields]
        assert len(set(fields)) == len(fields)
        assert not set(fields) & {"number", "time", "hybrid", "node", "epoch", "kind", "schema"}
        assert {field.type for field in kind.fields} <= set(TYPES)


def test_required_fields_come_first_so_that_more_can_be_appended() -> None:
    for kind in KINDS.values():
        optional = [field.is_optional for field in kind.fields]
        assert optional == sorted(optional), kind.name


def test_the_page_lists_every_kind_and_field() -> None:
    text = README.read_text()
    for kind in KINDS.values():
        fields = " ".join(
            f"{field.name}:{field.type}{'?' if field.is_optional else ''}" for field in kind.fields
        )
        assert f"| {kind.id} | `{kind.name}` | {kind.meaning} | {fields} |" in text


VALUES = st.one_of(
    st.sampled_from(list(EXAMPLES.values())),
    st.none(),
    st.integers(-(1 << 70), 1 << 70),
    st.just(["x", 1]),
    st.just({1: 2}),
)


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_checking_columns_agrees_with_checking_rows(kind: str, data: st.DataObject) -> None:
    fields = list(build_full(KINDS[kind]).values())
    rows = []
    for _ in range(data.draw(st.integers(1, 3))):
        row = [KINDS[kind].id, NOW, 0, *fields]
        for place in data.draw(st.sets(st.integers(1, len(row) - 1), max_size=2)):
            row[place] = data.draw(VALUES)
        rows.append(row[: data.draw(st.integers(max(3, len(row) - 2), len(row)))])
    width = max(map(len, rows))
    columns = list(zip(*[row + [None] * (width - len(row)) for row in rows], strict=True))
    assert check_columns(KINDS[kind].id, columns) == all(check_row(row) is None for row in rows)


@settings(max_examples=10)
@given(st.data())
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_short_way_writes_what_cbor_writes(kind: str, data: st.DataObject) -> None:
    """Names, times and numbers at the edges of their encodings, and fields that are left out."""
    edges = [0, 23, 24, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 63) - 1]
    signed = st.sampled_from([*edges, *(-edge - 1 for edge in edges)])
    ids = st.sampled_from([*edges, 1 << 63, (1 << 64) - 1])
    values: dict[str, st.SearchStrategy[Any]] = {
        "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
        "int": signed,
        "id": ids,
        "real": st.one_of(st.floats(), st.sampled_from([0, 7, -(1 << 53)])),
        "bytes": st.sampled_from([bytes(size) for size in (0, 23, 24, 255, 256)]),
        "bool": st.booleans(),
        "ids": st.lists(ids, max_size=30),
        "texts": st.lists(st.text(max_size=3), max_size=3),
        "map": st.dictionaries(st.text(max_size=3), signed, max_size=3),
    }
    fields = {}
    for field in KINDS[kind].fields:
        drawn = values[field.type]
        fields[field.name] = data.draw(st.none() | drawn if field.is_optional else drawn)
    times = data.draw(signed), data.draw(signed)
    row = [KINDS[kind].id, *times, *fields.values()]
    while row[-1] is None:
        row.pop()
    assert encode_record(kind, fields, *times) == cbor2.dumps(row)
