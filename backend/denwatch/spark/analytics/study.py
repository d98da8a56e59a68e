"""All tables that the report shows and that SQL can query, about one set of logs.

A table is computed when it is first used and then kept, together with the tables that it is made
of. The only file that knows how the analyses depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from denwatch.spark import services
from denwatch.spark.analytics import (
    contacts,
    costs,
    fleet,
    outcomes,
    stories,
    subscriptions,
    timeline,
    what_if,
)
from denwatch.spark.analytics.contacts import SharedContacts
from denwatch.spark.analytics.outcomes import LATE
from denwatch.spark.analytics.timeline import Logs, keep_rows, sort_rows
from denwatch.spark.analytics.what_if import STRATEGIES
from denwatch.spark.cluster_bundle import make_scratch
from denwatch.spark.matching import collect_meanings, find_notes, find_windows, match_globally
from denwatch.spark.matching.windows import Meanings
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_FAILURES = 500  # rows, for the page
_MANY_NODES = 100
BY_PAIR = {  # tables with a row for two nodes, and their order; "-": downwards
    "links": ("first", "second"),
    "staleness": ("node", "origin"),
    "traffic": ("-redundant_bytes", "sender", "receiver"),
    "bottlenecks": ("-recovered", "-missed", "first", "second"),
}
_GROUP_BYTES = 4 << 20  # of a row group, which one task matches: some hundred thousand notes


def list_order(name: str) -> list[Column]:
    """Return the order of a table with a row for two nodes."""
    return [
        F.desc(column[1:]) if column.startswith("-") else F.asc(column) for column in BY_PAIR[name]
    ]


class Study:
    """All tables about one set of logs."""

    def __init__(
        self,
        logs: Logs,
        *,
        late: int = LATE,
        strategies: tuple[str, ...] = STRATEGIES,
        folder: Path | None = None,
    ) -> None:
        """`folder` is for files that all machines see; without it, notes stay in memory."""
        self.logs = logs
        self._note_files = None if folder is None else folder / "notes"
        self._late = late
        self._strategies = strategies

    # Base tables ------------------------------------------------------------------------------

    @cached_property
    def subscriptions(self) -> DataFrame:
        """One row a subscription; see `denwatch.spark.matching.find_windows`."""
        return keep_rows(find_windows(self.logs.get("subscribe"), self.logs.get("unsubscribe")))

    @cached_property
    def notes(self) -> DataFrame:
        """One row a notification, with `born`, when it came to its first node."""
        record = self.logs.get("note")
        born = record.groupBy(F.col("item").alias("notification_id")).agg(
            F.min("time").alias("born")
        )
        notes = find_notes(record).join(born, "notification_id")
        if self._note_files is None:
            return keep_rows(notes)
        path = str(self._note_files)  # from where tasks read them without Spark's help
        if not (self._note_files / "_SUCCESS").exists():  # of a run that was stopped
            writer = notes.write.mode("overwrite")
            writer.option("parquet.block.size", _GROUP_BYTES).parquet(path)
        return notes.sparkSession.read.schema(notes.schema).parquet(path)

    @cached_property
    def matches(self) -> DataFrame:
        """One row a match of global matching, by the node's rule of what is in force."""
        clocks, words = self.logs.clocks, self.meanings
        if not any(clock.doubt for clock in clocks.values()):
            notes = self.notes  # which puts them into their files
            matches, _ = match_globally(
                notes, self.subscriptions, words, files=self._note_files, folder=make_scratch()
            )
            return keep_rows(matches)
        wide = timeline.widen_notes(self.notes, clocks)
        windows = timeline.widen_windows(self.subscriptions, clocks)
        matches, _ = match_globally(wide, windows, words, folder=make_scratch())
        return keep_rows(timeline.keep_valid(matches, self.notes, self.subscriptions))

    @cached_property
    def pairs(self) -> DataFrame:
        """One row a notification and subscriber that match."""
        return keep_rows(contacts.describe_pairs(self.matches, self.notes, self.subscriptions))

    @cached_property
    def contacts(self) -> DataFrame:
        """One row a contact of two nodes."""
        return keep_rows(contacts.find_contacts(self.logs))

    @cached_property
    def stays(self) -> DataFrame:
        """One row a stay of a subscriber at a node."""
        return keep_rows(contacts.find_stays(self.logs))

    @cached_property
    def shared(self) -> SharedContacts:
        """Contacts and stays, as workers get them."""
        return contacts.collect_shared(self.contacts, self.stays, self.subscriptions, self.logs.end)

    @cached_property
    def oracle(self) -> DataFrame:
        """The earliest delivery possible, for each pair."""
        return keep_rows(contacts.find_earliest(self.pairs, self.shared))

    @cached_property
    def outcomes(self) -> DataFrame:
        """The outcome of each pair, and its cause."""
        return keep_rows(
            outcomes.judge_outcomes(
                self.pairs, self.oracle, self.logs, self.notes, self.subscriptions, self._late
            )
        )

    @cached_property
    def stories(self) -> DataFrame:
        """The truth of each story, and what became of it."""
        return keep_rows(
            stories.judge_stories(self.logs, self.notes, self.subscriptions, self.meanings)
        )

    # Figures ----------------------------------------------------------------------------------

    @property
    def is_wide(self) -> bool:
        """Whether tables with a row for two nodes are too large for a driver."""
        return self.logs.nodes > _MANY_NODES

    def _sort_pairs(self, name: str, frame: DataFrame) -> DataFrame:
        return sort_rows(frame, *list_order(name), is_large=self.is_wide)

    @cached_property
    def step(self) -> int:
        """The width of a step of time, in ms."""
        return outcomes.choose_step(self.logs.begin, self.logs.end)

    @cached_property
    def headline(self) -> DataFrame:
        """All outcomes in one row."""
        return keep_rows(outcomes.sum_up(self.outcomes))

    @cached_property
    def costs(self) -> DataFrame:
        """What replication cost, in one row."""
        return keep_rows(costs.measure_costs(self.logs, self.headline))

    @cached_property
    def strategies(self) -> DataFrame:
        """What strategies would have done, all and by blocks of notifications."""
        counted = self.outcomes.where(outcomes.EXPECTED)
        expected = self.pairs.join(counted, ["notification_id", "subscriber"], "left_semi")
        replayed = what_if.replay_strategies(expected, self.shared, self._strategies)
        return keep_rows(what_if.compare_strategies(replayed, self.costs))

    @cached_property
    def ideal(self) -> DataFrame:
        """What top-k and the like would decide in a network without delays."""
        offers = self.matches.join(
            self.notes.select("notification_id", F.col("at").alias("offered")), "notification_id"
        )
        return keep_rows(outcomes.replay_decisions(offers, self.notes, self.subscriptions))

    @cached_property
    def covering(self) -> DataFrame:
        """One row a subscription in force when the logs end: whether it has to be sent."""
        return keep_rows(subscriptions.find_minimal(self.subscriptions, self.logs.end))

    @cached_property
    def meanings(self) -> Meanings:
        """The vocabularies that any node has logged."""
        return collect_meanings(self.logs.get("vocabulary"))

    @cached_property
    def names(self) -> services.Names:
        """How vocabularies call attributes."""
        return services.list_names(self.meanings)

    @cached_property
    def offers(self) -> DataFrame:
        """One row a device that was there when the logs end: what it offers in its region."""
        device = self.logs.get("device")
        nothing = device.sparkSession.createDataFrame([], services.SERVICES)
        return keep_rows(
            services.list_live(
                services.refresh_services(nothing, services.read_offers(device, self.names))
            )
        )

    @cached_property
    def services(self) -> DataFrame:
        """One row a subscription in force when the logs end: who serves it best there."""
        requests = keep_rows(
            services.read_requests(self.subscriptions, self.stays, self.names, self.logs.end)
        )
        return keep_rows(services.recommend_services(self.offers, requests, self.subscriptions))

    def list_tables(self) -> dict[str, tuple[str, Callable[[], DataFrame]]]:
        """Return the tables for people: what each says, and how to get it."""
        logs = self.logs
        return {
            "headline": ("all outcomes in one row", lambda: self.headline),
            "outcomes": ("what became of each match of a subscriber", lambda: self.outcomes),
            "stories": ("what became of each story that is true", lambda: self.stories),
            "failures": (
                f"the newest {_FAILURES} that were late, missed, withheld or wrong",
                lambda: outcomes.list_failures(self.outcomes, _FAILURES),
            ),
            "causes": ("outcomes by cause", lambda: outcomes.count_causes(self.outcomes)),
            "delivery": (
                "outcomes over time",
                lambda: outcomes.count_over_time(self.outcomes, logs.begin, self.step),
            ),
            "latency": ("how long deliveries took", lambda: outcomes.spread_latency(self.outcomes)),
            "subscribers": (
                "outcomes by subscriber",
                lambda: outcomes.count_by(self.outcomes, "subscriber"),
            ),
            "fleet": ("the health of nodes", lambda: fleet.describe_fleet(logs)),
            "bottlenecks": (
                "which missing way between nodes costs most",
                lambda: self._sort_pairs(
                    "bottlenecks", fleet.find_bottlenecks(self.pairs, self.outcomes, self.shared)
                ),
            ),
            "slos": (
                "deliveries in time by role, event and period",
                lambda: fleet.measure_levels(
                    self.outcomes, logs, self.subscriptions, logs.begin, logs.end
                ),
            ),
            "near": (
                "subscriptions that readings almost fitted",
                lambda: fleet.find_near_misses(
                    self.notes, self.subscriptions, self.matches, self.meanings
                ),
            ),
            "traffic": (
                "transfers that led to a delivery",
                lambda: self._sort_pairs("traffic", fleet.measure_traffic(logs)),
            ),
            "origins": (
                "outcomes by the node that read",
                lambda: outcomes.count_by(self.outcomes, "origin"),
            ),
            "links": (
                "the contact graph",
                lambda: self._sort_pairs("links", contacts.summarise_links(logs, self.contacts)),
            ),
            "contacts": (
                "contacts of nodes",
                lambda: sort_rows(self.contacts, "begin", "first", is_large=True),
            ),
            "stays": (
                "subscribers at nodes",
                lambda: sort_rows(self.stays, "begin", "subscriber", is_large=True),
            ),
            "replicas": (
                "copies over time",
                lambda: costs.count_replicas(
                    costs.find_copies(logs), logs.begin, logs.end, self.step
                ),
            ),
            "staleness": (
                "how old notifications were on arrival, by node",
                lambda: self._sort_pairs("staleness", costs.measure_staleness(logs)),
            ),
            "costs": ("bytes and copies a delivery", lambda: self.costs),
            "strategies": (
                "what other strategies would do",
                lambda: self.strategies.where("block is null").drop("block"),
            ),
            "strategy_blocks": (
                "the same by blocks of notifications, from which the error is known",
                lambda: self.strategies.where("block is not null"),
            ),
            "sources": (
                "what devices sent, and what they did not need to send",
                lambda: costs.measure_sources(self.logs),
            ),
            "refusals": ("what nodes refused", lambda: costs.count_refusals(self.logs)),
            "terms": (
                "attributes and terms asked for",
                lambda: subscriptions.count_terms(self.subscriptions, self.matches),
            ),
            "decisions": ("top-k in a network without delays", lambda: self.ideal),
            "covering": ("the minimal set of subscriptions", lambda: self.covering),
            "savings": (
                "bytes that the minimal set saves",
                lambda: subscriptions.sum_minimal(self.covering),
            ),
            "services": (
                "the best device for each subscription",
                lambda: sort_rows(
                    self.services, "region", "subscriber", "subscription_id", is_large=True
                ),
            ),
            "regions": (
                "how well regions are served",
                lambda: sort_rows(
                    services.sum_regions(self.offers, self.services, logs.stopped), "region"
                ),
            ),
            "runs": ("runs of nodes", lambda: sort_rows(self.logs.runs, "node", "epoch")),
            "subscriptions": (
                "all subscriptions",
                lambda: self.subscriptions.drop("vector", "vocabulary"),
            ),
            "notifications": (
                "all notifications",
                lambda: self.notes.drop("vector", "vocabulary"),
            ),
            "matches": ("all matches of global matching", lambda: self.matches),
        }
