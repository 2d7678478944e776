"""Which rate holds for a client, and how long it waits: as Kafka's ClientQuotaManager has it (CLIENT-QUOTA)."""

import pytest

from kordon.proxy.ordering.client_quotas import DEFAULT, MOST_WAIT_MS, Part, Quota, Quotas, Rate, Rates

MOST_SPECIFIC_FIRST: list[tuple[tuple[Part, Part], tuple[str, str]]] = [
    (("alice", "app"), ("alice", "app")),
    (("alice", DEFAULT), ("alice", "app")),
    (("alice", None), ("alice", "")),
    ((DEFAULT, "app"), ("alice", "app")),
    ((DEFAULT, DEFAULT), ("alice", "app")),
    ((DEFAULT, None), ("alice", "")),
    ((None, "app"), ("", "app")),
    ((None, DEFAULT), ("", "app")),
]
"""What quotas are set for, and who is counted together by it, for alice's client app."""


@pytest.mark.parametrize("first", range(len(MOST_SPECIFIC_FIRST)))
def test_the_most_specific_quota_holds(first: int) -> None:
    """With any of the less specific ones beside it."""
    quotas = Quotas({entity: float(rank) for rank, (entity, _) in enumerate(MOST_SPECIFIC_FIRST) if rank >= first})
    assert quotas.of("alice", "app") == Quota(MOST_SPECIFIC_FIRST[first][1], first)


def test_quotas_of_others_do_not_hold() -> None:
    """Neither another user's nor another client id's; nor is a client without an id one that has a name."""
    quotas = Quotas({("bob", None): 1.0, ("alice", "other"): 2.0, (None, "other"): 3.0})
    assert quotas.of("alice", "app") is None
    assert quotas.of("alice", "") is None
    assert quotas.names_users
    assert not Quotas({(None, "app"): 1.0}).names_users


def test_a_burst_of_ten_seconds_is_free_and_what_exceeds_it_is_waited_for() -> None:
    """(O - T) / T * W, with the window that Kafka's Rate computes: 10 s and the time since its oldest sample."""
    rate = Rate()
    assert rate.take(1_000, 0, 100.0) == 0
    assert rate.take(500, 0, 100.0) == 5_000
    assert rate.take(0, 500, 100.0) == 4_500  # O = 1500 / 10.5 s, W = 10.5 s
    assert rate.take(0, 3_000, 100.0) == 5_000  # three whole windows of the ten are there, so W is 10 s
    assert rate.take(0, 10_999, 100.0) == 4_001  # W = 10.999 s


def test_what_is_older_than_eleven_seconds_counts_no_more() -> None:
    """By the last byte of a sample, as SampledStat.purgeObsoleteSamples has it."""
    rate = Rate()
    rate.take(1_500, 0, 100.0)
    rate.take(1, 999, 100.0)
    assert rate.take(0, 11_998, 100.0) > 0
    assert rate.take(0, 11_999, 100.0) == 0


def test_who_waits_as_told_takes_what_the_quota_allows() -> None:
    """A client in virtual time that always sends, for a quarter of an hour."""
    rate, now_ms, taken = Rate(), 0.0, 0
    while now_ms < 900_000:
        taken += 700
        now_ms += 5 + rate.take(700, now_ms, 1_000.0)
    assert taken == pytest.approx(900_000, rel=0.03)


def test_a_wait_fits_into_its_field() -> None:
    """Kafka tells it as an int32."""
    assert Rate().take(2**60, 0, 0.001) == MOST_WAIT_MS
    assert Rate().take(1, 0, 0.0) == MOST_WAIT_MS


def test_rates_are_bounded() -> None:
    """Clients that make up client ids push out who was silent for longest, and nobody else."""
    rates = Rates(most=2)
    assert rates.take(("a",), 2_000, 0, 100.0) == 10_000
    rates.take(("b",), 1, 0, 100.0)
    assert rates.take(("a",), 0, 0, 100.0) == 10_000
    rates.take(("c",), 1, 0, 100.0)
    assert len(rates) == 2
    assert rates.take(("a",), 0, 0, 100.0) == 10_000
