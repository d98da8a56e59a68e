"""What an app uses: the subscriber, the language, the vocabulary, the simulated device.

Names are imported when they are first used, so that `import denwatch.client` costs nothing and the
language does not load MQTT. `docs/api.md` shows all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from denwatch.client.compiler import CompiledSubscription, compile_subscription, decompile
    from denwatch.client.errors import LanguageError
    from denwatch.client.language import builder, parse, print_as
    from denwatch.client.publisher import (
        Publisher,
        PublisherError,
        UnacknowledgedError,
        parse_reading,
        read_key,
    )
    from denwatch.client.subscriber import (
        AsyncSubscriber,
        BackOff,
        ConnectionState,
        ConnectionStatus,
        HandlerTransaction,
        Promise,
        ReceivedNotification,
        RequestRefusedError,
        Subscriber,
        SubscriberError,
        SubscriberOptions,
        SubscriberStoreError,
        SubscriptionStatus,
        TransactionError,
        UnconfirmedError,
    )
    from denwatch.client.syntax import SubscriptionTree
    from denwatch.client.vocabulary import Vocabulary, load_shipped, parse_vocabulary

__all__ = [
    "AsyncSubscriber",
    "BackOff",
    "CompiledSubscription",
    "ConnectionState",
    "ConnectionStatus",
    "HandlerTransaction",
    "LanguageError",
    "Promise",
    "Publisher",
    "PublisherError",
    "ReceivedNotification",
    "RequestRefusedError",
    "Subscriber",
    "SubscriberError",
    "SubscriberOptions",
    "SubscriberStoreError",
    "SubscriptionStatus",
    "SubscriptionTree",
    "TransactionError",
    "UnacknowledgedError",
    "UnconfirmedError",
    "Vocabulary",
    "builder",
    "compile_subscription",
    "decompile",
    "load_shipped",
    "parse",
    "parse_reading",
    "parse_vocabulary",
    "print_as",
    "read_key",
]

_MODULES = {
    "CompiledSubscription": "compiler",
    "LanguageError": "errors",
    "Publisher": "publisher",
    "PublisherError": "publisher",
    "SubscriptionTree": "syntax",
    "UnacknowledgedError": "publisher",
    "Vocabulary": "vocabulary",
    "compile_subscription": "compiler",
    "decompile": "compiler",
    "load_shipped": "vocabulary",
    "parse": "language",
    "parse_reading": "publisher",
    "parse_vocabulary": "vocabulary",
    "print_as": "language",
    "read_key": "publisher",
}


def __getattr__(name: str) -> Any:
    if name == "builder":
        return import_module("denwatch.client.language.builder")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"denwatch.client.{_MODULES.get(name, 'subscriber')}")
    return getattr(module, name)
