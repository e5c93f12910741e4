"""Addresses: what is wrong with one is said in a sentence, before anything is read, and without its secrets."""

import pytest

from cometad.connect.address import Address
from cometad.connect.source import source_of
from cometad.errors import CometadError, ParameterError
from contract import is_a_sentence
from serve_case import NAMES


def refusal(url, **address):
    with pytest.raises(CometadError) as caught:
        source_of(Address(url, **address))
    assert is_a_sentence(str(caught.value))
    return str(caught.value)


@pytest.mark.parametrize("url", ["plant", "mqtt://u:secret@plant/pump", "gopher://plant", "mqtt://plant:99999/x"])
def test_what_is_no_address_is_refused_without_its_secrets(url):
    assert "secret" not in refusal(url)


def test_an_address_has_no_secrets_in_what_people_see(monkeypatch):
    monkeypatch.setenv("PLANT_PASSWORD", "hunter2")
    address = Address("mqtts://gateway@plant/line?client=a", password_variable="PLANT_PASSWORD")
    assert (address.username, address.password, address.shown) == ("gateway", "hunter2", "mqtts://gateway@plant/line")
    assert "hunter2" not in repr(address)
    with pytest.raises(ParameterError, match="PLANT_TOKEN"):
        _ = Address("mqtt://plant/line", password_variable="PLANT_TOKEN").password


