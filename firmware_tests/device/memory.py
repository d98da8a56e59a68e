"""On a board: what the full watchdog takes of the memory."""

import gc

gc.collect()
print("free at the start:", gc.mem_free())
from denwatch.watchdog.boot import load  # noqa: E402 - the point is what an import costs

load()
gc.collect()
print("free with everything imported:", gc.mem_free())
from denwatch.watchdog.filter import Filter  # noqa: E402

filter = Filter(3500)
for handle in range(200):
    low = handle % 200
    vector = [0x41, 0, handle >> 8, handle & 255, 100, 0, 0, 7]
    filter.add(bytes(vector + [low, low + 50, 120] * 3), b"")
gc.collect()
print("free with 200 subscriptions:", gc.mem_free())
