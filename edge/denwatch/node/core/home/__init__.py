"""Home Assistant: what watchdogs sense, announced by MQTT discovery. See docs/home-assistant.md."""

from denwatch.node.core.home.part import Home, HomeSettings, Vision

__all__ = ["Home", "HomeSettings", "Vision"]
