"""Firmware with the watchdog frozen in, on boards that QEMU emulates."""
