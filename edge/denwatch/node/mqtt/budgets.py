"""Budgets: how much of a node one name, one address, and all strangers together may use.

THEORY. A node has one thread, a number of open files, and a disk; whoever can use up one of them
stops it for everybody. So each of them is counted where it is spent, by whoever spends it:

  connections  at accept, before a byte is read. One without an accepted CONNECT is *half-open*:
               silent, then speaking (TLS, CONNECT), then perhaps waiting for its login. Of each
               of these there are `half_open`, `half_open_per_address` of one address, for
               `connect_ms`. One too many closes the oldest of the address that has most, so a
               stranger displaces itself: it cannot refuse anybody at another address, and those
               who say nothing displace nobody who speaks. A silent connection is a bare socket,
               without buffers and without TLS.
  links        connections with a name. One name has `links_per_name`; the last eighth of all
               `links` is for devices, peers and operators, so that people cannot keep sensors out.
  files        links and half-open connections together leave `OWN_FILES` to store, log and keys,
               however few files the process may open (`fit_files`).
  logins       a wrong password costs the processor's time, 50 ms if somebody chose it. It is paid
               by (name, address); in debt, a login *waits*, in the order of arrival, and is then
               checked: wrong guesses delay a right password, at one address, and never refuse it.
               A password that was right before in this run does not wait.
  the thread   an event of the core that takes c ms keeps everybody waiting who comes meanwhile:
               those are proportional to c, and wait c/2 each. So its price is c²/`SLICE_MS` where
               c is above `SLICE_MS`, and c below. A name earns `cpu_ms` a second, up to `BURST`
               seconds of it, and waits while it is in debt. What the frames of devices, peers and
               operators take is what others asked for, or many items: they earn more and pay c
               alone, unless a frame was refused: lies are dear.
  turns        within one turn a name may have what is expected to take `TURN_MS`, at least one
               message; the rest waits for the next turn, and all links are read between two turns.
               Turns that follow each other at once are committed together, for some ms. What a
               message will take is what its name's took lately, or a guess from its size: see
               `_expect`.
  the disk     a refused client is not a record of the log. Refusals are summed by name, address
               and reason, and the sums are written now and then (`RefusalSums`).

INVARIANTS
  1. Every connection is silent, speaking, logging in or named, and counted once, from `admit` to
     `release`.
  2. Nothing here refuses what a name sent within its budget because of what another name did,
     except when `links` are used up by as many names as it takes.
  3. Memory is bounded: buckets that are full again are forgotten, tables have a fixed size.

EXAMPLE. cpu_ms = 200. eve sends requests of 10 ms without a pause: each costs 10² = 100, so after
her savings she gets two a second, one a turn: 2 % of the processor. With requests of 1 ms she gets
200 a second, 20 %. medic7's list of 1 ms meanwhile waits for one of hers at most.

No I/O and no clock: `now` is in ms, `read_cpu` returns the thread's own processor time in ms.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from denwatch.node.mqtt.interface import Limits, ServerRefusal

OWN_FILES = 64  # of store, log, keys, listeners, metrics, threads and outgoing links
TURN_MS = 4.0  # of the thread that a name may have in one turn
SLICE_MS = 1.0  # of the thread beyond which prices rise
BURST = 10  # s of a name's earnings that it may save
VITAL_SHARE = 3  # times what others earn
_BYTE_MS = 0.002  # what a byte of a message may take, before we know better
_STAGES = 3  # of a connection without a name: silent, speaking, waiting for its login
_LOGIN_MS, _LOGIN_BURST = 200, 500  # ms a second, and at once, for wrong passwords
_CLEAN_EVERY = 1024  # new buckets between two rounds of forgetting
_FORGOTTEN_PRICE = 0.9  # of what a message was expected to take stays, if it took less


# Buckets -------------------------------------------------------------------------------------


class RateLimit:
    """One limit for many clients, each with its own token bucket. Times are milliseconds.

    A bucket holds `burst` tokens and fills at `rate` tokens a second. Whoever finds it empty is
    told how long to wait. Buckets that are full again are forgotten, so memory is bounded.
    """

    def __init__(self, rate: float, burst: float) -> None:
        if not (rate > 0 and burst >= 1):
            raise ValueError("a rate above 0 and a burst of 1 or more")
        self._per_ms = rate / 1000
        self._burst = float(burst)
        self._buckets: dict[str, tuple[float, int]] = {}  # tokens, when they were counted
        self._cleaned_at = 0

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, client: str, now: int, amount: int = 1) -> int:
        """Take tokens; return 0, or how many milliseconds to wait (then nothing was taken).

        An amount above `burst` is granted when the bucket is full, and the rest is owed.
        """
        wait = self.find_wait(client, now, min(float(amount), self._burst))
        if not wait:
            self.charge(client, now, amount)
        return wait

    def find_wait(self, client: str, now: int, needed: float = 0.0) -> int:
        """Return the ms until a client has so many tokens; 0: it has them."""
        missing = needed - self._count(client, now)
        return max(1, int(missing / self._per_ms) + 1) if missing > 0 else 0

    def charge(self, client: str, now: int, amount: float) -> None:
        """Take tokens that may not be there: then they are owed."""
        if client not in self._buckets and len(self._buckets) >= self._cleaned_at + _CLEAN_EVERY:
            self._forget_idle(now)
        self._buckets[client] = (self._count(client, now) - amount, now)

    def forget(self, client: str) -> None:
        """Forget a client that is gone for good."""
        self._buckets.pop(client, None)

    def _count(self, client: str, now: int) -> float:
        tokens, at = self._buckets.get(client, (self._burst, now))
        return min(self._burst, tokens + max(0, now - at) * self._per_ms)

    def _forget_idle(self, now: int) -> None:
        full = [name for name in self._buckets if self._count(name, now) >= self._burst]
        for name in full:
            del self._buckets[name]
        self._cleaned_at = len(self._buckets)


# Connections and logins ----------------------------------------------------------------------


def fit_files(limits: Limits, files: int, own: int = OWN_FILES) -> Limits:
    """Return limits under which a process with so many files never runs out of them."""
    room = max(8, files - own)
    if limits.links + _STAGES * limits.half_open <= room:
        return limits
    half_open = min(limits.half_open, max(1, room // (2 * _STAGES)))
    links = min(limits.links, room - _STAGES * half_open)
    return replace(limits, half_open=half_open, links=links)


def shorten_address(address: str) -> str:
    """Return what counts as one address: of IPv6 the network, which one machine has to itself."""
    if ":" not in address:
        return address or "unknown"
    found = ipaddress.IPv6Address(address.partition("%")[0])
    mapped = found.ipv4_mapped
    return str(mapped) if mapped else f"{ipaddress.IPv6Address(int(found) >> 64 << 64)}/64"


class _Crowd:
    """Connections without a name in one stage, by address, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.places: dict[int, str] = {}
        self._addresses: dict[str, dict[int, None]] = {}

    def add(self, link: int, place: str) -> int:
        """Add a connection; return which one is too many: 0 for none."""
        self.places[link] = place
        here = self._addresses.setdefault(place, {})
        here[link] = None
        if len(here) > self._limits.half_open_per_address:
            return next(iter(here))
        return self.find_oldest() if len(self.places) > self._limits.half_open else 0

    def count(self, place: str) -> int:
        """Return how many there are of an address."""
        return len(self._addresses.get(place, ()))

    def find_oldest(self) -> int:
        """Return the oldest of the address that has most; 0: there is none."""
        most: dict[int, None] = max(self._addresses.values(), key=len, default={})
        return next(iter(most), 0)

    def remove(self, link: int) -> str:
        """Forget a connection; return its address, "" if it is not here."""
        place = self.places.pop(link, "")
        if place:
            del self._addresses[place][link]
            if not self._addresses[place]:
                del self._addresses[place]
        return place


