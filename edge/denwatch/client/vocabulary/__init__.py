"""The Knowledge Manager: what events, attributes and terms there are and what people call them.

- `load_shipped`, `parse_vocabulary`, `build_vocabulary`: from a name, a TOML text, a document;
- `Vocabulary`: look-up by any synonym, content hash; `merge_vocabularies`: two into one;
- `PublisherDirectory`: who publishes what; `browsing`: vocabularies as text to read;
- `import_fll`: terms written in fuzzylite's language;
- `membership`, `fitting`, `units`: ideal functions, their fit to the wire, conversion.
"""

from denwatch.client.vocabulary.attributes import (
    Attribute,
    EventType,
    ValueKind,
    VocabularyTerm,
    format_moment,
    parse_moment,
)
from denwatch.client.vocabulary.browsing import browse, describe_attribute, describe_vocabulary
from denwatch.client.vocabulary.directory import Finding, Publication, PublisherDirectory
from denwatch.client.vocabulary.fitting import Fit
from denwatch.client.vocabulary.fll import import_fll, parse_fll
from denwatch.client.vocabulary.loading import (
    SHIPPED,
    build_vocabulary,
    load_shipped,
    parse_vocabulary,
)
from denwatch.client.vocabulary.membership import Membership
from denwatch.client.vocabulary.merging import merge_vocabularies
from denwatch.client.vocabulary.thesaurus import Synonym, Thesaurus, fold_name
from denwatch.client.vocabulary.triples import Triple
from denwatch.client.vocabulary.vocabulary import Vocabulary

__all__ = [
    "SHIPPED",
    "Attribute",
    "EventType",
    "Finding",
    "Fit",
    "Membership",
    "Publication",
    "PublisherDirectory",
    "Synonym",
    "Thesaurus",
    "Triple",
    "ValueKind",
    "Vocabulary",
    "VocabularyTerm",
    "browse",
    "build_vocabulary",
    "describe_attribute",
    "describe_vocabulary",
    "fold_name",
    "format_moment",
    "import_fll",
    "load_shipped",
    "merge_vocabularies",
    "parse_fll",
    "parse_moment",
    "parse_vocabulary",
]
