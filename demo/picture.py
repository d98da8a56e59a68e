"""The demo's picture: each patient's day, and the minutes that somebody asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

SIGNS = (
    ("patient_temperature", "temperature, °C"),
    ("heart_rate", "heart rate, bpm"),
    ("oxygen_saturation", "oxygen, %"),
)


def draw_day(
    days: Sequence[list[dict[str, float]]], sent: Sequence[Mapping[int, object]], file: Path
) -> None:
    """Write the picture: grey is what was sensed, red what was sent."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(
        len(SIGNS), len(days), figsize=(2.2 * len(days), 5), sharex=True, sharey="row"
    )
    for column, (day, notes) in enumerate(zip(days, sent, strict=True)):
        for row, (name, label) in enumerate(SIGNS):
            axis = grid[row][column]
            values = [values[name] for values in day]
            hours = [minute / 60 for minute in range(len(day))]
            axis.plot(hours, values, color="#b0b0b0", linewidth=0.8)
            axis.scatter(
                [minute / 60 for minute in notes],
                [values[minute] for minute in notes],
                color="#c0202a",
                s=4,
                zorder=3,
            )
            axis.spines[["top", "right"]].set_visible(False)
            axis.set_xticks([0, 12, 24])
            if column == 0:
                axis.set_ylabel(label)
        grid[0][column].set_title(f"patient {column}", fontsize=9)
        grid[-1][column].set_xlabel("hour")
    figure.suptitle("Sensed (grey), and what reached somebody who asked (red)", fontsize=11)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    plt.close(figure)
