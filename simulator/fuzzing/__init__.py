"""Fuzzing: bytes from outside that nobody wrote on purpose, by the thousand, into real code.

What arrives from clients, subscribers, operators, devices and peers is mutated; no exception may
leave the event that it is, nor the ticks, readings and the restart that follow it.
"""
