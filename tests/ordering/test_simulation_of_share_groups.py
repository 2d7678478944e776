"""Three workers give a share group's records to members, and sleep and die at every step: its promises hold."""

from collections import Counter

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.claims import Start
from kordon.proxy.ordering.share.locks import Lock, LockOutcome
from kordon.testing.share.rules import RULES, Rule
from kordon.testing.share.run import World, play
from kordon.testing.share.workers import Answer, Fetch, Request, Serving, Worker

SEEDS = range(12)
KEPT = (138, 1583)
"""Each has broken a promise once."""
SEEDS_OF_DEEP = range(10_000)
AT_ONCE = 1_000


@pytest.mark.parametrize("harsh", [False, True], ids=["usual", "harsh"])
def test_a_group_gets_what_it_is_promised(*, harsh: bool) -> None:
    """Each key in order, one record in one hand; nothing is skipped, and what is acknowledged is not given again."""
    assert {seed: found for seed in (*SEEDS, *KEPT) if (found := play(seed, harsh=harsh))} == {}


@pytest.mark.deep
@pytest.mark.parametrize("begin", SEEDS_OF_DEEP[::AT_ONCE])
@pytest.mark.parametrize("harsh", [False, True], ids=["usual", "harsh"])
def test_a_group_gets_what_it_is_promised_on_many_days(begin: int, *, harsh: bool) -> None:
    """The same with other seeds, also with those by which rules are shown."""
    assert {seed: found for seed in range(begin, begin + AT_ONCE) if (found := play(seed, harsh=harsh))} == {}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.what.replace(" ", "-"))
def test_without_a_rule_its_promise_breaks(rule: Rule) -> None:
    """Each one is needed: two or three seeds show that."""
    with rule.taken_out():
        found = {seed: play(seed, harsh=rule.harsh) for seed in rule.seeds}
    assert len(found) >= 2
    assert all(any(each.startswith(rule.breaks) for each in broken) for broken in found.values()), found


def test_seeds_have_all_that_is_to_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that lose, are renewed and expire, late answers, archived records, resets, resizes, lost logs."""
    seen: Counter[str] = Counter()
    kept = Worker.serve

    def noted(worker: Worker, request: Request) -> Serving:
        began = worker.world.now
        answer: Answer = yield from kept(worker, request)
        seen["acknowledged"] += isinstance(request, Fetch) and len(request.batches) > 0 and answer.code is Code.NONE
        seen["too late"] += answer.code is Code.INVALID_RECORD_STATE
        seen["given"] += len(answer.given) > 0
        seen["stalled"] += worker.world.now - began > 5
        seen["cut"] += worker.frozen[0] > began
        return answer

    monkeypatch.setattr(Worker, "serve", noted)
    for seed in SEEDS:
        world = World(seed, harsh=seed % 2 == 0)
        world.play()
        said = [entry[1][1] for entry in world.log.entries if entry is not None]
        seen["tried again"] += any(isinstance(each, Lock) and each.tries > 1 for each in said)
        seen["renewed"] += any(isinstance(each, Lock) and each.turn > each.tries for each in said)
        seen["passed over"] += any(isinstance(each, LockOutcome) and not each.turn for each in said)
        seen["reset"] += sum(isinstance(each, Start) and each.ends != each.name for each in said) > 1
        seen["compacted"] += None in world.log.entries
        seen["taken out"] += None in said
        seen["a key is blocked"] += not world.terms.archives
        seen["made anew"] += world.data.life > 1
        seen["lost"] += world.log.topics > 1
        seen["its end lost"] += world.log.cuts > world.log.topics - 1
    assert min(seen.values()) > 0, seen
    assert len(seen) == 15, seen
