"""Notification vectors from samples: the bytes of `protocol.notification.encode`, no objects.

Sequence and age are left zero: whoever sends the vector writes them into bytes 2 to 5.
"""

from .sample import Sample


def write(sample: Sample, why: int = -1) -> bytes:
    """Return the vector; `why` is attribute << 8 | degree, or -1."""
    present = sample.present
    flags = (why >= 0) | (sample.doubt > 0) << 1 | (sample.faults > 0) << 3
    wides = sample.wides & present
    flags |= (wides > 0) << 2
    out = bytearray([0x80 | sample.event, flags, 0, 0, 0, 0, present >> 8, present & 255])
    for mask in (sample.doubt, wides, sample.faults):
        if mask:
            out.append(mask >> 8)
            out.append(mask & 255)
    for attribute in range(16):
        if present >> attribute & 1:
            doubtful = sample.doubt >> attribute & 1
            for i in range(4 if doubtful else 1):
                value = sample.points[4 * attribute + i] if doubtful else sample.values[attribute]
                if wides >> attribute & 1:
                    out.append(value >> 8)
                out.append(value & 255)
    if why >= 0:
        out.append(why >> 8)
        out.append(why & 255)
    return bytes(out)
