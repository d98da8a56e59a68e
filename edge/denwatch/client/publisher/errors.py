"""What can go wrong for somebody who publishes."""

from __future__ import annotations


class PublisherError(Exception):
    """Something that the caller should know; the message says what and where."""


class UnacknowledgedError(PublisherError, TimeoutError):
    """The node has not said that it has everything; what was sent may be there all the same."""
