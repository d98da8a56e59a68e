"""The wire of denwatch and its arithmetic, the same source on MicroPython and CPython.

Nothing here does I/O, reads a clock or draws a random number. Import the module that you need
(`protocol.subscription`, `protocol.degrees`, ...): a device pays heap for each one.
"""

VERSION = 1
