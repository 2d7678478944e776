"""What the lending of epochs rests on, each with what stands in its place when it is taken out.

Some is the product's (`ordering/lent_epochs.py`), and some is what a proxy has to do around it (`proxies.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final
from unittest.mock import patch

from kordon.proxy.ordering import lent_epochs
from kordon.proxy.ordering.lent_epochs import EpochClaim, Lent, ProducerIdentity
from kordon.testing.lent_epochs import proxies
from kordon.testing.lent_epochs.proxies import Answer, Proxy, Serving


@dataclass(frozen=True)
class Rule:
    """A rule, and where it is kept."""

    what: str
    owner: Any
    name: str
    instead: Any
    round_kordon: bool = False
    """Whether it is for instances that come round Kordon."""

    def taken_out(self) -> AbstractContextManager[object]:
        """Has all go without the rule in a block."""
        return patch.object(self.owner, self.name, self.instead)


def _forget_last(lent: Lent, token: str, answer: ProducerIdentity) -> tuple[Lent, Answer] | None:
    found = _SETTLED(lent, token, answer)
    return found and (replace(found[0], last=None), found[1])


def _settle_any(lent: Lent, _: str, answer: ProducerIdentity) -> tuple[Lent, Answer] | None:
    return _SETTLED(lent, lent.claim.token, answer) if lent.claim is not None else None


def _decide_for_all(lent: Lent | None, asked: EpochClaim, *, may_take_over: bool) -> lent_epochs.Decision:
    found = _DECIDE(lent, asked, may_take_over=may_take_over)
    is_fenced = found is lent_epochs.Refusal.FENCED
    return replace(lent, number=lent.number + 1, claim=asked) if is_fenced and lent is not None else found


def _all_count(_: Lent | None, __: Lent) -> bool:
    return True


def _at_once(_: Proxy) -> bool:
    return True


def _none_taken(_: ProducerIdentity, __: ProducerIdentity) -> int:
    return 0


def _only_next(lent: Lent | None, record: Lent) -> bool:
    return lent is None or record.number == lent.number + 1


def _claimed_alone(lent: Lent, asked: EpochClaim) -> Lent:
    return replace(lent, number=lent.number + 1, claim=asked)


def _called_again(lent: Lent, token: str) -> Lent | None:
    claim = lent.claim
    return replace(lent, number=lent.number + 1) if claim is not None and claim.token == token else None


def _read_nothing(_: Proxy) -> Generator[float, None, None]:
    yield 0.0


def _write_blindly(proxy: Proxy, record: Lent) -> Generator[float, None, bool]:
    yield from _WRITE(proxy, record)
    return True


def _serve_unwritten(proxy: Proxy, given: ProducerIdentity | None, on_token: Callable[[str], None]) -> Serving:
    if given is not None:
        return (yield from _SERVE(proxy, given, on_token))
    while True:
        came = proxy.world.call(0.01)
        while not came:
            yield 0.02
        if (answer := came[0]) is not None:
            return answer


_SETTLED: Final = lent_epochs.settled
_DECIDE: Final = lent_epochs.decide
_WRITE: Final = Proxy._write  # pyright: ignore[reportPrivateUsage] - what is replaced
_SERVE: Final = Proxy.serve

RULES: Final = (
    Rule("of two records with the same number the first counts", lent_epochs, "counts", _all_count),
    Rule("a compacted log may begin with a record that came too late", lent_epochs, "counts", _only_next),
    Rule("the broker is called when the claim counts", Proxy, "_write", _write_blindly),
    Rule("who decides has read the log to its end", Proxy, "_read_to_end", _read_nothing),
    Rule("a claim is left alone for a while", Proxy, "_may_take_over", _at_once),
    Rule("a call that is late is not made", proxies, "CALL_SECONDS", inf),
    Rule("new instances claim, too", Proxy, "serve", _serve_unwritten),
    Rule("who is neither current nor last gets nothing", lent_epochs, "decide", _decide_for_all),
    Rule("what was given for the current epoch is kept", lent_epochs, "settled", _forget_last),
    Rule("who was taken over from settles nothing", lent_epochs, "settled", _settle_any),
    Rule("what others may have taken explains an epoch", lent_epochs, "_claimed", _claimed_alone),
    Rule("the end of a transaction explains an epoch", lent_epochs, "called_again", _called_again),
    Rule("an epoch that nothing explains fences", lent_epochs, "_epochs_taken", _none_taken, round_kordon=True),
)
"""All rules; without each of them some promise breaks."""
