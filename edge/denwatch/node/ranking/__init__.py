"""Ranking: which of the notifications that match are worth a person's attention (after PrefSIENA).

- `content`: typed-content subscriptions and matching; `content_covering`: which covers which;
- `rank`: score, degree of match and priority become one rank; "prefer A over B" becomes levels;
- `topk`: the k best that are still valid, of a window, fading; what a person prefers.

What else the paper has (the subscription graph, the choice of a server) is in `papers/`.
"""
