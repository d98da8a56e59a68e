"""The hardware: the only file that imports `machine` or `network`.

Makes what the sources, the guard and the duty cycle take: converters, pins, buses, drivers, the
hardware watchdog, reset reasons, deep sleep. Not imported on a PC.
"""

import time

import machine

try:
    import network
except ImportError:  # a board without Wi-Fi: its link is a radio or a serial port
    network = None  # type: ignore[assignment]
if not hasattr(machine, "reset_cause"):
    raise ImportError("no board: MicroPython on a PC")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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
    try:
        return machine.WDT(timeout=timeout).feed
    except ValueError:
        return machine.WDT(timeout=8000).feed  # an RP2040 has no longer one


def keep_fed(feed: "Callable[[], None]") -> None:
    """Feed the hardware watchdog from now on, for a person at the prompt."""
    try:
        timer = machine.Timer(0)
    except ValueError:
        timer = machine.Timer(-1)  # an RP2040 has no numbers
    timer.init(period=1000, callback=lambda _: feed())


def restart(is_whole: bool) -> None:
    """Start the program again, or the whole board."""
    (machine.reset if is_whole else machine.soft_reset)()


def doze(duration: int) -> None:
    """Rest for so many milliseconds, with the radio off; the program then goes on."""
    machine.lightsleep(duration)


def sleep_deeply(duration: int) -> None:
    """Switch off for so many milliseconds; the board then starts anew."""
    machine.deepsleep(duration)


def keep(data: bytes) -> bool:
    """Keep bytes over a deep sleep, in the memory of the real-time clock; False if that has no
    room for them: an ESP32 has 2 KB, an RP2040 none."""
    try:
        machine.RTC().memory(data)
    except (AttributeError, ValueError):
        return False
    return True


def read_kept() -> bytes:
    """Return what `keep` kept, empty after a power cut."""
    try:
        return bytes(machine.RTC().memory())
    except AttributeError:
        return b""


def make_adc(pin: int) -> "machine.ADC":
    """Return an analogue input over its full range."""
    converter = machine.ADC(machine.Pin(pin))
    if hasattr(machine.ADC, "ATTN_11DB"):
        converter.atten(machine.ADC.ATTN_11DB)
    return converter


def make_pin(pin: int, pull_up: bool = True) -> "machine.Pin":
    """Return a digital input."""
    return machine.Pin(pin, machine.Pin.IN, machine.Pin.PULL_UP if pull_up else None)


class PulseInput:
    """Counts falling edges of a pin, or all of them, by interrupt; up to 65,535, then from 0."""

    def __init__(self, pin: int, debounce: int, is_both: bool) -> None:
        self.count = 0
        self._debounce = debounce
        self._last = time.ticks_ms()  # type: ignore[attr-defined]
        edges = machine.Pin.IRQ_FALLING | (machine.Pin.IRQ_RISING if is_both else 0)
        make_pin(pin).irq(self._note, edges)

    def _note(self, _: object) -> None:
        now = time.ticks_ms()  # type: ignore[attr-defined]
        if time.ticks_diff(now, self._last) >= self._debounce:  # type: ignore[attr-defined]
            self.count = (self.count + 1) & 0xFFFF
        self._last = now  # bouncing lasts as long as its edges follow each other


def make_counter(pin: int, debounce: int, is_both: bool) -> PulseInput:
    """Return what counts edges of a digital input."""
    return PulseInput(pin, debounce, is_both)


def make_serial(port: int, receive: "int | None", baud: int) -> "machine.UART":
    """Return a serial port that does not wait."""
    pins = {} if receive is None else {"rx": machine.Pin(receive)}
    return machine.UART(port, baudrate=baud, timeout=0, **pins)


def make_espnow(channel: "int | None") -> "Any":
    """Return MicroPython's ESP-NOW, on a channel."""
    import espnow

    link = network.WLAN(network.STA_IF)
    link.active(True)
    if channel is not None:
        link.config(channel=channel)
    return espnow.ESPNow()


def make_lora(radio: "dict[str, Any]") -> "Any":
    """Return a modem of micropython-lib: `chip` is its class, `pins` has SPI's and its own."""
    module = __import__("lora")
    pins = radio["pins"]
    lines = {name: machine.Pin(pins[name]) for name in ("sck", "mosi", "miso")}
    chip = getattr(module, radio["chip"].upper())
    options = {name: machine.Pin(pins[name]) for name in pins if name not in lines}
    settings = {
        "freq_khz": radio["khz"],
        "sf": radio.get("spreading", 7),
        "bw": "125",
        "coding_rate": 5,
        "preamble_len": 8,
        "crc_en": True,
    }
    return chip(machine.SPI(radio.get("bus", 1), **lines), lora_cfg=settings, **options)


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


def join_wifi(name: str, password: str) -> None:
    """Begin to join a wireless network."""
    link = network.WLAN(network.STA_IF)
    link.active(True)
    link.disconnect()
    link.connect(name, password)


def is_joined() -> bool:
    """Return whether a wireless network is joined."""
    return bool(network.WLAN(network.STA_IF).isconnected())


def read_signal() -> int:
    """Return how weak the signal is, in -dBm; 0: the radio does not say."""
    try:
        return -int(network.WLAN(network.STA_IF).status("rssi"))
    except (OSError, ValueError, TypeError):
        return 0


def open_access_point(prefix: str, password: str) -> str:
    """Open a wireless network of the board's own; return its name."""
    name = prefix + "-" + machine.unique_id().hex()[-4:]
    link = network.WLAN(network.AP_IF)
    try:
        link.config(ssid=name, security=3, key=password)  # WPA2
    except (TypeError, ValueError):
        link.config(ssid=name, password=password)  # as a Pico W has it
    link.active(True)
    return name


def stop_wifi() -> None:
    """Switch the radio off."""
    link = network.WLAN(network.STA_IF)
    link.disconnect()
    link.active(False)
