"""Draws the pictures of the documentation: `python -m docs.pictures.draw`.

One for the whole, and one for each path through the system. Only this file writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.pictures.canvas import Canvas
from docs.pictures.membership import draw_membership

WIDTH = 960
FOLDER = Path(__file__).parent


def draw_overview() -> Canvas:
    """Draw people, nodes, sensors and Spark on one page."""
    canvas = Canvas(
        WIDTH,
        430,
        "denwatch in one picture",
        "People ask in words. Nodes carry what they ask to sensors, which send only what was asked "
        "for. Nodes that meet exchange what the other lacks. Spark reads all nodes' logs.",
    )
    canvas.box(
        (24, 56),
        (206, 118),
        "app",
        "a rescue app",
        ["“patient_temperature is", "very high and heart_rate", "is not normal”"],
        "denwatch.client",
    )
    canvas.box(
        (24, 196),
        (206, 66),
        "app",
        "an app elsewhere",
        [],
        "denwatch.client",
    )
    canvas.box(
        (372, 56),
        (216, 118),
        "node",
        "node north",
        ["who asked, how well it fits,", "why; best first", "nothing acknowledged is lost"],
        "denwatch.node",
    )
    canvas.box((340, 226), (126, 62), "node", "node middle", [], "denwatch.node")
    canvas.box((494, 226), (126, 62), "node", "node south", [], "denwatch.node")
    canvas.box(
        (730, 56),
        (206, 118),
        "device",
        "a watchdog",
        ["on a microcontroller:", "filters every reading", "with integers"],
        "denwatch.watchdog",
    )
    canvas.box((730, 196), (206, 66), "device", "another watchdog", [], "denwatch.watchdog")
    canvas.arrow([(230, 92), (370, 92)], "words")
    canvas.arrow([(372, 142), (232, 142)], "ranked, explained", (301, 160))
    canvas.arrow([(588, 92), (728, 92)], "16 bytes: the question")
    canvas.arrow([(730, 142), (590, 142)], "10 bytes: a reading\nthat was asked for", (659, 160))
    canvas.arrow([(426, 176), (406, 224)], dashed=True, both=True)
    canvas.arrow([(534, 176), (554, 224)], dashed=True, both=True)
    canvas.arrow([(468, 257), (492, 257)], dashed=True, both=True)
    canvas.text((480, 206), "when they meet", "soft", "middle")
    canvas.arrow([(338, 257), (300, 257), (300, 229), (232, 229)])
    canvas.arrow([(730, 229), (660, 229), (660, 257), (622, 257)])
    canvas.box(
        (300, 334),
        (360, 78),
        "spark",
        "Spark, afterwards or alongside",
        ["what should have arrived, what did, why not"],
        "denwatch.spark",
    )
    canvas.arrow([(403, 290), (440, 332)])
    canvas.arrow([(557, 290), (520, 332)])
    canvas.text((480, 318), "logs", "soft", "middle")
    canvas.text((24, 34), "From words to a sensor and back", "title")
    canvas.text((936, 34), "one wire format and arithmetic everywhere: protocol", "soft", "end")
    return canvas


def draw_subscription() -> Canvas:
    """Draw how words become a vector on a device."""
    canvas = Canvas(
        WIDTH,
        470,
        "The subscription path",
        "Words are parsed to a tree, compiled to 16 bytes, kept by the node, left out where others "
        "cover them, and sent to the watchdogs that sense what they need.",
    )
    canvas.text((24, 34), "The subscription path: words → vector → watchdog", "title")
    boxes = (
        ("app", "asks", ["in words, XML or", "JSON, over MQTT"], "dens/1/sub/medic7"),
        (
            "node",
            "parses",
            ["grammar, names,", "units; errors point", "at the word"],
            "client.language",
        ),
        (
            "node",
            "compiles",
            ["terms to intervals", "and slopes, a byte", "each"],
            "client.compiler",
        ),
        (
            "node",
            "keeps",
            ["on disk, answers;", "sends it on unless", "others cover it"],
            "node.covering",
        ),
        (
            "device",
            "evaluates",
            ["checked once, then", "in one buffer, with", "integers"],
            "denwatch.watchdog",
        ),
    )
    for place, (role, head, lines, where) in enumerate(boxes):
        x = 24 + 184 * place
        canvas.box((x, 62), (164, 116), role, head, lines, where)
        canvas.step((x + 146, 80), place + 1, role)
        if place:
            canvas.arrow([(x - 19, 120), (x - 2, 120)])
    canvas.text((24, 214), "patient_temperature is very high and heart_rate is not normal", "head")
    canvas.bytes(
        (24, 228),
        (
            ("41", "event:\npatient", "disk"),
            ("28", "minimum;\nnot 2nd", "disk"),
            ("00 00", "handle", "disk"),
            ("80", "at least\n0.5", "node"),
            ("00", "no\nend", "disk"),
            ("00 03", "which\nattributes", "node"),
            ("04 10", "hedge:\nvery", "node"),
            ("91 ff ab", "temperature: full\nfrom 39.5 °C; slope", "app"),
            ("3c 64 bb", "heart rate: full from\n60 to 100; slope", "device"),
        ),
    )
    draw_membership(canvas, (24, 318))
    canvas.text((560, 338), "A fuzzy set says how well a value fits, from 0 to 1.", "")
    canvas.text((560, 360), "“high” begins below 39.5 °C and is full from there.", "")
    canvas.text((560, 382), "“very” squares it: what fits badly fits worse.", "")
    canvas.text((560, 404), "39.2 °C is very high to the degree 0.72.", "")
    canvas.text((560, 426), "The lowest degree of an “and” decides;", "")
    canvas.text((560, 448), "0.5 is enough unless the words say otherwise.", "")
    return canvas


def draw_notification() -> Canvas:
    """Draw what happens to one reading."""
    canvas = Canvas(
        WIDTH,
        440,
        "The notification path",
        "A reading is judged on the device. If somebody wants it, it goes to the spool and to the "
        "node, which commits, matches and ranks it, and sends it to the app with its reason.",
    )
    canvas.text((24, 34), "The notification path: reading → vector → node → app", "title")
    boxes = (
        (
            "device",
            "samples",
            ["40.1 °C, 140 bpm,", "perhaps with their", "accuracy"],
            "watchdog.sources",
        ),
        (
            "device",
            "filters",
            ["degree for every", "subscription, as", "integers"],
            "watchdog.filter",
        ),
        ("device", "spools", ["on the flash until", "the node has it"], "watchdog.spool"),
        ("node", "stores", ["checks, matches,", "commits, and then", "acknowledges"], "node.core"),
        ("node", "ranks", ["score, top k, age,", "what one may see"], "node.ranking"),
        ("app", "shows", ["certain, possible,", "why, how long"], "dens/1/note/…"),
    )
    for place, (role, head, lines, where) in enumerate(boxes):
        x = 20 + 155 * place
        canvas.box((x, 62), (143, 116), role, head, lines, where)
        canvas.step((x + 127, 80), place + 1, role)
        if place:
            canvas.arrow([(x - 12, 120), (x - 1, 120)])
    canvas.arrow([(246, 180), (246, 214)])
    canvas.text((246, 232), "nobody asked: it stays here", "soft bad", "middle")
    canvas.arrow([(556, 180), (556, 206), (402, 206), (402, 182)], dashed=True)
    canvas.text((479, 224), "acknowledged: may be forgotten", "soft", "middle")
    canvas.arrow([(866, 180), (866, 206), (712, 206), (712, 182)], dashed=True)
    canvas.text((789, 224), "PUBACK: delivered, once", "soft", "middle")
    canvas.text((24, 274), "on the air", "head")
    canvas.bytes(
        (24, 288),
        (
            ("81", "event:\npatient", "disk"),
            ("00", "exact,\nno faults", "disk"),
            ("00 07", "number", "disk"),
            ("00 20", "2 s\nold", "node"),
            ("00 03", "which\nattributes", "node"),
            ("97", "40.1 °C", "app"),
            ("8c", "140\nbpm", "device"),
        ),
    )
    canvas.text((24, 386), "10 bytes, and 20 of frame:", "soft")
    canvas.text((24, 404), "length, epoch, number, key, tag.", "soft")
    canvas.text((500, 274), "in the app", "head")
    for place, line in enumerate(
        (
            '{"event": "patient", "device": "bed-1",',
            ' "values": {"patient_temperature":',
            '             {"value": 40.1, "unit": "°C"}, …},',
            ' "degree": 1.0, "possible": 1.0, "certain": 1.0,',
            ' "why": {"attribute": "patient_temperature", …},',
            ' "at": "…Z", "expires": "…Z", "score": 1.0}',
        )
    ):
        canvas.add(
            f'<text x="500" y="{298 + 18 * place}" class="mono" xml:space="preserve">'
            + line.replace("&", "&amp;").replace("<", "&lt;")
            + "</text>"
        )
    return canvas


def draw_replication() -> Canvas:
    """Draw two nodes that meet."""
    canvas = Canvas(
        WIDTH,
        540,
        "The replication path",
        "Two nodes compare fingerprints. If they differ, each says per origin what it has, and "
        "hands over what the other lacks: delivered marks, subscriptions, then notifications.",
    )
    canvas.text((24, 34), "The replication path: node ↔ node", "title")
    for x, name in ((170, "north"), (590, "south")):
        canvas.add(f'<rect class="node" x="{x - 70}" y="54" width="140" height="40" rx="8"/>')
        canvas.text((x, 79), f"node {name}", "head node-ink", "middle")
        canvas.add(f'<path class="axis dashed" d="M{x} 94 V520"/>')
    messages = (
        (130, 1, "digest: a salted fingerprint of everything, 41 bytes", True),
        (176, -1, "equal: nothing to do, 17 bytes", False),
        (236, -1, "summary: what changed there since they last met", True),
        (276, 1, "answer: how that differs, and what changed here", True),
        (316, -1, "completion: how the latter differs", True),
        (366, 1, "items, in transactions", True),
        (406, -1, "items, in transactions", True),
        (456, -1, "ack: so many are committed", True),
        (496, 1, "ack", True),
    )
    for y, way, words, solid in messages:
        begin, end = (172, 588) if way > 0 else (588, 172)
        canvas.arrow([(begin, y), (end, y)], words, (380, y - 7), dashed=not solid)
    notes = (
        (122, "No news: 58 bytes for the", "whole contact."),
        (232, "Every item is a dot: (origin, run,", "number). A bitmap an origin tells."),
        (284, "206 differences among 2,000", "items: at most 754 bytes."),
        (360, "First what was delivered, then", "subscriptions, then notifications,"),
        (396, "best first. A strategy says what", "may be copied."),
        (450, "A link that breaks goes on", "after the last ack."),
    )
    for y, first, second in notes:
        canvas.text((700, y), first, "")
        if second:
            canvas.text((700, y + 18), second, "")
    for y, number in ((130, 1), (236, 2), (366, 3), (456, 4)):
        canvas.step((42, y - 2), number, "node")
    return canvas


def draw_analysis() -> Canvas:
    """Draw what Spark makes of the logs."""
    canvas = Canvas(
        WIDTH,
        430,
        "The analysis path",
        "Every node writes what it knew, decided and did. Spark reads all logs, matches everything "
        "again, finds the cause of each miss, and reports; results go back over MQTT.",
    )
    canvas.text((24, 34), "The analysis path: logs → Spark → report → back over MQTT", "title")
    for place, name in enumerate(("north", "middle", "south")):
        y = 62 + 72 * place
        canvas.box((24, y), (150, 58), "node", f"node {name}", [], "data/log/*.dlog")
        canvas.arrow([(174, y + 29), (204, y + 29), (204, 163), (226, 163)])
    canvas.box(
        (228, 92),
        (168, 142),
        "spark",
        "reads",
        ["segments, also of a", "running node; what is", "damaged is set aside", "and reported"],
        "spark.source",
    )
    canvas.box(
        (424, 62),
        (222, 92),
        "spark",
        "matches again",
        ["every notification, every", "subscription, one timeline"],
        "spark.matching",
    )
    canvas.box(
        (424, 172),
        (222, 110),
        "spark",
        "compares",
        [
            "delivered, late, missed, why;",
            "the best that was possible;",
            "other strategies, replayed",
        ],
        "spark.analytics",
    )
    canvas.arrow([(398, 140), (410, 140), (410, 108), (422, 108)])
    canvas.arrow([(398, 180), (410, 180), (410, 227), (422, 227)])
    canvas.arrow([(535, 156), (535, 170)])
    outputs = (
        (62, "report.html", "opens offline"),
        (128, "tables/, records/", "CSV and Parquet"),
        (194, "denwatch sql", "the same as views"),
        (260, "denwatch stream", "as the logs grow"),
    )
    for y, head, words in outputs:
        canvas.box((714, y), (222, 54), "disk", head, [words])
        canvas.arrow([(648, 210), (682, 210), (682, y + 27), (712, y + 27)])
    canvas.box(
        (424, 342),
        (222, 62),
        "node",
        "back to the nodes",
        ["late matches, replication plan"],
    )
    canvas.arrow([(825, 316), (825, 373), (648, 373)], "over MQTT", (738, 366), dashed=True)
    canvas.arrow(
        [(424, 373), (99, 373), (99, 268)],
        "who can still be reached hears of it",
        (262, 366),
        dashed=True,
    )
    return canvas


PICTURES: dict[str, Callable[[], Canvas]] = {
    "overview": draw_overview,
    "subscription": draw_subscription,
    "notification": draw_notification,
    "replication": draw_replication,
    "analysis": draw_analysis,
}


def main() -> None:
    """Write every picture."""
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().finish(), encoding="utf-8")


if __name__ == "__main__":
    main()
