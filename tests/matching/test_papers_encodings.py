"""Packed codes of degrees: what is written is read back, and neighbours stay as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.trapezoids import allocate_codes, decode, encode, read_code, write_code


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_codes_in_any_order_are_read_back(bits: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    packed = allocate_codes(count, bits)
    expected = [0] * count
    writes = st.tuples(st.integers(0, count - 1), st.integers(0, 2**bits - 1))
    for index, code in data.draw(st.lists(writes, max_size=60)):
        write_code(packed, index, bits, code)
        expected[index] = code
        assert [read_code(packed, i, bits) for i in range(count)] == expected


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_a_degree_and_its_code_share_a_cell(bits: int) -> None:
    cells = 2**bits
    for step in range(10001):
        degree = step / 10000
        code = encode(degree, bits)
        assert 0 <= code < cells
        assert code / cells <= degree <= (code + 1) / cells
        assert code / cells <= decode(code, bits) <= (code + 1) / cells
    assert encode(1.0, bits) == cells - 1
    assert decode(cells - 1, bits) == 1.0
    assert decode(0, bits) == 0.0


def test_the_example_of_the_paper() -> None:
    """With eight values, what lies between 0.75 and 0.8 cannot be told from 0.8 to 0.875."""
    assert encode(0.76, 3) == encode(0.8, 3) == encode(0.87, 3)
    assert encode(0.74, 3) < encode(0.8, 3) < encode(0.88, 3)