class LinkBudget:
    """Counts connections by address and links by name. `is_vital` tells who has the reserve."""

    def __init__(
        self,
        limits: Limits,
        is_vital: Callable[[str], bool] = lambda _: False,
        read_cpu: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.limits = limits
        self.read_cpu = read_cpu
        self._is_vital = is_vital
        self._silent, self._speaking, self._logins = (_Crowd(limits) for _ in range(3))
        self._users: dict[int, str] = {}
        self._by_user: dict[str, int] = {}
        self._wrong = RateLimit(_LOGIN_MS, _LOGIN_BURST)

    def __contains__(self, link: int) -> bool:
        return link in self._users or bool(self._find_place(link))

    @property
    def half_open(self) -> int:
        """How many connections have no name yet."""
        return sum(len(c.places) for c in (self._silent, self._speaking, self._logins))

    @property
    def named(self) -> int:
        """How many links there are."""
        return len(self._users)

    def count(self, user: str) -> int:
        """Return how many links a name has."""
        return self._by_user.get(user, 0)

    def admit(self, link: int, address: str) -> int:
        """Count a new connection; return which one has to be closed for it, 0 for none."""
        return self._silent.add(link, shorten_address(address))

    def hear(self, link: int) -> int:
        """Note that a connection said something; return which one has to be closed for it."""
        place = self._silent.remove(link)
        return self._speaking.add(link, place) if place else 0

    def find_oldest(self) -> int:
        """Return which connection goes first where none can be kept; 0: there is none."""
        return self._silent.find_oldest() or self._speaking.find_oldest()

    def delay_login(self, link: int, user: str, now: int) -> str | None:
        """Return None if a password may be checked now, "" if it waits, or why it is refused."""
        place = self._find_place(link)
        if not self._wrong.find_wait(f"{user}\0{place}", now):
            return None
        if link not in self._logins.places:
            if self._logins.count(place) >= self.limits.half_open_per_address:
                return "too many logins from this address wait"
            self._leave(link)
            self._logins.add(link, place)
        return ""

    def charge_login(self, link: int, user: str, cost: float, is_right: bool, now: int) -> None:
        """Let a name at an address pay for a wrong password; a right one clears its debt."""
        key = f"{user}\0{self._find_place(link)}"
        if is_right:
            self._wrong.forget(key)
        else:
            self._wrong.charge(key, now, cost)

    def name(self, link: int, user: str) -> str:
        """Give a link its name, now that its password was right; return why not, or ""."""
        if user and self.count(user) >= self.limits.links_per_name:
            return "too many links of this name"
        reserve = 0 if self._is_vital(user) else self.limits.links // 8
        if len(self._users) >= self.limits.links - reserve:
            return "too many links"
        self._leave(link)
        self._users[link] = user
        self._by_user[user] = self._by_user.get(user, 0) + 1
        return ""

    def release(self, link: int) -> None:
        """Forget a connection that is gone."""
        self._leave(link)
        user = self._users.pop(link, None)
        if user is not None:
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]

    def _find_place(self, link: int) -> str:
        crowds = (self._silent, self._speaking, self._logins)
        return next((crowd.places[link] for crowd in crowds if link in crowd.places), "")

    def _leave(self, link: int) -> None:
        for crowd in (self._silent, self._speaking, self._logins):
            crowd.remove(link)


