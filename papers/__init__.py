"""The matching algorithms of the DENS and A-ToPSS papers, behind the interface of all engines.

They are the comparison and, where the semantics are the same, the check of the index: FNIF, FNIFS,
FNIFC and FIP answer exactly as `protocol.matching` defines. AttributeValue is crisp; BFCPAB, BFCPA1
and BFCPA2 break subscriptions down into pairs and score in their own way; ATopss has its own
language, real trapezoids, and answers in floats or in reduced encodings.
"""

from papers.atopss import Aggregation, Association, ATopss, Degrees, Order
from papers.dens_breakdown import BFCPA1, BFCPA2, BFCPAB, approximate, size_breakdown
from papers.dens_covering import FNIFC, Outline, covers
from papers.dens_flat import FIP, FNIF, FNIFS, AttributeValue, Reach
from papers.trapezoids import (
    BITS,
    FLOAT,
    Constraint,
    Interest,
    Publication,
    Trapezoid,
    translate_notification,
    translate_subscription,
)

__all__ = [
    "BFCPA1",
    "BFCPA2",
    "BFCPAB",
    "BITS",
    "FIP",
    "FLOAT",
    "FNIF",
    "FNIFC",
    "FNIFS",
    "ATopss",
    "Aggregation",
    "Association",
    "AttributeValue",
    "Constraint",
    "Degrees",
    "Interest",
    "Order",
    "Outline",
    "Publication",
    "Reach",
    "Trapezoid",
    "approximate",
    "covers",
    "size_breakdown",
    "translate_notification",
    "translate_subscription",
]
