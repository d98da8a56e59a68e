"""Several sets over one uncertain attribute, judged as one: the device's `cuts.measure_together`.

"Above 100 or at most 100" is certain, though neither part is; "below 10 and above 20" is
impossible, though each part may be possible. `protocol.cuts` has the theory, `protocol.matching`
the rule which operands belong together. A part that may be left out of a device: `rating.py` then
takes such a subscription for as certain as it is possible, and more is sent than is wanted.
"""

from ..protocol.degrees import aggregate, const
from .rating import CODES, cut_reading, cut_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array

    from .rating import Rater

    # Possible, certain, the predicate that decided, its attribute (-1: mixed), its program.
    Operand = tuple[int, int, int, int, bytes]

# Numbers of the protocol, and of a lane: rating.py.
_MAX = const(1)
_AND = const(0x40)
_OR = const(0x50)
_NOT = const(0x60)
_STACK = const(16)
_BLAME = const(16)


def run(
    rater: "Rater", buf: bytearray, pattern: int, kind: int, points: "array[int]", doubt: int
) -> None:
    """Run the pattern at buf[pattern:] (0: one aggregation) over what the rater measured."""
    assert rater.shapes is not None
    count = len(rater.shapes)
    program = bytes(range(count))
    if pattern and buf[pattern] & 0x80:
        program = bytes(buf[pattern + 1 : pattern + 1 + (buf[pattern] & 0x7F)])
    elif pattern:
        for code, _, postfix in CODES:
            if code == buf[pattern]:
                program = postfix
    stack: list[Operand] = []
    for op in program:
        if op < _AND:
            name = rater.names[op]
            name = name if doubt >> name & 1 else -1
            stack.append((rater.degrees[op], rater.lows[op], op, name, bytes([op])))
        elif op == _NOT:
            high, low, decisive, name, part = stack.pop()
            stack.append((255 - low, 255 - high, decisive, name, part + b"\x60"))
        else:
            operands = stack[-(op & 15) :]
            stack = stack[: -(op & 15)]
            stack.append(_join(rater, kind if op < _OR else _MAX, operands, points))
    if not pattern:
        stack = [_join(rater, kind, stack, points)]
    rater.degrees[_STACK], rater.lows[_STACK], rater.degrees[_STACK + _BLAME] = stack[0][:3]


def _join(rater: "Rater", kind: int, operands: "list[Operand]", points: "array[int]") -> "Operand":
    parts = operands
    if kind <= _MAX:
        parts = []
        names = []
        for part in operands:
            name = part[3]
            if name >= 0:
                if name in names:
                    continue
                names.append(name)
                same = [other for other in operands if other[3] == name]
                if len(same) > 1:
                    code = same[0][4]
                    for other in same[1:]:
                        code += other[4] + bytes([_OR + 2 if kind == _MAX else _AND + 2])
                    reading = points[4 * name : 4 * name + 4]
                    high = _search(rater, code, reading, 0)
                    low = 255 - _search(rater, code, reading, 1)
                    part = high, low, _find_decisive(kind, same), name, code
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
    highs = bytearray([part[0] for part in parts])
    lows = bytearray([part[1] for part in parts])
    high = aggregate(kind, highs, 0, len(parts), b"", 0)
    low = aggregate(kind, lows, 0, len(parts), b"", 0)
    return high, low, _find_decisive(kind, parts), -1, b""


def _find_decisive(kind: int, operands: "list[Operand]") -> int:
    best = operands[0]
    for operand in operands:
        if operand[0] > best[0] if kind == _MAX else operand[0] < best[0]:
            best = operand
    return best[2]


def _search(rater: "Rater", code: bytes, reading: "array[int]", side: int) -> int:
    """Return how possible a program over one attribute is (side 0), or its opposite (1)."""
    least = 0
    most = 255
    while least < most:
        t = (least + most + 1) >> 1
        if _meets(rater, code, reading, side, t):
            least = t
        else:
            most = t - 1
    return least


def _meets(rater: "Rater", code: bytes, reading: "array[int]", side: int, t: int) -> bool:
    assert rater.shapes is not None
    first, last = cut_reading(reading, t, rater.shapes[code[0]][0][4])
    cuts = {}
    places = [first, last]
    for op in code:
        if op < _AND:
            shape = rater.shapes[op][0]
            low, high, _, _ = cut_set(shape, t)
            _, _, below, above = cut_set(shape, 256 - t)
            cuts[op] = low, high, below, above
            places += [low, high, below, above]
    for x in places:
        if first <= x <= last:
            stack: list[list[bool]] = []
            for op in code:
                if op < _AND:
                    low, high, below, above = cuts[op]
                    pair = [low <= x <= high, x <= below or above <= x]
                    stack.append(pair[::-1] if rater.shapes[op][1] else pair)
                elif op == _NOT:
                    stack[-1] = stack[-1][::-1]
                else:
                    is_or = op >= _OR
                    for _ in range((op & 15) - 1):
                        one = stack.pop()
                        two = stack[-1]
                        some = [one[0] or two[0], one[1] or two[1]]
                        every = [one[0] and two[0], one[1] and two[1]]
                        stack[-1] = [some[0], every[1]] if is_or else [every[0], some[1]]
            if stack[0][side]:
                return True
    return False
