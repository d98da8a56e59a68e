"""`denwatch mine`: all of a person's subscriptions. `denwatch have`: what a person has."""

from __future__ import annotations

import argparse
import json
from typing import Any

from denwatch.cli import common
from denwatch.cli.errors import WRONG_INPUT, CommandError
from denwatch.cli.find import ask_first
from denwatch.cli.profile import fill_login
from denwatch.cli.subscribe import add_link, read_seconds

_DESCRIPTION = """
Lists all of your subscriptions, also those that another app or another node made for you. With the
name or the id of one it changes that one: its score, its top k, its name, whether it is muted, and
who hears of it if nobody has it in time. A change holds at all nodes. An app of yours that asks for
the same name again, as it does at another node, sets it back to what the app has."""
_EXAMPLES = """
denwatch mine --as medic7 --password-file medic7.key
denwatch mine fever --score 0.5 --top 3 --as medic7 --password-file medic7.key
denwatch mine fever --mute --as medic7 --password-file medic7.key
denwatch mine fever --escalate-to chief --after '5 min' --as medic7 --password-file medic7.key
denwatch mine fever --prefer-over burns --as medic7 --password-file medic7.key
denwatch mine fever --end --as medic7 --password-file medic7.key"""


def run(argv: list[str]) -> int:
    """List or change subscriptions."""
    arguments = _parse(argv)
    body = _build_request(arguments)
    reply = ask_first(arguments, body)
    if arguments.json:
        print(json.dumps(reply, ensure_ascii=False))
    elif not reply["ok"]:
        raise CommandError(reply["error"], WRONG_INPUT)
    elif "subscriptions" in reply:
        _print_list(reply)
    elif "removed" in reply:
        print(f"ended: {reply['name']}")
    elif "prefer" in reply:
        print(
            *(f"{better} is preferred over {worse}" for better, worse in reply["prefer"]), sep="\n"
        )
    else:
        print(f"{arguments.subscription}: {_describe(reply['options'])}")
    return 0 if reply["ok"] else WRONG_INPUT


