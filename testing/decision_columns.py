"""Which columns a decision has, by what was decided: what every record of a kind must say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kordon.codecs import apis
from kordon.codecs.decision import Decision, Kind


class Form(NamedTuple):
    """Decisions of one kind that say the same things."""

    name: str
    kind: Kind
    columns: frozenset[str]
    """That are not empty."""
    fits: Callable[[Decision], bool]
    """Whether a decision of the kind is one."""


def _form(name: str, kind: Kind, columns: str, fits: Callable[[Decision], bool] = lambda _: True) -> Form:
    return Form(name, kind, frozenset(columns.split()), fits)


_CLIENT: Final = "connection client_id principal"
_LAYOUT: Final = "layout_epoch layouts_offset"
_STREAM: Final = f"topic stream {_LAYOUT}"
_HOME: Final = f"{_STREAM} partition move"
_SEQUENCES: Final = "producer_id producer_epoch first_sequence last_sequence"
_COUNTS: Final = "batches records bytes"
_OFFSETS: Final = "first_offset last_offset"
_STEP: Final = f"topic fence {_LAYOUT}"
_DOUBT: Final = "topic layout_epoch reason"


def _is_unknown(decision: Decision) -> bool:
    return decision.reason == "unknown"


FORMS: Final = (
    _form("identity", Kind.ADMIT, f"{_CLIENT} api_key evidence", lambda each: each.api_key == apis.INIT_PRODUCER_ID),
    _form(
        "duplicate",
        Kind.ADMIT,
        f"{_CLIENT} {_STREAM} {_SEQUENCES} records bytes rule reason evidence",
        lambda each: each.reason == "duplicate",
    ),
    _form("write", Kind.ADMIT, f"{_CLIENT} {_HOME} {_SEQUENCES} {_OFFSETS} {_COUNTS}"),
    _form("partial refusal", Kind.REFUSE, f"{_CLIENT} api_key {_STREAM} reason batches", lambda each: bool(each.topic)),
    _form("refusal", Kind.REFUSE, f"{_CLIENT} api_key reason batches"),
    _form("fenced worker", Kind.HOLD, f"{_STEP} reason evidence", lambda each: each.stream is None),
    _form(
        "gated reader",
        Kind.HOLD,
        f"{_CLIENT} api_key {_HOME} group_id generation_id member_id rule reason evidence",
        lambda each: each.reason == "gate",
    ),
    _form("fenced stream", Kind.HOLD, f"api_key {_HOME} fence rule reason", lambda each: each.reason == "fence"),
    _form("stream", Kind.HOLD, f"api_key {_STREAM} reason"),
    _form("released worker", Kind.RELEASE, f"{_STEP} reason", lambda each: each.stream is None),
    _form(
        "released reader",
        Kind.RELEASE,
        f"{_CLIENT} api_key {_HOME} group_id generation_id member_id rule reason evidence",
        lambda each: each.reason == "gate",
    ),
    _form("released stream", Kind.RELEASE, f"api_key {_STREAM} reason evidence"),
    _form("delivery", Kind.DELIVER, f"{_CLIENT} {_HOME} {_OFFSETS} {_COUNTS} isolation_level"),
    _form("moved stream", Kind.REDIRECT, f"api_key {_HOME} rule reason evidence", lambda each: each.reason == "moved"),
    _form("told client", Kind.REDIRECT, f"{_CLIENT} api_key topic {_LAYOUT} reason evidence"),
    _form("doubted fence", Kind.FENCE, f"{_DOUBT} evidence", _is_unknown),
    _form("fence", Kind.FENCE, f"{_STEP} evidence"),
    _form("acknowledgement", Kind.ACKNOWLEDGE, _STEP),
    _form("cut", Kind.CUT, f"{_STEP} partition last_offset evidence"),
    _form("doubted layout", Kind.COMMIT, _DOUBT, _is_unknown),
    _form("change", Kind.COMMIT, f"{_STEP} evidence", lambda each: each.fence is not None),
    _form("layout", Kind.COMMIT, f"topic {_LAYOUT} evidence"),
    _form("doubted cancel", Kind.CANCEL, f"{_DOUBT} evidence", _is_unknown),
    _form("cancel", Kind.CANCEL, f"{_STEP} evidence"),
    _form("adoption", Kind.ADOPT, f"topic {_LAYOUT} evidence"),
    _form("end of a topic", Kind.FORGET, "topic layouts_offset"),
    _form("lease", Kind.LEASE, "reason generation_id layouts_offset"),
    _form("join", Kind.JOIN, "generation_id member_id layouts_offset evidence"),
    _form(
        "fallen position",
        Kind.REWIND,
        f"client_id principal group_id member_id generation_id topic stream partition {_OFFSETS} reason",
        lambda each: each.reason == "position",
    ),
    _form("rewind", Kind.REWIND, f"{_CLIENT} topic stream partition move {_OFFSETS} reason evidence"),
    _form("position", Kind.POSITION, f"{_CLIENT} api_key group_id member_id generation_id topic evidence"),
    _form(
        "group's commit",
        Kind.OFFSET_COMMIT,
        f"{_CLIENT} api_key group_id member_id generation_id topic {_LAYOUT} batches evidence",
    ),
    _form(
        "individual commit",
        Kind.INDIVIDUAL_COMMIT,
        f"{_CLIENT} api_key group_id member_id generation_id partition last_offset evidence",
    ),
    _form("shared records", Kind.SHARE_GIVE, f"{_CLIENT} api_key group_id member_id topic stream records evidence"),
    _form(
        "shared acknowledgements",
        Kind.SHARE_ACKNOWLEDGE,
        f"{_CLIENT} api_key group_id member_id topic stream records evidence",
    ),
    _form("owners", Kind.ASSIGN, f"{_CLIENT} api_key group_id member_id generation_id topic evidence"),
    _form("restart point", Kind.POINT, f"{_CLIENT} api_key group_id member_id generation_id topic partition evidence"),
    _form("told commits", Kind.OFFSET_FETCH, f"{_CLIENT} api_key group_id topic {_LAYOUT} evidence"),
    _form("limit", Kind.LIMIT, f"{_CLIENT} rule evidence"),
    _form("end of a connection", Kind.CLOSE, f"{_CLIENT} reason"),
    _form("gap", Kind.GAP, "first_number last_number batches reason"),
)
"""The first that fits is a decision's."""


def form_of(decision: Decision) -> Form:
    """Returns of which form a decision is; each kind has one that fits."""
    return next(form for form in FORMS if form.kind is decision.kind and form.fits(decision))


def lacking(decision: Decision) -> set[str]:
    """Returns the columns that a decision leaves empty and should not."""
    return {name for name in form_of(decision).columns if getattr(decision, name) in (None, {})}


_CLIENTS_OWN: Final = frozenset({"client_id", "principal", "group_id", "generation_id", "member_id"})
"""What clients need not say."""


def incomplete(decisions: Iterable[Decision]) -> list[tuple[str, set[str]]]:
    """Returns which forms of a real log's decisions lack what, beside what only clients know."""
    told = [(form_of(each).name, lacking(each) - _CLIENTS_OWN) for each in decisions]
    return [(name, missing) for name, missing in told if missing]
