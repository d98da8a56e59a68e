"""Chooses the kernel: machine code where this MicroPython can, plain Python elsewhere."""

try:
    from .viper import scan as scan

    NAME = "viper"
except (ImportError, SyntaxError):  # no micropython module, or one without viper
    from .plain import scan as scan

    NAME = "plain"
