"""What goes wrong inside a stream: unseen before content, the SDK's own exception after it."""
from dataclasses import dataclass

import pytest

from sdks import ANTHROPIC, GEMINI, OPENAI, RESPONSES
from test_every_sdk import GOOD


@dataclass(frozen=True)
class Case:
    """After the events before content and `more`, `then` happens to the first attempt. It ends in the whole text after
    two attempts, or after one in an exception that says `says`."""
    what: str
    then: str
    more: int
    says: str | None = None
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.what


NOTHING = -3                                            # content less this is no event at all
IDLE = ("timeouts.stream_idle=500ms", "timeouts.stream_first_event=500ms")
SHIELD = ("stream.mode=shield",)
CASES = [
    Case("an error as the first event is got past", "error", NOTHING),
    Case("an error right before content is got past", "error", 0),
    Case("a cut right before content is got past", "cut", 0),
    Case("a stall before the first event is got past", "stall", NOTHING, settings=IDLE),
    Case("an error after content raises", "error", 2, says="The server had an error"),
    Case("a cut after content raises", "cut", 2, says="interrupted"),
    Case("an end without its marker raises", "end", 2, says="interrupted"),
    Case("a stall after content raises", "stall", 2, says="stalled", settings=IDLE),
    Case("shielded, a cut after content is got past", "cut", 2, settings=SHIELD),
    Case("shielded, an error after content is got past", "error", 2, settings=SHIELD),
]
every_stream = pytest.mark.parametrize("sdk", [*OPENAI, *RESPONSES, *ANTHROPIC, *GEMINI], ids=str)


@every_stream
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_goes_wrong(case, sdk, upstream, start):
    backstop = start(upstream.port, *case.settings)
    good, got = f"{sdk.form}-stream", []
    upstream.play({"use": good, "after": max(sdk.content + case.more, 0), "then": case.then}, good)
    if case.says is None:
        assert sdk.stream(sdk.base(backstop.url)) == GOOD
        assert len(upstream.seen) == 2
    else:
        with pytest.raises(sdk.told) as caught:
            sdk.stream(sdk.base(backstop.url), got=got)
        assert case.says in str(caught.value), f"the exception does not say why: {caught.value!r}"
        assert "".join(got) == "héllo 世界 ", "what came before is there"
        assert len(upstream.seen) == 1, "what the client has seen cannot be taken back"


@pytest.mark.parametrize("sdk", RESPONSES, ids=str)
@pytest.mark.parametrize("told", ["flat", "failed"])
def test_other_forms_of_an_error_before_content_are_got_past(told, sdk, upstream, backstop):
    """These the SDK would yield as events like any other."""
    upstream.play({"use": "responses-stream", "after": 1, "then": told}, "responses-stream")
    assert sdk.stream(sdk.base(backstop.url)) == GOOD
    assert len(upstream.seen) == 2


@every_stream
def test_heartbeats_disturb_nothing(sdk, upstream, start):
    """Neither while the call waits nor between events."""
    backstop = start(upstream.port, "stream.heartbeat=200ms")
    upstream.play(f"{sdk.dialect}-limited", {"use": f"{sdk.form}-stream", "after": sdk.content + 2, "then": "pause"})
    assert sdk.stream(sdk.base(backstop.url)) == GOOD
    assert len(upstream.seen) == 2


@every_stream
def test_what_fails_after_a_heartbeat_is_told_in_the_stream(sdk, upstream, start):
    backstop = start(upstream.port, "stream.heartbeat=200ms")
    upstream.play(f"{sdk.dialect}-limited", f"{sdk.dialect}-400")
    with pytest.raises(sdk.raises(400) if sdk.dialect == "gemini" else sdk.told, match="required|contents") as caught:
        sdk.stream(sdk.base(backstop.url))
    assert sdk.dialect == "gemini" or not isinstance(caught.value, sdk.raises(400)), "the status is gone: it was a 200"