TAGS = {name: f"plant/{name}" for name in NAMES}
QUERIES = {name: f'plant{{sensor="{name}"}}' for name in NAMES}


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ({"url": "file://server/share/"}, "three slashes"),
        ({"url": "file:"}, "names no folder"),
        ({"url": "file:///tmp/?follow=maybe"}, "The option follow is 'maybe'. Choose yes or no."),
        ({"url": "file:///tmp/?offset=3"}, "Unknown option of file 'offset'"),
        ({"url": "mqtt://host"}, "names no topic"),
        ({"url": "mqtt:///topic"}, "names no broker"),
        ({"url": "mqtt://host/a/b+/c"}, "mixes text with a wildcard"),
        ({"url": "mqtt://host/a/{stream}x"}, "mixes text with a wildcard"),
        ({"url": "mqtt://host/{stream}/{stream}"}, "twice"),
        ({"url": "mqtt://host/{stream}", "stream": "pump"}, "Remove one of them"),
        ({"url": "mqtt://host/a/#/b?version=5"}, "The wildcard # must be the last level"),
        ({"url": "mqtt://host/a?version=4"}, "Unknown version of MQTT '4'"),
        ({"url": "mqtt://host/a?topic=b"}, "Unknown option of mqtt 'topic'"),
        ({"url": "mqtt://host/a?hold=0"}, "from 1 to 1000"),
        ({"url": "mqtt://host", "tags": TAGS, "period": "1s"}, "Name it with stream"),
        ({"url": "mqtt://host", "tags": TAGS, "stream": "pump"}, "need a period"),
        ({"url": "mqtt://host/a", "tags": TAGS, "stream": "pump", "period": "1s"}, "both a topic and tags"),
        ({"url": "mqtt://host", "tags": {"flow": "a/+"}, "stream": "pump", "period": "1s"}, "is not a topic"),
        ({"url": "mqtts://host/a?ca=nowhere.pem"}, "cannot be read (No such file or directory)"),
        ({"url": "opc.tcp://"}, "names no server"),
        ({"url": "opc.tcp://plc"}, "Name it with stream"),
        ({"url": "opc.tcp://plc", "stream": "pump"}, "need a period"),
        ({"url": "opc.tcp://plc", "stream": "pump", "period": "1s"}, "either with tags"),
        ({"url": "opc.tcp://plc?node=Pump", "stream": "pump", "period": "1s"}, "is not a node"),
        ({"url": "opc.tcp://plc?node=i=85&security=Sign", "stream": "pump", "period": "1s"}, "Write a policy"),
        (
            {
                "url": "opc.tcp://plc?node=i=85&security=Basic256Sha256,Sign,no.der,no.pem",
                "stream": "a",
                "period": "1s",
            },
            "'no.der' in the option security does not exist",
        ),
        ({"url": "opc.tcp://plc?mode=fast", "stream": "pump", "period": "1s"}, "Unknown option of opc.tcp 'mode'"),
        ({"url": "nats://127.0.0.1"}, "names no JetStream stream"),
        ({"url": "nats:///READINGS"}, "names no JetStream stream"),
        ({"url": "nats://127.0.0.1/TWO.WORDS"}, "names no JetStream stream"),
        ({"url": "nats://127.0.0.1/READINGS?parts=0"}, "a number from 1 to 1,024"),
        ({"url": "nats://127.0.0.1/READINGS?parts=4"}, "a subject that ends in the machine"),
        ({"url": "nats://127.0.0.1/READINGS?start=yesterday"}, "Write start=all or start=new"),
        ({"url": "nats://127.0.0.1/READINGS?group=a.b"}, "Cannot use the group 'a.b'"),
        ({"url": "nats://127.0.0.1/READINGS?subjects=readings"}, "Did you mean subject?"),
        ({"url": "kafka://127.0.0.1"}, "names no Kafka topic"),
        ({"url": "kafka:///topic"}, "names no Kafka topic"),
        ({"url": "kafka://127.0.0.1/a/b"}, "names no Kafka topic"),
        ({"url": "kafka://127.0.0.1/topic?start=yesterday"}, "Write start=all or start=new"),
        ({"url": "kafka://127.0.0.1/topic?security=none"}, "Unknown security of Kafka 'none'"),
        ({"url": "kafka://127.0.0.1/topic?mechanism=GUESS"}, "Unknown mechanism of SASL 'GUESS'"),
        ({"url": "kafka://127.0.0.1/topic?ca=ca.pem"}, "The option ca needs TLS"),
        ({"url": "kafka://me@127.0.0.1/topic"}, "The Kafka user 'me' needs a password"),
        ({"url": "kafka://127.0.0.1/topic?security=ssl&ca=/no/such/file"}, "which is not a file"),
        ({"url": "kafka://127.0.0.1/topic?topics=readings"}, "Unknown option of kafka 'topics'"),
    ],
)
def test_a_wrong_address_is_one_sentence(address, problem):
    assert problem in refusal(**address)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"url": "prometheus+http://"}, "names no host"),
        ({"period": None}, "needs a period"),
        ({"period": "0.5ms"}, "is not a whole number of milliseconds"),
        ({"stream": None}, "needs the stream"),
        ({"tags": {}}, "Give either one query per variable"),
        ({"options": {"query": "up", "by": "job"}}, "Give either one query per variable"),
        ({"tags": {}, "options": {"query": "up"}}, "needs 'by'"),
        ({"options": {"by": "job"}}, "The option 'by' needs 'query'"),
        ({"options": {"labels": "instance"}}, "Write them like instance=a:9100"),
        ({"options": {"backfill": "1d"}}, "Did you mean back_fill?"),
        ({"options": {"back_fill": "1 day"}}, "Cannot read the period '1 day'"),
        ({"options": {"token_variable": "NO_SUCH_TOKEN"}}, "'NO_SUCH_TOKEN' with the token is not set"),
        ({"password_variable": "HOME"}, "A password needs a user"),
        ({"user": "me", "options": {"token_variable": "HOME"}}, "Both a user and a token"),
    ],
)
def test_a_wrong_address_of_prometheus_is_one_sentence(changes, problem):
    good = {"url": "prometheus+http://host:9090", "stream": "s", "tags": QUERIES, "period": "1s"}
    assert problem in refusal(**good | changes)


def test_a_hash_at_the_end_of_a_topic_is_a_wildcard():
    assert source_of(Address("mqtt://host/plant/#")).filters == ["plant/#"]
    assert source_of(Address("mqtt://host/plant/#?version=5")).filters == ["plant/#"]
