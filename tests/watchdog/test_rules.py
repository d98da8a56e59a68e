"""Each rule against what comes from outside, and the harm that is done without it.

An attack returns whether it did harm. With the rule it must not; with the rule left out it must, or
the attack proves nothing. The same attacks run on real processes in `faults/test_device.py`.
"""

import unittest

from tests.watchdog.flash import Flash, make_vector, require_heap

require_heap(200_000)

from denwatch.protocol import ccm  # noqa: E402
from denwatch.protocol.timecode import decode_age  # noqa: E402
from denwatch.watchdog import fuzzy, seal  # noqa: E402
from denwatch.watchdog.execution import Sample  # noqa: E402
from denwatch.watchdog.filter import CapacityError, Filter  # noqa: E402
from denwatch.watchdog.fuzzy import Fuzzy  # noqa: E402
from denwatch.watchdog.manager import Manager  # noqa: E402
from denwatch.watchdog.packets import Parser  # noqa: E402
from denwatch.watchdog.rating import locate  # noqa: E402
from denwatch.watchdog.seal import FrameKey  # noqa: E402
from denwatch.watchdog.spool import Spool  # noqa: E402
from denwatch.watchdog.uplink import Uplink  # noqa: E402

from tests.watchdog.nodes import SECRET, Node, make_key  # noqa: E402
from tests.watchdog.nodes import make_vector as make_subscription  # noqa: E402

SV = "dens/1/wd/dog-1/sv"
ACK = "dens/1/wd/dog-1/ack"
SENSES = {1: (7, 0)}
DAY = 86_400


def make_uplink(key_kind=FrameKey, uplink_kind=Uplink, filter_kind=Filter):
    """Return an uplink, connected, and the language behind it."""
    language = Fuzzy(1024, SENSES)
    language.filter = filter_kind(1024)
    key = key_kind("dog-1", "node-a", 7, SECRET)
    manager = Manager([language], SENSES)
    uplink = uplink_kind("dog-1", {"node-a": key}, Spool(Flash(8), 0), manager, b"vocabula", dict)
    uplink.connect("node-a")
    return uplink, language


def make_sample(value):
    sample = Sample(1)
    sample.set(0, value)
    return sample


# What is left out


class AnyVersion(FrameKey):
    def open(self, frame):
        return FrameKey.open(self, bytes([0x80 | frame[0] & 63]) + frame[1:])


class AnyKey(FrameKey):
    def open(self, frame):
        self._id = frame[1:3]
        return FrameKey.open(self, frame)


class AnyTag(FrameKey):
    """Takes whatever comes out: who knows an old body makes the next one of it."""

    def open(self, frame):
        kept = seal.decrypt
        seal.decrypt = lambda key, nonce, sealed, _: ccm._mix(
            key, nonce, sealed[-8:] + sealed[:-8]
        )[:-8]
        try:
            return FrameKey.open(self, frame)
        finally:
            seal.decrypt = kept


class Endless(Parser):
    def __init__(self, limit):  # noqa: ARG002 - that is the point
        Parser.__init__(self, 1 << 28)


class Growing(Filter):
    def add(self, frame, tail, required=-1):
        if self.used + 100 > len(self.buffer):
            self.buffer += bytes(200)
        return Filter.add(self, frame, tail, required)


class Evicting(Filter):
    """Makes room by what came first."""

    def add(self, frame, tail, required=-1):
        while True:
            try:
                return Filter.add(self, frame, tail, required)
            except CapacityError:
                self.remove(self.follow(0))


class Guessing(Spool):
    """Takes no clock for one that stands at its start."""

    def __init__(self, device, now, wall=None):
        Spool.__init__(self, device, now, wall or 0)


class Believing(Spool):
    def _is_plausible(self, gone):  # noqa: ARG002 - whatever the clock says
        return True


class Shy(Uplink):
    """Says hello once."""

    def next_message(self, now):
        message = Uplink.next_message(self, now)
        self.is_answered = True
        return message


class Credulous(Uplink):
    """Takes every acknowledgement for one of what is under way."""

    def _take_acknowledgement(self, kind, body, now, frame):
        Uplink._take_acknowledgement(self, kind, body, now, frame)
        self._sent = (0, 0)


def trust(frame):
    """Stands for `check`: where the parts would stand."""
    place = [0] * 16
    locate(frame, 0, place)
    return place


# What is tried


def send_next_version(key_kind):
    """A node of a later version, with the right key: what it means is not known here.

    A version that seals as this one does, and means something else.
    """
    uplink, language = make_uplink(key_kind)
    sealed = Node().subscribe(make_subscription(1))
    uplink.receive(SV, bytes([0xC0 | sealed[0]]) + sealed[1:], 0)
    return language.filter.count > 0


def send_under_another_key(key_kind):
    """The number of a key that was given up."""
    uplink, language = make_uplink(key_kind)
    uplink.receive(SV, Node(make_key(key_id=6)).subscribe(make_subscription(1)), 0)
    return language.filter.count > 0


