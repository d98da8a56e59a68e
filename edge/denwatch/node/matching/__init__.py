"""Matching: which subscriptions want a notification, and how much.

`index.FuzzyIndex` is the engine of a node; `content_index.ContentIndex` serves typed content;
`plugins` finds an engine by its language id; `papers` holds the algorithms of the papers behind
the same interface (`interface.Matcher`). Import the module that you need.
"""
