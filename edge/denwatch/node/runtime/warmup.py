"""Compile ahead what a node matches and covers with, so that the first question does not wait.

From the cache on the disk it takes a second. On a new machine it takes a minute of processor time,
once, which is said to whoever waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from denwatch.node.covering import Approximate, Covering
from denwatch.node.covering.boxes import box_vector
from denwatch.node.matching import index
from denwatch.protocol.vectors import Predicate, SubscriptionVector

_PATIENCE = 3.0  # s
_WORDS = "compiling the matcher for this machine, which takes a minute, once"


def warm_up(say: Callable[[str], None]) -> None:
    """Run every kernel once; `say` what is done, if it takes long."""
    timer = threading.Timer(_PATIENCE, say, (_WORDS,))
    timer.daemon = True
    timer.start()
    try:
        index.warm_up()
        _warm_covering()
    finally:
        timer.cancel()


def _warm_covering() -> None:
    covering: Covering[int] = Covering(policy=Approximate())
    for number in range(6):
        wide = Predicate(0, 10, 20 + number, 100)
        predicates = [wide, Predicate(1, 5 * number, 200, 100)][: 1 + number % 2]
        covering.subscribe(number, box_vector(SubscriptionVector(0, predicates)))
    covering.unsubscribe(0)
    covering.rebuild()