def change_what_is_sealed(key_kind):
    """Without the secret: a bit of what is encrypted is the same bit of what it means."""
    uplink, language = make_uplink(key_kind)
    sealed = bytearray(Node().subscribe(make_subscription(1, threshold=128)))
    sealed[11 + 1 + 4] ^= 128 ^ 1  # the threshold
    uplink.receive(SV, bytes(sealed), 0)
    return language.filter.count > 0


def send_a_long_packet(parser_kind):
    parser = parser_kind(100)
    parser.feed(b"\x32\xff\x7f\x00\x03a/b\x00\x09")
    for _ in range(100):
        parser.feed(bytes(100))
        parser.take()
    return len(parser._data) > 100


def flood(filter_kind):
    """More subscriptions than there is room for, from the right node."""
    uplink, language = make_uplink(filter_kind=filter_kind)
    node = Node()
    uplink.receive(SV, node.subscribe(make_subscription(1, threshold=255, low=250)), 0)
    for handle in range(2, 300):
        vector = make_subscription(handle, attribute=1, low=handle % 250, threshold=handle % 200)
        uplink.receive(SV, node.subscribe(vector), 0)
    is_larger = len(language.filter.buffer) > 1024
    return is_larger or language.judge(make_sample(252), 0) < 0


def corrupt(check):
    """A vector that ends before its last triple does: the next one's bytes would be read."""
    language = Fuzzy(1024, SENSES)
    kept = fuzzy.check
    fuzzy.check = check
    try:
        for vector in (make_subscription(1, low=0)[:-2], make_subscription(2, low=200)):
            try:  # noqa: SIM105 - MicroPython has no contextlib
                language.install(vector, 0)
            except ValueError:
                pass
    finally:
        fuzzy.check = kept
    return language.judge(make_sample(5), 0) >= 0


def restart(spool_kind, before, after):
    """Return the age (s) and whether it is called certain, after a reset between two walls."""
    flash = Flash(8)
    spool = spool_kind(flash, 0, before)
    spool.put(make_vector(1), 100, 0)
    spool.save(0)
    spool = spool_kind(Flash(8, image=flash.take_image()), 0, after)
    vector = spool.peek(0, 1000)[2][0]
    return decode_age(vector[4] << 8 | vector[5]) // 16, spool.undated == 0


def reset_without_a_clock(spool_kind):
    """How long the board was off is not known: no age may be called certain."""
    return restart(spool_kind, None, None)[1]


def reset_with_a_clock_that_starts_anew(spool_kind):
    """A clock without a battery is behind itself after a power cut."""
    try:
        age, is_certain = restart(spool_kind, 500_000, 7)
    except OverflowError:  # beyond all ages
        return True
    return age > DAY or is_certain


def start_after_the_device(uplink_kind):
    """The first hello found no node; without a second one it never subscribes."""
    uplink, _ = make_uplink(uplink_kind=uplink_kind)
    node = Node()
    uplink.next_message(0)
    message = uplink.next_message(10_000)
    if message is not None:
        node.take(*message)
    return not node.hellos


def acknowledge_what_was_never_sent(uplink_kind):
    """A node that knows an older life of this device: without patience it is flooded."""
    uplink, _ = make_uplink(uplink_kind=uplink_kind)
    uplink._spool.put(make_vector(1), 100, 0)
    node = Node()
    node.take(*uplink.next_message(0))
    uplink.receive(ACK, node.answer_hello(), 0)
    sent = 0
    for now in range(0, 4000, 100):
        message = uplink.next_message(now)
        if message is not None and message[0].endswith("nv"):
            sent += 1
            uplink.receive(ACK, node.acknowledge(9, 9), now)
    return sent > 1


ATTACKS = (
    (send_next_version, FrameKey, AnyVersion),
    (send_under_another_key, FrameKey, AnyKey),
    (change_what_is_sealed, FrameKey, AnyTag),
    (send_a_long_packet, Parser, Endless),
    (flood, Filter, Growing),
    (flood, Filter, Evicting),
    (corrupt, fuzzy.check, trust),
    (reset_without_a_clock, Spool, Guessing),
    (reset_with_a_clock_that_starts_anew, Spool, Believing),
    (start_after_the_device, Uplink, Shy),
    (acknowledge_what_was_never_sent, Uplink, Credulous),
)


class Rules(unittest.TestCase):
    def test_with_the_rule_no_harm_is_done(self):
        for attack, rule, _ in ATTACKS:
            self.assertFalse(attack(rule), attack)

    def test_without_the_rule_it_is(self):
        for attack, _, ablated in ATTACKS:
            self.assertTrue(attack(ablated), (attack, ablated))

    def test_each_refusal_is_counted_by_its_reason(self):
        uplink, _ = make_uplink()
        good = Node().subscribe(make_subscription(1))
        for payload, reason in (
            (bytes([good[0] ^ 0x40]) + good[1:], "version"),
            (Node(make_key(key_id=6)).subscribe(make_subscription(1)), "key"),
            (good[:-1] + bytes([good[-1] ^ 1]), "tag"),
        ):
            self.assertFalse(uplink.receive(SV, payload, 0))
            self.assertEqual(uplink.counts["refused_" + reason], 1)
            self.assertEqual(uplink.refused, reason)


if __name__ == "__main__":
    unittest.main()
