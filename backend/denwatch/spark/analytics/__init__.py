"""Analyses over all nodes' logs: functions from Spark frames to Spark frames; none makes a session.

    logs = Logs(lambda kind: read_kind(spark, folders, kind))
    outcomes = judge_outcomes(pairs, oracle, logs, notes, windows)

`timeline` gives the records in one timeline; `contacts` finds who could reach whom, and the
earliest delivery that was possible; `outcomes` compares it with what was delivered and replays
top-k; `costs` counts copies and bytes; `what_if` tries other strategies; `subscriptions` looks at
devices, terms and covering. `study` runs all of it.
"""
