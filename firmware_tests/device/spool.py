"""On a board: the spool on a real partition called `spool`. Compare with spool.expected."""

from denwatch.watchdog.ring import find_partition
from denwatch.watchdog.spool import Spool

try:
    device = find_partition("spool")
except ImportError:  # a PC, to see the expected output
    from denwatch.watchdog.ring import FileBlocks

    device = FileBlocks("/tmp/denwatch-device-spool", 16)
first = Spool(device, 0)
while first.has_waiting():
    epoch, last, _ = first.peek(0, 4000)
    first.acknowledge(epoch, last, 0)
first.save(0)
for i in range(1, 301):
    first.put(bytes([0x81, 0, 0, 0, 0, 0, 0, 1, i & 255]), i & 127, i)
    if i % 50 == 0:
        first.flush(i)
second = Spool(device, 0)
print("epoch grows:", second.epoch == first.epoch + 1)
count = 0
in_order = True
while second.has_waiting():
    epoch, last, vectors = second.peek(0, 4000)
    for vector in vectors:
        count += 1
        in_order = in_order and vector[8] == count & 255
    second.acknowledge(epoch, last, 0)
print("notifications:", count)
print("in order:", in_order)
second.save(0)
print("errors:", second.report()["errors"])
