"""Real weather: the daily records of Seattle in `vega_datasets`, as readings of a station."""

from __future__ import annotations

from vega_datasets import local_data


def read_station(number: int, stations: int) -> list[dict[str, float]]:
    """Return the records of one of several stations, which begin at different places."""
    records = [
        {"wind_speed": row.wind, "temperature": row.temp_max, "rain_rate": row.precipitation / 24}
        for row in local_data.seattle_weather().itertuples()
    ]
    start = len(records) * number // stations
    return records[start:] + records[:start]
