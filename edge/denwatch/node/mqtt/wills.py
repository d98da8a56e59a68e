"""Wills of clients that are gone: some are due later (MQTT 5), some wait for room in a queue.

A will with a delay is published when the delay is over or its session ends, whatever comes first,
and not at all if the client is back before. From the transaction in which its client was lost until
then it is in the store, as its session is: a restart of the node neither loses nor delays it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from denwatch.node.core.events import Reader, Write
from denwatch.node.mqtt import records
from denwatch.node.mqtt.interface import Limits, Outputs
from denwatch.node.mqtt.packets import MqttSession, Will


class Wills:
    """`publish` returns False if a receiver has no room; `refuse` reports a will that is lost."""

    def __init__(
        self,
        limits: Limits,
        outputs: Outputs,
        publish: Callable[[str, Will], bool],
        refuse: Callable[[str, str], None],
    ) -> None:
        self._limits = limits
        self._outputs = outputs
        self._publish = publish
        self._refuse = refuse
        self._waiting: deque[tuple[str, Will]] = deque()  # for room, with their users
        self._delayed: dict[MqttSession, tuple[Will, int]] = {}  # with the time when it is due

    def restore(self, reader: Reader, sessions: Mapping[tuple[str, str], MqttSession]) -> None:
        """Load the wills that were not due yet; one without its session is due now."""
        for key, value in reader.scan(records.WILLS):
            will, due = records.read_will(key, value)
            name = records.read_session_key(key)
            session = sessions.get(name)
            if session is None:
                session, due = MqttSession(*name, True), 0
            self._delayed[session] = (will, due)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._delayed)

    @property
    def is_waiting(self) -> bool:
        """Whether a will waits for room."""
        return bool(self._waiting)

    def leave(self, session: MqttSession, will: Will, is_over: bool, now: int) -> None:
        """Publish the will of a lost client; `is_over`: its session has ended, too."""
        if not will.delay or is_over:
            self._release(session.user, will)
        elif self._has_room(session.user):
            due = now + will.delay * 1000
            self._delayed[session] = (will, due)
            self._outputs.add(Write(records.WILLS, session.key, records.write_will(will, due)))

    def cancel(self, session: MqttSession) -> None:
        """Forget the will of a client that is back."""
        self._take(session)

    def _take(self, session: MqttSession) -> Will | None:
        found = self._delayed.pop(session, None)
        if found is None:
            return None
        self._outputs.add(Write(records.WILLS, session.key, None))
        return found[0]

    def end_session(self, session: MqttSession) -> None:
        """Publish the will of a session that has ended."""
        will = self._take(session)
        if will is not None:
            self._release(session.user, will)

    def tick(self, now: int) -> None:
        """Publish what is due."""
        for session, (_, due) in list(self._delayed.items()):
            if due <= now:
                self.end_session(session)

    def retry(self) -> None:
        """Publish those that waited for room, as far as there is some now."""
        for _ in range(len(self._waiting)):
            user, will = self._waiting.popleft()
            if not self._publish(user, will):
                self._waiting.append((user, will))

    def _release(self, user: str, will: Will) -> None:
        if not self._publish(user, will) and self._has_room(user):
            self._waiting.append((user, will))

    def _has_room(self, user: str) -> bool:
        if len(self) < self._limits.wills:
            return True
        self._refuse(f"the will of {user}", "too many wills wait")
        return False
