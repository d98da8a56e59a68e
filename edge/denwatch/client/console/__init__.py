"""The rescue console: a web page for subscribers, served on the machine that runs it.

`server.py` is the web server and the page, `auth.py` controls access, `user_session.py` is one
subscriber's connection and settings. The others are pure and tested without a browser:
`completion.py`, `preview.py`, `feed.py`, `drawing.py` and most of `status_monitor.py` (nodes and
devices). `parts/` is all that the browser gets: nothing is loaded from elsewhere.
"""
