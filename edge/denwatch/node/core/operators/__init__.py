"""Operators and a node: signed items from the logs, and a plan for replication."""

from denwatch.node.core.operators.frames import Plan, encode_items, encode_plan
from denwatch.node.core.operators.part import Operators

__all__ = ["Operators", "Plan", "encode_items", "encode_plan"]
