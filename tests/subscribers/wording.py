"""Words and ids as the tests of delivery write them."""

from __future__ import annotations

from denwatch.client.compiler import compile_subscription
from denwatch.client.language import parse
from denwatch.client.vocabulary import load_shipped


def compile_words(words: str) -> bytes:
    return compile_subscription(parse(words), load_shipped("rescue")).data


def show(item_id: int) -> str:
    return f"{item_id:016x}"
