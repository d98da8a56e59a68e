"""`denwatch stream`: the tables of all nodes' logs, kept current while the logs arrive.

`engine` runs the query; `tables`, `matching` and `ranking` are the steps of a batch; `versions`
makes a finished batch visible at once; `summary` writes the live page; `operator_link` sends
results back to the nodes.
"""