def _build_request(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.subscription:
        return {"list": True}
    if arguments.end:
        return {"unsubscribe": arguments.subscription}
    if arguments.prefer_over:
        return {"prefer": [[arguments.subscription, arguments.prefer_over]]}
    body: dict[str, Any] = {"change": arguments.subscription}
    for key in ("score", "top"):
        if getattr(arguments, key) is not None:
            body[key] = getattr(arguments, key)
    if arguments.rename:
        body["name"] = arguments.rename
    if arguments.mute or arguments.unmute:
        body["muted"] = bool(arguments.mute)
    if arguments.escalate_to:
        body["escalate"] = {"to": arguments.escalate_to, "after": arguments.after}
    return body


def _print_list(reply: dict[str, Any]) -> None:
    rows = [["name", "id", "at", "options", "subscription"]]
    for each in reply["subscriptions"]:
        options = _describe({**each.get("options", {}), "name": None})
        rows.append([each["name"] or "", each["id"], each["origin"], options, each["words"]])
    print(*common.format_table(rows), sep="\n")
    if reply["my_top"]:
        print(reply["my_top"])


def _describe(options: dict[str, Any]) -> str:
    words = []
    for key, value in options.items():
        if value is True:
            words.append(key)
        elif key == "escalate":
            words.append(f"escalates to {value[0]} after {value[1]:g} s")
        elif key == "behalf":
            words.append(f"for {value}")
        elif key == "after":
            words.append(f"if nobody has it in {value:g} s")
        elif key == "prefer":
            words += [f"{better} over {worse}" for better, worse in value]
        elif value is not None:
            words.append(f"{key} {value}")
    return ", ".join(words)


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "List, change, mute and end all of your subscriptions."
    parser = common.build_parser("mine", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("subscription", nargs="?", help="its name or its id; all are listed")
    common.add_option(parser, "--as NAME", "who you are", dest="name")
    add_link(parser)
    common.add_option(parser, "--score X", "how much it is worth, 0 to 1", type=float)
    common.add_option(parser, "--top N", "only the N best of it", type=int)
    common.add_option(parser, "--rename NAME", "give it another name")
    common.add_option(parser, "--mute", "what matches it is not delivered for it")
    common.add_option(parser, "--unmute", "deliver what matches it from now on")
    common.add_option(parser, "--escalate-to NAME", "who hears of it if nobody has it in time")
    common.add_option(parser, "--after TIME", "that time ('5 min')", default="5 min")
    common.add_option(parser, "--prefer-over NAME", "prefer it over another one")
    common.add_option(parser, "--end", "unsubscribe")
    common.add_option(parser, "--json", "print the node's reply as it is")
    common.add_option(
        parser, "--timeout SECONDS", "how long to wait (15)", type=read_seconds, default=15.0
    )
    arguments = fill_login(parser.parse_args(argv))
    changes = (arguments.score, arguments.top)
    said = (arguments.rename, arguments.mute, arguments.unmute, arguments.escalate_to)
    is_changed = any(each is not None for each in changes) or any(said)
    alone = bool(arguments.end) + bool(arguments.prefer_over) + is_changed
    if arguments.subscription and alone != 1:
        parser.error("say what to change, or --end, or --prefer-over")
    if not arguments.subscription and alone:
        parser.error("name a subscription")
    return arguments


# Who has what ---------------------------------------------------------------------------------

_HAVE_DESCRIPTION = """
Tells all nodes, and through them everybody who listens, that you have something: a device (a bed, a
place: what its readings are of) or one notification, by its id. Its notifications still come, and
say who has it; an escalation stays quiet. Without a subject it lists who has what. A claim ends
when it is released, or after 12 hours."""
_HAVE_EXAMPLES = """
denwatch have --as medic7 --password-file medic7.key
denwatch have bed-1 --silence '10 min' --as medic7 --password-file medic7.key
denwatch have bed-1 --to medic8 --as medic7 --password-file medic7.key
denwatch have bed-1 --release --as medic7 --password-file medic7.key"""


def run_have(argv: list[str]) -> int:
    """Say who has something, or print who has what."""
    arguments = _parse_have(argv)
    body: dict[str, Any] = {"have": arguments.subject or True}
    if arguments.release:
        body = {"release": arguments.subject}
    if arguments.silence:
        body["silence"] = arguments.silence
    if arguments.to:
        body["to"] = arguments.to
    reply = ask_first(arguments, body)
    if arguments.json:
        print(json.dumps(reply, ensure_ascii=False))
    elif not reply["ok"]:
        raise CommandError(reply["error"], WRONG_INPUT)
    elif not arguments.subject:
        words = [each["words"] for each in reply["have"]]
        print(*words or ["nobody has anything"], sep="\n")
    elif arguments.release:
        had = reply["had"]["by"] if reply["known"] else None
        print(f"{reply['release']}: released, {had or 'nobody'} had it")
    else:
        print(f"{reply['node']}: {reply['by']} has {reply['have']}")
    return 0 if reply["ok"] else WRONG_INPUT


def _parse_have(argv: list[str]) -> argparse.Namespace:
    summary = "Say that you have something, and see who has what."
    parser = common.build_parser("have", summary, _HAVE_DESCRIPTION, _HAVE_EXAMPLES)
    parser.add_argument("subject", nargs="?", help="a device, or the id of a notification")
    common.add_option(parser, "--as NAME", "who you are", dest="name")
    add_link(parser)
    common.add_option(parser, "--silence TIME", "no sound for so long, such as '10 min'")
    common.add_option(parser, "--to NAME", "hand it over: this person has it")
    common.add_option(parser, "--release", "nobody has it any more")
    common.add_option(parser, "--json", "print the node's reply as it is")
    common.add_option(
        parser, "--timeout SECONDS", "how long to wait (15)", type=read_seconds, default=15.0
    )
    arguments = fill_login(parser.parse_args(argv))
    if not arguments.subject and (arguments.silence or arguments.to or arguments.release):
        parser.error("name a device, or the id of a notification")
    if arguments.release and (arguments.silence or arguments.to):
        parser.error("--release goes alone")
    return arguments
