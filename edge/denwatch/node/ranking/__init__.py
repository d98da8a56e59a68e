"""Preferences: which of the notifications that match are worth a person's attention.

The pure library behind ranking on a node (after PrefSIENA). What is where:

- `content`: typed-content subscriptions, matching and covering (`regions` reasons for it);
- `graph`: subscriptions ordered by covering, walked without testing what cannot match;
- `rank`: score, degree of match and priority as one ranking; `winnow`: "prefer A over B";
- `topk` and `expiry`: the k best that are still valid;
- `profile`: all of that for one subscriber; `forwarder`: for a server, and choosing a server.

    >>> server = Forwarder(covers, measure_degree)
    >>> profile = server.connect("john", Policy(k=2))
    >>> server.subscribe(Preference(1, "john", Filter.of(("genre", "=", "comedy")), score=0.9))
    True
    >>> server.subscribe(Preference(2, "john", Filter.of(("genre", "=", "drama")), score=0.8))
    True
    >>> [d.verdict.value for d in server.forward(7, {"genre": "drama"}, now=0.0, expires=60.0)]
    ['delivered']
"""

from denwatch.node.ranking.content import (
    Constraint,
    ContentError,
    Filter,
    Kind,
    Op,
    covers,
    matches,
    measure_degree,
)
from denwatch.node.ranking.expiry import ExpiryRule, find_period_end
from denwatch.node.ranking.forwarder import Forwarder, ServerOffer, choose_server, probe_server
from denwatch.node.ranking.graph import SubscriptionGraph, Walk
from denwatch.node.ranking.profile import Decision, Policy, Profile
from denwatch.node.ranking.rank import (
    FULL_DEGREE,
    Combination,
    Match,
    Preference,
    Rank,
    Ranked,
    combine_matches,
    sort_best_first,
)
from denwatch.node.ranking.topk import BoundedTopK, Entry, Gate, TopK, Verdict
from denwatch.node.ranking.winnow import PriorityCycle, UnknownPriority, assign_levels

__all__ = [
    "FULL_DEGREE",
    "BoundedTopK",
    "Combination",
    "Constraint",
    "ContentError",
    "Decision",
    "Entry",
    "ExpiryRule",
    "Filter",
    "Forwarder",
    "Gate",
    "Kind",
    "Match",
    "Op",
    "Policy",
    "Preference",
    "PriorityCycle",
    "Profile",
    "Rank",
    "Ranked",
    "ServerOffer",
    "SubscriptionGraph",
    "TopK",
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
