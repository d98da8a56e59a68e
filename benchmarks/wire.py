"""How many bytes a subscription takes: XML, JSON, CBOR map, subscription vector.

The DENS paper's example (three attributes; 877 bytes of XML, 17 of vector) and four more from the
rescue vocabulary. XML carries its fuzzy sets, as the paper's does; the plain form without them is
shown beside it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import cbor2
from denwatch.client.compiler import compile_subscription
from denwatch.client.language import parse, print_as
from denwatch.client.vocabulary import load_shipped
from denwatch.protocol import notification
from denwatch.protocol.vectors import NotificationVector, Reading

from benchmarks.common import format_table, run, save_text

SUBSCRIPTIONS = (
    (
        "the paper's three attributes",
        "patient_temperature is very_high and heart_rate is high and respiration_rate is low"
        ", by harmonic mean",
    ),
    (
        "patient in shock",
        "systolic_pressure is low and heart_rate is very_high and oxygen_saturation is not normal",
    ),
    ("fever or low pulse", "patient_temperature above 104 °F or heart_rate is low"),
    ("people in smoke", "smoke is dense and people_inside is many and visibility is bad"),
    ("bad air", "carbon_monoxide is high and oxygen is low and methane is explosive"),
)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Print the table and return the headline figures."""
    vocabulary = load_shipped("rescue")
    rows = []
    for name, words in SUBSCRIPTIONS:
        tree = parse(words)
        vector = compile_subscription(tree, vocabulary).data
        text = print_as("json", tree)
        sizes = [
            len(print_as("xml", tree, vocabulary=vocabulary).encode()),
            len(print_as("xml", tree).encode()),
            len(json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()),
            len(cbor2.dumps(json.loads(text), canonical=True)),
            len(vector),
        ]
        rows.append((name, len(words.encode()), *sizes, sizes[0] / sizes[-1]))
    header = ("subscription", "words", "XML", "XML, no sets", "JSON", "CBOR map", "SV", "XML / SV")
    table = format_table(header, rows)
    print(table)
    readings = [Reading(bit, (100 + bit,) * 4) for bit in (3, 4, 5)]
    if options.save:
        save_text(
            "wire.md", f"# Bytes of a subscription\n\n{__doc__.split(chr(10), 2)[2]}\n{table}\n"
        )
    return {
        "sv_bytes_3": max(row[6] for row in rows),
        "nv_bytes_3": len(notification.encode(NotificationVector(1, readings, 65535))),
        "xml_over_sv_min": round(min(row[-1] for row in rows), 1),
    }


def main() -> None:
    """Run as a program."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
