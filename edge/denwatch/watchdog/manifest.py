# What a board gets, for MicroPython's own manifest tools: frozen into firmware with
# `make FROZEN_MANIFEST=.../edge/denwatch/watchdog/manifest.py`, where it takes no memory at all.
# Role "filter" is the filter alone; `include("manifest.py", role="filter")` chooses it. The files
# are those that mip gets: `package.json` and `filter.json` beside this one list them, with the
# drivers of micropython-lib that sources call (`deps`). What else is used of it:
#
# * LoRa's modems, by `include("manifest.py", lora="sx126x")`: few boards have one.
# * Not aioespnow: `RadioLink` polls whatever modem it has; the firmware's `espnow` is enough.
# * Not umqtt, ssl, logging: see packets.py and link.py; a log is a ring of bytes in supervisor.py.
# mypy: ignore-errors
# ruff: noqa: F821, PTH123 - metadata, options, package and require are the tools', which run this
import json

metadata(
    description="Subscriptions from the air, evaluated where the reading is made", version="0.1.0"
)
# `without`: an optional part that is left out; `drivers`: whether micropython-lib's are frozen, too
options.defaults(role="full", without="", drivers=True, lora="")

with open("filter.json" if options.role == "filter" else "package.json") as listing:
    package_json = json.load(listing)
targets = [target.split("/", 1)[1] for target, _ in package_json["urls"]]
targets = [file for file in targets if file != f"watchdog/{options.without}.py"]

# base_path is the folder that has `denwatch/`; each of the two packages has its own.
for name, root in (("protocol/", "../../../protocol"), ("watchdog/", "../..")):
    package("denwatch", files=[file for file in targets if file.startswith(name)], base_path=root)

drivers = [name for name, _ in package_json["deps"]] if options.drivers else []
for name in drivers + (["lora-sync", "lora-" + options.lora] if options.lora else []):
    require(name)
