"""Decode damaged frames by the million: `python -m tests.protocol.fuzz --count 1000000`.

Every frame must decode or raise ProtocolError, in memory that does not grow; what decodes must
encode to the same bytes. The short form runs in `test_mutations.py`, on devices too.
"""
# cpython only: measures memory

from __future__ import annotations

import argparse
import tracemalloc

from tests.protocol.test_mutations import mutate

_CHUNK = 20_000
_LIMIT = 16 << 20  # bytes; the codecs' own limits allow no frame above 64 KB


def main() -> None:
    """Run the number of frames that the command line asks for, with progress."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tracemalloc.start()
    done = decoded = 0
    while done < options.count:
        size = min(_CHUNK, options.count - done)
        decoded += mutate(size, options.seed + done)
        done += size
        peak = tracemalloc.get_traced_memory()[1]
        print(f"\r{done:,} frames, {decoded:,} decoded, peak {peak / 1024:,.0f} KiB", end="")
        if peak > _LIMIT:
            raise SystemExit(f"\nmemory grew to {peak} bytes")
    print("\nnothing but messages and ProtocolError")


if __name__ == "__main__":
    main()