# The thread ----------------------------------------------------------------------------------


class WorkBudget:
    """Rations messages and the thread's time by name: the server's `Pace`.

    Ask `delay` before a message is handled, `charge` what it took, and call `end_turn` after each
    turn. `is_turn_over` says that somebody waits for no more than the next turn.
    """

    def __init__(
        self,
        cpu_ms: int,
        messages: RateLimit | None = None,
        is_vital: Callable[[str], bool] = lambda _: False,
        read_cpu: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.is_turn_over = False
        self.read_cpu = read_cpu
        self._messages = messages
        self._is_vital = is_vital
        self._saved = RateLimit(cpu_ms, cpu_ms * BURST)
        self._most = float(cpu_ms * BURST)  # what one event may cost
        self._used: dict[str, float] = {}  # ms that are expected of names, within this turn
        self._expected: dict[str, float] = {}  # ms of one message, by name

    def delay(self, user: str, size: int, now: int) -> int:
        """Return 0 and count a message, or the ms to wait before asking again."""
        wait = self._saved.find_wait(user, now)
        if wait:
            return wait
        used = self._used.get(user, 0.0)
        expected = self._expect(user, size)
        if used and used + expected > TURN_MS:
            self.is_turn_over = True
            return 1
        if self._messages is not None:
            wait = self._messages.take(user, now)
            if wait:
                return wait
        self._used[user] = used + expected
        return 0

    def charge(
        self,
        user: str,
        cost: float,
        is_refused: bool,
        now: int,
        parts: int = 1,
        messages: int = 1,
    ) -> None:
        """Let a name pay for an event, or so many in these messages, that took `cost` ms."""
        before = self._expected.get(user, 0.0)
        self._expected[user] = max(cost / messages, before * _FORGOTTEN_PRICE**messages)
        if len(self._expected) > _CLEAN_EVERY:
            del self._expected[next(iter(self._expected))]
        price = cost * max(1.0, cost / parts / SLICE_MS)
        if not is_refused and self._is_vital(user):
            price = cost / VITAL_SHARE
        self._saved.charge(user, now, min(price, self._most))

    def end_turn(self) -> None:
        """Begin the next turn."""
        self.is_turn_over = False
        self._used.clear()

    def _expect(self, user: str, size: int) -> float:
        """Return the ms that a message may take: as its name's did, or by its size."""
        known = self._expected.get(user)
        return size * _BYTE_MS if known is None else max(known, size * _BYTE_MS / 4)


# Refusals ------------------------------------------------------------------------------------

_SUMS = 100  # clients whose refusals are summed apart
_WRITTEN = 20  # of them in one round
_ROUND = 10_000  # ms between two rounds
_SHOWN, _SHOWN_REASON = 64, 200  # characters of a name that a stranger gave, and of a reason


class RefusedClient(NamedTuple):
    """How often a client was refused for a reason since the last round."""

    user: str
    address: str
    what: str
    why: str
    times: int
    at: int  # the last one
    logged: int = 0  # of these times, how many have a record in the log

    def describe(self) -> str:
        """Return the line that an operator reads."""
        who = self.user or ("a client" if self.address else self.what)
        where = f" at {self.address}" if self.address else ""
        what = f", {self.what}" if self.user and self.what else ""
        often = f" ({self.times} times)" if self.times > 1 else ""
        return f"refused {who}{where}{what}: {self.why}{often}"


class RefusalSums:
    """Sums refusals by name, address and reason until the next round is due."""

    def __init__(self) -> None:
        self.recent: list[RefusedClient] = []  # of the last round
        self._sums: dict[tuple[str, str, str], RefusedClient] = {}
        self._next = 0

    def add(self, refusal: ServerRefusal, now: int, *, is_logged: bool = False) -> None:
        """Count a refusal; beyond so many clients they are summed by their reason alone.

        `is_logged`: it has a record of its own in the node's log.
        """
        user, what = _make_readable(refusal.user), _make_readable(refusal.what)
        address, why = refusal.address, _make_readable(refusal.why, _SHOWN_REASON)
        if (user, address, why) not in self._sums and len(self._sums) >= _SUMS:
            user, address, what = "", "", "others"
            why = why if ("", "", why) in self._sums else "several reasons"
        before = self._sums.pop((user, address, why), None)
        times = 1 + (before.times if before else 0)
        logged = int(is_logged) + (before.logged if before else 0)
        self._sums[user, address, why] = RefusedClient(user, address, what, why, times, now, logged)

    def take_due(self, now: int) -> list[RefusedClient]:
        """Return what a round writes, the most frequent first; [] if none is due."""
        if not self._sums or now < self._next:
            return []
        self._next = now + _ROUND
        sums = sorted(self._sums.values(), key=lambda each: -each.times)
        self._sums.clear()
        found, rest = sums[:_WRITTEN], sums[_WRITTEN:]
        if rest:
            times, logged = sum(each.times for each in rest), sum(each.logged for each in rest)
            found.append(RefusedClient("", "", "others", "several reasons", times, now, logged))
        self.recent = found
        return found


def _make_readable(text: str, most: int = _SHOWN) -> str:
    """Return a stranger's text as one short line."""
    return text if text.isprintable() and len(text) <= most else ascii(text[:most])
