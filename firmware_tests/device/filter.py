"""On a board: the filter's answers to fixed events. Compare with filter.expected."""

from array import array

from denwatch.watchdog.filter import KERNEL, Filter

print("kernel:", KERNEL)
filter = Filter(1024)
for handle in range(20):
    low = handle * 12
    filter.add(bytes([0x41, 0, 0, handle, 100, 0, 0, 1, low, low + 10, 120]), b"")
values = array("H", [0] * 16)
for value in (0, 5, 60, 61, 130, 255):
    values[0] = value
    filter.all = True
    filter.begin(1, 1, values)
    degrees = []
    while filter.step() >= 0:
        degrees.append(filter.degree)
    print(value, degrees)
