"""The watchdog's kernel on a micro:bit: loads hundreds of subscriptions, compares the answers.

The board runs `watchdog/plain.py`, the file that every runtime without viper uses, over a
buffer that the real filter laid out; what is right comes from `tests/protocol/evaluator.py`.
"""

from __future__ import annotations

from random import Random

from denwatch.protocol.slopes import SLOPES
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from denwatch.watchdog.filter import Filter

from firmware_tests.bundle import bundle
from firmware_tests.microbit import Microbit
from firmware_tests.runtimes import REPOSITORY
from tests.protocol.evaluator import SCRATCH, evaluate

KERNEL = "edge/denwatch/watchdog/plain.py"
SUBSCRIPTIONS = 220
EVENTS = 12
ATTRIBUTES = 4
PLACEHOLDER = 2400  # bytes
PIECE = 48  # bytes that one call carries to the board

# What `Filter.step` does around the kernel, for plain subscriptions.
DRIVER = """def find(v, e, n):
 s = [0, 0, e << 16, 0xffffff ^ n, 0, 0]
 a = []
 while 1:
  p = scan(buffer, len(buffer), v, s)
  if p >= len(buffer):
   return a
  a.append((p, s[5]))
  s[0] = p + buffer[p] + (2 if buffer[p + 5] else 0)"""


def start_kernel(board: Microbit, size: int) -> None:
    """Put kernel, buffer and driver into an empty heap.

    The table of slopes comes as a file of bytes: as a literal, its source alone would take 2 KB.
    """
    source = (REPOSITORY / KERNEL).read_text(encoding="utf-8")
    (kernel,) = bundle([source], ["scan"])
    board.put("slopes", SLOPES)
    board.put("kernel", kernel.encode("ascii"))
    board.reset()
    board.prepare_calls()
    board.reserve_names(["f", "buffer", "SLOPES", "scan", "find", "fill"])
    board.exec(f"buffer = bytearray({PLACEHOLDER})")  # so that the kernel ends up high
    board.exec("f = open('kernel')\nexec(f.read())\nf.close()\nf = None\nbuffer = None")
    board.exec(f"gc.collect()\nbuffer = bytearray({size})")
    board.exec("f = open('slopes', 'rb')\nSLOPES = f.read()\nf.close()\nf = None\ngc.collect()")
    board.exec("def fill(at, data):\n for c in data:\n  buffer[at] = c\n  at += 1\ngc.collect()")
    board.exec(DRIVER)


def draw_filter(rng: Random) -> tuple[Filter, dict[int, bytes]]:
    """Return a full filter of three-attribute subscriptions, and the frames by handle."""
    filled = Filter(SUBSCRIPTIONS * 19 + 100)
    frames: dict[int, bytes] = {}
    for handle in range(SUBSCRIPTIONS):
        predicates = []
        for attribute in sorted(rng.sample(range(ATTRIBUTES), 3)):
            low = rng.randint(0, 220)
            high = rng.randint(low, min(255, low + 60))
            predicates.append(
                Predicate(attribute, low, high, rng.randint(0, 255), negated=rng.random() < 0.2)
            )
        event = rng.choice([1, 1, 1, 2])
        s = SubscriptionVector(event, predicates, rng.randrange(4), 200, handle=handle)
        frames[handle] = encode(s)
        filled.add(frames[handle], b"")
    return filled, frames


def expect(
    filled: Filter, frames: dict[int, bytes], values: list[int], present: int
) -> list[tuple[int, int]]:
    """Return (position, degree) of the hits of event 1, from the tests' evaluator."""
    answers = []
    at = filled.follow(0)
    while at >= 0:
        handle = filled.buffer[at + 2] << 8 | filled.buffer[at + 3]
        frame = frames[handle]
        degree = evaluate(frame, 0, present, values, bytearray(SCRATCH))
        if frame[0] & 63 == 1 and degree >= 0:
            answers.append((at, degree))
        at = filled.follow(at)
    return answers


def compare_kernel(board: Microbit, seed: int) -> tuple[int, int, list[str]]:
    """Filter random events on the board; (events, hits, what differs)."""
    rng = Random(seed)
    filled, frames = draw_filter(rng)
    start_kernel(board, filled.used)
    content = bytes(filled.buffer[: filled.used])
    pieces = range(0, filled.used, PIECE)
    board.call([("fill", (at, content[at : at + PIECE])) for at in pieces])
    hits = 0
    wrong = []
    for _ in range(EVENTS):
        values = [rng.randint(0, 255) for _ in range(ATTRIBUTES)]
        present = rng.choice([0xF, 0xF, 0x7])
        right = expect(filled, frames, values, present)
        (found,) = board.call([("find", (values, 1, present))])
        if found != right:
            wrong.append(f"{values}: {found} on the board, not {right}")
        hits += len(right)
    return EVENTS, hits, wrong
