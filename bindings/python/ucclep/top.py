# SPDX-License-Identifier: Apache-2.0
"""python -m ucclep.top: what running communicators of this machine do, by the files of UCCLEP_STATS_DIR."""
from __future__ import annotations

import argparse
import json
import os
import stat
import sys
import time
from dataclasses import dataclass, field

from . import _tool

WIDTH = 120
MAX_BYTES, MAX_FILES = 64 * 1024, 1024
FRESH_NS = 2_000_000_000  # a file is replaced twice a second

COUNTERS = ("updates", "dispatches", "combines", "commands", "messages", "bytes_sent", "bytes_received", "ring_full_stalls",
            "credit_stalls", "nic_stalls")
NUMBERS = COUNTERS + ("pid", "process_start", "rank", "nranks", "time_ns", "groups", "reorder_depth_max", "commands_waiting",
                      "in_flight_max", "masked")
TEXTS = ("host", "device", "transport", "error")


class Unusable(Exception):
    """Why a file is skipped, as a sentence without its subject."""


@dataclass
class Snapshot:
    """What a communicator wrote last."""
    name: str
    values: dict
    state: str = "running"
    rates: dict = field(default_factory=dict)  # per second; empty: of one snapshot alone nobody knows


def read_text(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise Unusable("is not a regular file")
        if facts.st_uid != os.geteuid():
            raise Unusable(f"belongs to user {facts.st_uid}, expected {os.geteuid()}")
        content = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise Unusable(f"has more than {MAX_BYTES} bytes")
    return content.decode("utf-8", "replace")


def parse(text: str) -> dict:
    """The checked values of a file, whose text may be anything."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise Unusable("is not JSON") from None
    if not isinstance(values, dict):
        raise Unusable("is not a JSON object")
    if values.get("version") != 1:
        raise Unusable("has another version of the format, expected 1")
    for name in NUMBERS:
        if type(values.get(name)) is not int or not 0 <= values[name] < 1 << 64:
            raise Unusable(f"has no valid number {name}")
    for name in TEXTS:
        if not isinstance(values.get(name), str):
            raise Unusable(f"has no valid text {name}")
    masked = values.get("masked_ranks")
    if not isinstance(masked, list) or any(type(rank) is not int or not 0 <= rank < 1 << 32 for rank in masked):
        raise Unusable("has no valid list masked_ranks")
    if not isinstance(values.get("evicted"), bool):
        raise Unusable("has no valid flag evicted")
    known = NUMBERS + TEXTS + ("masked_ranks", "evicted")
    values = {name: values[name] for name in known}
    for name in TEXTS:  # nothing that a terminal obeys
        values[name] = "".join(c if c.isprintable() else "?" for c in values[name])
    return values


def is_alive(pid: int, process_start: int) -> bool:
    """Whether the process that wrote the file runs: another one may have its number by now."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and (process_start == 0 or int(fields[19]) == process_start)


def state_of(values: dict, now_ns: int) -> str:
    """A fresh file is of a process that runs, even one of another container, whose number means nothing here."""
    if now_ns - values["time_ns"] > FRESH_NS:
        return "stopped" if is_alive(values["pid"], values["process_start"]) else "gone"
    if values["error"]:
        return "error"
    return "evicted" if values["evicted"] else "running"


def scan(folder: str, before: dict[str, Snapshot]) -> tuple[dict[str, Snapshot], list[str]]:
    """The communicators by file name, and a sentence about each file that cannot be used. before: an earlier scan."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
    except OSError as error:
        return {}, [f"{folder}: {error.strerror}"]
    found, notes = {}, []
    for name in names[:MAX_FILES]:
        try:
            values = parse(read_text(os.path.join(folder, name)))
        except FileNotFoundError:  # its communicator has ended
            continue
        except (Unusable, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            notes.append(f"{name} {why if isinstance(error, Unusable) else f'cannot be read: {why}'}; the file is skipped")
            continue
        found[name] = Snapshot(name[:-len(".json")], values, state_of(values, time.monotonic_ns()))
        add_rates(found[name], before.get(name))
    if len(names) > MAX_FILES:
        notes.append(f"{folder} has {len(names)} files, of which {MAX_FILES} are read")
    if any(snapshot.state == "gone" for snapshot in found.values()):
        notes.append(f"processes that are gone left their files in {folder}: remove them")
    return found, notes


def add_rates(snapshot: Snapshot, before: Snapshot | None) -> None:
    if before is None or before.values["process_start"] != snapshot.values["process_start"]:
        return
    elapsed_ns = snapshot.values["time_ns"] - before.values["time_ns"]
    if snapshot.state in ("gone", "stopped"):
        snapshot.rates = dict.fromkeys(COUNTERS, 0.0)
    elif elapsed_ns > 0:  # a counter may fall when its group has ended
        snapshot.rates = {name: max(snapshot.values[name] - before.values[name], 0) * 1e9 / elapsed_ns for name in COUNTERS}
    else:
        snapshot.rates = before.rates


def short(number: float | None) -> str:
    """At most six characters."""
    if number is None:
        return "-"
    for unit in ("", "k", "M", "G", "T", "P", "E"):
        if number < 999.5 or unit == "E":
            return f"{number:.0f}{unit}" if number >= 99.95 or number == int(number) else f"{number:.1f}{unit}"
        number /= 1000
    return "-"


def ranks_text(values: dict) -> str:
    listed = ",".join(str(rank) for rank in sorted(values["masked_ranks"]))
    return "-" if not values["masked"] else listed if len(listed) <= 12 else f"{values['masked']} ranks"


COLUMNS = (  # heading, width, text of a snapshot
    ("RANK", 9, lambda s: f"{s.values['rank']}/{s.values['nranks']}"),
    ("PROCESS", 10, lambda s: s.name),
    ("STATE", 7, lambda s: s.state),
    ("UPD/s", 6, lambda s: short(s.rates.get("updates"))),
    ("DISP/s", 6, lambda s: short(s.rates.get("dispatches"))),
    ("COMB/s", 6, lambda s: short(s.rates.get("combines"))),
    ("SENTB/s", 7, lambda s: short(s.rates.get("bytes_sent"))),
    ("RECVB/s", 7, lambda s: short(s.rates.get("bytes_received"))),
    ("MSG/s", 6, lambda s: short(s.rates.get("messages"))),
    ("RING/s", 6, lambda s: short(s.rates.get("ring_full_stalls"))),
    ("CRED/s", 6, lambda s: short(s.rates.get("credit_stalls"))),
    ("NIC/s", 6, lambda s: short(s.rates.get("nic_stalls"))),
    ("QUEUE", 5, lambda s: short(s.values["commands_waiting"])),
    ("INFL", 5, lambda s: short(s.values["in_flight_max"])),
    ("MASKED", 12, lambda s: ranks_text(s.values)),
)
LEGEND = ("RING, CRED, NIC: stalls for a full command ring, for credits of a peer, for the NIC. QUEUE: commands waiting now.\n"
          "INFL: most messages in flight to one peer. Operations are those that the host called.")


def row(texts: list[str]) -> str:
    cells = [f"{text[:width]:<{width}}" if i < 3 or i == len(COLUMNS) - 1 else f"{text[:width]:>{width}}"
             for i, (text, (_, width, _)) in enumerate(zip(texts, COLUMNS))]
    return " ".join(cells).rstrip()


def in_order(found: dict[str, Snapshot]) -> list[Snapshot]:
    return sorted(found.values(), key=lambda s: (s.values["nranks"], s.values["rank"], s.name))


def table(found: dict[str, Snapshot], notes: list[str]) -> str:
    """At most WIDTH columns wide."""
    ordered = in_order(found)
    lines = [row([heading for heading, _, _ in COLUMNS])]
    lines += [row([text(snapshot) for _, _, text in COLUMNS]) for snapshot in ordered]
    places = {f"{s.values['host']}: {s.values['device']}, {s.values['transport']}" for s in ordered}
    lines += ["", *sorted(places), *LEGEND.split("\n")]
    lines += [f"{s.name}, rank {s.values['rank']}: {s.values['error']}" for s in ordered if s.values["error"]]
    return "\n".join(line[:WIDTH] for line in lines + notes)


def as_json(found: dict[str, Snapshot], notes: list[str]) -> str:
    return json.dumps({"communicators": [{"process": s.name, "state": s.state, **s.values, "rates": s.rates}
                                         for s in in_order(found)], "notes": notes})


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ucclep.top", description=__doc__,
        epilog="Start the program with UCCLEP_STATS_DIR=FOLDER: each of its communicators keeps a file there. Exit code: 0, "
               "or 1 if no communicator was found.")
    parser.add_argument("folder", nargs="?", default=os.environ.get("UCCLEP_STATS_DIR"),
                        help="where the files are (default: UCCLEP_STATS_DIR)")
    parser.add_argument("--once", action="store_true", help="print one table, over one interval, and exit")
    parser.add_argument("--json", action="store_true", help="print a line of JSON instead of a table")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between tables, 0.1 to 3600")
    asked = parser.parse_args()
    if not 0.1 <= asked.interval <= 3600:
        parser.error(f"--interval is {asked.interval}, expected 0.1 to 3600")
    return asked


def main() -> int:
    asked = options()
    what_to_do = "start the program with UCCLEP_STATS_DIR=FOLDER in its environment, and name the same FOLDER here"
    if not asked.folder:
        raise OSError(f"no folder is given: {what_to_do}")
    found, notes = scan(asked.folder, {})
    if not found:
        raise OSError("; ".join([f"no communicator in {asked.folder}", *notes, what_to_do]))
    while True:
        time.sleep(asked.interval)
        found, notes = scan(asked.folder, found)
        text = as_json(found, notes) if asked.json else table(found, notes if found else [*notes, "no communicator is left"])
        if sys.stdout.isatty() and not asked.json and not asked.once:
            text = "\x1b[H\x1b[2J" + text
        print(text, flush=True)
        if asked.once:
            return 0


if __name__ == "__main__":
    _tool.run("ucclep.top", main)
