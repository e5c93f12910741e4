"""librdkafka's mock of a Kafka cluster, in a process of its own: a mock, no broker. It speaks Kafka's wire protocol.

No broker of Kafka can be installed from PyPI or Debian. The mock comes with confluent-kafka; it keeps the last 5 MB of
each partition, in memory. Through librdkafka's C interface, topics are created, refused, and brokers stopped.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka

BROKERS = 3
AUTHORIZATION_FAILED = 29  # of a topic, in Kafka's protocol
WAIT = 30.0  # seconds until a message must be delivered


class MockKafka:
    """A mock cluster of three brokers."""

    def start(self) -> "MockKafka":
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        self.servers = self._answer()
        self.url = f"kafka://{self.servers.split(',')[0]}"
        self._producer: Any = None
        self.topics: set[str] = set()
        return self

    def do(self, *words: object) -> None:
        """Let the mock do something: see `main`."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        assert self._answer() == "0", f"the mock cannot {words}"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def create(self, topic: str, partitions: int = 4) -> None:
        self.do("create", topic, partitions)
        self.topics.add(topic)

    def stop_brokers(self) -> None:
        """Close all connections and refuse new ones; what was published is kept."""
        for number in range(1, BROKERS + 1):
            self.do("down", number)

    def start_brokers(self) -> None:
        for number in range(1, BROKERS + 1):
            self.do("up", number)

    def freeze(self, frozen: bool = True) -> None:
        """Stop answering without closing connections, as if the network was cut."""
        os.kill(self.process.pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def publish(self, topic: str, messages: list[tuple[str | bytes | None, bytes | None]], partition: int = -1) -> None:
        """Publish messages with their keys, by which they are divided; returns once the mock has all of them."""
        failed = []
        if self._producer is None:
            settings = {"bootstrap.servers": self.servers, "log_level": 0, "partitioner": "murmur2_random"}
            self._producer = confluent_kafka.Producer({**settings, "linger.ms": 5, "enable.idempotence": True})
        for key, body in messages:
            while True:
                try:
                    self._producer.produce(
                        topic, body, key, partition, on_delivery=lambda error, _: error and failed.append(error)
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(WAIT) == 0
        assert not failed, failed[0]

    def committed(self, topic: str, partitions: int, group: str = "cometad") -> list[int]:
        """The offsets that a group committed."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            parts = [confluent_kafka.TopicPartition(topic, part) for part in range(partitions)]
            return [one.offset for one in consumer.committed(parts, timeout=WAIT)]
        finally:
            consumer.close()

    def kill(self) -> None:
        self._producer = None
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextmanager
def running_mock() -> Iterator[MockKafka]:
    """A mock cluster."""
    mock = MockKafka().start()
    try:
        yield mock
    finally:
        mock.kill()


def _library() -> ctypes.CDLL:
    (file,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*")
    library = ctypes.CDLL(str(file))
    library.rd_kafka_new.restype = library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


def main() -> None:
    """Be the mock: a line of standard input is a command, and is answered with a line."""
    library = _library()
    client = ctypes.c_void_p(library.rd_kafka_new(0, None, ctypes.create_string_buffer(512), 512))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, BROKERS))
    commands = {
        "create": lambda topic, count: library.rd_kafka_mock_topic_create(cluster, topic.encode(), int(count), 1),
        "refuse": lambda topic: library.rd_kafka_mock_topic_set_error(cluster, topic.encode(), AUTHORIZATION_FAILED),
        "down": lambda number: library.rd_kafka_mock_broker_set_down(cluster, int(number)),
        "up": lambda number: library.rd_kafka_mock_broker_set_up(cluster, int(number)),
    }
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        print(commands[word](*rest) or 0, flush=True)


if __name__ == "__main__":
    main()
