"""What only Google's SDK can ask for."""
import pytest
from google.genai import types

from sdks import gemini_client

BUSY = ["gemini-busy", "reset"]


@pytest.fixture
def client(backstop):
    with gemini_client(backstop.url + "/gemini") as client:
        yield client


def test_a_tool_call(client, upstream):
    upstream.play(*BUSY, "gemini-tool")
    weather = types.FunctionDeclaration(name="weather", parameters_json_schema={"type": "object", "properties": {"city": {"type": "string"}}})
    answer = client.models.generate_content(model="gemini-test", contents="weather?",
                                            config=types.GenerateContentConfig(tools=[types.Tool(function_declarations=[weather])]))
    assert (answer.function_calls[0].name, answer.function_calls[0].args) == ("weather", {"city": "Zürich"})


def test_counting_tokens(client, upstream):
    upstream.play(*BUSY, "gemini-count")
    assert client.models.count_tokens(model="gemini-test", contents="hi").total_tokens == 42
    assert len(upstream.seen) == 3


def test_embeddings(client, upstream):
    upstream.play(*BUSY, "gemini-embeddings")
    assert client.models.embed_content(model="gemini-embed", contents="hi").embeddings[0].values == [0.5, -0.25]
    assert len(upstream.seen) == 3


def test_the_key_travels_in_its_header_on_every_attempt(client, upstream):
    upstream.play(*BUSY, "gemini-ok")
    client.models.generate_content(model="gemini-test", contents="hi")
    assert [request["headers"]["x-goog-api-key"] for request in upstream.seen] == ["AIza-test"] * 3
