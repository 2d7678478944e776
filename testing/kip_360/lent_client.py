"""A client whose InitProducerId is answered by `ordering/lent_epochs.py`, from what old brokers can do (version 1)."""

from __future__ import annotations

from typing import Final

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering import lent_epochs
from kordon.proxy.ordering.lent_epochs import EpochClaim, Lent, Refusal
from kordon.testing.kip_360.client import NOBODY, Client, Identity, Stage
from kordon.testing.kip_360.coordinator_plays import OLD, WITH_FENCED
from kordon.testing.waiting import wait_until

_BUSY: Final = Code.CONCURRENT_TRANSACTIONS.name


class LentClient(Client):
    """Stands for one proxy, which alone writes to the log of its transactional id."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name)
        self._lent: Lent | None = None
        self._asked = 0

    def newest_init(self) -> int:
        """The version that such a proxy would offer."""
        return WITH_FENCED

    def init(self, given: Identity = NOBODY, version: int = OLD) -> str:
        """Decides as a proxy does, and calls the broker where that is claimed."""
        self._asked += 1
        own = None if given == NOBODY else lent_epochs.ProducerIdentity(*given)
        decision = lent_epochs.decide(self._lent, EpochClaim(str(self._asked), own), may_take_over=True)
        told = self._call(decision) if isinstance(decision, Lent) else decision
        if isinstance(told, Refusal):
            return (Code.INVALID_PRODUCER_EPOCH if version < WITH_FENCED else Code.PRODUCER_FENCED).name
        self.last = Identity(*told)
        return self.word(self.last)

    def init_without_transactions(self, given: Identity = NOBODY, version: int = OLD) -> str:
        """Passes: such producers take their next epochs by themselves."""
        return super().init_without_transactions(given, OLD)

    def _call(self, claimed: Lent) -> lent_epochs.ProducerIdentity | Refusal:
        self._lent = claimed
        token = str(self._asked)

        def answered() -> bool:
            if super(LentClient, self).init(version=OLD) != _BUSY:
                return True
            assert self._lent is not None
            self._lent = lent_epochs.called_again(self._lent, token)
            return False

        wait_until("the transaction before has ended", answered)
        settled = lent_epochs.settled(self._lent, token, lent_epochs.ProducerIdentity(*self.last))
        assert settled is not None
        self._lent, told = settled
        return told
