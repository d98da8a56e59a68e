"""Home Assistant: what watchdogs sense, announced by MQTT discovery. See docs/home-assistant.md."""

from edge.dens.core.home.part import Home, HomeSettings, Vision

__all__ = ["Home", "HomeSettings", "Vision"]
