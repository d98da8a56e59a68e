# What a board gets, for MicroPython's own manifest tools: frozen into firmware with
# `make FROZEN_MANIFEST=.../edge/denwatch/watchdog/manifest.py`, where it takes no memory at all.
# Role "filter" is the filter alone; `include("manifest.py", role="filter")` chooses it. The files
# are those that mip gets: `package.json` and `filter.json` beside this one list them.
# mypy: ignore-errors
# ruff: noqa: F821, PTH123 - metadata, options and package are the tools', which run this file here
import json

metadata(
    description="Subscriptions from the air, evaluated where the reading is made", version="0.1.0"
)
options.defaults(role="full", without="")  # `without`: an optional part that is left out

with open("filter.json" if options.role == "filter" else "package.json") as listing:
    targets = [target.split("/", 1)[1] for target, _ in json.load(listing)["urls"]]
targets = [file for file in targets if file != f"watchdog/{options.without}.py"]

# base_path is the folder that has `denwatch/`; each of the two packages has its own.
for name, root in (("protocol/", "../../../protocol"), ("watchdog/", "../..")):
    package("denwatch", files=[file for file in targets if file.startswith(name)], base_path=root)
