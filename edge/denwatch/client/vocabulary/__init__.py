"""The Knowledge Manager: what events, attributes and terms there are and what people call them.

- `attributes`, `fitting`, `values`: ideal functions, their fit to the wire, units;
- `vocabulary`: look-up by any synonym, content hash; vocabularies as text to read;
- `loading`: from a name, a TOML text, a document; two into one; terms in fuzzylite's language.
"""

from denwatch.client.vocabulary.attributes import (
    Attribute,
    EventType,
    Membership,
    ValueKind,
    VocabularyTerm,
    fold_name,
    format_moment,
)
from denwatch.client.vocabulary.fitting import Fit, Triple
from denwatch.client.vocabulary.loading import (
    SHIPPED,
    build_vocabulary,
    load_shipped,
    parse_vocabulary,
)
from denwatch.client.vocabulary.vocabulary import Vocabulary

__all__ = [
    "SHIPPED",
    "Attribute",
    "EventType",
    "Fit",
    "Membership",
    "Triple",
    "ValueKind",
    "Vocabulary",
    "VocabularyTerm",
    "build_vocabulary",
    "fold_name",
    "format_moment",
    "load_shipped",
    "parse_vocabulary",
]
