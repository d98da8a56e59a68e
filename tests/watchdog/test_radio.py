"""Datagrams: messages in pieces over a line that loses, SLIP, airtime, and the share of the air."""

# ruff: noqa: ARG002, RUF012 - stand-ins have the interface of drivers
import math
import unittest

from denwatch.watchdog.radio import (
    HEAD,
    OVERHEAD,
    PIECE,
    RECEIVED,
    AirBudget,
    EspNowModem,
    LoraModem,
    RadioLink,
    RadioPeer,
    SlipParser,
    exchange,
    find_address,
    find_lora_airtime,
    open_modem,
    split_answers,
    write_slip,
)

ADDRESS = find_address("dog-1")


class Dice:
    """Numbers that are the same on every runtime."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self, limit):
        self.state = (self.state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self.state >> 8) % limit


def carry(sender, receiver, loses, limit=1000):
    """Carry datagrams until the sender is done; return what was delivered."""
    delivered = []
    now = 0
    for _ in range(limit):
        if not sender.is_busy:
            break
        piece = sender.next_piece(now)
        if piece is None:
            now += 100
            continue
        sender.note_sent(now)
        if not loses():
            message = receiver.take_piece(piece)
            if message:
                delivered.append(message)
        answer = receiver.next_answer()
        if answer and not loses():
            for address, number, bits in split_answers(bytes([RECEIVED]) + answer):
                assert address == ADDRESS
                sender.take_answer(number, bits)
    return delivered


class PeerTest(unittest.TestCase):
    def test_messages_of_every_size_arrive_whole_and_once(self):
        for size in (51, 222, 255):
            room = size - HEAD
            for length in (0, 1, room - 1, room, room + 1, 5 * room, 16 * room):
                dice = Dice(length + size)
                sender, receiver = RadioPeer(ADDRESS, size, dice), RadioPeer(ADDRESS, size, dice)
                payload = bytes([i * 7 & 255 for i in range(length)])
                self.assertTrue(sender.offer(1, payload))
                self.assertEqual(carry(sender, receiver, lambda: False), [(1, payload)])
                self.assertEqual(sender.lost, 0)

    def test_what_is_too_long_is_refused(self):
        peer = RadioPeer(ADDRESS, 51, Dice(1))
        self.assertFalse(peer.offer(1, bytes(16 * 46 + 1)))
        self.assertFalse(peer.is_busy)
        self.assertEqual(peer.lost, 1)

    def test_every_pattern_of_loss_delivers_once_or_reports_a_loss(self):
        """The first ten datagrams are lost in every possible pattern, then none is."""
        for length in (40, 120):
            for pattern in range(1024):
                dice = Dice(pattern)
                sender, receiver = RadioPeer(ADDRESS, 51, dice), RadioPeer(ADDRESS, 51, dice)
                bits = [pattern]

                def loses(bits=bits):
                    lost = bits[0] & 1
                    bits[0] >>= 1
                    return lost

                payload = bytes(range(length))
                sender.offer(2, payload)
                delivered = carry(sender, receiver, loses)
                self.assertFalse(sender.is_busy)
                self.assertTrue(len(delivered) <= 1)
                if not sender.lost:
                    self.assertEqual(delivered, [(2, payload)])

    def test_only_what_lacks_is_sent_again(self):
        sender, receiver = RadioPeer(ADDRESS, 51, Dice(1)), RadioPeer(ADDRESS, 51, Dice(2))
        sender.offer(0, bytes(200))
        sent = []
        for _ in range(5):
            piece = sender.next_piece(0)
            sender.note_sent(0)
            sent.append(piece)
            if len(sent) != 3:
                receiver.take_piece(piece)
        (answer,) = split_answers(bytes([RECEIVED]) + receiver.next_answer())
        self.assertEqual(answer[2], 0b11011)
        self.assertFalse(sender.take_answer(answer[1], answer[2]))
        self.assertEqual(sender.next_piece(0), sent[2])
        sender.note_sent(0)
        self.assertEqual(receiver.take_piece(sent[2]), (0, bytes(200)))
        self.assertIsNone(receiver.take_piece(sent[2]))  # not delivered again

    def test_answers_of_others_and_of_before_change_nothing(self):
        sender = RadioPeer(ADDRESS, 51, Dice(1))
        sender.offer(0, b"hello")
        number = sender.next_piece(0)[3]
        self.assertFalse(sender.take_answer(number - 1 & 255, 0xFFFF))
        self.assertTrue(sender.is_busy)
        self.assertTrue(sender.take_answer(number, 1))

    def test_datagrams_that_are_no_good_are_passed_over(self):
        receiver = RadioPeer(ADDRESS, 51, Dice(1))
        self.assertIsNone(receiver.take_piece(bytes([PIECE]) + ADDRESS + bytes([1, 0x31]) + b"x"))
        self.assertEqual(split_answers(bytes([RECEIVED]) + bytes(4)), [])


class AirTest(unittest.TestCase):
    def find_excess(self, budget, share, seed):
        """Send whenever it is free for three hours; return whether a window had too much."""
        dice = Dice(seed)
        sent = []
        now = 5_000_000
        start = now
        while now < start + 3 * 3_600_000:
            airtime = 20 + dice(1500)
            if budget.is_free(airtime, now):
                budget.spend(airtime, now)
                sent.append((now, airtime))
            now += dice(20_000 if dice(10) else 900_000)
        total = 0
        oldest = 0
        for at, airtime in sent:
            total += airtime
            while sent[oldest][0] <= at - 3_600_000:
                total -= sent[oldest][1]
                oldest += 1
            if total * 1000 > min(3_600_000, at + airtime - start) * share:
                return True
        self.assertTrue(len(sent) > 20)
        return False

    def test_no_hour_exceeds_its_share(self):
        for share in (1, 10, 100):
            for seed in range(20):
                self.assertFalse(self.find_excess(AirBudget(share, 5_000_000), share, seed))

    def test_without_the_rule_of_the_first_hour_it_is_exceeded(self):
        budget = AirBudget(10, 5_000_000 - 3_600_000)  # as if an hour had passed in silence
        self.assertTrue(self.find_excess(budget, 10, 1))

    def test_without_forgetting_by_minutes_it_is_exceeded(self):
        class Forgetful(AirBudget):
            def _forget(self, now):
                if now // 60_000 >= self._minute + 30:
                    super()._forget(now)
                    self._used = type(self._used)("H", [0] * 61)

        excess = [self.find_excess(Forgetful(10, 5_000_000), 10, seed) for seed in range(20)]
        self.assertTrue(any(excess))

    def test_a_line_is_always_free(self):
        self.assertTrue(AirBudget(1000, 0).is_free(10_000, 0))

    def test_airtime_is_that_of_the_data_sheet(self):
        for spreading in range(7, 13):
            symbol = 2**spreading / 125
            for size in range(1, 223, 13):
                slow = 2 if spreading > 10 else 0
                groups = math.ceil((8 * size - 4 * spreading + 44) / (4 * (spreading - slow)))
                ms = symbol * (12.25 + 8 + max(0, groups) * 5)
                self.assertTrue(0 <= find_lora_airtime(size, spreading) - ms < 1.001)


class SlipTest(unittest.TestCase):
    def test_every_byte_comes_through_whole_and_byte_by_byte(self):
        datagrams = [bytes(range(256))[i : i + 100] for i in (0, 100, 156)] + [b"\xc0\xdb\xc0"]
        line = b"".join([write_slip(datagram) for datagram in datagrams])
        self.assertEqual(SlipParser().feed(line), datagrams)
        parser = SlipParser()
        found = []
        for byte in line:
            found += parser.feed(bytes([byte]))
        self.assertEqual(found, datagrams)
        self.assertEqual(bytes(parser.noise), b"")

    def test_what_a_board_prints_between_is_kept_apart(self):
        parser = SlipParser()
        line = (
            b"MPY: soft reboot\r\n" + write_slip(b"abcdef") + b"Traceback" + write_slip(b"ghijkl")
        )
        self.assertEqual(parser.feed(line), [b"abcdef", b"ghijkl"])
        self.assertEqual(bytes(parser.noise), b"MPY: soft reboot\r\nTraceback")

    def test_of_what_it_prints_as_much_as_is_asked_for_is_kept(self):
        for kept in (10, 5000):
            parser = SlipParser(kept)
            line = b"x" * 1000
            self.assertEqual(
                parser.feed(line + write_slip(b"abcdef") + line + b"\xc0"), [b"abcdef"]
            )
            self.assertEqual(bytes(parser.noise), b"x" * min(kept, 2000))

    def test_a_byte_that_changed_or_lacks_loses_one_datagram(self):
        line = write_slip(b"abcdef")
        for at in range(1, len(line) - 1):
            changed = line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]
            for wrong in (changed, line[:at] + line[at + 1 :]):
                self.assertEqual(SlipParser().feed(wrong + write_slip(b"ghijkl")), [b"ghijkl"])


class FakeEspNow:
    """The calls of MicroPython's `espnow.ESPNow`."""

    def __init__(self, is_full=False):
        self.is_full = is_full
        self.sent = []
        self.came = [(None, None)]

    def active(self, is_active):
        self.is_active = is_active

    def add_peer(self, address):
        self.peer = address

    def send(self, address, data, is_sync):
        if self.is_full:
            raise OSError(-12393)
        self.sent.append((address, data, is_sync))

    def recv(self, timeout):
        assert timeout == 0
        return self.came.pop(0)


