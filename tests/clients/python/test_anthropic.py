"""What only Anthropic's SDK can ask for."""
import json

import anthropic
import pytest

from sdks import anthropic_client, user

BUSY = ["anthropic-busy", "reset"]
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


@pytest.fixture
def client(backstop):
    with anthropic_client(anthropic.Anthropic, backstop.url + "/anthropic") as client:
        yield client


def test_a_tool_call(client, upstream):
    upstream.play(*BUSY, "anthropic-tool")
    answer = client.messages.create(model="claude-test", max_tokens=64, messages=user("weather?"), tools=[TOOL])
    assert (answer.content[0].name, answer.content[0].input) == ("weather", {"city": "Zürich"})
    assert json.loads(upstream.seen[2]["body"])["tools"] == [TOOL]


def test_counting_tokens(client, upstream):
    upstream.play(*BUSY, "anthropic-count")
    assert client.messages.count_tokens(model="claude-test", messages=user("hi")).input_tokens == 42
    assert [request["target"] for request in upstream.seen] == ["/v1/messages/count_tokens"] * 3


def test_raw_events_arrive_in_order(client, upstream):
    upstream.play(*BUSY, "anthropic-stream")
    events = client.messages.create(model="claude-test", max_tokens=64, messages=user("hi"), stream=True)
    assert [event.type for event in events] == ["message_start", "content_block_start", *["content_block_delta"] * 3,
                                                "content_block_stop", "message_delta", "message_stop"]
