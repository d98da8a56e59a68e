"""A life of a spool on a flash that loses its power, and what must hold afterwards.

`live` drives one spool by a seed: notifications, flushes, acknowledgements, frames of a node,
restarts. `check` boots what the cut left and compares with what the program had been told.
`run_campaign` cuts in every operation of a life. The ablation tests hand in spools that leave out
one rule: then `check` must find something.
"""

from denwatch.watchdog.spool import Spool

from tests.watchdog.flash import Flash, PowerCut, Random, make_vector, read_all

URGENT = 255


class Broken(Exception):
    """A promise was broken; the text says which."""


class Journal:
    """What the program was told, until the cut."""

    def __init__(self, crowded=False):
        self.crowded = crowded
        self.put = {}  # (epoch, sequence): (vector, degree, second)
        self.fresh = set()  # put since the start
        self.safe = set()  # flushed
        self.acknowledged = (0, 0)
        self.told = (0, 0)  # acknowledged since the start
        self.saved = (0, 0)  # acknowledged, and that was written
        self.epochs = []
        self.spools = []  # all that were started
        self.seen = (0, 0)
        self.number = 0
        self.now = 0

    def count_dropped(self):
        """Return how many a full spool dropped, right up to the cut."""
        return sum([spool.dropped_here for spool in self.spools])


def live(flash, seed, journal, make=Spool, steps=60):
    """Do `steps` things with a spool; in a crowded life, more than the flash holds."""
    crowded = journal.crowded
    random = Random(seed)
    spool = start(flash, journal, make)
    for _ in range(steps):
        journal.now += 1000 * random.below(30)
        choice = random.below(100)
        if choice < (78 if crowded else 45):
            add(spool, journal, random)
        elif choice < 88:
            spool.flush(journal.now)
            journal.safe.update(journal.fresh)
        elif choice < 94:
            if not crowded or choice < 90:
                acknowledge(spool, journal, random)
        elif choice < 96:
            # The acknowledgement may be on the medium before save returns, never after it.
            spool.save(journal.now)
            journal.safe.update(journal.fresh)
            journal.saved = max(journal.saved, journal.told)
        elif choice < 98:
            epoch, sequence = journal.seen
            if not spool.note_seen("node-a", epoch, sequence + 1, journal.now):
                raise Broken("a new frame passed for an old one")
            journal.seen = (epoch, sequence + 1)
        else:
            journal.told = (0, 0)
            journal.fresh.clear()  # what a restart without a flush takes was not promised
            spool = start(flash, journal, make)


def start(flash, journal, make):
    spool = make(flash, journal.now, journal.now // 1000, 256)
    if spool.epoch in journal.epochs:
        raise Broken(f"epoch {spool.epoch} was used before")
    journal.epochs.append(spool.epoch)
    journal.spools.append(spool)
    return spool


def add(spool, journal, random):
    journal.number += 1
    vector = make_vector(journal.number, 11 + random.below(20))
    degree = URGENT if random.below(25) == 0 else random.below(100)
    sequence = spool.put(vector, degree, journal.now)
    key = (spool.epoch, sequence)
    if key in journal.put:
        raise Broken(f"the number {key} was used before")
    journal.put[key] = (vector, degree, journal.now // 1000)
    journal.fresh.add(key)


def acknowledge(spool, journal, random):
    """The node commits a part of what waits."""
    epoch, last, vectors = spool.peek(journal.now, 4000, 1 + random.below(8))
    if vectors:
        spool.acknowledge(epoch, last, journal.now)
        journal.told = (epoch, last)
        journal.acknowledged = max(journal.acknowledged, journal.told)


def check(image, journal, make=Spool):
    """Boot what is left, and hold it against the journal."""
    spool = start(Flash(image=image), journal, make)
    dropped = journal.count_dropped() + 16  # and the two batches that were going at the two cuts
    if journal.seen[1] and spool.is_news("node-a", *journal.seen):
        raise Broken("the number of a node's frame was forgotten")
    found = read_all(spool, journal.now)
    keys = [entry[:2] for entry in found]
    if keys != sorted(set(keys)):
        raise Broken("numbers come twice or out of order")
    for epoch, sequence, age, vector in found:
        known = journal.put.get((epoch, sequence))
        if known is None or known[0] != vector:
            raise Broken(f"what comes back as {(epoch, sequence)} was never put")
        if (epoch, sequence) <= journal.saved:
            raise Broken(f"{(epoch, sequence)} comes back after its acknowledgement was saved")
        if abs(age_seconds(age) - (journal.now // 1000 - known[2])) > 2:
            raise Broken(f"the age of {(epoch, sequence)} is {age_seconds(age)} s")
    here = set(keys)
    lost = [key for key in journal.safe if key > journal.acknowledged and key not in here]
    if len(lost) > (dropped if journal.crowded else 0):
        raise Broken(f"{len(lost)} lost, {dropped} dropped")
    if any(journal.put[key][1] == URGENT for key in lost):
        raise Broken("what was worth most went first")


def age_seconds(code):
    from denwatch.protocol.timecode import decode_age

    return decode_age(code) // 16


def run_campaign(seeds, make=Spool, crowded=False, cached=False, steps=60, every=1):
    """Cut at every operation of each life (or every so many); return the number of cuts."""
    cuts = 0
    for seed in seeds:
        journal = Journal(crowded)
        cutter = Cutter(journal, make, cached, every)
        flash = Flash(seed=seed, cached=cached)
        flash.on_change = cutter.cut
        live(flash, seed, journal, make, steps)
        cuts += cutter.cuts
    return cuts


class Cutter:
    """Cuts without an end to the life: a copy of what a cut would leave is booted and checked."""

    def __init__(self, journal, make, cached, every):
        self.journal = journal
        self.make = make
        self.cached = cached
        self.every = every
        self.operations = 0
        self.cuts = 0
        self.second_cuts = 0

    def cut(self, image):
        self.operations += 1
        if self.operations % self.every:
            return
        self.cuts += 1
        epochs = list(self.journal.epochs)
        spools = list(self.journal.spools)
        flash = Flash(image=image)
        second = self.cuts % 7
        if second:  # the power may go again while the spool is being opened
            flash = Flash(image=image, cut_at=second, seed=self.cuts, cached=self.cached)
            try:
                start(flash, self.journal, self.make)
            except PowerCut:
                self.second_cuts += 1
        check(flash.take_image(), self.journal, self.make)
        self.journal.epochs = epochs
        self.journal.spools = spools
