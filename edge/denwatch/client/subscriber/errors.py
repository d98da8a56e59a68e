"""What can go wrong for an app that subscribes, each with its own name."""

from __future__ import annotations

from denwatch.client.errors import LanguageError


class SubscriberError(Exception):
    """Something that the app should know; the message says what and where."""


class RefusedError(LanguageError, SubscriberError):
    """The node refused a request: what is wrong with the words, at which column, and a hint.

    It is a LanguageError, so whatever shows those with a caret shows this one, too.
    """

    def describe(self) -> str:
        """Return the node's sentence, in which its suggestions and its hint stand already."""
        return self.message


class UnconfirmedError(SubscriberError, TimeoutError):
    """No node has answered yet. The request is kept, and sent until one does."""


class StoreError(SubscriberError):
    """The store cannot be used: another process has it, or it is somebody else's file."""


class TransactionError(SubscriberError):
    """A callback ended the transaction that was lent to it, or used it after its end."""
