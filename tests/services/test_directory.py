"""Regions, pull and push."""

from __future__ import annotations

import numpy as np
import pytest
from denwatch.node.services import (
    ExactFinder,
    FeasibilityRule,
)
from denwatch.node.services.request import pack_planes, read_matrix
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.svds_directory import ServiceDirectory
from tests.services.cases import draw_vector


def make_directory(rule: FeasibilityRule = FeasibilityRule.POSITIVE) -> ServiceDirectory:
    return ServiceDirectory(lambda: ExactFinder(3), rule)


def test_a_user_pulls_only_from_where_he_is(rng: np.random.Generator) -> None:
    directory = make_directory()
    directory.publish_service("north", "school", (1, 1, 0))
    directory.publish_service("south", "church", (1, 0, 0))
    directory.register_user("north", "ada", (1, 0, 0))
    assert directory.pull_for_user("ada", rng).best == ("school", 1)
    directory.move_user("ada", "south")
    assert directory.pull_for_user("ada", rng).best == ("church", 0)
    directory.move_user("ada", "nowhere")
    assert directory.pull_for_user("ada", rng).best is None
    assert directory.pull_services("north", (0, 1, 0), rng).best == ("school", 1)


def test_a_service_pushes_to_all_whom_it_suits_nearest_first(rng: np.random.Generator) -> None:
    directory = make_directory()
    directory.register_user("north", "anyone", (0, 0, 0))
    directory.register_user("north", "beds", (1, 0, 0))
    directory.register_user("north", "power", (0, 1, 0))
    directory.register_user("south", "away", (1, 0, 0))
    pushed = directory.push_service("north", (1, 0, 0), rng)
    assert pushed.matches == (("beds", 0), ("anyone", 1))
    assert directory.push_service("north", (1, 0, 0), rng, limit=1).matches == (("beds", 0),)
    assert directory.push_service("west", (1, 1, 1), rng).matches == ()


@given(
    rule=st.sampled_from(list(FeasibilityRule)),
    services=st.lists(draw_vector(3, True), max_size=8),
    requests=st.lists(draw_vector(3, True), max_size=8),
)
@settings(max_examples=80, deadline=None)
def test_push_finds_exactly_the_users_whose_pull_finds_the_service(
    rule: FeasibilityRule,
    services: list[tuple[int, ...]],
    requests: list[tuple[int, ...]],
    rng: np.random.Generator,
) -> None:
    directory = make_directory(rule)
    for at, values in enumerate(services):
        directory.publish_service("here", at, values)
    for at, values in enumerate(requests):
        directory.register_user("here", at, values)
    pulled = {
        (match.identity, user, match.squared)
        for user in range(len(requests))
        for match in directory.pull_for_user(user, rng, None).matches
    }
    pushed = {
        (service, match.identity, match.squared)
        for service, values in enumerate(services)
        for match in directory.push_service("here", values, rng).matches
    }
    assert pulled == pushed


def test_regions_without_anyone_are_forgotten(rng: np.random.Generator) -> None:
    directory = make_directory()
    directory.publish_service("north", "school", (1, 1, 0))
    directory.register_user("south", "ada", (1, 0, 0))
    assert directory.list_regions() == ["north", "south"]
    directory.withdraw_service("north", "school")
    assert directory.list_regions() == ["south"]
    assert directory.forget_user("ada") == (1, 0, 0)
    assert directory.list_regions() == []
    assert directory.pull_services("north", (0, 0, 0), rng).best is None


def test_directory_mistakes_are_named_and_change_nothing(rng: np.random.Generator) -> None:
    directory = make_directory()
    with pytest.raises(ValueError, match="attribute 0: 3 is not"):
        directory.publish_service("north", "school", (3, 0, 0))
    with pytest.raises(ValueError, match="attribute 0: 3 is not"):
        directory.register_user("north", "ada", (3, 0, 0))
    assert directory.list_regions() == []
    with pytest.raises(KeyError, match="no service 'school' in region 'north'"):
        directory.withdraw_service("north", "school")
    for ask in (directory.forget_user, lambda user: directory.pull_for_user(user, rng)):
        with pytest.raises(KeyError, match="user 'ada' is in no region"):
            ask("ada")
    directory.register_user("north", "ada", (1, 0, 0))
    with pytest.raises(ValueError, match="already in region 'north'"):
        directory.register_user("south", "ada", (1, 0, 0))
    with pytest.raises(KeyError, match="user 'bob' is in no region"):
        directory.move_user("bob", "north")


@given(data=st.data(), width=st.sampled_from([1, 7, 8, 9, 63, 64, 65, 129]))
@settings(max_examples=60, deadline=None)
def test_planes_hold_each_attribute_in_its_own_bit(data: st.DataObject, width: int) -> None:
    row = data.draw(st.lists(st.sampled_from((-1, 0, 1)), min_size=width, max_size=width))
    plus, minus = pack_planes(read_matrix([row], width))
    for plane, sign in ((plus, 1), (minus, -1)):
        bits = sum(int(word) << (64 * at) for at, word in enumerate(plane[0]))
        assert bits == sum(1 << at for at, value in enumerate(row) if value == sign)