class FakeLora:
    """The calls of micropython-lib's modems."""

    def __init__(self):
        self.calls = []
        self.came = [None, True, b"datagram"]

    def start_recv(self, continuous):
        self.calls.append("listen" if continuous else "once")

    def send(self, data):
        self.calls.append(data)

    def poll_recv(self):
        return self.came.pop(0) if self.came else None


class FakeBoard:
    """Makes stand-ins."""

    def make_espnow(self, channel):
        self.channel = channel
        return FakeEspNow()

    def make_lora(self, radio):
        return FakeLora()


class ModemTest(unittest.TestCase):
    def test_espnow(self):
        radio = FakeEspNow()
        radio.came = [(b"node", b"datagram"), (None, None)]
        modem = EspNowModem(radio, b"gate-1")
        modem.send(b"abc")
        self.assertTrue(radio.is_active)
        self.assertEqual((radio.peer, radio.sent), (b"gate-1", [(b"gate-1", b"abc", False)]))
        self.assertEqual((modem.receive(), modem.receive()), (b"datagram", None))
        radio.is_full = True
        modem.send(b"abc")  # is lost, and that is all

    def test_lora_listens_again_after_sending(self):
        radio = FakeLora()
        modem = LoraModem(radio, 12)
        modem.send(b"abc")
        self.assertEqual(radio.calls, ["listen", b"abc", "listen"])
        self.assertEqual([modem.receive() for _ in range(3)], [None, None, b"datagram"])
        self.assertEqual(
            [LoraModem(FakeLora(), s).size for s in (7, 8, 9, 10)], [222, 222, 115, 51]
        )

    def test_a_configuration_opens_them(self):
        board = FakeBoard()
        modem = open_modem({"kind": "espnow", "gateway": "aabbccddeeff", "channel": 6}, board)
        self.assertEqual((modem.size, board.channel), (250, 6))
        modem = open_modem({"kind": "lora", "spreading": 10}, board)
        self.assertEqual((modem.size, modem.share), (51, 10))
        with self.assertRaises(ValueError):
            open_modem({"kind": "pigeon"}, board)

    def test_batches_fit_one_datagram(self):
        for size, vectors in ((51, 2), (222, 16)):
            self.assertEqual(min(16, (size - OVERHEAD) // 12), vectors)


class Client:
    """Whose messages a link carries."""

    name = "dog-1"
    topics = ["dens/1/wd/dog-1/sv", "dens/1/wd/dog-1/ack"]
    will = None

    def __init__(self):
        self.begun = []
        self.received = []

    def connect(self, node):
        self.begun.append(node)

    def connect_anew(self, node):
        self.begun.append(node + " anew")

    def receive(self, topic, payload, now):
        self.received.append((topic, payload))


class Wire:
    """A modem in memory."""

    size = 51
    share = 10

    def __init__(self):
        self.sent = []
        self.came = []

    def send(self, datagram):
        self.sent.append(datagram)

    def receive(self):
        return self.came.pop(0) if self.came else None

    def measure(self, size):
        return 100


class RelayTest(unittest.TestCase):
    def test_datagrams_pass_both_ways(self):
        first, second = Wire(), Wire()
        first.came, second.came = [b"up", b"up again"], [b"down"]
        for _ in range(3):
            exchange(first, second)
        self.assertEqual((second.sent, first.sent), ([b"up", b"up again"], [b"down"]))
        self.assertFalse(exchange(first, second))


class Node:
    name = "north"


class LinkTest(unittest.TestCase):
    def setUp(self):
        self.now = 0
        self.wire = Wire()
        self.client = Client()
        self.link = RadioLink(self.client, [Node()], lambda: self.now, Dice(1), self.wire)

    def test_it_keeps_quiet_until_the_air_is_free(self):
        self.link.offer("dens/1/wd/dog-1/hello", b"hello", 0)
        now = 0
        while now < 10_000:
            self.assertFalse(self.link.step(now))
            now += 97
        while not self.wire.sent:  # 100 ms are 1 % of what has passed
            self.link.step(now)
            now += 97
        self.assertTrue(now < 30_000)

    def test_two_that_start_together_do_not_send_together(self):
        moments = set()
        for seed in range(20):
            self.now = now = 3_600_000
            wire = Wire()
            link = RadioLink(self.client, [Node()], lambda: self.now, Dice(seed), wire)
            link.air = AirBudget(10, 0)
            link.offer("dens/1/wd/dog-1/hello", b"hello", now)
            while not wire.sent:
                link.step(now)
                now += 10
            moments.add(now)
        self.assertTrue(len(moments) > 10)

    def test_it_hears_its_own_only(self):
        self.now = 3_600_000
        gateway = RadioPeer(find_address("dog-1"), 51, Dice(2))
        other = RadioPeer(find_address("dog-2"), 51, Dice(3))
        for peer, payload in ((other, b"theirs"), (gateway, b"ours")):
            peer.offer(3, payload)
            self.wire.came.append(peer.next_piece(0))
            self.link.step(self.now)
        self.assertEqual(self.client.received, [("dens/1/wd/dog-1/sv", b"ours")])
        (answer,) = split_answers(self.wire.sent[0])
        self.assertTrue(gateway.take_answer(answer[1], answer[2]))
        for kind in (0x30, 0x40, 0x00):
            self.wire.came.append(bytes([kind]) + find_address("dog-1"))
            self.link.step(self.now)
        self.assertEqual(self.client.begun, ["north anew"])


if __name__ == "__main__":
    unittest.main()
