"""Terms from fuzzylite's language."""

from __future__ import annotations

import pytest
from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import load_shipped
from denwatch.client.vocabulary.loading import import_fll, parse_fll

TEXT = """
Engine: ward
InputVariable: body_temp  # any synonym will do
  enabled: true
  range: 25.000 50.500
  lock-range: false
  term: subfebrile Triangle 37.000 37.500 38.000
  term: feverish Ramp 37.500 39.000
  term: Cold Ramp 35.000 33.000
  term: band Trapezoid 36.000 36.500 37.000 37.500
  term: lowish Trapezoid -inf -inf 35.000 36.000
  term: box Rectangle 36.000 37.000
  term: typical Gaussian 36.800 0.500
  term: round Bell 37.000 1.000 2.000
OutputVariable: alarm
  range: 0.000 1.000
  term: loud Triangle 0.000 1.000 2.000
RuleBlock: rules
  rule: if body_temp is feverish then alarm is loud
"""


def test_input_variables_are_read_and_outputs_left() -> None:
    found = parse_fll(TEXT)
    assert list(found) == ["body_temp"]
    variable = found["body_temp"]
    assert (variable.low, variable.high) == (25.0, 50.5)
    assert variable.terms == {
        "subfebrile": ("triangle", (37.0, 37.5, 38.0)),
        "feverish": ("rising", (37.5, 39.0)),
        "cold": ("falling", (33.0, 35.0)),
        "band": ("trapezoid", (36.0, 36.5, 37.0, 37.5)),
        "lowish": ("falling", (35.0, 36.0)),
        "box": ("trapezoid", (36.0, 36.0, 37.0, 37.0)),
        "typical": ("gaussian", (36.8, 0.5)),
        "round": ("bell", (37.0, 1.0, 2.0)),
    }


def test_imported_terms_join_the_attribute() -> None:
    rescue = load_shipped("rescue")
    more = import_fll(rescue, TEXT)
    terms = more.events["patient"].attributes["patient_temperature"].terms
    assert terms["feverish"].membership.evaluate(38.25) == pytest.approx(0.5)
    assert "high" in terms
    assert more.hash != rescue.hash
    assert import_fll(more, TEXT).hash == more.hash  # twice is once


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Ramp 37.500 39.000", "Sigmoid 37.500 2.000", 'the class "Sigmoid" of term "feverish"'),
        ("Ramp 37.500 39.000", "Ramp 37.500", "2 numbers are wanted, 1 are here"),
        ("Ramp 37.500 39.000", "Ramp 37.500 39.000 0.500", "a term of height 0.5"),
        ("Ramp 37.500 39.000", "Ramp warm hot", '"warm hot" are not numbers'),
        ("Ramp 37.500 39.000", "Ramp nan 39.000", "nan is not a place"),
    ],
)
def test_what_has_no_counterpart_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    text = TEXT.replace(old, new)
    with pytest.raises(LanguageError) as caught:
        parse_fll(text)
    assert message in caught.value.message
    line, _ = caught.value.locate(text)
    assert "feverish" in text.split("\n")[line - 1]


def test_conflicts_and_strangers_are_refused() -> None:
    rescue = load_shipped("rescue")
    with pytest.raises(LanguageError, match="has a term feverish already"):
        import_fll(import_fll(rescue, TEXT), TEXT.replace("Ramp 37.500", "Ramp 37.000"))
    with pytest.raises(LanguageError, match='unknown attribute "body_tmep"; did you mean'):
        import_fll(rescue, TEXT.replace("body_temp", "body_tmep"))
    with pytest.raises(LanguageError, match="inf is no finite number"):
        import_fll(rescue, TEXT.replace("Gaussian 36.800", "Gaussian inf"))
    with pytest.raises(LanguageError, match="no InputVariable"):
        import_fll(rescue, "Engine: empty")
    with pytest.raises(LanguageError, match=r"may be patient\.east, fire\.east"):
        import_fll(rescue, TEXT.replace("body_temp", "east"))
    with pytest.raises(LanguageError, match="is a text and has no terms"):
        import_fll(rescue, TEXT.replace("body_temp", "triage"))
