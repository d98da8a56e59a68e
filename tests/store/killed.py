"""The process that `test_kills` kills: commits numbered groups, and says so after each commit.

    python -m tests.store.killed STORE

Each group moves a counter, adds a row, deletes an old one and logs; whatever a kill leaves must
agree with itself. Prints the number of each group after its commit has returned.
"""

from __future__ import annotations

import sys

from denwatch.node.store import Store

KEPT = 40  # rows that stay


def main() -> None:
    store = Store(sys.argv[1], "north")
    print("epoch", store.epoch, flush=True)
    number = int.from_bytes(store.get("counter", b"") or b"", "big")
    while True:
        number += 1
        key = number.to_bytes(8, "big")
        store.apply([("counter", b"", key)])
        store.apply([("row", key, key * (1 + number % 50))], [key])
        store.apply([("row", max(number - KEPT, 0).to_bytes(8, "big"), None)])
        store.commit()
        print(number, flush=True)


if __name__ == "__main__":
    main()
