"""Home Assistant itself, without its web pages: run by the Python that has it installed.

    python assistant.py FOLDER PORT USER PASSWORD HTTP_PORT

Starts Home Assistant's core with the MQTT integration, set up by a config entry as its dialogue
would write it. For each line of the standard input it prints, as one line of JSON, all entities
as they are now; at the end of the input it stops in order.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from homeassistant import bootstrap, config_entries, core, loader
from homeassistant import config as core_config
from homeassistant.helpers import device_registry, entity_registry
from homeassistant.setup import async_setup_component

_MARK = "entities: "


def write_entry(folder: Path, port: int, user: str, password: str) -> None:
    """Write the config entry of the MQTT integration, unless an earlier run did."""
    file = folder / ".storage" / "core.config_entries"
    if file.exists():
        return
    file.parent.mkdir(parents=True)
    (folder / "configuration.yaml").write_text("homeassistant:\n")
    login = {"broker": "127.0.0.1", "port": port, "username": user, "password": password}
    entry = {
        "entry_id": "denwatch",
        "version": 1,
        "domain": "mqtt",
        "title": "denwatch",
        "data": {**login, "discovery": True},
        "options": {},
        "source": "user",
        "unique_id": None,
        "disabled_by": None,
        "pref_disable_new_entities": False,
        "pref_disable_polling": False,
    }
    document = {"version": 1, "minor_version": 1, "key": "core.config_entries"}
    file.write_text(json.dumps({**document, "data": {"entries": [entry]}}))


async def start(folder: Path, http_port: int) -> core.HomeAssistant:
    """Start the core and the integration."""
    hass = core.HomeAssistant(str(folder))
    hass.config.skip_pip = True
    loader.async_setup(hass)
    config = {"http": {"server_host": "127.0.0.1", "server_port": http_port}}
    hass.config_entries = config_entries.ConfigEntries(hass, config)
    await bootstrap.async_load_base_functionality(hass)
    for name in ("homeassistant", "persistent_notification"):
        assert await async_setup_component(hass, name, config), name
    await core_config.async_process_ha_core_config(
        hass, {"name": "home", "unit_system": "metric", "time_zone": "UTC"}
    )
    assert await async_setup_component(hass, "mqtt", config)
    await hass.async_start()
    return hass


def describe(hass: core.HomeAssistant) -> dict[str, object]:
    """Return every entity: its state, what it shows beside it, its device, its digits."""
    known = entity_registry.async_get(hass)
    devices = device_registry.async_get(hass)
    found: dict[str, object] = {}
    for state in hass.states.async_all():
        entry = known.async_get(state.entity_id)
        if entry is None:
            continue
        device = devices.async_get(entry.device_id)
        via = devices.async_get(device.via_device_id) if device.via_device_id else None
        found[state.entity_id] = {
            "state": state.state,
            "attributes": {key: str(value) for key, value in state.attributes.items()},
            "digits": entry.options.get("sensor", {}).get("suggested_display_precision"),
            "device": device.name,
            "via": via.name if via else None,
        }
    return found


async def main(folder: Path, port: int, user: str, password: str, http_port: int) -> None:
    """Run until the input ends."""
    write_entry(folder, port, user, password)
    hass = await start(folder, http_port)
    while await asyncio.to_thread(sys.stdin.readline):
        print(_MARK + json.dumps(describe(hass)), flush=True)
    await hass.async_stop()


if __name__ == "__main__":
    place, *login = sys.argv[1:]
    asyncio.run(main(Path(place), int(login[0]), login[1], login[2], int(login[3])))
