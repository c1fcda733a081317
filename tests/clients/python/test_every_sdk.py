"""What holds for every SDK, blocking and async, with nothing but its base URL changed."""
import concurrent.futures
import json
import socket

import pytest

from sdks import SDKS, status_of

GOOD = "héllo 世界 🦀"                                  # what the good answers in answers.json say
every_sdk = pytest.mark.parametrize("sdk", SDKS, ids=str)
blocking_sdk = pytest.mark.parametrize("sdk", [s for s in SDKS if "async" not in s.name], ids=str)
both_forms = pytest.mark.parametrize("prefix", [True, False], ids=["prefix", "bare"])
MAX_ATTEMPTS = 5                                        # retry.max_attempts as shipped


def failing_twice(sdk, then):
    return [f"{sdk.dialect}-busy", "reset", then]


def failure(sdk, base, status, **options):
    """The exception that a failing call raises: the SDK's own class for that status."""
    with pytest.raises(sdk.raises(status)) as caught:
        sdk.ask(base, **options)
    assert status_of(caught.value) == status
    return caught.value


@every_sdk
@both_forms
def test_an_answer_comes_through_an_overload_and_a_reset(sdk, prefix, upstream, backstop):
    upstream.play(*failing_twice(sdk, f"{sdk.dialect}-ok"))
    assert sdk.ask(sdk.base(backstop.url, prefix), "grüezi 🌍") == GOOD
    assert len(upstream.seen) == 3
    assert len({request["body"] for request in upstream.seen}) == 1, "the same bytes on every attempt"
    assert "grüezi 🌍" in json.dumps(json.loads(upstream.seen[0]["body"]), ensure_ascii=False)


@every_sdk
@both_forms
def test_a_stream_comes_through_an_overload_and_a_reset(sdk, prefix, upstream, backstop):
    upstream.play(*failing_twice(sdk, f"{sdk.dialect}-stream"))
    assert sdk.stream(sdk.base(backstop.url, prefix)) == GOOD
    assert len(upstream.seen) == 3


@every_sdk
def test_the_upstream_sees_what_the_sdk_sends(sdk, upstream, backstop):
    """Credentials, versions, SDK headers, path and body, as without Backstop; how long the connection is kept is nobody's."""
    def sent(base):
        upstream.play(f"{sdk.dialect}-ok")
        sdk.ask(base)
        [request] = upstream.seen
        headers = {name: value for name, value in request["headers"].items() if name != "connection"}
        return request["method"], request["target"], headers, request["body"]

    assert sent(sdk.base(backstop.url)) == sent(sdk.base(f"http://127.0.0.1:{upstream.port}", prefix=False))


@blocking_sdk
def test_the_metrics_tell_the_retries(sdk, upstream, backstop):
    upstream.play(*failing_twice(sdk, f"{sdk.dialect}-ok"))
    sdk.ask(sdk.base(backstop.url))
    assert backstop.metric("backstop_retries_total", upstream=sdk.dialect, reason="overloaded") == 1
    assert backstop.metric("backstop_retries_total", upstream=sdk.dialect, reason="reset") == 1
    assert backstop.metric("backstop_attempts_total", upstream=sdk.dialect) == 3
    assert backstop.metric("backstop_requests_total", upstream=sdk.dialect, outcome="success", status="200") == 1


@every_sdk
def test_a_rate_limit_is_waited_out_for_as_long_as_the_provider_says(sdk, upstream, backstop):
    upstream.play(f"{sdk.dialect}-limited", f"{sdk.dialect}-ok")
    assert sdk.ask(sdk.base(backstop.url)) == GOOD
    first, second = (request["at"] for request in upstream.seen)
    assert 1 <= second - first < 5


@every_sdk
def test_a_spent_quota_is_passed_on_at_once(sdk, upstream, backstop):
    upstream.play(f"{sdk.dialect}-quota")
    failure(sdk, sdk.base(backstop.url), 429)
    assert len(upstream.seen) == 1


@every_sdk
@pytest.mark.parametrize("status", [400, 401, 404])
def test_an_error_of_the_callers_is_passed_on_at_once(sdk, status, upstream, backstop):
    upstream.play(f"{sdk.dialect}-{status}")
    failure(sdk, sdk.base(backstop.url), status)
    assert len(upstream.seen) == 1


@every_sdk
def test_exhausted_attempts_end_in_the_last_answer(sdk, upstream, backstop):
    upstream.play(f"{sdk.dialect}-busy")
    error = failure(sdk, sdk.base(backstop.url), 529 if sdk.dialect == "anthropic" else 503)
    assert "overloaded" in str(error).lower(), "the provider's own words"
    assert len(upstream.seen) == MAX_ATTEMPTS


@every_sdk
def test_the_sdks_own_retries_do_not_multiply(sdk, upstream, backstop):
    upstream.play(f"{sdk.dialect}-busy")
    failure(sdk, sdk.base(backstop.url), 529 if sdk.dialect == "anthropic" else 503, retries=2)
    # google-genai knows no x-should-retry: each of its two repeats gets one attempt, not five
    assert len(upstream.seen) == MAX_ATTEMPTS + (2 if sdk.dialect == "gemini" else 0)


@every_sdk
def test_an_upstream_that_refuses_raises_a_readable_server_error(sdk, upstream, start):
    error = failure(sdk, sdk.base(start(upstream.refused_port).url), 502)
    assert "upstream_unreachable" in str(error) or "refused" in str(error), f"the message does not say why: {error}"
    assert f"{MAX_ATTEMPTS}" in str(error), f"the message does not say how often it was tried: {error}"


@every_sdk
def test_a_hanging_upstream_is_given_up_before_the_clients_own_timeout(sdk, upstream, backstop):
    upstream.play("hang")
    failure(sdk, sdk.base(backstop.url), 504, timeout=2)


@every_sdk
def test_a_large_prompt_arrives_whole_on_every_attempt(sdk, upstream, backstop):
    prompt = "0123456789abcdef" * (5 << 16)             # 5 MiB
    upstream.play(*failing_twice(sdk, f"{sdk.dialect}-ok"))
    assert sdk.ask(sdk.base(backstop.url), prompt) == GOOD
    assert [prompt.encode() in request["body"] for request in upstream.seen] == [True] * 3


@blocking_sdk
def test_twenty_calls_at_once_all_come_through(sdk, upstream, backstop):
    upstream.play({"new": f"{sdk.dialect}-busy", "again": f"{sdk.dialect}-ok"})
    prompts = [f"call {n}" for n in range(20)]
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda prompt: sdk.ask(sdk.base(backstop.url), prompt), prompts))
    assert answers == [GOOD] * 20
    assert len(upstream.seen) == 40


def test_a_long_held_call_is_kept_alive_by_interim_answers(upstream, backstop):
    """A 102 reaches the client while the call is held, and the SDKs take it in their stride."""
    upstream.play({"hold": "openai-ok"})
    sdks = [s for s in SDKS if s.dialect == "openai"]
    with concurrent.futures.ThreadPoolExecutor(len(sdks)) as pool:
        calls = [pool.submit(sdk.ask, sdk.base(backstop.url)) for sdk in sdks]
        host, port = backstop.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as raw:
            raw.sendall(b"POST /openai/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: python-httpx/0.28.1\r\n"
                        b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
            try:
                interim = raw.recv(100)
            finally:
                upstream.release()
        assert interim == b"HTTP/1.1 102 Processing\r\n\r\n"
        assert [call.result() for call in calls] == [GOOD] * len(sdks)
