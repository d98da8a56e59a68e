"""Matching: which subscriptions a notification fits, and how well.

`index.FuzzyIndex` is the engine of a node; `content_index.ContentIndex` serves typed content;
`plugins` finds an engine by its language id. Import the module that you need. README.md explains
the theory; the papers' algorithms, behind the same interface, are in the top folder `papers/`.
"""
