"""The Knowledge Manager: what events, attributes and terms there are and what people call them.

- `load_shipped`, `parse_vocabulary`, `build_vocabulary`: from a name, a TOML text, a document;
- `Vocabulary`: look-up by any synonym, content hash; `merge_vocabularies`: two into one;
- `PublisherDirectory`: who publishes what; `browse`, `describe_…`: vocabularies as text to read;
- `import_fll`: terms written in fuzzylite's language;
- `attributes`, `fitting`, `values`: ideal functions, their fit to the wire, units.
"""

from denwatch.client.vocabulary.attributes import (
    Attribute,
    EventType,
    Membership,
    ValueKind,
    VocabularyTerm,
    fold_name,
    format_moment,
    parse_moment,
)
from denwatch.client.vocabulary.fitting import Fit, Triple
from denwatch.client.vocabulary.loading import (
    SHIPPED,
    build_vocabulary,
    import_fll,
    load_shipped,
    merge_vocabularies,
    parse_fll,
    parse_vocabulary,
)
from denwatch.client.vocabulary.vocabulary import (
    Finding,
    Publication,
    PublisherDirectory,
    Synonym,
    Thesaurus,
    Vocabulary,
    browse,
    describe_attribute,
    describe_vocabulary,
)

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
