"""Spark's truth of stories is the oracle's; what was told, delivered or said too early is named."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from denwatch.client.compiler.stories import compile_story
from denwatch.client.language.stories import parse_story
from denwatch.node.core.events import (
    NOTES,
    REPLIES,
    REQUESTS,
    Acknowledged,
    Listening,
    Message,
    Tick,
)
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import NOTIFICATION, NotificationBody
from denwatch.node.core.subscriptions import SingleClock, SubscriberSettings
from denwatch.protocol.notification import encode
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.record_tables import RecordTables
from pyspark.sql import SparkSession

from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import Ring, Roster
from simulator.story_oracle import judge
from tests.stories.drawing import (
    MINUTE,
    RESCUE,
    describe_reading,
    describe_story,
    draw_reading,
    draw_words,
)

START = 1_800_000_000_000


def test_the_truth_of_stories_is_that_of_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    rng = Random(20)
    settings = SubscriberSettings(window=10_000)
    host = HostedNode(
        "north",
        Ring("north", Roster()),
        RESCUE,
        HostSettings(subscribers=settings, devices=None, peers=None, logs=str(tmp_path / "logs")),
        clock=SingleClock(),
    )
    host.start(START)
    host.handle(Listening(REPLIES + "ada", True), START)
    stories = {}
    for number in range(60):
        words = draw_words(rng)
        body = json.dumps({"story": words, "name": f"s{number}"}).encode()
        (reply,) = host.handle(Message("ada", REQUESTS + "ada", body), START)
        answer = json.loads(reply.payload)
        story = compile_story(parse_story(words), RESCUE).story
        stories[int(answer["id"], 16)] = story, words
    history = []
    now = START + 100 * MINUTE
    delivered = set()
    made: list[int] = []
    for number in range(24):
        vector, time = draw_reading(rng), START + rng.randrange(1, 60 * MINUTE)
        device = f"dog-{rng.randrange(5)}"
        hash_ = host.vocabularies.own_hash
        said = NotificationBody(device, 1, number + 1, time, 0, hash_, encode(vector))

        def bring(transaction: Transaction, said: NotificationBody = said) -> None:
            store, expires = host.item_store, said.at + 1000 * MINUTE
            (item,) = store.originate_many(transaction, NOTIFICATION, expires, [said])
            made.append(item.id)

        published = host.act(bring, now)
        history.append((vector, made[-1], time, 0, device))
        if number == 12:  # from here on ada is there
            published += host.handle(Listening(NOTES + "ada", True), now)
        for note in published:
            if note.topic == NOTES + "ada" and rng.random() < 0.7:
                delivered.add(json.loads(note.payload)["id"])
                host.handle(Acknowledged(note.topic, note.token), now)
    host.handle(Tick(), now)
    host.move_log()
    host.close(now)
    tables = RecordTables(tmp_path / "tables")
    assert "quarantine" not in tables.update(spark, [tmp_path / "logs"])
    study = Study(Logs(lambda kind: tables.read(spark, kind)))
    found: dict[int, dict[int, tuple[int, int]]] = {id: {} for id in stories}
    outcomes: dict[str, int] = {}
    for row in study.stories.collect():
        id = row["subscription_id"] & (1 << 64) - 1
        outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + 1
        is_delivered = f"{row['story_id'] & (1 << 64) - 1:016x}" in delivered
        assert is_delivered == (row["delivered"] is not None)
        if row["outcome"] == "wrong":
            assert row["kind"] == "absence", "only a silence can turn out to be none"
            continue
        found[id][row["closing"] & (1 << 64) - 1] = row["possible"], row["certain"]
        assert row["told"] == 1, "this node had everything"
    for id, (story, words) in stories.items():
        known = [describe_reading(vector, story, *rest) for vector, *rest in history]
        assert found[id] == judge(describe_story(story, START), known, now), words
    assert outcomes["hit"] > 10
    assert outcomes["told"] > 10
    assert study.outcomes.where("outcome = 'wrong'").count() == 0, "stories are no wrong deliveries"
