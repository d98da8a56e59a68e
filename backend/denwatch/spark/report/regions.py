"""The picture of services by region. Pure, as all pictures are."""

from __future__ import annotations

import pandas as pd
from denwatch.spark.report.svg import TOP, WIDTH, Scale, draw_bar, draw_key, frame, write_text

_ROW = 22  # height of a bar
_MOST_ROWS = 16
_PARTS = (("served", "good"), ("elsewhere", "fair"), ("unserved", "bad"))


def draw_regions(table: pd.DataFrame) -> str:
    """Return how many wishes of each region are served there, elsewhere, or nowhere."""
    kept = table.sort_values(["wishes", "region"], ascending=[False, True])[:_MOST_ROWS]
    if kept.empty or not (kept["wishes"].sum() or kept["services"].sum()):
        return ""
    height = TOP + 14 + _ROW * len(kept) + 22
    start = 14 + 6.4 * min(34, max(len(str(name)) for name in kept["region"]))
    x = Scale(0, float(max(kept["wishes"].max(), 1)), start, WIDTH - 134)
    parts = [draw_key([(colour, name) for name, colour in _PARTS], start)]
    for number, row in enumerate(kept.to_dict("records")):
        top = TOP + 10 + _ROW * number
        parts.append(write_text(start - 6, top + 14, str(row["region"]), "end"))
        base = 0.0
        for name, colour in _PARTS:
            if row[name]:
                low, high = x(base), x(base + row[name])
                tip = f"{row['region']}: {name} {row[name]}"
                parts.append(draw_bar(low, top + 3, high - low, _ROW - 6, colour, tip))
                base += row[name]
        words = f"{row['wishes']} wishes, {row['services']} devices"
        parts.append(write_text(x(base) + 5, top + 14, words, "start"))
    return frame("".join(parts), "Services by region", height)
