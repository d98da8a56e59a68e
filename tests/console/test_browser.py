"""The console in real Chromium, with real nodes, a watchdog on MicroPython, and a network to cut.

With DENWATCH_PICTURES=docs/pictures the pictures of the documentation are made on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.cli.console import run
from denwatch.cli.errors import WRONG_INPUT, CommandError
from denwatch.client import Subscriber
from playwright.sync_api import Browser, Page, expect

from simulator.served_console import running_browser
from simulator.site import wait_for
from tests.console.browsing import Tab
from tests.console.world import (
    BESIDE,
    BETWEEN,
    Ward,
    World,
    running_console,
    running_world,
    write_password,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("world")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


def list_devices(page: Page) -> list[str]:
    """Return the devices of the feed, best first."""
    return [row.get_attribute("data-device") or "" for row in page.locator("article").all()]


def test_the_whole_way_on_a_wide_screen(world: World, browser: Browser, tmp_path: Path) -> None:
    password = write_password(tmp_path, world.passwords["medic7"])
    words = ["--as", "medic7", "--password-file", str(password)]
    words += ["--node", world.north.url, "--node", world.south.url]
    ward = Ward(tmp_path / "bed-1", world.devices["bed-1"])
    tab = Tab(browser, 1280, 900)
    with ward.running(), running_console(tmp_path / "console", *words) as address:
        page = tab.open(address)
        expect(page.locator("#link")).to_contain_text("Connected to")
        assert "token" not in page.url  # the secret does not stay in the history's last entry
        expect(page.locator(".feed")).to_contain_text("No subscriptions yet")
        expect(page.locator("#network-sentence")).to_have_text("All 2 nodes are connected.")
        expect(page.locator(".source h3")).to_have_text(["bed-1"])
        _compose_with_a_mistake(tab)
        ward.wait_for_subscription()
        _watch_what_comes(tab, world, ward)
        _have_and_report(tab, world)
        _find_who_can(tab)
        _look_in_every_light(tab)
        _quieten(page)
        _cut_and_heal(tab, world)
        _tell_a_story(tab, world)
        _unsubscribe(page, world)
        tab.check(address)
    tab.close()


def _compose_with_a_mistake(tab: Tab) -> None:
    page = tab.page
    field = page.locator("#ask-text")
    field.click()
    field.press_sequentially("patient_temperature is very hgih and heart_rate is not normal")
    problem = page.locator(".problem")
    expect(problem).to_contain_text('patient_temperature has no term "hgih"')
    wrong = page.locator(".mirror .wrong")
    expect(wrong).to_have_text("hgih")
    # The arrow stands under the very word.
    place, arrow = wrong.bounding_box(), problem.bounding_box()
    assert place is not None
    assert arrow is not None
    at = arrow["x"] + float(problem.evaluate("e => parseFloat(e.style.getPropertyValue('--at'))"))
    assert place["x"] - 2 <= at <= place["x"] + place["width"] + 2
    expect(page.locator("#subscribe")).to_have_attribute("aria-disabled", "true")
    tab.check_access("a mistake")
    tab.picture("mistake", 680)
    page.locator(".meant .chip", has_text="high").click()
    expect(problem).to_have_count(0)
    expect(page.locator("figcaption")).to_have_text(
        [
            "patient temperature matches from 39 °C",
            "heart rate matches up to 52 bpm or from 108 bpm",
        ]
    )
    expect(page.locator(".bytes summary")).to_contain_text("16 bytes")
    expect(page.locator(".answered")).to_contain_text("1 device can match this: bed-1")
    field.press("Control+End")
    field.press_sequentially(", named fever, expires after 10 min, whole reading")
    expect(page.locator("#subscribe")).not_to_have_attribute("aria-disabled", "true")
    field.press("Escape")
    tab.check_access("composed")
    page.locator("#subscribe").click()
    expect(page.locator(".subscription .state")).to_have_text("active")
    expect(page.locator(".result")).to_contain_text("Subscribed.")
    expect(field).to_have_value("")


def _watch_what_comes(tab: Tab, world: World, ward: Ward) -> None:
    page = tab.page
    ward.read(39.3, 121, 420, 1310)
    first = page.locator("article")
    expect(first).to_have_count(1)
    expect(first).to_have_attribute("data-certainty", "certain")
    expect(first.locator(".why")).to_have_text(
        "Patient temperature is very high by 81 % (39.3 °C), and that decides."
    )
    expect(first).to_have_attribute("data-severity", "3")
    expect(first.locator(".left")).to_contain_text("valid for 9 min")
    expect(page.locator("#feed-news")).to_contain_text("New: bed-1, critical, certain.")
    before = first.locator(".left").inner_text()
    expect(first.locator(".left")).not_to_have_text(before)  # it counts down
    expect(page.locator(".source", has_text="bed-1")).to_contain_text("420 m east, 1310 m north")
    world.publish("bed-2", "patient_temperature=40.6 heart_rate=142")
    expect(page.locator("article")).to_have_count(2)
    assert list_devices(page) == ["bed-2", "bed-1"]  # as severe, and it fits better
    world.publish("bed-3", "patient_temperature=38.9±0.9 heart_rate=118")
    doubtful = page.locator("article[data-certainty=possible]")
    expect(doubtful).to_have_attribute("data-device", "bed-3")
    expect(doubtful.locator(".why")).to_contain_text("It may be so")
    expect(doubtful.locator(".badge")).to_contain_text("possible")
    assert list_devices(page) == ["bed-2", "bed-1", "bed-3"]
    page.locator("article[data-device=bed-1] summary").click()
    parts = page.locator("article[data-device=bed-1] .reasons ul li")
    expect(parts).to_have_count(2)
    expect(parts.first).to_contain_text("decides")


def _have_and_report(tab: Tab, world: World) -> None:
    """What somebody has is seen at another node; a report is published in words."""
    page = tab.page
    served = page.locator("#link").inner_text()
    other = world.south if "north" in served else world.north
    password = world.passwords["medic8"]
    folder = world.folder / "medic8-have.db"
    with Subscriber("medic8", password, [other.url], store=folder) as medic8:
        assert medic8.request({"have": "bed-2"}).result(60).is_ok
        card = page.locator("article[data-device=bed-2]")
        expect(card.locator(".claim")).to_contain_text("medic8 has it")
        card.get_by_role("button", name="Release: bed-2").click()
        expect(card.locator(".claim")).to_have_count(0)
        page.get_by_role("button", name="I have it: bed-2").click()
        expect(card.locator(".claim")).to_contain_text("medic7 has it")

        def read_holders() -> list[str]:
            found = medic8.request({"have": True}).result(60).fields["have"]
            return [str(one["by"]) for one in found]

        wait_for("medic7's claim at the other node", lambda: read_holders() == ["medic7"], 60)
        card.get_by_role("button", name="Release: bed-2").click()
        expect(card.locator(".claim")).to_have_count(0)
    page.get_by_role("button", name="Report what you see").click()
    page.locator("#report-text").fill("patient: pain is enormous")
    page.get_by_role("button", name="Report", exact=True).click()
    expect(page.locator("dialog[open] .reported")).to_contain_text("enormous")
    tab.check_access("report")
    page.locator("#report-text").fill("patient: pain 3")
    page.get_by_role("button", name="Report", exact=True).click()
    expect(page.locator("dialog[open] .reported")).to_contain_text("Reported.")
    page.keyboard.press("Escape")


def _find_who_can(tab: Tab) -> None:
    """Who can measure something is asked in everyday words."""
    page = tab.page
    page.locator("#find-text").fill("who can measure pulse and temperature?")
    page.locator("#find").click()
    expect(page.locator(".found li").first).to_contain_text("heart rate")
    expect(page.locator(".found li b")).to_contain_text(["bed-1"])
    tab.check_access("found")
    page.locator("#find-text").fill("pules")
    page.locator("#find").click()
    expect(page.locator(".find .wrong")).to_contain_text("pulse")
    page.locator("#find-text").fill("")


def _look_in_every_light(tab: Tab) -> None:
    page = tab.page
    page.locator("#ask-text").fill("oxygen_saturation is low and pulse is tachycardic")
    expect(page.locator("figcaption")).to_have_count(2)
    for theme in ("light", "sun", "dark"):
        tab.set_theme(theme)
        tab.check_access(theme)
        tab.picture(theme)
    page.locator("#ask-text").fill("")
    page.get_by_role("button", name="Help").click()
    expect(page.locator("dialog[open]")).to_be_visible()
    tab.check_access("help")
    page.keyboard.press("Escape")


def _quieten(page: Page) -> None:
    page.locator(".subscription select").select_option("1")
    expect(page.locator("article")).to_have_count(1)
    assert list_devices(page) == ["bed-2"]
    expect(page.locator(".hidden-count")).to_contain_text("2 beyond your top")
    expect(page.locator(".subscription .words")).to_contain_text("top 1")
    expect(page.locator(".subscription .state")).to_have_text("active")
    page.locator(".subscription select").select_option("")
    expect(page.locator("article")).to_have_count(3)
    mute = page.locator(".subscription [aria-pressed]")
    mute.click()
    expect(page.locator("article")).to_have_count(0)
    expect(page.locator(".hidden-count")).to_contain_text("3 hidden")
    mute.click()
    expect(page.locator("article")).to_have_count(3)
    page.get_by_role("button", name="Change: fever").click()
    field = page.locator("#ask-text")
    expect(field).to_have_value(re.compile("very high.*named fever"))
    field.press("Control+End")
    field.press_sequentially(", score 0.9")
    expect(page.locator("#subscribe")).to_have_text("Replace “fever”")
    expect(page.locator("#subscribe")).not_to_have_attribute("aria-disabled", "true")
    page.locator("#subscribe").click()
    expect(page.locator(".subscription .words")).to_contain_text("score 0.9")
    expect(page.locator(".subscription .state")).to_have_text(["active"])


def _cut_and_heal(tab: Tab, world: World) -> None:
    page = tab.page
    world.bridges.cut(BETWEEN)
    sentence = page.locator("#network-sentence")
    expect(sentence).to_have_text("The network is cut into 2 parts: north | south")
    expect(page.locator(".map .link.down")).to_have_count(1)
    expect(page.locator(".nodes tbody tr").first).to_contain_text("none")
    tab.check_access("cut")
    tab.picture("cut")
    world.bridges.heal(BETWEEN)
    expect(sentence).to_have_text("All 2 nodes are connected.")


def _tell_a_story(tab: Tab, world: World) -> None:
    """A story in everyday words is shown part by part, subscribed to, and told on a card."""
    page = tab.page
    page.locator("#ask-text").fill("2 patients with fever within 10 minutes, named many")
    expect(page.locator("figcaption")).to_have_text(["patient temperature matches from 38.5 °C"])
    page.locator("#ask-text").press("Escape")
    page.locator("#subscribe").click()
    expect(page.locator(".subscription .state")).to_have_text(["active", "active"])
    world.publish("bed-2", "patient_temperature=40.1 heart_rate=95")
    world.publish("bed-3", "patient_temperature=40.4 heart_rate=96")
    expect(page.locator("article .for", has_text="many").first).to_be_visible()
    story = page.locator(".subscription", has_text="many")
    story.get_by_role("button", name="Unsubscribe").click()
    page.get_by_role("button", name="End it").click()
    expect(page.locator(".subscription .state")).to_have_text(["active"])


def _unsubscribe(page: Page, world: World) -> None:
    page.get_by_role("button", name="Unsubscribe: fever").click()
    page.get_by_role("button", name="Keep").click()
    page.get_by_role("button", name="Unsubscribe: fever").click()
    page.get_by_role("button", name="End it").click()
    expect(page.locator(".subscription")).to_have_count(0)
    expect(page.locator("article")).to_have_count(0)
    world.publish("bed-2", "patient_temperature=41 heart_rate=150")
    page.wait_for_timeout(1_500)
    expect(page.locator("article")).to_have_count(0)


# A phone, no mouse, and a link that fails -----------------------------------------------------


def find_focus(page: Page) -> str:
    """Return what has the focus, which must be seen: a ring, or the ring of the field around it."""
    shown = page.evaluate(
        """() => { const all = [document.activeElement, document.activeElement.parentElement];
        return all.some(e => parseFloat(getComputedStyle(e).outlineWidth) >= 2
            && getComputedStyle(e).outlineStyle !== 'none'); }"""
    )
    words: str = page.evaluate(
        "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
    )
    assert shown, f"the focus on {words!r} is not to be seen"
    return words


def press_until(page: Page, words: str, key: str = "Tab") -> None:
    """Press a key until the focus is on something."""
    for _ in range(40):
        page.keyboard.press(key)
        if words in find_focus(page):
            return
    raise AssertionError(f"{words!r} is not reached by {key}")


def test_a_phone_by_keyboard_alone_with_a_link_that_fails(
    world: World, browser: Browser, tmp_path: Path
) -> None:
    password = write_password(tmp_path, world.passwords["medic8"])
    words = ["--as", "medic8", "--password-file", str(password)]
    words += ["--node", f"mqtt://127.0.0.1:{world.beside}"]
    world.bridges.cut(BESIDE)
    tab = Tab(browser, 390, 844)
    with running_console(tmp_path / "console", *words) as address:
        page = tab.open(address)
        expect(page.locator(".banner")).to_contain_text("No node in range")
        page.keyboard.press("Tab")
        assert find_focus(page) == "Skip to the feed"
        page.keyboard.press("Enter")
        expect(page.locator("#section-feed")).to_be_focused()
        _ask_without_a_node(tab)
        world.bridges.heal(BESIDE)
        expect(page.locator("#link")).to_contain_text("Connected to")
        expect(page.locator(".bar-root > [role=status]")).to_contain_text("Connected again")
        expect(page.locator(".subscription .state")).to_have_text("active")
        _read_by_keyboard(tab, world)
        for section in ("ask", "subscriptions", "nodes", "plan", "sources", "feed"):
            page.evaluate("section => denwatch.show(section)", section)
            tab.check_width()
            tab.check_access(f"the phone's {section}")
            if section in ("nodes", "feed"):
                tab.picture(f"phone-{section}")
        _end_by_keyboard(page)
        tab.check(address)
    expect(page.locator(".banner")).to_contain_text("The console does not answer")
    tab.close()


def _ask_without_a_node(tab: Tab) -> None:
    page = tab.page
    page.keyboard.press("/")
    expect(page.locator("#ask-text")).to_be_focused()
    page.keyboard.type("pul")
    expect(page.locator("[role=option]").first).to_contain_text("hospital: pulse = heart_rate")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#ask-text")).to_have_value("pulse ")
    page.keyboard.type("is t")
    expect(page.locator("[role=option]").first).to_contain_text("tachycardic")
    tab.check_access("proposals")
    tab.picture("phone-ask")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type(", named fast")
    expect(page.locator("#subscribe")).to_have_text("Store, and send later")
    expect(page.locator("#subscribe")).not_to_have_attribute("aria-disabled", "true")
    page.keyboard.press("Enter")
    expect(page.locator(".result")).to_contain_text("It is sent when a node is in range.")
    press_until(page, "Store, and send later")
    page.keyboard.press("s")
    expect(page.locator(".subscription .state")).to_have_text("waits for a node")
    expect(page.locator("#section-subscriptions")).to_be_focused()


def _read_by_keyboard(tab: Tab, world: World) -> None:
    page = tab.page
    world.publish("bed-4", "heart_rate=131 patient_temperature=37.1 east=90 north=200")
    world.publish("bed-3", "heart_rate=117±12")
    page.keyboard.press("f")
    expect(page.locator("article")).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("article").nth(1)).to_be_focused()
    page.keyboard.press("k")
    find_focus(page)
    press_until(page, "Why")
    page.keyboard.press("Enter")
    expect(page.locator("article").first.locator(".reasons ul li")).to_have_count(1)
    expect(page.locator("article").first.locator(".reasons ul li")).to_be_visible()


def _end_by_keyboard(page: Page) -> None:
    page.keyboard.press("s")
    press_until(page, "Mute: fast")
    page.keyboard.press("Space")
    expect(page.locator(".hidden-count")).to_contain_text("2 hidden")
    page.keyboard.press("Space")
    expect(page.locator("article")).to_have_count(2)
    press_until(page, "How many of: fast")
    page.keyboard.press("ArrowDown")
    expect(page.locator("article")).to_have_count(1)
    press_until(page, "Unsubscribe: fast")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="End it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".subscription")).to_have_count(0)


# Several people -------------------------------------------------------------------------------


def test_nobody_sees_what_came_for_another(world: World, browser: Browser, tmp_path: Path) -> None:
    one, other = Tab(browser, 1280, 900, "light"), Tab(browser, 1280, 900)
    with running_console(tmp_path / "console", "--node", world.north.url) as address:
        page = one.open(address)
        assert page.url.endswith("/login")
        _log_in(page, "medic7", "wrong")
        expect(page.locator("[role=alert]")).to_contain_text("does not accept this name")
        one.check_access("the login")
        one.picture("login")
        _log_in(page, "medic7", world.passwords["medic7"])
        expect(page.locator("#link")).to_contain_text("Connected to north")
        second = other.open(address)
        _log_in(second, "medic8", world.passwords["medic8"])
        expect(second.locator("#link")).to_contain_text("Connected to north")
        _ask(page, "heart_rate is low, named glacier")
        _ask(second, "patient_temperature above 42 °C, named furnace")
        world.publish("bed-4", "patient_temperature=43.7 heart_rate=90")
        expect(second.locator("article")).to_have_count(1)
        expect(second.locator(".values")).to_contain_text("43.7 °C")
        world.publish("bed-4", "patient_temperature=37 heart_rate=31")
        expect(page.locator("article")).to_have_count(1)
        expect(page.locator(".values")).to_contain_text("31 bpm")
        # A second tab of the same login has the same, and only that.
        again = one.context.new_page()
        again.goto(address)
        expect(again.locator("article")).to_have_count(1)
        expect(again.locator(".values")).to_contain_text("31 bpm")
        assert any("furnace" in frame for frame in other.frames)
        for private in ("43.7 °C", "furnace", "medic8"):
            assert not any(private in frame for frame in one.frames), private
            assert private not in page.content()
        assert not any("glacier" in frame for frame in other.frames)
        page.get_by_role("button", name="Log out").click()
        expect(page.locator("h1")).to_be_visible()
        assert page.url.endswith("/login")
        expect(again.locator("form[action='/login']")).to_be_visible()  # the other tab, too
        page.goto(address)
        assert page.url.endswith("/login")
        other.check(address)
    one.close()
    other.close()


def _log_in(page: Page, name: str, key: str) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Log in").click()


def _ask(page: Page, words: str) -> None:
    page.locator("#ask-text").fill(words)
    expect(page.locator("#subscribe")).not_to_have_attribute("aria-disabled", "true")
    page.locator("#ask-text").press("Enter")
    expect(page.locator(".subscription .state")).to_have_text("active")


def test_a_wrong_key_is_an_error_at_once(world: World, tmp_path: Path) -> None:
    password = write_password(tmp_path, "wrong")
    words = ["--as", "medic7", "--password-file", str(password), "--listen", "127.0.0.1:0"]
    words += ["--node", world.north.url, "--store", str(tmp_path / "store")]
    with pytest.raises(CommandError, match="medic7: refused: wrong name or password") as error:
        run(words)
    assert error.value.status == WRONG_INPUT


def test_that_no_node_is_up_is_said_in_red(world: World, browser: Browser, tmp_path: Path) -> None:
    """The last test here: the nodes stay down."""
    password = write_password(tmp_path, world.passwords["medic7"])
    words = ["--as", "medic7", "--password-file", str(password)]
    words += ["--node", world.north.url, "--node", world.south.url]
    tab = Tab(browser, 1280, 900)
    with running_console(tmp_path / "console", *words) as address:
        page = tab.open(address)
        sentence = page.locator("#network-sentence")
        expect(sentence).to_have_text("All 2 nodes are connected.")
        expect(page.locator(".source.lost")).to_have_count(0)
        world.north.stop()
        expect(sentence).to_contain_text("1 of 2 nodes are up: north stopped for")
        world.south.stop()
        expect(sentence).to_contain_text("No node is up: north stopped for")
        expect(sentence).to_have_class(re.compile("down"))
        expect(page.locator(".banner")).to_contain_text("No node in range")
        expect(page.locator(".source .presence").first).to_contain_text("unknown since")
        tab.check_access("no node")
        tab.picture("no-node")
        tab.check(address)
    tab.close()
