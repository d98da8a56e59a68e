"""Performs the requests and reports of subscribers, and answers every one of them.

`requests.py` understands them; nothing that is wrong changes anything. On the disk: `sub.reply`,
subscriber and number: a reply that nobody listened for; `sub.report`, subscriber: the number of the
last report, and the last references with their ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

import cbor2
import msgspec
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language.preferences import print_preference
from denwatch.client.vocabulary import Vocabulary
from denwatch.node.core import requests
from denwatch.node.core.claims import Claims
from denwatch.node.core.delivery import Delivery
from denwatch.node.core.device_directory import DeviceDirectory, SubscriptionNeed
from denwatch.node.core.device_finder import DeviceFinder, ServiceNeed
from denwatch.node.core.devices import SensorPlacement
from denwatch.node.core.events import REPLIES, REPORTS, REQUESTS, Message, Reader
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import (
    BY,
    MAX_NAME,
    MAX_SUBSCRIBER,
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    check_options,
    decode_body,
    encode_body,
    is_name,
)
from denwatch.node.core.languages import load_languages
from denwatch.node.core.notifications import REPORTED, describe_values, format_time
from denwatch.node.core.pending import Pending
from denwatch.node.core.preferences import Preferences, covers_vector
from denwatch.node.core.subscriptions import (
    Roles,
    SubscriberSettings,
    SubscriberState,
    Subscription,
    describe_content,
    join_name,
    split_name,
)
from denwatch.node.ranking.rank import PriorityCycle, assign_levels
from denwatch.protocol import subscription as codec
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.notification import encode as encode_notification
from denwatch.protocol.vectors import SubscriptionVector

REPLY = "sub.reply"
REPORT = "sub.report"
_ESCALATED = ("score", "format", "whole")  # options that an escalation takes over
_COMPARED = 64  # subscriptions that a probed one is compared with
_KEPT_REFERENCES = 16  # of reports: one that comes again under the same reference is the same

# Replies -------------------------------------------------------------------------------------


def describe_error(error: LanguageError) -> dict[str, Any]:
    """Return the body of a refusal."""
    body: dict[str, Any] = {**error.to_reply()}
    if error.at is not None:
        body["length"] = error.length
    if error.suggestions:
        body["suggestions"] = list(error.suggestions)
    if error.hint:
        body["hint"] = error.hint
    return body


def encode_question(node: str) -> bytes:
    """Return what asks an app whether it listens; our library answers with a report."""
    return msgspec.json.encode({"ok": True, "ask": "listening", "node": node})


class Replies:
    """Replies to requests: JSON, kept while nobody listens.

    Whoever uses two plain clients, one to request and one to listen, still gets the answer.
    """

    def __init__(self, settings: SubscriberSettings) -> None:
        self._limit = settings.kept_replies
        self.asked: Message | None = None  # the request that is being handled
        self._listening: set[str] = set()
        self._kept: dict[str, list[int]] = {}  # numbers of the replies that wait
        self._next = 1

    def restore(self, reader: Reader) -> None:
        """Load the replies that wait."""
        for key, _ in reader.scan(REPLY):
            name, rest = split_name(key)
            number = int.from_bytes(rest, "big")
            self._kept.setdefault(name, []).append(number)
            self._next = max(self._next, number + 1)

    def send(
        self,
        transaction: Transaction,
        name: str,
        body: dict[str, Any],
        reference: str | None = None,
    ) -> None:
        """Answer a subscriber."""
        if reference is not None:
            body = {**body, "request": reference}
        message = msgspec.json.encode(body)
        topic, asked = REPLIES + name, self.asked
        correlation = b""
        if asked is not None and asked.sender in ("", name):
            topic, correlation = asked.response or topic, asked.correlation
        if name in self._listening or topic != REPLIES + name:  # elsewhere nobody is waited for
            transaction.publish(topic, message, correlation=correlation)
            return
        numbers = self._kept.setdefault(name, [])
        numbers.append(self._next)
        transaction.write(REPLY, _key(name, self._next), message)
        self._next += 1
        while len(numbers) > self._limit:
            transaction.write(REPLY, _key(name, numbers.pop(0)), None)

    def push(self, transaction: Transaction, name: str, body: dict[str, Any]) -> None:
        """Tell somebody who listens what is no answer."""
        transaction.publish(REPLIES + name, msgspec.json.encode(body))

    def is_listening(self, name: str) -> bool:
        """Return whether somebody gets what is sent to them at once."""
        return name in self._listening

    def listen(self, transaction: Transaction, name: str, is_up: bool) -> None:
        """Note who listens; send what waits."""
        if not is_up:
            self._listening.discard(name)
            return
        self._listening.add(name)
        for number in self._kept.pop(name, ()):
            message = transaction.get(REPLY, _key(name, number))
            if message is not None:
                transaction.publish(REPLIES + name, message)
                transaction.write(REPLY, _key(name, number), None)


def _key(name: str, number: int) -> bytes:
    return join_name(name, number.to_bytes(8, "big"))


# Requests ------------------------------------------------------------------------------------


PlaceOnSensors = Callable[[SubscriptionBody], SensorPlacement | None]


class RequestHandler:
    """Understands requests, without touching the node; only then performs and answers them."""

    def __init__(
        self,
        preferences: Preferences,
        claims: Claims,
        pending: Pending,
        delivery: Delivery,
        roles: Roles,
        directory: DeviceDirectory,
    ) -> None:
        self._subscriptions = subscriptions = preferences.subscriptions
        settings = subscriptions.settings
        self.replies = Replies(settings)
        self._item_store = item_store = claims.item_store
        self._claims = claims
        # The transaction of the last request, and who made it: they get an answer.
        self._handled: tuple[Transaction | None, str] = None, ""
        self._preferences = preferences
        self._pending = pending
        self._delivery = delivery
        self._roles = roles
        self._directory = directory
        vocabularies = subscriptions.vocabularies
        self.place_on_sensors: PlaceOnSensors | None = None  # None: a node without devices
        self.finder = DeviceFinder(
            item_store.name, directory, vocabularies, roles, subscriptions.find_place
        )
        self._settings = settings

    def handle(self, transaction: Transaction, message: Message) -> None:
        """Take a message to a request or report topic."""
        is_report = message.topic.startswith(REPORTS)
        name = message.topic[len(REPORTS if is_report else REQUESTS) :]
        size = len(message.payload)
        self._handled = transaction, name
        transaction.count("requests")
        if not is_name(name, MAX_SUBSCRIBER) or message.sender not in ("", name):
            who = message.sender or "?"
            transaction.log(
                "refuse", what="request", why="the topic of another", who=who, bytes=size
            )
            transaction.count("requests_refused")
            return
        reference = None
        try:
            if size > self._settings.max_payload:
                limit = self._settings.max_payload
                raise LanguageError(f"{size} bytes are too many, {limit} is the limit")
            reference = requests.read_reference(message.payload)
            if is_report:
                answer = self._report(transaction, name, message.payload, reference)
                self.replies.send(transaction, name, {"ok": True, **answer}, reference)
                return
            request, compiled = self._understand(transaction, name, message.payload)
            self._do(transaction, self._subscriptions.find_subscriber(name), request, compiled)
        except LanguageError as error:
            self._refuse(
                transaction, name, error.describe(), describe_error(error), reference, size
            )
        except requests.RequestRefused as refusal:
            body = {"ok": False, "error": str(refusal), "at": None}
            self._refuse(transaction, name, str(refusal), body, reference, size)

    def _refuse(
        self,
        transaction: Transaction,
        name: str,
        why: str,
        body: dict[str, Any],
        reference: str | None,
        size: int,
    ) -> None:
        transaction.log("refuse", what="request", why=why, who=name, bytes=size)
        transaction.count("requests_refused")
        self.replies.send(transaction, name, body, reference)

    def _understand(
        self, transaction: Transaction, name: str, payload: bytes
    ) -> tuple[requests.Request, requests.CompiledRequest | None]:
        """Return a request, and what it asks for if it is a subscription; changes nothing."""
        try:
            request = requests.read_request(payload)
            compiled = None
            if request.command == requests.SUBSCRIBE:
                compiled = requests.compile_request(
                    request,
                    name,
                    transaction.now,
                    self._subscriptions.vocabularies,
                    self._roles,
                    self._settings.organisation,
                    self._list_sensed,
                )
        except (LanguageError, requests.RequestRefused):
            raise
        except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
            # Whatever a parser stumbles over, a stranger's bytes must not stop the node.
            raise LanguageError(f"this cannot be read: {type(error).__name__}") from None
        return request, compiled

    def _list_sensed(self) -> list[str]:
        """Return the attributes that known devices sense, as this node's vocabulary names them."""
        vocabularies = self._subscriptions.vocabularies
        return [
            attribute.path
            for event in vocabularies.own.events.values()
            for attribute in event.attributes.values()
            if self._directory.is_sensed(
                SubscriptionNeed(vocabularies.own_hash, event.number, 1 << attribute.bit)
            )
        ]

    def _do(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        request: requests.Request,
        compiled: requests.CompiledRequest | None,
    ) -> None:
        answer: dict[str, Any] | None = None
        if compiled is not None:
            answer = self._subscribe(transaction, subscriber, compiled)
        elif request.command == requests.UNSUBSCRIBE:
            answer = self._unsubscribe(transaction, subscriber, request)
        elif request.command == requests.LIST:
            answer = self._list(transaction, subscriber)
        elif request.command == requests.MUTE:
            answer = self._mute(transaction, subscriber, request.argument)
        elif request.command == requests.PREFER:
            answer = self._prefer(transaction, subscriber, request.argument)
        elif request.command == requests.MY_TOP:
            answer = self._set_top(transaction, subscriber, request.argument)
        elif request.command == requests.FIND:
            answer = self._find(transaction, subscriber, request)
        elif request.command == requests.EXPLAIN:
            answer = self._explain(transaction, subscriber, request.argument)
        elif request.command in (requests.HAVE, requests.RELEASE):
            answer = self._claim(transaction, subscriber, request)
        elif request.command == requests.CHANGE:
            answer = self._change(transaction, subscriber, request)
        elif request.command == requests.RECEIVED:
            self._delivery.confirm(transaction, subscriber, set(request.argument))
        elif request.command == requests.PROBE:
            answer = self._answer_probe(transaction, subscriber, request.argument)
        if answer is not None:
            self.replies.send(
                transaction, subscriber.name, {"ok": True, **answer}, request.reference
            )

    # Reports --------------------------------------------------------------------------------

    def _report(
        self, transaction: Transaction, name: str, payload: bytes, reference: str | None
    ) -> dict[str, Any]:
        """Make a notification of what a person says, unless it is known; return the answer.

        Its device is the person, and its epoch 0.
        """
        vocabularies = self._subscriptions.vocabularies
        vocabulary = vocabularies.own.prefer(self._settings.organisation)
        try:
            said = requests.compile_report(payload, vocabulary, self._roles, name)
        except (LanguageError, requests.RequestRefused):
            raise
        except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
            raise LanguageError(f"this cannot be read: {type(error).__name__}") from None
        row = transaction.get(REPORT, join_name(name))
        last, known = cbor2.loads(row) if row else (0, {})
        if reference is None or reference not in known:
            if self._item_store.count(NOTIFICATION) >= self._settings.held_limit:
                raise requests.RequestRefused("this node has no room for it now")
            last = max(last + 1, transaction.now // 1000)
            body = NotificationBody(
                name,
                REPORTED,
                number_report(reference, last),
                transaction.now - said.age,
                0,
                vocabularies.own_hash,
                encode_notification(said.vector),
            )
            expires = transaction.now + self._settings.report_life
            (item,) = self._item_store.originate_many(transaction, NOTIFICATION, expires, [body])
            if reference is not None:
                known = dict([*known.items(), (reference, item.id)][-_KEPT_REFERENCES:])
            transaction.write(REPORT, join_name(name), cbor2.dumps([last, known]))
            vector = said.vector
            self.finder.note_report(
                transaction, name, vocabularies.own_hash, vector.event, vector.features
            )
        else:
            item = None
        values = describe_values(said.event, said.vector)
        return {
            "id": f"{known[reference] if item is None else item.id:016x}",
            "reported": f"{said.event.name}: " + ", ".join(values),
            "known": item is None,
            "node": self._item_store.name,
        }

    # Subscribing ----------------------------------------------------------------------------

    def _subscribe(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        compiled: requests.CompiledRequest,
    ) -> dict[str, Any]:
        body = self._subscriptions.proofs.sign(compiled.body, subscriber.name)
        content = describe_content(body)
        known = subscriber.subscriptions.get(subscriber.contents.get(hash(content), -1))
        if known is not None:
            item = self._item_store.get(transaction, SUBSCRIPTION, known.dot)
            assert item is not None, "in force, and not held"
            if describe_content(decode_body(SubscriptionBody, item.body)) == content:
                return self._describe_taken(item, known.name, compiled, is_known=True, replaced=[])
        name = body.options.get("name")
        replaced = [
            subscription
            for subscription in subscriber.subscriptions.values()
            if name is not None and subscription.name == name
        ]
        if len(subscriber.subscriptions) - len(replaced) >= self._settings.max_subscriptions:
            limit = self._settings.max_subscriptions
            raise requests.RequestRefused(
                f"there are {limit} subscriptions already, unsubscribe from one first"
            )
        gone = {each.id for each in replaced}
        stay = [
            subscription
            for subscription in subscriber.subscriptions.values()
            if subscription.id not in gone
        ]
        pairs = [tuple(pair) for pair in body.options.get("prefer", ())]
        self._check_priorities(
            subscriber, [*_list_pairs(stay), *subscriber.asked, *pairs], stay, name
        )
        for subscription in replaced:
            self._end(transaction, subscription, "replaced")
        item = self._begin(transaction, body, compiled.expires)
        return self._describe_taken(item, name, compiled, is_known=False, replaced=replaced)

    def _describe_taken(
        self,
        item: Item,
        name: str | None,
        compiled: requests.CompiledRequest,
        *,
        is_known: bool,
        replaced: list[Subscription],
    ) -> dict[str, Any]:
        return {
            "id": f"{item.id:016x}",
            "name": name,
            **compiled.reply,
            "expires": self._show(item.dot, item.expires),
            "known": is_known,
            "replaced": [old.hex for old in replaced],
            "devices": self._describe_devices(compiled),
            "node": self._item_store.name,
        }

    def _describe_devices(self, compiled: requests.CompiledRequest) -> dict[str, Any] | None:
        """Return who can answer; None where sensors do not send for it."""
        need = self._subscriptions.find_need(compiled.body)
        return None if need is None else self._directory.describe(need, compiled.event)

    def tell_answerable(
        self, transaction: Transaction, subscription: Subscription, device: str, item: Item
    ) -> None:
        """Tell a subscriber that a device can answer what nobody could before."""
        told = {
            "answerable": subscription.hex,
            "name": subscription.name,
            "device": device,
            "at": item.dot.origin,
            "node": self._item_store.name,
        }
        self.replies.send(transaction, subscription.subscriber.name, {"ok": True, **told})

    def _check_priorities(
        self,
        subscriber: SubscriberState,
        pairs: list[Any],
        subscriptions: list[Subscription],
        newcomer: str | None,
    ) -> None:
        """Raise LanguageError if priorities prefer something over itself."""
        names = {each.name for each in subscriptions if each.name} | (
            {newcomer} if newcomer else set()
        )
        known = [(better, worse) for better, worse in pairs if {better, worse} <= names]
        try:
            assign_levels(names, dict.fromkeys(known))
        except PriorityCycle as cycle:
            raise LanguageError(f"{subscriber.name}: {cycle}") from None

    def _unsubscribe(
        self, transaction: Transaction, subscriber: SubscriberState, request: requests.Request
    ) -> dict[str, Any]:
        text = request.argument
        gone = _find_named(subscriber, text)
        said = {(each.content, each.vector) for each in gone}
        gone += [
            subscription
            for subscription in subscriber.subscriptions.values()
            if (subscription.content, subscription.vector) in said and subscription not in gone
        ]
        if not gone and request.reference is None:
            raise _miss(subscriber, text)
        only_here = [each for each in gone if not self._end(transaction, each, "removed")]
        answer = {"removed": [each.hex for each in gone], "name": text}
        if only_here:  # made with another password, or by somebody else
            answer["only_here"] = [each.hex for each in only_here]
        return answer

    def _begin(self, transaction: Transaction, body: SubscriptionBody, expires: int) -> Item:
        """Make a subscription an item, and the one of whoever hears of it if nobody has it."""
        proofs = self._subscriptions.proofs
        item = self._item_store.originate(transaction, SUBSCRIPTION, expires, encode_body(body))
        if "escalate" in body.options:
            to, after = body.options["escalate"]
            label = body.options.get("name", f"{item.id:016x}")
            name = f"{label} of {body.owner}"[:MAX_NAME]
            options = {"name": name, "behalf": body.owner, "after": after}
            options |= {key: body.options[key] for key in body.options if key in _ESCALATED}
            role = self._roles.role_of(to)
            other = replace(body, owner=to, role=role, options=options)
            for old in _find_named(self._subscriptions.find_subscriber(to), name):
                if old.behalf == body.owner:
                    proofs.end(transaction, old.dot, old.by, body.owner, "replaced")
            other = proofs.sign(other, body.owner)
            self._item_store.originate(transaction, SUBSCRIPTION, expires, encode_body(other))
        return item

    def _end(self, transaction: Transaction, subscription: Subscription, reason: str) -> bool:
        """Remove a subscription, and the one that it made for somebody else.

        Return whether that counts at other nodes, too.
        """
        end, owner = self._subscriptions.proofs.end, subscription.subscriber.name
        is_believed = end(transaction, subscription.dot, subscription.by, owner, reason)
        if subscription.escalation is not None:
            other = self._subscriptions.find_subscriber(subscription.escalation[0])
            for each in list(other.subscriptions.values()):
                if each.behalf == owner and each.vector == subscription.vector:
                    end(transaction, each.dot, each.by, owner, reason)
        return is_believed

    def _change(
        self, transaction: Transaction, subscriber: SubscriberState, request: requests.Request
    ) -> dict[str, Any]:
        """Change options of a subscription, whichever client made it; None takes one away."""
        found = _find_named(subscriber, request.argument)
        if not found:
            raise _miss(subscriber, request.argument)
        newest = max(found, key=lambda each: (each.created, each.id))
        item = self._item_store.get(transaction, SUBSCRIPTION, newest.dot)
        assert item is not None, "in force, and not held"
        body = decode_body(SubscriptionBody, item.body)
        options = {**body.options, **request.options}
        options = {
            key: value for key, value in options.items() if value not in (None, False) and key != BY
        }
        try:
            check_options(options)
        except ProtocolError as error:
            raise LanguageError(str(error)) from None
        name = options.get("name")
        stay = [each for each in subscriber.subscriptions.values() if each not in found]
        if any(name is not None and each.name == name for each in stay):
            raise LanguageError(f'another subscription has the name "{name}"')
        to = options.get("escalate", [None])[0]
        if to is not None and (to == subscriber.name or not self._roles.role_of(to)):
            raise LanguageError(f'"escalate": there is nobody else named "{to}"')
        pairs = [tuple(pair) for pair in options.get("prefer", ())]
        self._check_priorities(
            subscriber, [*_list_pairs(stay), *subscriber.asked, *pairs], stay, name
        )
        for subscription in found:
            self._end(transaction, subscription, "replaced")
        created = max(transaction.now, body.created + 1)
        expires = item.expires and self._subscriptions.clock.localise(item.dot, item.expires)
        body = replace(body, created=created, options=options)
        body = self._subscriptions.proofs.sign(body, subscriber.name)
        made = self._begin(transaction, body, expires)
        return {
            "changed": [each.hex for each in found],
            "id": f"{made.id:016x}",
            "options": options,
            "node": self._item_store.name,
        }

    # Who has what ---------------------------------------------------------------------------

    def _claim(
        self, transaction: Transaction, subscriber: SubscriberState, request: requests.Request
    ) -> dict[str, Any]:
        """Let somebody have something, or nobody; or tell who has what."""
        claim: requests.ClaimRequest | None = request.argument
        now, here = transaction.now, self._item_store.name
        if claim is None:
            found = [self._claims.describe(each, now) for each in self._claims.list_subjects()]
            return {"have": found, "node": here}
        if request.command == requests.RELEASE:
            before = self._claims.describe(claim.subject, now)
            was_held = self._claims.release(transaction, claim.subject)
            return {"release": claim.subject.removeprefix("#"), "had": before, "known": was_held}
        devices = self._directory.list_devices()
        is_device = claim.subject in devices or bool(self._roles.role_of(claim.subject))
        if not claim.subject.startswith("#") and not is_device:
            raise LanguageError(
                f'there is no device "{claim.subject}"',
                suggestions=suggest_names(claim.subject, devices),
            )
        holder = claim.holder or subscriber.name
        if not self._roles.role_of(holder):
            raise LanguageError(f'there is nobody named "{holder}"')
        self._claims.set(transaction, claim.subject, holder, subscriber.name, claim.silence)
        return {"have": claim.subject.removeprefix("#"), "by": holder, "node": here}

    def tell_claim(self, transaction: Transaction, subject: str) -> None:
        """Tell who has something to all who are here and may hear of it."""
        told: dict[str, Any] = {"ok": True, "had": self._claims.describe(subject, transaction.now)}
        told["node"] = self._item_store.name
        announced = [body for _, body in self._directory.list_announced(subject)]
        for name, state in list(self._subscriptions.subscribers.items()):
            is_asking = self._handled[0] is transaction and self._handled[1] == name
            if is_asking or not (state.subscriptions and self.replies.is_listening(name)):
                continue
            needs = [self._subscriptions.find_need(each) for each in state.subscriptions.values()]
            if not announced or any(
                need is None or self._directory.can_answer(body, need)
                for need in needs
                for body in announced
            ):
                self.replies.push(transaction, name, told)

    # Everything else ------------------------------------------------------------------------

    def _list(self, transaction: Transaction, subscriber: SubscriberState) -> dict[str, Any]:
        rows = []
        for subscription in sorted(subscriber.subscriptions.values(), key=self._rank_age):
            item = self._item_store.get(transaction, SUBSCRIPTION, subscription.dot)
            body = decode_body(SubscriptionBody, item.body) if item else None
            row: dict[str, Any] = {"id": subscription.hex, "name": subscription.name}
            row["words"] = "" if body is None else body.words
            options = {} if body is None else body.options
            row["options"] = {key: options[key] for key in options if key != BY}
            row["created"] = self._show(subscription.dot, subscription.created)
            row["expires"] = self._show(subscription.dot, subscription.expires)
            rows.append({**row, "origin": subscription.dot.origin})
        chosen = self._preferences.find_options(subscriber.name)
        top = {key: value for key, value in chosen.items() if key != "prefer"}
        return {
            "subscriptions": rows,
            "waiting": self._count_waiting(transaction, subscriber),
            "muted": subscriber.is_muted,
            "my_top": print_preference(top) if top else None,
        }

    def _count_waiting(self, transaction: Transaction, subscriber: SubscriberState) -> int:
        """Return how many notifications wait for a subscriber."""
        waiting = 0
        for code in set(subscriber.codes):
            entry = self._pending.peek(transaction, code)
            if entry is not None and subscriber.name in self._pending.list_degrees(entry):
                waiting += 1
        return waiting

    def _rank_age(self, subscription: Subscription) -> tuple[int, Dot]:
        return self._subscriptions.clock.show(
            subscription.dot, subscription.created
        ), subscription.dot

    def _show(self, dot: Dot, time: int) -> str | None:
        """Return a time of a subscription as people have it; None for never."""
        return format_time(self._subscriptions.clock.show(dot, time)) if time else None

    def _mute(
        self, transaction: Transaction, subscriber: SubscriberState, is_muted: bool
    ) -> dict[str, Any]:
        was_served = subscriber.is_served
        self._subscriptions.set_muted(transaction, subscriber, is_muted)
        if subscriber.is_served and not was_served:
            self._delivery.begin_service(transaction, subscriber)
        elif was_served and not subscriber.is_served:
            self._delivery.end_service(subscriber)
        return {"muted": is_muted}

    def _prefer(
        self, transaction: Transaction, subscriber: SubscriberState, pairs: list[tuple[str, str]]
    ) -> dict[str, Any]:
        subscriptions = list(subscriber.subscriptions.values())
        names = [each.name for each in subscriptions if each.name]
        for name in (name for pair in pairs for name in pair):
            if name not in names:
                raise LanguageError(
                    f'there is no subscription named "{name}"',
                    suggestions=suggest_names(name, names),
                )
        self._check_priorities(
            subscriber, [*_list_pairs(subscriptions), *pairs], subscriptions, None
        )
        known = self._preferences.find_options(subscriber.name)
        kept = {key: value for key, value in known.items() if key != "prefer"}
        chosen: dict[str, Any] = {"prefer": [list(pair) for pair in pairs]} if pairs else {}
        self._preferences.set(transaction, subscriber.name, {**kept, **chosen})
        subscriber.asked = pairs
        subscriber.assign_levels()
        levels = {each.label: subscriber.levels.get(each.id, 1) for each in subscriptions}
        return {"prefer": [list(pair) for pair in pairs], "levels": levels}

    def _set_top(
        self, transaction: Transaction, subscriber: SubscriberState, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Set how much of all subscriptions a subscriber wants to hear."""
        names = [each.name for each in subscriber.subscriptions.values() if each.name]
        for name in options.get("weights", {}):
            if name not in names:
                raise LanguageError(
                    f'there is no subscription named "{name}"',
                    suggestions=suggest_names(name, names),
                )
        known = self._preferences.find_options(subscriber.name)
        kept = {"prefer": known["prefer"]} if "prefer" in known else {}
        self._preferences.set(transaction, subscriber.name, {**options, **kept})
        return {
            "my_top": options or None,
            "understood": print_preference(options),
            "node": self._item_store.name,
        }

    def _find(
        self, transaction: Transaction, subscriber: SubscriberState, request: requests.Request
    ) -> dict[str, Any]:
        """Find who can do something; watch for somebody better, if that is wanted."""
        need: ServiceNeed | None = request.argument
        if need is None:
            self.finder.watch(transaction, subscriber.name, None)
            return {"find": [], "watch": False, "node": self._item_store.name}
        found = self.finder.find(need, subscriber.name)
        is_watched = request.options.get("watch", False)
        if is_watched:
            self.finder.watch(transaction, subscriber.name, need)
        return {**found, "watch": is_watched}

    def tell_better(self, transaction: Transaction, *, is_moved: bool = False) -> None:
        """Tell those who watch that somebody can do it better than all before."""
        for name, found in self.finder.list_better(is_moved=is_moved):
            self.replies.send(transaction, name, {"ok": True, **found, "watch": True})

    def _explain(
        self, transaction: Transaction, subscriber: SubscriberState, text: str
    ) -> dict[str, Any]:
        """Tell why a subscription is on the sensors of this node, or is not."""
        found = _find_named(subscriber, text)
        if not found:
            raise _miss(subscriber, text)
        item = self._item_store.get(transaction, SUBSCRIPTION, found[0].dot)
        assert item is not None, "in force, and not held"
        place = self.place_on_sensors
        placed = None if place is None else place(decode_body(SubscriptionBody, item.body))
        by_id = self._subscriptions.by_id
        coverers = [] if placed is None else placed.covered_by
        mine_too = [
            by_id[id].label if id in by_id and by_id[id].subscriber is subscriber else "another's"
            for id in coverers
        ]
        return {
            "explain": found[0].hex,
            "active": placed.active if placed else 0,
            "passive": placed.passive if placed else 0,
            "waiting": placed.waiting if placed else 0,
            "covered_by": [f"{id:016x}" for id in coverers],
            "words": _explain_placement(placed, mine_too),
            "node": self._item_store.name,
        }

    def _answer_probe(
        self, transaction: Transaction, subscriber: SubscriberState, texts: list[str]
    ) -> dict[str, Any]:
        vocabulary = self._subscriptions.vocabularies.own.prefer(self._settings.organisation)
        vectors = [vector for text in texts for vector in _list_vectors(text, vocabulary)]
        new_roots, nodes = self._compare_vectors(vectors)
        own = self._subscriptions.vocabularies.own_hash
        needs = [SubscriptionNeed(own, vector.event, vector.features) for vector in vectors]
        return {
            "node": self._item_store.name,
            "new_roots": new_roots,
            "nodes": nodes,
            "waiting": self._count_waiting(transaction, subscriber),
            "devices": self._directory.count_here(needs),
        }

    def _compare_vectors(self, vectors: list[SubscriptionVector]) -> tuple[int, int]:
        """Count what no subscription here covers alone, and what there is to compare with.

        Covering is tried with a bounded number of others, and what is not proved counts as new.
        """
        known = {
            subscription.vector
            for subscription in self._subscriptions.by_id.values()
            if subscription.is_live
        }
        new = {codec.encode(vector): vector for vector in vectors}
        missing = [
            data
            for data, vector in new.items()
            if data not in known and not self._is_covered(data, vector)
        ]
        return len(missing), len(known)

    def _is_covered(self, data: bytes, vector: SubscriptionVector) -> bool:
        left = _COMPARED
        for other in self._subscriptions.by_id.values():
            if (
                other.is_live
                and other.event == vector.event
                and not other.features & ~vector.features
            ):
                if covers_vector(FUZZY, other.vector, data):
                    return True
                left -= 1
                if not left:
                    break
        return False


def _explain_placement(placed: SensorPlacement | None, coverers: list[str]) -> str:
    if placed is None:
        return "sensors do not send for this; it gets what others ask for"
    if not placed.active + placed.passive + placed.waiting:
        return "no device here senses all that it names"
    words = []
    if placed.active:
        words.append(f"on {placed.active} devices")
    if placed.passive:
        what = f"{' and '.join(coverers)} cover{'s' if len(coverers) == 1 else ''} it there"
        words.append(f"not on {placed.passive}: {what}")
    if placed.waiting:
        words.append(f"not yet on {placed.waiting}")
    return "; ".join(words)


def _list_vectors(text: str, vocabulary: Vocabulary) -> list[SubscriptionVector]:
    """Return the vectors that devices get for a text: one, or one for each part of a story."""
    languages = load_languages()
    language = languages.find(languages.find_language(text))
    data = language.look_up(text, vocabulary).data
    lowered = language.list_parts(data) or (language.lower(data, vocabulary),)
    return [codec.decode(part) for part in lowered if part is not None]


def _find_named(subscriber: SubscriberState, text: str) -> list[Subscription]:
    """Return a person's subscriptions of a name or an id."""
    number = requests.read_id(text)
    mine = subscriber.subscriptions.values()
    return [each for each in mine if each.name == text or each.id == number]


def _miss(subscriber: SubscriberState, text: str) -> LanguageError:
    labels = [each.label for each in subscriber.subscriptions.values()]
    return LanguageError(
        f'there is no subscription "{text}"', suggestions=suggest_names(text, labels)
    )


def number_report(reference: str | None, second: int) -> int:
    """Return the number of a person's report.

    Of one with a reference it follows from that: who walks to another node before the answer comes
    reports again there, and by the number it is the same reading. Others are numbered by time.
    """
    return second if reference is None else crc32(reference.encode())


def _list_pairs(subscriptions: list[Subscription]) -> list[tuple[str, str]]:
    return [pair for subscription in subscriptions for pair in subscription.prefer]
