"""The transactions that a fence waits for: those from before the announcement, until their coordinator ends them."""

from kordon.proxy.ordering.transactions.older_transactions import OlderTransactions, OpenAt

P, Q = 1000, 0
ENDS = {Q: 50}
WHERE = (Q, P)


def test_a_fence_waits_for_what_began_before_all_knew() -> None:
    """What began later has a witness in both homes."""
    older = OlderTransactions(ENDS)
    assert older.left([OpenAt(Q, P, 49), OpenAt(Q, P + 1, 50)], {WHERE, (Q, P + 1)}) == {WHERE}
    assert older.left([OpenAt(Q, P + 1, 50)], {(Q, P + 1)}) == frozenset()


def test_a_fence_does_not_wait_for_the_next_transaction_of_a_producer() -> None:
    """A busy producer has always one open."""
    older = OlderTransactions(ENDS)
    assert older.left([OpenAt(Q, P, 49)], {WHERE}) == {WHERE}
    assert older.left([OpenAt(Q, P, 60)], {WHERE}) == frozenset()


def test_an_operator_who_aborts_in_one_partition_ends_nothing() -> None:
    """The coordinator does not know of it, and the client goes on: its next record would go to the new home."""
    older = OlderTransactions(ENDS)
    assert older.left([OpenAt(Q, P, 49)], {WHERE}) == {WHERE}
    assert older.left([], {WHERE}) == {WHERE}
    assert older.left([], set()) == frozenset()


def test_what_hangs_holds_up_nothing() -> None:
    """An unclean election took the marker; no coordinator will write another one."""
    assert OlderTransactions(ENDS).left([OpenAt(Q, P, 49)], {(Q + 1, P)}) == frozenset()


def test_a_fence_that_moves_nothing_waits_for_nobody() -> None:
    """It mends a log that got shorter, and writers wait for it."""
    assert OlderTransactions({}).left([OpenAt(Q, P, 0)], {WHERE}) == frozenset()
