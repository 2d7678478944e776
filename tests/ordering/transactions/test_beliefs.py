"""What a worker knows of open transactions: a wrong belief would cost committed records without an error."""

from kordon.proxy.ordering.transactions.beliefs import RIGHT_SECONDS, Beliefs, Ground, ProducerClaim, Step, after_leader
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.ordering.transactions.open_answers import LeaderSays

P, Q = 1000, 3
CLAIM = ProducerClaim("alice", "orders-1", P, 5)
GROUND = Ground(layout_epoch=7, leader_epoch=2)
NOW = 100.0


def believing(claim: ProducerClaim = CLAIM, partition: int = Q, ground: Ground = GROUND) -> Beliefs:
    """A worker that has seen a witness acknowledged, and asked for the client's right."""
    beliefs = Beliefs()
    beliefs.allow(claim, NOW)
    beliefs.confirm(beliefs.inquire(claim, partition, ground))
    return beliefs


def step(
    beliefs: Beliefs, claim: ProducerClaim = CLAIM, partition: int = Q, ground: Ground = GROUND, now: float = NOW
) -> Step:
    return beliefs.step(claim, Protocol.V1, partition, ground, now)


def test_who_does_not_know_asks() -> None:
    """On v1 the leader, on v2 by a witness of its own."""
    beliefs = Beliefs()
    assert step(beliefs) is Step.ASK_RIGHT
    beliefs.allow(CLAIM, NOW)
    assert step(beliefs) is Step.ASK_LEADER
    assert beliefs.step(CLAIM, Protocol.V2, Q, GROUND, NOW) is Step.WITNESS


def test_who_knows_writes() -> None:
    """One question is enough for all that follows."""
    beliefs = believing()
    assert step(beliefs) is Step.WRITE
    assert beliefs.step(CLAIM, Protocol.V2, Q, GROUND, NOW) is Step.WRITE


def test_an_answer_of_the_leader_decides() -> None:
    """Of v1; who cannot tell lets the client ask again."""
    assert [after_leader(each) for each in (LeaderSays.OPEN, LeaderSays.NOT_OPEN, LeaderSays.UNSURE)] == [
        Step.WRITE,
        Step.REFUSE,
        Step.LATER,
    ]


def test_a_belief_ends_with_the_leader() -> None:
    """An unclean election took the witness; the data behind it would be acknowledged, committed and hidden."""
    assert step(believing(), ground=GROUND._replace(leader_epoch=3)) is Step.ASK_LEADER


def test_a_belief_ends_with_the_layout() -> None:
    """A change came between, and may not have waited for this transaction."""
    assert step(believing(), ground=GROUND._replace(layout_epoch=8)) is Step.ASK_LEADER


def test_a_belief_is_of_one_partition_and_one_epoch() -> None:
    """A witness elsewhere, or of an earlier transaction of v2, says nothing."""
    assert step(believing(), partition=Q + 1) is Step.ASK_LEADER
    assert step(believing(), claim=CLAIM._replace(epoch=6)) is Step.ASK_LEADER


def test_another_principal_cannot_use_a_transaction() -> None:
    """Producer id and epoch are no secret. A record of hers would be committed with the others."""
    beliefs = believing()
    mallory = CLAIM._replace(principal="mallory")
    assert step(beliefs, mallory) is Step.ASK_RIGHT
    beliefs.allow(mallory._replace(transactional_id="her-own"), NOW)
    assert step(beliefs, mallory) is Step.ASK_RIGHT
    assert step(beliefs, mallory._replace(transactional_id="her-own")) is Step.ASK_LEADER


def test_a_right_is_asked_for_again() -> None:
    """It may be taken away while a transaction is open."""
    beliefs = believing()
    assert step(beliefs, now=NOW + RIGHT_SECONDS) is Step.WRITE
    assert step(beliefs, now=NOW + RIGHT_SECONDS + 0.01) is Step.ASK_RIGHT


def test_a_belief_ends_with_its_transaction() -> None:
    """EndTxn passed here. On v1 the next one has the same epoch, and may not be open there."""
    beliefs = believing()
    neighbour = CLAIM._replace(producer_id=P + 1)
    beliefs.allow(neighbour, NOW)
    beliefs.confirm(beliefs.inquire(neighbour, Q, GROUND))
    beliefs.drop(P)
    assert step(beliefs) is Step.ASK_LEADER
    assert step(beliefs, neighbour) is Step.WRITE


def test_a_right_outlives_a_transaction() -> None:
    """It is one to the transactional id: many short transactions ask for it once a second."""
    beliefs = believing()
    beliefs.drop(P)
    assert beliefs.has_right(CLAIM, NOW + RIGHT_SECONDS)
    assert not beliefs.has_right(CLAIM, NOW + RIGHT_SECONDS + 0.01)
    assert not beliefs.has_right(CLAIM._replace(principal="mallory"), NOW)


def test_rights_do_not_pile_up() -> None:
    """The oldest is asked for again."""
    beliefs = Beliefs(most=2)
    claims = [CLAIM._replace(transactional_id=f"orders-{n}") for n in range(3)]
    for claim in claims:
        beliefs.allow(claim, NOW)
    assert [beliefs.has_right(each, NOW) for each in claims] == [False, True, True]


def test_an_answer_from_before_the_end_proves_nothing() -> None:
    """The leader told the producer open; EndTxn passed before that answer came."""
    beliefs = Beliefs()
    inquiry = beliefs.inquire(CLAIM, Q, GROUND)
    beliefs.drop(P)
    beliefs.confirm(inquiry)
    beliefs.allow(CLAIM, NOW)
    assert step(beliefs) is Step.ASK_LEADER
    beliefs.confirm(beliefs.inquire(CLAIM, Q, GROUND))
    assert step(beliefs) is Step.WRITE


def test_an_inquiry_without_an_answer_proves_nothing() -> None:
    """And leaves nothing behind."""
    beliefs = Beliefs()
    beliefs.allow(CLAIM, NOW)
    inquiry = beliefs.inquire(CLAIM, Q, GROUND)
    assert step(beliefs) is Step.ASK_LEADER
    beliefs.close(inquiry)
    beliefs.close(inquiry)
    assert step(beliefs) is Step.ASK_LEADER


def test_beliefs_of_many_epochs_do_not_pile_up() -> None:
    """EndTxn of these transactions passed through another worker."""
    beliefs = Beliefs()
    claims = [CLAIM._replace(epoch=epoch) for epoch in range(1001)]
    for claim in claims:
        beliefs.confirm(beliefs.inquire(claim, Q, GROUND))
    assert [beliefs.is_open(claims[n], Q, GROUND) for n in (0, 1, 1000)] == [False, True, True]


def test_the_oldest_belief_is_forgotten_at_the_bound() -> None:
    """To know less costs a question."""
    beliefs = Beliefs(most=2)
    claims = [CLAIM._replace(producer_id=P + n) for n in range(3)]
    for claim in claims:
        beliefs.confirm(beliefs.inquire(claim, Q, GROUND))
    assert [beliefs.is_open(each, Q, GROUND) for each in claims] == [False, True, True]
