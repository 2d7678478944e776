"""EndTxn passes to the coordinator; what is believed of its producer ends with it (`ordering/transactions/beliefs.py`).

It counts as the end when it is answered: what was asked of leaders before that proves nothing. It counts already when
it comes if the coordinator has taken partitions on the same connection, since it may take the end at once. From others
it counts for nothing before the coordinator has judged it: whoever names the transactions of others must not stop them
(OWN-TRANSACTION).

A transaction that was opened by the second protocol is ended by that protocol only: by version 5 or newer, which
raises the producer's epoch. Ended by an older one its epoch would continue, and the next transaction's witness would be
taken for a repetition of the last one's. Such a request is refused with INVALID_TXN_STATE. The broker is asked all the
same, with a producer id that no transaction has, for it judges the client first (`replies.py`).

Source: EndTxnRequest.json in Kafka 4.3 (KIP-890).
"""

from __future__ import annotations

from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import EndTxnRequest as Request
from kordon.codecs.bodies import EndTxnResponse as Response
from kordon.codecs.error_codes import Code
from kordon.proxy.core.interception import Translate
from kordon.proxy.handlers.api_handler import ApiHandler, Handled, HeldRequest
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.writes.transactions import AGAINST, Transactions

log = client_log(__name__)

_V2_SINCE: Final = 5
_NOBODY: Final = -1
_ENDS: Final = AGAINST | {Code.NONE}
_BY_FORM: Final = frozenset({Code.NONE, Code.INVALID_PRODUCER_ID_MAPPING, Code.INVALID_PRODUCER_EPOCH})
"""What a broker answers that has nothing against the client: the request is spoiled."""


class EndTxn(ApiHandler):
    """Notes the ends of transactions."""

    key = apis.END_TXN

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def decide(self, held: HeldRequest) -> Handled:
        """Lets it pass, unless its transaction was opened by another protocol."""
        value: Request = held.read()
        transactions, transactional_id, producer_id = self._transactions, value.transactional_id, value.producer_id
        is_refused = held.version < _V2_SINCE and transactions.is_of_v2(
            transactional_id, producer_id, value.producer_epoch
        )
        if transactions.owned(held.client, transactional_id) == producer_id:
            transactions.ends(producer_id)

        def back(answer: Response) -> None:
            if answer.error_code in _ENDS:
                transactions.ends(producer_id)
            if is_refused and answer.error_code in _BY_FORM:
                answer["error_code"] = Code.INVALID_TXN_STATE
                log.warning("end_of_another_protocol", transactional_id=transactional_id, version=held.version)

        if is_refused:
            value.update({"producer_id": _NOBODY, "producer_epoch": _NOBODY})
        return Translate(held.build(value) if is_refused else None, back)
