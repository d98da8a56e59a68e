"""The hardware: the only file that imports `machine` or `network`.

Makes what the sources, the guard and the duty cycle take: converters, pins, buses, drivers, the
hardware watchdog, reset reasons, deep sleep. Not imported on a PC.
"""

import machine
import network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dht import DHT11
    from ds18x20 import DS18X20


def read_reset_reason() -> int:
    """Return why the board started, as a hello says it: power on 1, hard reset 2, watchdog 3,
    deep sleep 4, soft reset 5, unknown 0."""
    cause = machine.reset_cause()
    names = ("PWRON", "HARD", "WDT", "DEEPSLEEP", "SOFT")
    for number in range(len(names)):
        if cause == getattr(machine, names[number] + "_RESET", None):
            return number + 1
    return 0


def start_watchdog(timeout: int) -> "Callable[[], None]":
    """Start the hardware watchdog and return what feeds it; it cannot be stopped again."""
    return machine.WDT(timeout=timeout).feed


def sleep_deeply(duration: int) -> None:
    """Switch off for so many milliseconds; the board then starts anew."""
    machine.deepsleep(duration)


def keep(data: bytes) -> None:
    """Keep bytes over a deep sleep, in the memory of the real-time clock (2 KB on an ESP32)."""
    machine.RTC().memory(data)


def read_kept() -> bytes:
    """Return what `keep` kept, empty after a power cut."""
    return bytes(machine.RTC().memory())


def make_adc(pin: int) -> "machine.ADC":
    """Return an analogue input over its full range."""
    converter = machine.ADC(machine.Pin(pin))
    if hasattr(machine.ADC, "ATTN_11DB"):
        converter.atten(machine.ADC.ATTN_11DB)
    return converter


def make_pin(pin: int, pull_up: bool = True) -> "machine.Pin":
    """Return a digital input."""
    return machine.Pin(pin, machine.Pin.IN, machine.Pin.PULL_UP if pull_up else None)


def make_i2c(number: int, clock: int, data: int, frequency: int = 100_000) -> "machine.I2C":
    """Return an I2C bus."""
    return machine.I2C(number, scl=machine.Pin(clock), sda=machine.Pin(data), freq=frequency)


def make_dht(pin: int, tenths: bool = True) -> "DHT11":
    """Return MicroPython's driver of a DHT22, or of a DHT11."""
    import dht

    return (dht.DHT22 if tenths else dht.DHT11)(machine.Pin(pin))


def make_ds18x20(pin: int) -> "DS18X20":
    """Return MicroPython's driver of the temperature sensors on a 1-wire bus."""
    import ds18x20
    import onewire

    return ds18x20.DS18X20(onewire.OneWire(machine.Pin(pin)))


def start_wifi(name: str, password: str) -> "network.WLAN":
    """Begin to join a wireless network; the firmware goes on by itself, and joins again."""
    link = network.WLAN(network.STA_IF)
    link.active(True)
    link.connect(name, password)
    return link
