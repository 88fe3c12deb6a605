"""How things look in a terminal and in a notebook."""
from __future__ import annotations

import html
from collections.abc import Iterable

from . import api


def size(count: int | None) -> str:
    """140000000000 -> "130.4 GiB"; None: the device does not say."""
    if count is None:
        return "not reported"
    value, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return "%d %s" % (value, unit) if unit == "B" else "%.1f %s" % (value, unit)


def device_line(record: api.Device) -> str:
    return "%s, %s, %s, %s" % (record["name"], record["backend"], size(record["memory_bytes"]), record["state"])


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """An HTML table; every cell is escaped, since names come from other machines."""
    def line(cells: Iterable[object], tag: str) -> str:
        return "<tr>%s</tr>" % "".join("<%s>%s</%s>" % (tag, html.escape(str(cell)), tag) for cell in cells)
    return "<table><thead>%s</thead><tbody>%s</tbody></table>" % (
        line(heads, "th"), "".join(line(row, "td") for row in rows))


def devices_table(records: Iterable[api.Device]) -> str:
    return table(("device", "back end", "memory", "state", "id"), (
        (each["name"], each["backend"], size(each["memory_bytes"]), each["state"], each["device_id"]) for each in records))
