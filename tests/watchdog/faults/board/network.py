"""The radio of a board that really reboots: `networks` has the names that answer."""

import machine

STA_IF = 0


class WLAN:
    is_on = False
    joined = None

    def __init__(self, kind):
        pass

    def active(self, is_on):
        if is_on != WLAN.is_on:
            machine.note("radio", is_on)
        WLAN.is_on = is_on

    def connect(self, name, password):
        machine.note("join", name)
        WLAN.joined = name if name in machine.read("networks", ["tent"]) else None

    def disconnect(self):
        WLAN.joined = None

    def isconnected(self):
        return WLAN.joined is not None

    def status(self, what):
        return -61
