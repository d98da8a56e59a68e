"""`denwatch stream`: the tables of all nodes' logs, kept current while the logs arrive.

`engine` runs the query, `versions` makes each batch visible at once, `records`, `notes`,
`matching`, `ranking` and `judging` are what a batch goes through, `summary` says what there is, and
`operator` brings results back to the nodes.
"""
