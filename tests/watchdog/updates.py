"""A board that is updated over the air, its images, and what must hold after a power cut.

`Board` works in the current folder: on MicroPython that of a littlefs on a flash that can lose its
power. `live` is a life with four updates, of which one fails; `check` starts what a cut left.
"""

import json
import os
import sys
from binascii import hexlify
from hashlib import sha256

from denwatch.watchdog import slots
from denwatch.watchdog.seal import unpack
from denwatch.watchdog.update import ImageUpdate

CONFIG = {"device": "dog-1", "capacity": 512, "nodes": ["secret"]}


class Restart(Exception):
    """The board was told to start anew."""


class Bricked(Exception):
    """A promise was broken; the text says which."""


def digest(data):
    return hexlify(sha256(data).digest()[:16]).decode()


class Image:
    """A manifest and files, in the order in which they are asked for."""

    def __init__(self, version, files):
        self.version = version
        rows = [f"{digest(files[path])} {len(files[path])} {path}\n" for path in sorted(files)]
        self.files = [f"denwatch {version} 0\n{''.join(rows)}".encode()]
        self.files += [files[path] for path in sorted(files)]
        self.id = sha256(self.files[0]).digest()[:16]
        self.paths = files

    def answer(self, want):
        """Return the piece that a device asks for."""
        message = unpack(want)
        at = message[3]
        data = self.files[message[2]][at : at + message[4]]
        return {1: message[1], 2: message[2], 3: at, 4: data}


def make_code(version, count=3, size=2400):
    """Return the files of a version; the first is the same in all."""
    files = {"denwatch/common.mpy": b"common" * 150}
    for i in range(count):
        files[f"denwatch/watchdog/part{i}.mpy"] = f"{version} {i} ".encode() * (size // 6)
    return files


def write(path, data):
    at = path.find("/")
    while at > 0:
        try:  # noqa: SIM105 - nothing would suppress it on a device
            os.mkdir(path[:at])  # noqa: PTH102
        except OSError:
            pass
        at = path.find("/", at + 1)
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(data)


class Board:
    """One board in the current folder; `update` is None until something is offered."""

    def __init__(self, slots=slots, make=ImageUpdate):
        self.slots = slots
        self.make = make
        self.update = None
        self.log = []

    def install(self, image):
        """Put the first code there, as over USB."""
        write("watchdog.json", json.dumps(CONFIG).encode())
        write("lib/manifest", image.files[0])
        for path in image.paths:
            write("lib/" + path, image.paths[path])

    def start(self):
        """Start; return the version that runs."""
        while sys.path and sys.path[0] in ("a", "b"):
            sys.path.pop(0)
        self.slots.enter()
        self.update = self.make(self.slots, self.log.append, self.restart)
        return self.slots.describe()[0]

    def restart(self):
        raise Restart

    def offer(self, image, most=1 << 30):
        """Offer an image and send its pieces, at most so many; return whether it restarted."""
        self.update.offer(image.id, len(image.files[0]))
        now = 0
        pieces = 0
        try:
            while self.update.image and pieces < most:
                now += 10_000
                want = self.update.next_want(now)
                if want is not None:
                    pieces += 1
                    self.update.take(image.answer(want))
        except Restart:
            return True
        return False


def check_sound():
    """What runs is whole: every file of its manifest, and a configuration."""
    folder = "lib" if slots.slot == slots.NONE else slots.slot
    try:
        with open(folder + "/manifest") as file:  # noqa: PTH123
            file.readline()
            rows = [line.split() for line in file]
        for wanted, _, path in rows:
            with open(folder + "/" + path, "rb") as file:  # noqa: PTH123
                if digest(file.read()) != wanted:
                    raise Bricked(f"{folder} has another {path}")
        with open(slots.path) as file:  # noqa: PTH123
            config = json.load(file)
    except (OSError, ValueError) as error:
        raise Bricked(f"{folder} cannot start: {error}") from None
    if config["nodes"] != CONFIG["nodes"]:
        raise Bricked(f"{slots.path} has lost its keys")
    return config


class Journal:
    """What the board was told, until the cut."""

    def __init__(self):
        self.good = {"1"}  # versions that a node has answered; two of them while that is noted
        self.trial = None  # the version that may be on trial
        self.image = None  # what is offered


def make_images():
    return [
        Image("2", make_code("2")),
        Image("3", dict(make_code("3"), **{"changes.json": b'{"capacity": 9, "hold": 7}'})),
        Image("4", dict(make_code("4", 4), **{"changes.json": b'{"capacity": 1024}'})),
        Image("5", make_code("5", 2, 4300)),
    ]


def live(board, journal):
    """Live through four updates; the second is one that never reaches a node."""
    board.install(Image("1", make_code("1")))
    if board.start() != "1":
        raise Bricked("what was installed does not start")
    yield
    for image in make_images():
        journal.image = image
        journal.trial = image.version
        if not board.offer(image):
            raise Bricked("an update did not end")
        if image.version == "3":
            for _ in range(slots.TRIES):
                if board.start() != "3":
                    raise Bricked("a trial ended early")
            journal.trial = None
        elif board.start() != image.version:
            raise Bricked("an update is not tried")
        else:
            journal.good.add(image.version)
            slots.confirm()
            journal.good = {image.version}
        version = board.start()
        if version not in journal.good:
            raise Bricked(f"{version} runs")
        journal.image = journal.trial = None


def check(board, journal):
    """Start what a cut left, again and again without a node; it must come back to good code."""
    versions = []
    for _ in range(slots.TRIES + 2):
        versions.append(board.start())
        check_sound()
        allowed = journal.good | {journal.trial} if slots.is_trial else journal.good
        if versions[-1] not in allowed:
            raise Bricked(f"{versions} ran, {journal.good} are good")
    if slots.is_trial:
        raise Bricked(f"a trial never ends: {versions}")


def check_resumed(board, image):
    """The update goes on where the cut left it, and ends."""
    version = board.start()
    failed = slots.describe()[2]
    if version == image.version or slots.is_trial or failed == hexlify(image.id).decode():
        return
    if not board.offer(image) or board.start() != image.version:
        raise Bricked(f"the update to {image.version} does not end: {board.log}")
    check_sound()
