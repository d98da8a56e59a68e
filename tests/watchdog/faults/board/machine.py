"""A board that really reboots: a process ends with a reset or a deep sleep, and its files are what
outlasts it. `clock` has the seconds that were slept, `cause` why it starts, `rtc` the memory of
the real-time clock, `log` what was called; `limits` is {"rtc": bytes or -1, "wdt": ms}.
"""

import json
import os

PWRON_RESET, HARD_RESET, WDT_RESET, DEEPSLEEP_RESET, SOFT_RESET = 1, 2, 3, 4, 5


def read(name, default):
    try:
        with open(name) as file:  # noqa: PTH123
            return json.load(file)
    except OSError:
        return default


def write(name, value):
    with open(name, "w") as file:  # noqa: PTH123
        json.dump(value, file)


def note(*words):
    with open("log", "a") as file:  # noqa: PTH123
        file.write(json.dumps(words) + "\n")


def _end(cause):
    import ffi

    write("cause", cause)
    ffi.open("libc.so.6").func("v", "_exit", "i")(cause)  # nothing of the program runs on


def reset_cause():
    return read("cause", PWRON_RESET)


def reset():
    note("reset")
    _end(HARD_RESET)


def soft_reset():
    note("soft reset")
    _end(SOFT_RESET)


def lightsleep(duration):
    import utime

    utime.sleep_ms(duration)


def deepsleep(duration):
    note("sleep", duration)
    write("clock", read("clock", 0) + duration / 1000)
    _end(DEEPSLEEP_RESET if LIMITS["rtc"] >= 0 else WDT_RESET)  # as an RP2040 does


LIMITS = read("limits", {"rtc": 2048, "wdt": 1 << 30})


class RTC:
    if LIMITS["rtc"] >= 0:

        def memory(self, data=None):
            if data is not None:
                if len(data) > LIMITS["rtc"]:
                    raise ValueError("buffer too long")
                with open("rtc", "wb") as file:  # noqa: PTH123
                    file.write(data)
            if "rtc" not in os.listdir():  # noqa: PTH208
                return b""
            with open("rtc", "rb") as file:  # noqa: PTH123
                return file.read()


class WDT:
    def __init__(self, timeout):
        if timeout > LIMITS["wdt"]:
            raise ValueError("timeout exceeds 8388")
        note("watchdog", timeout)

    def feed(self):
        pass


class Timer:
    def __init__(self, number):
        pass


class Pin:
    IN, PULL_UP = 1, 2

    def __init__(self, number, *options):
        self.number = number


class ADC:
    """Converts what the file `adc` says: one count for each boot, the last for ever."""

    def __init__(self, pin):
        self.pin = pin.number

    def read_u16(self):
        counts = read("adc", [0])
        return counts[min(read("boots", 0), len(counts) - 1)]
