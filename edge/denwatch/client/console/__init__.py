"""The rescue console: a web page for people, served on the machine that runs it.

Pure view models, tested without a browser: `completion`, `preview`, `reasons`, `rows`, `network`,
`sources` and the drawings `curves` and `drawing`. Around them `desk` (one person's link, through
the subscriber library), `watch` (the nodes' statuses), `people` (who may look) and `page` and
`server` (the only files that import NiceGUI). `parts/` is what the browser gets, and all it gets:
nothing is loaded from elsewhere.
"""
