"""Results of the stream back to the nodes: late matches and the replication plan.

`late` says what to hand to which node, `links` brings it there, and `Operator` puts both together.
"""

from denwatch.spark.stream.operator.operator import Operator

__all__ = ["Operator"]
