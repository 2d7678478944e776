"""Three proxies write claims for a group, and sleep and die at every step: what the group is promised holds."""

from collections import Counter

import pytest

from kordon.proxy.ordering import claims
from kordon.proxy.ordering.claims import Start
from kordon.testing.claims.proxies import Proxy, Refusal, Request, Serving
from kordon.testing.claims.rules import RULES, Rule
from kordon.testing.claims.run import World, play

SEEDS = range(20)
KEPT = (443, 857, 2074, 4285, 8790, 41328)
"""Each has broken a promise once."""
SEEDS_OF_DEEP = range(100_000)
AT_ONCE = 5_000


@pytest.mark.parametrize("loses", [False, True], ids=["the log is safe", "the log loses records"])
def test_a_group_gets_what_it_is_promised(*, loses: bool) -> None:
    """Nothing is skipped, whatever is reset; what is acknowledged is not done again unless the log was lost."""
    assert {seed: found for seed in (*SEEDS, *KEPT) if (found := play(seed, loses=loses))} == {}


@pytest.mark.deep
@pytest.mark.parametrize("begin", SEEDS_OF_DEEP[::AT_ONCE])
def test_a_group_gets_what_it_is_promised_on_many_days(begin: int) -> None:
    """The same with other seeds; with every fourth of them the log loses records, too."""
    days = [(seed, loses) for seed in range(begin, begin + AT_ONCE) for loses in (False, True)[: 1 + (seed % 4 == 0)]]
    assert {(seed, loses): found for seed, loses in days if (found := play(seed, loses=loses))} == {}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.what.replace(" ", "-"))
def test_without_a_rule_its_promise_breaks(rule: Rule) -> None:
    """Each one is needed, and with it the same seed goes well."""
    with rule.taken_out():
        broken = play(rule.seed, loses=rule.loses)
    assert any(each.startswith(rule.breaks) for each in broken), broken
    assert play(rule.seed, loses=rule.loses) == []


def test_a_seed_plays_the_same_again() -> None:
    """Whatever else has been played."""
    logs = []
    for _ in range(2):
        world = World(3)
        world.play()
        logs.append([entry is not None and type(entry[2]) for entry in world.log.entries])
    assert logs[0] == logs[1]


def test_seeds_have_all_that_is_to_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fenced members, old incarnations, too many ranges, starts that do not count, renewals and compacted logs."""
    seen: Counter[str] = Counter()
    kept = Proxy.serve

    def noted(proxy: Proxy, request: Request) -> Serving:
        answer = yield from kept(proxy, request)
        seen[answer.name if isinstance(answer, Refusal) else "told"] += 1
        return answer

    monkeypatch.setattr(Proxy, "serve", noted)
    monkeypatch.setattr(claims, "RENEW_AFTER_CLAIMS", 3)
    for seed in SEEDS:
        world = World(seed, loses=seed % 3 == 0)
        world.play()
        said = [entry[2] for entry in world.log.entries if entry is not None]
        starts = [each for each in said if isinstance(each, Start)]
        seen["compacted"] += None in world.log.entries
        seen["taken out"] += None in said
        seen["renewed"] += any(each.ends == each.name for each in starts)
        ended = Counter(each.ends for each in starts if each.ends != each.name)
        seen["forestalled"] += max(ended.values(), default=0) > 1
        seen["shared"] += len(world.members) > 1
        seen["topic made anew"] += world.data.life > 1
        seen["lost"] += world.log.cuts > 0
    assert min(seen[each] for each in ("FENCED", "TOO_OLD", "FULL", "BUSY", "told")) > 0, seen
    assert min(seen.values()) > 0, seen
