"""SUB/DENS: what subscribers ask of a node, and what they get. `part` says what is where."""

from denwatch.node.core.subscribers.part import Subscribers
from denwatch.node.core.subscribers.settings import (
    Clock,
    OneClock,
    OpenRoles,
    Roles,
    SubscriberSettings,
)

__all__ = ["Clock", "OneClock", "OpenRoles", "Roles", "SubscriberSettings", "Subscribers"]
