"""What hypothesis draws: small worlds, subscriptions in them, and sequences of changes."""

from __future__ import annotations

from dataclasses import dataclass

from denwatch.node.covering import BoxedSubscription, Domains
from hypothesis import strategies as st

from tests.covering.oracle import Box, Plain, World

# Few enough points to list all of them, in 1 to 4 dimensions; not all domains start at 0.
WORLDS = [
    World([(0, 15)]),
    World([(0, 5), (-3, 3)]),
    World([(0, 3), (10, 13), (0, 4)]),
    World([(0, 2), (0, 2), (5, 7), (-1, 1)]),
]


@dataclass(frozen=True)
class Step:
    """Subscribe to something, or (`plain` is None) cancel one of those that are there."""

    plain: Plain | None
    pick: int = 0


@dataclass(frozen=True)
class Story:
    """A world and what happens in it."""

    world: World
    steps: tuple[Step, ...]

    @property
    def domains(self) -> Domains:
        return Domains(special=dict(enumerate(self.world.domains)))


def make_subscription(plain: Plain) -> BoxedSubscription:
    return BoxedSubscription(plain[0], plain[1], None if plain[1] == plain[2] else plain[2])


@st.composite
def boxes(draw: st.DrawFn, world: World, mask: int) -> Box:
    box: Box = {}
    for bit, (least, most) in enumerate(world.domains):
        if mask >> bit & 1 and draw(st.integers(0, 5)):  # now and then any value will do
            # One step beyond the domain on each side: what lies outside matches nothing.
            ends = draw(st.tuples(*[st.integers(least - 1, most + 1)] * 2))
            box[bit] = (min(ends), max(ends))
    return box


@st.composite
def plains(draw: st.DrawFn, world: World, full: bool) -> Plain:
    everything = (1 << len(world.domains)) - 1
    mask = everything if full else draw(st.integers(0, everything))
    count = draw(st.sampled_from([1, 1, 1, 2, 3, 0]))
    sure = tuple(draw(boxes(world, mask)) for _ in range(count))
    if draw(st.integers(0, 3)):
        return mask, sure, sure  # the boxes say exactly what matches
    return mask, sure, (*sure, draw(boxes(world, mask)))


@st.composite
def stories(draw: st.DrawFn, longest: int = 14) -> Story:
    world = draw(st.sampled_from(WORLDS))
    full = draw(st.booleans())  # one mask as in the paper, or any masks
    change = st.one_of(
        plains(world, full).map(Step),
        plains(world, full).map(Step),
        st.integers(0, 99).map(lambda pick: Step(None, pick)),
    )
    return Story(world, tuple(draw(st.lists(change, min_size=1, max_size=longest))))
