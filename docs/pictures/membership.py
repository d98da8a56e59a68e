"""Draws how well a temperature fits "high" and "very high", as the vocabulary `rescue` has them."""

from __future__ import annotations

from docs.pictures.canvas import Canvas


def draw_membership(canvas: Canvas, at: tuple[float, float]) -> None:
    """Draw "high" and "very high" over the temperature."""
    x0, y0 = at
    left, right, bottom, top = x0 + 40, x0 + 480, y0 + 110, y0 + 10
    low, high, full, width = 36.0, 42.0, 39.5, 2.015

    def place(value: float, degree: float) -> tuple[float, float]:
        return (
            left + (value - low) / (high - low) * (right - left),
            bottom - degree * (bottom - top),
        )

    def degree(value: float) -> float:
        return max(0.0, 1 - max(0.0, full - value) / width)

    for value in range(37, 42):
        x, _ = place(value, 0)
        canvas.text((x, bottom + 17), f"{value} °C", "soft", "middle")
        canvas.add(f'<path class="axis" d="M{x:g} {bottom:g} v4"/>')
    canvas.add(f'<path class="axis" d="M{left:g} {top:g} V{bottom:g} H{right:g}"/>')
    for level in (0.0, 0.5, 1.0):
        canvas.text((left - 8, place(low, level)[1] + 4), f"{level:g}", "soft", "end")
    y = place(low, 0.5)[1]
    canvas.add(f'<path class="axis dashed" d="M{left:g} {y:g} H{right:g}"/>')
    values = [low + step / 40 for step in range(241)]
    for power, width_of_line in ((1, 1.4), (2, 3)):
        curve = [place(value, degree(value) ** power) for value in values]
        path = " L".join(f"{x:.1f} {y:.1f}" for x, y in curve)
        canvas.add(f'<path class="app-line" stroke-width="{width_of_line}" d="M{path}"/>')
    x, y = place(39.2, degree(39.2) ** 2)
    canvas.add(f'<circle class="device-ink" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
    canvas.text((x + 12, y + 5), "39.2 °C: 0.72", "soft")
    canvas.text((place(38.25, 0.5)[0] - 6, place(0, 0.62)[1]), "high", "soft app-ink", "end")
    canvas.text((place(38.75, 0)[0] + 10, place(0, 0.16)[1]), "very high", "soft app-ink", "start")
