"""Ranking: which of the notifications that match are worth a person's attention (after PrefSIENA).

- `content`: typed-content subscriptions, matching and covering;
- `graph`: subscriptions ordered by covering, walked without testing what cannot match;
- `rank`: score, degree of match and priority become one rank; "prefer A over B" becomes levels;
- `topk`: the k best that are still valid, and when they expire;
- `forwarder`: all of that for one subscriber and for a server, and choosing a server.

    >>> server = Forwarder(covers, measure_degree)
    >>> profile = server.connect("john", RankingPolicy(k=2))
    >>> comedy, drama = (ContentFilter.of(("genre", "=", it)) for it in ("comedy", "drama"))
    >>> server.subscribe(Preference(1, "john", comedy, score=0.9))
    True
    >>> server.subscribe(Preference(2, "john", drama, score=0.8))
    True
    >>> [d.verdict.value for d in server.forward(7, {"genre": "drama"}, now=0.0, expires=60.0)]
    ['delivered']
"""

from denwatch.node.ranking.content import (
    Constraint,
    ContentError,
    ContentFilter,
    ContentKind,
    Op,
    covers,
    matches,
    measure_degree,
)
from denwatch.node.ranking.forwarder import (
    Decision,
    Forwarder,
    Profile,
    RankingPolicy,
    ServerOffer,
    choose_server,
    probe_server,
)
from denwatch.node.ranking.graph import SubscriptionGraph, Walk
from denwatch.node.ranking.rank import (
    FULL_DEGREE,
    Combination,
    Preference,
    PreferenceMatch,
    PriorityCycle,
    Rank,
    Ranked,
    UnknownPriority,
    assign_levels,
    combine_matches,
    sort_best_first,
)
from denwatch.node.ranking.topk import (
    BoundedTopK,
    ExpiryRule,
    RankedEntry,
    TopK,
    TopKState,
    Verdict,
    find_period_end,
)

__all__ = [
    "FULL_DEGREE",
    "BoundedTopK",
    "Combination",
    "Constraint",
    "ContentError",
    "ContentFilter",
    "ContentKind",
    "Decision",
    "ExpiryRule",
    "Forwarder",
    "Op",
    "Preference",
    "PreferenceMatch",
    "PriorityCycle",
    "Profile",
    "Rank",
    "Ranked",
    "RankedEntry",
    "RankingPolicy",
    "ServerOffer",
    "SubscriptionGraph",
    "TopK",
    "TopKState",
    "UnknownPriority",
    "Verdict",
    "Walk",
    "assign_levels",
    "choose_server",
    "combine_matches",
    "covers",
    "find_period_end",
    "matches",
    "measure_degree",
    "probe_server",
    "sort_best_first",
]
