# What a board gets, for MicroPython's own manifest tools: frozen into firmware with
# `make FROZEN_MANIFEST=.../edge/denwatch/watchdog/manifest.py`, where it takes no memory at all.
# Role "filter" is the filter alone; `include("manifest.py", role="filter")` chooses it.
# mypy: ignore-errors
# ruff: noqa: F821 - metadata, options and package are the tools'
metadata(
    description="Subscriptions from the air, evaluated where the reading is made", version="0.1.0"
)
options.defaults(role="full")

FILTER = {
    "protocol": ("__init__.py", "degrees.py", "slopes.py"),
    "watchdog": ("__init__.py", "filter.py", "rating.py", "viper.py"),
}

# base_path is the folder that has `denwatch/`; each of the two packages has its own.
for name, root in (("protocol", "../../../protocol"), ("watchdog", "../..")):
    files = [f"{name}/{file}" for file in FILTER[name]] if options.role == "filter" else None
    package("denwatch", files=files, base_path=root)
