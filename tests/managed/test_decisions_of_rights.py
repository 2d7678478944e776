"""Who wrote and who was refused is on record by the name under which he logged in, with a real authorizer."""

# pyright: reportPrivateImportUsage=false
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from kordon.codecs.decision import Kind
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.decision_log import read_files
from kordon.testing.rights import Allowed, Secured

pytestmark = [
    pytest.mark.beside,
    pytest.mark.timeout(240),
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]

TOPIC = "rights-on-record"


def write(settings: dict[str, object]) -> KafkaError | None:
    """Writes one record; returns the error."""
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "enable.idempotence": False})
    producer.produce(TOPIC, b"value", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    producer.close()
    return errors[0]


def test_users_are_on_record_by_their_names(tmp_path: Path) -> None:
    """Alice may write, and is admitted; bob may look only, and is refused; whether by PLAIN or by SCRAM."""
    decisions = {"to": "files", "folder": str(tmp_path), "run_ms": 100}
    with Secured.start(decisions=decisions) as secured:
        for user, operations in {"alice": (AclOperation.ALL,), "bob": (AclOperation.DESCRIBE,)}.items():
            secured.allow(*(Allowed(user, each, TOPIC) for each in operations))
        secured.allow(Allowed("kordon", AclOperation.ALL, TOPIC))
        topic = NewTopic(TOPIC, 1, 1, config={"kordon.virtual.partitions": "4"})
        admin = AdminClient(dict(secured.settings("alice")))
        admin.create_topics([topic])[TOPIC].result(60)
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            assert write({**secured.settings("alice"), "sasl.mechanism": mechanism}) is None
            refused = write({**secured.settings("bob"), "sasl.mechanism": mechanism})
            assert refused is not None
            assert refused.name() == "TOPIC_AUTHORIZATION_FAILED"
        assert secured.kordon.stop() == 0
    told = [entry.decision for entry in read_files(tmp_path) if entry.decision.topic == TOPIC]
    admits = {(each.principal, each.client_id) for each in told if each.kind is Kind.ADMIT}
    refusals = {
        (each.principal, each.rule, each.reason) for each in told if each.kind is Kind.REFUSE and not each.api_key
    }
    assert admits == {("User:alice", "rdkafka")}
    assert refusals == {("User:bob", "RIGHTS-FIRST", "TOPIC_AUTHORIZATION_FAILED")}
