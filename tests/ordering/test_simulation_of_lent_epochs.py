"""Two proxies lend epochs on an old broker, and sleep and die at every step: what producers are promised holds."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from kordon.proxy.ordering import lent_epochs
from kordon.proxy.ordering.lent_epochs import Lent, Refusal
from kordon.testing.lent_epochs.producers import Promises, Request
from kordon.testing.lent_epochs.proxies import Answer, Proxy
from kordon.testing.lent_epochs.rules import RULES, Rule
from kordon.testing.lent_epochs.run import World, play

SEEDS = range(20)
SEEDS_WITHOUT_A_RULE = (28, 56, *range(120))
"""Those two notice what few others do."""
SEEDS_OF_DEEP = range(20, 4000)


@pytest.mark.parametrize("round_kordon", [False, True], ids=["proxies die", "one comes round Kordon"])
def test_producers_get_what_they_are_promised(*, round_kordon: bool) -> None:
    """No zombie goes on, nobody is fenced alone, and who asks again is told the same."""
    broken = {seed: found for seed in SEEDS if (found := play(seed, round_kordon=round_kordon))}
    assert broken == {}


@pytest.mark.parametrize("round_kordon", [False, True], ids=["proxies die", "one comes round Kordon"])
def test_a_broker_that_refuses_calls_breaks_no_promise(*, round_kordon: bool) -> None:
    """What it has refused took no epoch, unless it had to end a transaction before."""
    broken = {seed: found for seed in SEEDS if (found := play(seed, round_kordon=round_kordon, refuses=True))}
    assert broken == {}


def test_a_claim_for_which_a_transaction_was_ended_is_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a producer that is fenced already is told that it has the current epoch."""

    def given_back(lent: Lent, token: str) -> Lent | None:
        claim = lent.claim
        return replace(lent, number=lent.number + 1, claim=None) if claim is not None and claim.token == token else None

    monkeypatch.setattr(lent_epochs, "released", given_back)
    assert any(play(seed, refuses=True) for seed in reversed(SEEDS_WITHOUT_A_RULE))


@pytest.mark.deep
@pytest.mark.parametrize("round_kordon", [False, True], ids=["proxies die", "one comes round Kordon"])
def test_producers_get_what_they_are_promised_on_many_days(*, round_kordon: bool) -> None:
    """The same with other seeds."""
    broken = {seed: found for seed in SEEDS_OF_DEEP if (found := play(seed, round_kordon=round_kordon))}
    assert broken == {}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.what.replace(" ", "-"))
def test_without_a_rule_some_promise_breaks(rule: Rule) -> None:
    """Each one is needed."""
    with rule.taken_out():
        assert any(play(seed, round_kordon=rule.round_kordon) for seed in SEEDS_WITHOUT_A_RULE)


def test_somebody_mends_what_a_late_record_would_spoil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer dies before it can, nobody asks for anything, and compaction leaves the late record alone."""
    seed = 1388
    assert play(seed) == []
    monkeypatch.setattr(Proxy, "follow", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    assert play(seed) == ["fenced-alone: instance 1 is fenced, and nobody else has come"]


def test_a_seed_plays_the_same_again() -> None:
    """Whatever else has been played."""
    logs = []
    for _ in range(2):
        world = World(3)
        world.play()
        logs.append([(written, record.number, record.current) for written, record in world.log.records])
    assert logs[0] == logs[1]


def test_seeds_have_all_that_is_to_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals, next epochs, claims that are taken over, late records, ids that run out, and compacted logs."""
    seen: Counter[str] = Counter()
    kept = Promises.on_answer

    def noted(promises: Promises, request: Request, answer: Answer) -> None:
        seen["fenced"] += answer is Refusal.FENCED
        seen["busy"] += answer is Refusal.BUSY
        seen["next epoch"] += not isinstance(answer, Refusal) and request.given is not None
        seen["given up"] += request.is_given_up
        kept(promises, request, answer)

    monkeypatch.setattr(Promises, "on_answer", noted)
    for seed in SEEDS:
        world = World(seed)
        world.play()
        numbers = [record.number for _, record in world.log.records]
        seen["late"] += sum(later <= earlier for earlier, later in pairwise(numbers))
        seen["doubtful"] += any(record.doubtful for _, record in world.log.records)
        seen["ids"] += world.coordinator.ids > 1
        seen["compacted"] += world.log.compacted(world.now) > 0
    assert min(seen.values()) > 0, seen
