"""Where the bus of a board that really reboots is made."""


class OneWire:
    def __init__(self, pin):
        pass
