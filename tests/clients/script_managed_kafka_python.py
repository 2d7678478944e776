"""Writes to and reads a topic with kafka-python until it is told to end; see test_clients_on_managed_topics.py."""

import sys
import threading
import time

from kafka import KafkaConsumer, KafkaProducer

told: list[str] = []


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def listen() -> None:
    told.append(sys.stdin.read())


def produce(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5)
    sent = 0
    while not told:
        sends = [
            producer.send(topic, str(number).encode(), key=f"kafka_python-{number % 20}".encode())
            for number in range(sent, sent + 5)
        ]
        for each in sends:
            each.get(60)
        sent += 5
        if sent == 5:
            say("begun")
            sys.stdout.flush()
        time.sleep(0.02)
    producer.close()
    say(sent)


def consume(bootstrap: str, topic: str) -> None:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=f"{topic}-kafka_python", auto_offset_reset="earliest"
    )
    read, quiet = 0, time.monotonic()
    while not told or read < int(told[0]) or time.monotonic() - quiet < 1.5:
        for records in consumer.poll(500).values():
            for record in records:
                say(record.key.decode(), record.value.decode())
                read, quiet = read + 1, time.monotonic()
        sys.stdout.flush()
    consumer.close()


threading.Thread(target=listen, daemon=True).start()
(produce if sys.argv[3] == "produce" else consume)(sys.argv[1], sys.argv[2])
