"""The page in real Chromium, on a console that is served without a node: cards, alarm, offline."""

from __future__ import annotations

import contextlib
import datetime
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.client.console.auth import ConsoleUsers
from denwatch.client.console.drawing import PlanPicture
from denwatch.client.console.phone import Doorstep, make_certificate
from denwatch.client.console.server import PARTS, read_file
from denwatch.client.console.user_session import NodeServers
from denwatch.client.subscriber.messages import Reply
from PIL import Image, ImageChops, ImageStat
from playwright.sync_api import Browser, Page, expect

from simulator.served_console import (
    RESCUE,
    ServedConsole,
    running_browser,
    served_console,
    served_users,
)
from tests.console.browsing import PICTURES, Tab

_HEARD = """
window.heard = [];
const start = OscillatorNode.prototype.start;
OscillatorNode.prototype.start = function (at) {
  heard.push(this.frequency.value);
  start.call(this, at);
};
window.felt = [];
navigator.vibrate = (pattern) => { felt.push(pattern); return true; };
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    with served_console(tmp_path_factory.mktemp("served")) as found:
        yield found


def list_devices(page: Page) -> list[str | None]:
    return [card.get_attribute("data-device") for card in page.locator("article").all()]


def test_two_hundred_readings_of_five_patients_are_five_cards(
    console: ServedConsole, browser: Browser
) -> None:
    readings = []
    for step in range(40):
        for bed in range(5):
            values = {
                "patient_temperature": 36.8 + bed + bed * step / 50,
                "heart_rate": 70 + 12.0 * bed,
            }
            readings.append((f"bed-{bed}", {**values, "east": 10.0 + 20 * bed, "north": 5.0 + bed}))
    console.add_all(readings, 20_000)
    console.add("bed-9", patient_temperature=(37.0, 41.6))
    wide = Tab(browser, 1280, 900)
    page = wide.open(console.address)
    expect(page.locator("article")).to_have_count(6)
    assert list_devices(page) == ["bed-4", "bed-3", "bed-2", "bed-9", "bed-1", "bed-0"]
    worst = page.locator("article[data-device=bed-4]")
    expect(worst.locator(".level")).to_have_text("critical")
    expect(worst.locator(".line polyline")).to_have_count(1)
    expect(worst.locator(".trend").first).to_have_attribute("aria-label", "rising")
    expect(worst).to_contain_text("90 m east, 9 m north")
    doubtful = page.locator("article[data-device=bed-9]")
    expect(doubtful).to_have_attribute("data-certainty", "possible")
    expect(page.locator(".plan-map .place")).to_have_count(5)
    # Danger is never green, in any light: red is more than green in every theme.
    for theme in ("light", "sun", "dark"):
        wide.set_theme(theme)
        for level in (2, 3):
            found = page.evaluate(
                "level => { const e = document.createElement('i'); document.body.append(e);"
                "e.style.color = `var(--severity-${level})`; return getComputedStyle(e).color; }",
                level,
            )
            red, green, _ = (int(x) for x in found[4:-1].split(","))
            assert red > green, (theme, level, found)
        wide.check_access(f"cards, {theme}")
        wide.picture(f"cards-{theme}")
    _claim(wide, console)
    worst.locator("summary").click()
    expect(worst.locator(".readings li")).to_have_count(8)
    page.get_by_role("button", name="History: bed-4").click()
    expect(page.locator(".chart-line polyline")).to_have_count(2)
    expect(page.locator(".chart-line figcaption").first).to_contain_text("40.8")
    wide.check_access("history")
    wide.picture("history")
    page.keyboard.press("Escape")
    wide.check(console.address)
    wide.close()


def _claim(tab: Tab, console: ServedConsole) -> None:
    """Who has a bed is on its card as soon as a node says so."""
    card = tab.page.locator("article[data-device=bed-4]")
    now = datetime.datetime.fromtimestamp(console.user.now() / 1000, datetime.UTC)
    had = {"subject": "bed-4", "by": "medic8", "since": now.isoformat(), "words": "…"}
    console.user._hear(Reply("", True, {"ok": True, "had": had}))
    expect(card.locator(".claim")).to_contain_text("medic8 has it")
    expect(card.get_by_role("button", name="Release: bed-4")).to_be_visible()
    card.get_by_role("button", name="Hand over: bed-4").click()
    tab.check_access("hand over")
    tab.picture("claim")
    console.user._hear(Reply("", True, {"ok": True, "had": {**had, "by": None}}))
    expect(card.locator(".claim")).to_have_count(0)
    console.user._hear(Reply("", True, {"ok": True, "have": [had]}))
    expect(card.locator(".claim")).to_have_count(1)
    listed = {"name": "cough", "words": "respiration_rate is high", "options": {"muted": True}}
    console.user._hear(Reply("", True, {"ok": True, "subscriptions": [listed]}))
    other = tab.page.locator(".subscription.other")
    expect(other).to_contain_text("respiration_rate is high")
    other.get_by_role("button", name="Share: cough").click()
    expect(tab.page.locator("dialog[open] svg")).to_have_count(1)
    expect(tab.page.locator("dialog[open] .words")).to_contain_text("#ask=respiration_rate")
    tab.check_access("share")
    tab.page.keyboard.press("Escape")


def test_a_phone_hears_feels_and_is_told_and_works_offline(
    console: ServedConsole, browser: Browser
) -> None:
    phone = Tab(browser, 390, 844)
    phone.context.grant_permissions(["notifications"])
    phone.page.add_init_script(_HEARD)
    page = phone.open(console.address)
    expect(page.locator("article").first).to_be_visible()
    expect(page.locator(".silent")).to_contain_text("makes no sound")
    page.get_by_role("button", name="Alarm").click()
    expect(page.get_by_role("button", name="Alarm")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".silent")).to_have_count(0)
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.evaluate("heard.length = 0")
    console.add("bed-7", patient_temperature=36.9)
    expect(page.locator("article[data-device=bed-7]")).to_have_count(1)
    assert page.evaluate("heard.length") == 0  # calm: no sound
    console.add("bed-7", patient_temperature=41.9)
    expect(page.locator("article[data-device=bed-7] .level")).to_have_text("critical")
    page.wait_for_function("heard.length >= 6 && felt.length >= 1")
    page.wait_for_function(
        "navigator.serviceWorker.ready.then((worker) => worker.getNotifications())"
        ".then((all) => all.some((one) => one.title === 'critical: bed-7'))"
    )
    _check_targets(page)
    _ring_for_what_came_meanwhile(phone, console)
    _wait_with_everything(phone)
    _go_offline_and_back(phone)
    phone.check(console.address)
    phone.close()


def _ring_for_what_came_meanwhile(phone: Tab, console: ServedConsole) -> None:
    """What comes while the page is cut off rings afterwards, and a reload keeps the alarm on."""
    page = phone.page
    page.evaluate("heard.length = 0")
    phone.context.set_offline(True)
    expect(page.locator(".banner")).to_contain_text("The console does not answer")
    console.add("bed-8", patient_temperature=41.8)
    phone.context.set_offline(False)
    expect(page.locator("article[data-device=bed-8]")).to_be_visible()
    page.wait_for_function("heard.length >= 6")
    page.wait_for_function("localStorage.getItem('denwatch.state')?.includes('bed-8')")
    phone.complaints.clear()
    page.reload()
    alarm = page.get_by_role("button", name="Alarm")
    expect(alarm).to_have_text("Alarm waits for a touch")
    expect(page.locator(".silent")).to_contain_text("when you touch this page")
    expect(page.locator(".banner")).to_contain_text("No node in range")
    assert page.evaluate("heard.length") == 0  # nothing is new since the page was left
    console.add("bed-8", patient_temperature=41.9)
    expect(page.locator("article[data-device=bed-8]")).to_contain_text("41.9")
    assert page.evaluate("heard.length") == 0  # the browser allows no sound yet
    page.locator("#feed-title").click()
    expect(alarm).to_have_attribute("aria-pressed", "true")
    page.wait_for_function("heard.length >= 6")  # what was missed
    expect(page.locator(".silent")).to_have_count(0)
    page.reload()
    alarm.click()  # a touch of the button itself turns it on, too
    expect(alarm).to_have_attribute("aria-pressed", "true")
    alarm.click()
    expect(alarm).to_have_attribute("aria-pressed", "false")
    page.reload()
    expect(alarm).to_have_text("Alarm is off")


def _wait_with_everything(phone: Tab) -> None:
    """Without the console nothing vanishes: it waits and is shown, or is refused."""
    page = phone.page
    card = page.locator("article[data-device=bed-7]")
    expect(card).to_be_visible()
    phone.context.set_offline(True)
    expect(page.locator(".banner").first).to_contain_text("The console does not answer")
    card.get_by_role("button", name="History: bed-7").click()
    expect(page.locator(".refused")).to_contain_text("this needs it")
    expect(page.locator("dialog[open]")).to_have_count(0)
    card.get_by_role("button", name="I have it: bed-7").click()
    card.get_by_role("button", name="Silence for 10 minutes: bed-7").click()
    page.get_by_role("button", name="Report what you see").click()
    page.locator("#report-text").fill("patient: pain 3")
    page.get_by_role("button", name="Report", exact=True).click()
    expect(page.locator("dialog[open] .reported")).to_contain_text("Stored in this browser")
    page.keyboard.press("Escape")
    late = page.locator(".late li")
    expect(late).to_contain_text(["I have it", "Silence for 10 minutes", "Report: patient: pain 3"])
    phone.check_access("waiting")
    _check_targets(page)
    page.get_by_role("button", name="Do not send: Silence").click()
    expect(late).to_have_count(2)
    page.reload()  # it survives
    expect(late).to_have_count(2)
    phone.context.set_offline(False)
    # The console answers, but there is no node: each says so, where it waits.
    expect(page.locator(".refused")).to_have_count(0)
    expect(late.locator("b")).to_have_text(["No node answers.", "No node answers."])
    page.get_by_role("button", name="Send again: Report").click()
    expect(late.locator("b")).to_have_count(1)
    page.get_by_role("button", name="Do not send: I have it").click()
    expect(late.locator("b")).to_have_count(1)  # the report, refused again
    page.get_by_role("button", name="Do not send: Report").click()
    expect(late).to_have_count(0)
    phone.complaints.clear()


def _check_targets(page: Page) -> None:
    """Everything that can be touched is at least 44 px high and wide."""
    for section in ("ask", "subscriptions", "nodes", "plan", "sources", "feed"):
        page.evaluate("section => denwatch.show(section)", section)
        small = page.evaluate(
            """() => [...document.querySelectorAll("button, select, summary, .tabs button")]
            .filter((e) => e.offsetParent && !e.closest("dialog"))
            .map((e) => [e.innerText || e.getAttribute("aria-label"), e.getBoundingClientRect()])
            .filter(([, box]) => box.width < 44 || box.height < 44)
            .map(([name, box]) => `${name}: ${box.width} x ${box.height}`)"""
        )
        assert small == [], section


def _go_offline_and_back(phone: Tab) -> None:
    page = phone.page
    page.wait_for_function("localStorage.getItem('denwatch.state')?.includes('bed-7')")
    page.wait_for_function("caches.open('denwatch-page-2').then((c) => c.match('/')).then(Boolean)")
    phone.context.set_offline(True)
    page.reload()
    expect(page.locator("article[data-device=bed-7]")).to_be_visible()  # from what was kept
    expect(page.locator(".banner")).to_contain_text("The console does not answer")
    expect(page.locator(".feed")).to_have_class("card feed old")
    page.evaluate("denwatch.show('ask')")
    page.locator("#ask-text").fill("heart_rate is high, named later")
    page.locator("#subscribe").click()
    expect(page.locator(".result")).to_contain_text("Stored in this browser")
    phone.check_access("offline")
    phone.picture("phone-offline")
    phone.context.set_offline(False)
    page.evaluate("denwatch.show('subscriptions')")
    expect(page.locator(".subscription:not(.other) h3")).to_have_text(["later"])
    phone.complaints.clear()  # the browser's own, of what it could not reach


def test_a_thousand_notifications_and_the_page_stays_smooth(
    browser: Browser, tmp_path: Path
) -> None:
    with served_console(tmp_path) as console:
        beds = [(f"bed-{n % 100}", {"heart_rate": 60.0 + n % 90}) for n in range(1_000)]
        console.add_all(beds, 1_000)
        tab = Tab(browser, 390, 844)
        tab.page.add_init_script(_HEARD)
        page = tab.open(console.address)
        expect(page.locator("article")).to_have_count(40)
        before = len(tab.frames)
        console.add("bed-0", heart_rate=200.0)
        expect(page.locator("article").first).to_have_attribute("data-device", "bed-0")
        sent = sum(len(frame) for frame in tab.frames[before:])
        assert sent < 20_000  # one card and the order, not a hundred cards
        tab.close()


def test_the_plan_has_its_picture_at_its_metres(browser: Browser, tmp_path: Path) -> None:
    picture = tmp_path / "ward.png"
    Image.new("RGB", (24, 16), "white").save(picture)
    with served_console(tmp_path) as console:
        console.users.plan = PlanPicture(picture, "image/png", (0, 0, 120, 80))
        console.add("bed-1", heart_rate=150.0, east=30.0, north=20.0)
        console.add("bed-2", heart_rate=150.0, east=150.0, north=20.0)  # outside of the picture
        tab = Tab(browser, 1280, 900)
        with tab.page.expect_response("**/plan") as answer:
            page = tab.open(console.address)
        assert (answer.value.status, answer.value.body()) == (200, picture.read_bytes())
        there = page.locator(".plan-map image")
        for name, value in {"x": "0", "y": "-80", "width": "120", "height": "80"}.items():
            expect(there).to_have_attribute(name, value)
        expect(page.locator(".plan-map .place")).to_have_count(2)
        expect(page.locator(".plan-map")).to_have_attribute("viewBox", "0 -80 150 80")
        tab.check_access("a plan with a picture")
        tab.check(console.address)
        stranger = browser.new_page()
        refused = stranger.goto(console.address.partition("/enter")[0] + "/plan")
        assert refused is not None
        assert refused.status == 401
        stranger.close()
        tab.close()


def test_the_first_load_is_small_and_speaks_german(
    console: ServedConsole, browser: Browser
) -> None:
    tab = Tab(browser, 390, 844)
    tab.page.add_init_script("localStorage.setItem('denwatch.language', 'de')")
    session = tab.context.new_cdp_session(tab.page)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page = tab.open(console.address)
    expect(page.locator("#feed-title")).to_have_text("Meldungen")
    expect(page.locator(".banner")).to_contain_text(
        "Kein Knoten in Reichweite (nicht erreichbar: Verbindung abgelehnt)"
    )
    expect(page.locator(".level").first).to_have_text("kritisch")
    page.wait_for_load_state("networkidle")
    first = sum(sizes[:20])
    assert 0 < first <= 150_000, f"{first} bytes"
    for section in ("ask", "subscriptions", "nodes", "plan", "sources", "feed"):
        page.evaluate("section => denwatch.show(section)", section)
        tab.check_width()
        tab.check_access(f"German {section}")
    tab.picture("phone-german")
    tab.close()


@pytest.mark.parametrize(
    ("name", "size", "margin"), [("192", 192, 0), ("512", 512, 0), ("maskable", 512, 3)]
)
def test_the_icons_are_drawn_from_one_picture(
    browser: Browser, name: str, size: int, margin: int
) -> None:
    """With DENWATCH_PICTURES they are drawn anew. A maskable one fills its square, and what
    matters is inside of four fifths of it."""
    page = browser.new_page(viewport={"width": size, "height": size})
    drawing = read_file("icon.svg").replace(
        'viewBox="0 0 32 32"',
        f'width="{size}" viewBox="{-margin} {-margin} {32 + 2 * margin} {32 + 2 * margin}"',
    )
    ground = "#0b5fff" if margin else "transparent"
    page.set_content(f"<style>*{{margin:0;display:block;background:{ground}}}</style>{drawing}")
    drawn = page.screenshot(omit_background=True)
    page.close()
    path = PARTS / f"icon-{name}.png"
    if PICTURES:
        path.write_bytes(drawn)
    with Image.open(path) as committed, Image.open(io.BytesIO(drawn)) as again:
        assert committed.size == (size, size)
        pair = [one.convert("RGBA") for one in (committed, again)]
        off = ImageStat.Stat(ImageChops.difference(*pair)).mean
    assert max(off) < 2, off  # of 255: another version of the browser smooths edges differently
    corner = pair[0].getpixel((0, 0))
    assert corner == ((11, 95, 255, 255) if margin else (0, 0, 0, 0))


def test_it_can_be_installed(console: ServedConsole, browser: Browser) -> None:
    phone = Tab(browser, 390, 844)
    page = phone.open(console.address)
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    session = phone.context.new_cdp_session(page)
    assert session.send("Page.getAppManifest")["errors"] == []
    errors = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [one["errorId"] for one in errors if one["errorId"] != "in-incognito"] == []
    button = page.get_by_role("button", name="Install on this device")
    expect(button).to_have_count(0)  # the browser has not offered it
    page.evaluate(
        """() => { const offer = new Event("beforeinstallprompt", { cancelable: true });
        offer.prompt = async () => { window.prompted = offer.defaultPrevented; };
        dispatchEvent(offer); }"""
    )
    expect(button).to_be_visible()
    _check_targets(page)
    phone.check_width()
    phone.check_access("an offer to install")
    button.click()
    page.wait_for_function("window.prompted === true")
    expect(button).to_have_count(0)
    phone.check(console.address)
    phone.close()


def test_the_pages_before_the_console_are_accessible_and_speak_german(
    console: ServedConsole, browser: Browser, tmp_path: Path
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    certificate = make_certificate(tmp_path, ("127.0.0.1",), now)
    doorstep = Doorstep("127.0.0.1", 0, certificate, "https://192.0.2.7:8443/")
    doorstep.start()
    users = ConsoleUsers(NodeServers(("mqtt://127.0.0.1:1",)), tmp_path, RESCUE)
    with contextlib.closing(doorstep), served_users(users) as shared:
        single = console.address.partition("/enter")[0]
        pages = [
            (f"http://127.0.0.1:{doorstep.port}/", "fingerprint", "Fingerabdruck"),
            (f"{single}/login", "belongs to one user", "gehört einer Person"),
            (f"{single}/enter?token=x", "out of date", "veraltet"),
            (f"{shared}/login", "Log in", "Anmelden"),
        ]
        for language, scheme, place in (("en", "dark", 1), ("de", "light", 2)):
            tab = Tab(browser, 390, 844, scheme)
            tab.context.set_extra_http_headers({"accept-language": language})
            for page in pages:
                tab.open(page[0])
                expect(tab.page.locator("main")).to_contain_text(page[place])
                expect(tab.page.locator("html")).to_have_attribute("lang", language)
                tab.check_access(page[0])
                tab.check_width()
            tab.page.locator("[name=name]").fill("medic7")
            tab.page.locator("[name=key]").fill("wrong")
            tab.page.locator("button").click()
            alert = tab.page.locator("[role=alert]")
            expect(alert).to_contain_text({"en": "No node answers", "de": "Kein Knoten"}[language])
            tab.check_access(f"a login that failed, {language}")
            tab.close()
