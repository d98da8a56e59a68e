"""Safety rules of a node switched off, one at a time: the campaign must notice each.

Only for tests of the tests. A rule is a patch of one attribute of a class, for as long as a scenario
is played; nothing of it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

ABLATIONS: dict[str, Callable[[], object]] = {}


@contextmanager
def switch_off(name: str) -> Iterator[None]:
    """Play without a rule."""
    yield
