"""Unmodified clients with transactions: what is committed is read, whole and in order, and nothing else is.

Writers are killed and begin again under their transactional id. On a topic of Kafka's own, directly at its broker, this
shows that the clients and the checker are right. On a managed topic it shows that Kordon is.
"""

import os

import pytest

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_ordinary
from kordon.testing.order.transactional import CLIENTS, Outcome, Plan, Run

pytestmark = [pytest.mark.broker, pytest.mark.beside, pytest.mark.timeout(900)]  # the first time, programs are built

SKIPPED = os.environ.get("KORDON_SKIP_CLIENTS", "").split(",")
_SLOW = ("java-3.9",)
"""What no other client shows is that Java has it, too."""


def assert_right(outcome: Outcome, writers: tuple[str, ...], least: int) -> None:
    """Nothing is wrong, no writer was told an error, and each has committed and aborted its share."""
    assert outcome.told == "", f"{outcome.told}\n{outcome.folder}"
    assert outcome.checked.troubles == {}
    for writer in writers:
        assert outcome.checked.outcomes[writer, "committed"] >= least
        assert outcome.checked.outcomes[writer, "aborted"] > 0


@pytest.mark.parametrize(
    "client", [pytest.param(each, marks=[pytest.mark.deep] if each in _SLOW else []) for each in CLIENTS]
)
def test_what_a_client_commits_is_read_and_nothing_else(open_cluster: Cluster, client: str) -> None:
    """The writer is killed once; the same client reads by both isolations, and librdkafka from anywhere."""
    if client in SKIPPED:
        pytest.skip("KORDON_SKIP_CLIENTS")
    topic = f"transactions-{client}"
    create_ordinary(open_cluster.bootstrap(), topic)
    plan = Plan(bootstraps=[open_cluster.bootstrap()], topic=topic, writers=[client], readers=[client], transactions=10)
    with Run(plan) as run:
        outcome = run.run()
    assert_right(outcome, (client,), least=5)
    accounts = outcome.checked.verdict.accounts
    uncommitted = accounts[f"{client}-read_uncommitted"].records
    assert uncommitted > accounts[f"{client}-read_committed"].records > 20


@pytest.mark.deep
def test_all_clients_at_once_read_the_same(open_cluster: Cluster) -> None:
    """Each writer is killed three times, and each reader gets what all of them have written."""
    clients = tuple(each for each in CLIENTS if each not in SKIPPED)
    create_ordinary(open_cluster.bootstrap(), "transactions-all")
    plan = Plan(
        bootstraps=[open_cluster.bootstrap()], topic="transactions-all", writers=clients, readers=clients,
        transactions=40, kills=3,
    )  # fmt: skip
    with Run(plan) as run:
        outcome = run.run()
    assert_right(outcome, clients, least=60)
