"""A CSV file as a source, the DENS paper's handler for `file` and `text/csv`: a line a round.

Field n is column n times its scale, rounded: with a scale of 10, `36.6` is 366. A cell that is
empty or no number is a broken sensor. Only this file reads CSV.
"""

from . import NotReadyError, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class CsvFile(Source):
    """Reads `columns` (names in the first line) line by line; follows a file that grows."""

    def __init__(self, path: str, columns: list[str], scales: list[int]) -> None:
        self._scales = scales
        self._cells: list[str] = []
        self._rest = ""
        self._file = open(path)  # noqa: SIM115, PTH123 - open for the device's life; no pathlib
        names = [name.strip() for name in self._take_line().split(",")]
        try:
            self._places = [names.index(column) for column in columns]
        except ValueError:
            self.close()
            raise ValueError(f"{path}: {columns}") from None  # one of them is not there

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """Take the next line; NotReadyError where there is none yet."""
        self._cells = []
        line = self._take_line()
        if not line.strip():
            raise NotReadyError
        self._cells = line.split(",")

    def read(self, field: int) -> int:
        """Return a column of the line, scaled; an error if there is none, or no number in it."""
        number = float(self._cells[self._places[field]]) * self._scales[field]
        if not -1e9 < number < 1e9:  # NaN fails, too
            raise ValueError
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


def make(entry: "dict[str, Any]", board: object) -> CsvFile:  # noqa: ARG001 - the interface
    """Make one: `path`, `columns`, `scales`."""
    return CsvFile(entry["path"], entry["columns"], entry["scales"])
