"""Analyses over all nodes' logs: functions from Spark frames to Spark frames; none makes a session.

    logs = Logs(lambda kind: read_kind(spark, folders, kind))
    outcomes = judge_outcomes(pairs, oracle, logs, notes, windows)

`logs` and `timeline` give records in one timeline; `contacts` says who could reach whom; `arrival`
(pure) and `oracle` find the earliest delivery possible; `outcomes` and `summaries` judge what was
delivered; `decisions` replays top-k; `replicas` counts copies and costs; `replay` (pure) and
`whatif` try other strategies; `sources`, `terms` and `covering` look at devices and subscriptions.
`study` does all of it.
"""
