"""What the walk over a topic's logs says of batches that are nobody's records."""

from uuid import UUID

from kordon.codecs.split import split
from kordon.proxy.controller.log_walk import Stretch
from kordon.proxy.kafka.batches import BatchIdentity
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.janitor import FormerHomes
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import Hidden
from kordon.proxy.ordering.transactions.events import Protocol


def test_a_witness_is_no_record_that_somebody_wrote_round_kordon() -> None:
    """Nothing is to be done about it, as about a marker; its key is no user's."""
    raw = build_witness(BatchIdentity(7, 0, 0), Protocol.V2)
    (batch,) = split(raw)
    stretch = Stretch(0, memoryview(raw), [batch], 2, 2)
    assert stretch.seen(FormerHomes(Layout.created("orders", UUID(int=1), 1, 2)), batch) is Hidden.CONTROL
