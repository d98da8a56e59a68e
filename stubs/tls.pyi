# What link.py uses of MicroPython's `tls`: calls that CPython's `ssl` has, with other arguments.
from typing import Any

PROTOCOL_TLS_CLIENT: Any
SSLContext: Any
