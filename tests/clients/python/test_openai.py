"""What only OpenAI's SDK can ask for."""
import json

import openai
import pytest

from sdks import openai_client
from test_every_sdk import GOOD

BUSY = ["openai-busy", "reset"]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


@pytest.fixture
def client(backstop):
    with openai_client(openai.OpenAI, backstop.url + "/openai/v1") as client:
        yield client


def test_a_tool_call(client, upstream):
    upstream.play(*BUSY, "openai-tool")
    answer = client.chat.completions.create(model="gpt-test", messages=[{"role": "user", "content": "weather?"}], tools=[TOOL])
    call = answer.choices[0].message.tool_calls[0].function
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Zürich"})
    assert json.loads(upstream.seen[2]["body"])["tools"] == [TOOL]


def test_a_response(client, upstream):
    upstream.play(*BUSY, "responses-ok")
    assert client.responses.create(model="gpt-test", input="hi").output_text == GOOD
    assert len(upstream.seen) == 3


def test_a_streamed_response(client, upstream):
    upstream.play(*BUSY, "responses-stream")
    events = list(client.responses.create(model="gpt-test", input="hi", stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == GOOD
    assert events[-1].type == "response.completed"
    assert len(upstream.seen) == 3


def test_embeddings(client, upstream):
    upstream.play(*BUSY, "openai-embeddings")
    answer = client.embeddings.create(model="embed-test", input="hi", encoding_format="float")
    assert answer.data[0].embedding == [0.5, -0.25]
    assert len(upstream.seen) == 3


def test_an_uploaded_file_arrives_whole_and_once(client, upstream):
    content = bytes(range(256)) * 4096 + b"\r\n--not-the-boundary\r\n"
    upstream.play("openai-file")
    assert client.files.create(file=("notes.bin", content), purpose="user_data").id == "file-1"
    [request] = upstream.seen
    assert content in request["body"]
    assert request["headers"]["content-type"].startswith("multipart/form-data; boundary=")


def test_an_upload_is_not_repeated_when_it_may_have_arrived(client, upstream):
    upstream.play("reset", "openai-file")
    with pytest.raises(openai.InternalServerError) as caught:
        client.files.create(file=("notes.bin", b"content"), purpose="user_data")
    assert caught.value.status_code == 502
    assert "unknown" in str(caught.value), "the message says that the outcome is unknown"
    assert len(upstream.seen) == 1


def test_the_answer_says_how_it_came_about(client, upstream):
    upstream.play("openai-busy", "openai-ok")
    answer = client.chat.completions.with_raw_response.create(model="gpt-test", messages=[{"role": "user", "content": "hi"}])
    headers = {name: answer.headers[f"x-backstop-{name}"] for name in ("attempts", "upstream", "outcome")}
    assert headers == {"attempts": "2", "upstream": "openai", "outcome": "success"}
    assert answer.headers["x-backstop-request-id"]


def test_the_credential_reaches_the_upstream_and_nothing_of_backstop_does(client, upstream):
    upstream.play("openai-ok")
    client.chat.completions.create(model="gpt-test", messages=[{"role": "user", "content": "hi"}],
                                   extra_headers={"x-backstop-max-attempts": "1", "x-mine": "kept"})
    headers = upstream.seen[0]["headers"]
    assert headers["authorization"] == "Bearer sk-test"
    assert headers["x-mine"] == "kept"
    assert not [name for name in headers if name.startswith("x-backstop")]
