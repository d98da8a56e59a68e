"""The backend: the logs of all nodes together, on Spark. In a notebook:

    from denwatch import spark as dens

    session = dens.build_session()                          # local[*], or a master
    notes = dens.read_kind(session, ["logs"], "note")       # records of a kind as a DataFrame
    found = dens.tables(session, ["logs"])                  # every table, made when it is used
    found["matches"], found["outcomes"]                     # global matching, and what was missed
    dens.analyze(session, [Path("logs")], Path("report"))   # report.html and tables

Names are imported when they are first used: `import denwatch.spark` needs neither Java nor pyspark.
Of the node, only its pure packages, `core.items` and `backend_api` are imported from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from denwatch.spark.matching import find_notes, find_windows, match_globally
    from denwatch.spark.report import Report, Tables, analyze, tables
    from denwatch.spark.session import build_session
    from denwatch.spark.source import QUARANTINE, read_kind, stream_kind

__all__ = ["QUARANTINE", "Report", "Tables", "analyze", "build_session", "find_notes"]
__all__ += ["find_windows", "match_globally", "read_kind", "stream_kind", "tables"]
_HOMES = {
    "matching": ("find_notes", "find_windows", "match_globally"),
    "report": ("Report", "Tables", "analyze", "tables"),
    "session": ("build_session",),
    "source": ("QUARANTINE", "read_kind", "stream_kind"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            found: object = getattr(import_module(f"denwatch.spark.{module}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
