"""A CSV file as a source, the DENS paper's handler for `file` and `text/csv`: a line a round.

Field n is column n times its scale, rounded: with a scale of 10, `36.6` is 366. A cell that is
empty or no number is a broken sensor. Only this file reads CSV.
"""

from .base import NotReadyError, Source


class CsvFile(Source):
    """Reads `columns` (names in the first line) line by line; follows a file that grows."""

    def __init__(
        self, path: str, columns: list[str], scales: list[int], separator: str = ","
    ) -> None:
        super().__init__()
        self._separator = separator
        self._scales = scales
        self._cells: list[str] = []
        self._rest = ""
        self._file = open(path)  # noqa: SIM115, PTH123 - open for the device's life; no pathlib
        names = [name.strip() for name in self._take_line().split(separator)]
        missing = [column for column in columns if column not in names]
        if missing:
            self.close()
            raise ValueError(f"{path} has no column {', '.join(missing)}")
        self._places = [names.index(column) for column in columns]
        self.lines = 0

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """Take the next line; NotReadyError where there is none yet."""
        self._cells = []
        line = self._take_line()
        if not line.strip():
            raise NotReadyError("no further line")
        self.lines += 1
        self._cells = line.split(self._separator)

    def read(self, field: int) -> int:
        """Return a column of the line, scaled; ValueError if it holds no number."""
        place = self._places[field]
        if place >= len(self._cells):
            raise ValueError(f"line {self.lines} has no column {place}")
        number = float(self._cells[place]) * self._scales[field]
        if not -1e9 < number < 1e9:  # NaN fails, too
            raise ValueError(f"line {self.lines}: {self._cells[place]}")
        return int(number + 0.5) if number >= 0 else -int(0.5 - number)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _take_line(self) -> str:
        """Return the next whole line, empty if its end is not written yet."""
        self._rest += self._file.readline()
        if not self._rest.endswith("\n"):
            return ""
        line, self._rest = self._rest, ""
        return line
