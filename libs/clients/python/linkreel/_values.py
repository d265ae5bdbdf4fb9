"""How values become parts of a request: paths, queries and JSON."""

from __future__ import annotations

import enum
import json
import re
import urllib.parse
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final, Mapping, Optional, Sequence, Union

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Unset(enum.Enum):
    """The type of UNSET."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


#: A field that is not sent, so that an update keeps its value. None is different: it is sent as
#: null, which clears the field.
UNSET: Final = Unset.UNSET

#: A point in time: an aware datetime, milliseconds since 1970, or text such as 2027-04-01T00:00:00Z.
Time = Union[datetime, float, str]

#: A UTC day: a date, an aware datetime of that day, or text such as 2027-04-01.
Day = Union[date, str]


def milliseconds(moment: datetime) -> int:
    """The milliseconds since 1970 of an aware datetime."""
    return (_aware(moment) - _EPOCH) // timedelta(milliseconds=1)


def _aware(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise ValueError("This datetime has no time zone, so its moment is not known. Add one, as in "
                         "datetime.now(timezone.utc) or moment.astimezone().")
    return moment


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return milliseconds(value)
    if isinstance(value, date):
        raise ValueError("A date is not a point in time. Use a datetime with a time zone.")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError("%s cannot be sent as JSON" % type(value).__name__)


def _sent(value: object) -> object:
    """A value without the fields that are UNSET, at any depth."""
    if isinstance(value, Mapping):
        return {name: _sent(one) for name, one in value.items() if one is not UNSET}
    if isinstance(value, (list, tuple)):
        return [_sent(one) for one in value]
    return value


def encode(body: object) -> bytes:
    """The JSON of a body: fields that are UNSET are left out, datetimes become milliseconds."""
    return json.dumps(_sent(body), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode("utf-8", "surrogatepass")


def query_text(query: Optional[Mapping[str, Any]]) -> str:
    """A query with its question mark; empty if there is nothing in it. None and UNSET are left out."""
    pairs: "list[tuple[str, str]]" = []
    for name, value in (query or {}).items():
        many = value if isinstance(value, (list, tuple, set, frozenset)) else (value,)
        pairs += [(name, _query_value(one)) for one in many if one is not None and one is not UNSET]
    return "?" + urllib.parse.urlencode(pairs) if pairs else ""


def _query_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return _aware(value).astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def day(value: Optional[Day]) -> Optional[str]:
    """A day as the API writes it."""
    if isinstance(value, datetime):
        value = _aware(value).astimezone(timezone.utc).date()
    return value.isoformat() if isinstance(value, date) else value


def fill(path: str, parameters: Optional[Mapping[str, str]]) -> str:
    """A path of the contract with its parameters filled in."""
    for name, value in (parameters or {}).items():
        if not value:
            raise ValueError("%s is empty. Give the id of a record." % name)
        # Proxies resolve such segments: DELETE …/captions/.. would delete the video.
        if {".", ".."} & set(re.split(r"[/\\]", value)):
            raise ValueError("%r cannot be an id: proxies would resolve the path to another one. Check the id." % value)
        path = path.replace("{%s}" % name, urllib.parse.quote(value, safe=""))
    return path


def header(name: str, value: str) -> str:
    """Check that a header can be sent. The error never contains the value, which may be secret."""
    if any(c != "\t" and not " " <= c <= "~" for c in value):
        raise ValueError("The header %s contains characters that HTTP does not allow. Use printable ASCII." % name)
    return value
