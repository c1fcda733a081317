"""The SDKs behind one face: each asks for an answer, whole or streamed, and raises its own exceptions."""
import asyncio
from dataclasses import dataclass
from typing import Callable

import anthropic
import openai
from google import genai
from google.genai import errors, types

KEYS = {"openai": "sk-test", "anthropic": "sk-ant-test", "gemini": "AIza-test"}
BASE = {"openai": "/v1", "anthropic": "", "gemini": ""}


@dataclass(frozen=True)
class Sdk:
    """`ask` and `stream` take (base URL, prompt, timeout in seconds, retries of the SDK's own) and return the text.

    `stream` also puts it into the list `got`, piece by piece. `raises` is what a status raises, `told` what an error
    event in a stream does. Of the events in `{form}-stream`, `content` come before there is content.
    """
    name: str
    dialect: str
    form: str
    ask: Callable[..., str]
    stream: Callable[..., str]
    raises: Callable[[int], type[Exception]]
    told: type[Exception]
    content: int

    def base(self, url: str, prefix: bool = True) -> str:
        return url + (f"/{self.dialect}" if prefix else "") + BASE[self.dialect]

    def __str__(self) -> str:
        return self.name


def status_of(error: Exception) -> int:
    return getattr(error, "status_code", None) or error.code


def user(prompt: str) -> list[dict]:
    return [{"role": "user", "content": prompt}]


# OpenAI

def openai_client(kind, base, timeout=30, retries=0):
    return kind(base_url=base, api_key=KEYS["openai"], timeout=timeout, max_retries=retries)


def openai_ask(base, prompt="hi", **options):
    with openai_client(openai.OpenAI, base, **options) as client:
        return client.chat.completions.create(model="gpt-test", messages=user(prompt)).choices[0].message.content


def openai_stream(base, prompt="hi", **options):
    with openai_client(openai.OpenAI, base, **options) as client:
        chunks = client.chat.completions.create(model="gpt-test", messages=user(prompt), stream=True)
        for chunk in chunks:
            yield chunk.choices[0].delta.content or ""


async def openai_ask_async(base, prompt="hi", **options):
    async with openai_client(openai.AsyncOpenAI, base, **options) as client:
        return (await client.chat.completions.create(model="gpt-test", messages=user(prompt))).choices[0].message.content


async def openai_stream_async(base, prompt="hi", **options):
    async with openai_client(openai.AsyncOpenAI, base, **options) as client:
        chunks = await client.chat.completions.create(model="gpt-test", messages=user(prompt), stream=True)
        async for chunk in chunks:
            yield chunk.choices[0].delta.content or ""


def responses_ask(base, prompt="hi", **options):
    with openai_client(openai.OpenAI, base, **options) as client:
        return client.responses.create(model="gpt-test", input=prompt).output_text


def responses_stream(base, prompt="hi", **options):
    with openai_client(openai.OpenAI, base, **options) as client:
        for event in client.responses.create(model="gpt-test", input=prompt, stream=True):
            yield event.delta if event.type == "response.output_text.delta" else ""


async def responses_ask_async(base, prompt="hi", **options):
    async with openai_client(openai.AsyncOpenAI, base, **options) as client:
        return (await client.responses.create(model="gpt-test", input=prompt)).output_text


async def responses_stream_async(base, prompt="hi", **options):
    async with openai_client(openai.AsyncOpenAI, base, **options) as client:
        async for event in await client.responses.create(model="gpt-test", input=prompt, stream=True):
            yield event.delta if event.type == "response.output_text.delta" else ""


# Anthropic

def anthropic_client(kind, base, timeout=30, retries=0):
    return kind(base_url=base, api_key=KEYS["anthropic"], timeout=timeout, max_retries=retries)


def anthropic_ask(base, prompt="hi", **options):
    with anthropic_client(anthropic.Anthropic, base, **options) as client:
        return client.messages.create(model="claude-test", max_tokens=64, messages=user(prompt)).content[0].text


def anthropic_stream(base, prompt="hi", **options):
    with anthropic_client(anthropic.Anthropic, base, **options) as client:
        with client.messages.stream(model="claude-test", max_tokens=64, messages=user(prompt)) as events:
            yield from events.text_stream


async def anthropic_ask_async(base, prompt="hi", **options):
    async with anthropic_client(anthropic.AsyncAnthropic, base, **options) as client:
        return (await client.messages.create(model="claude-test", max_tokens=64, messages=user(prompt))).content[0].text


async def anthropic_stream_async(base, prompt="hi", **options):
    async with anthropic_client(anthropic.AsyncAnthropic, base, **options) as client:
        async with client.messages.stream(model="claude-test", max_tokens=64, messages=user(prompt)) as events:
            async for text in events.text_stream:
                yield text


# Gemini

def gemini_client(base, timeout=30, retries=0):
    again = types.HttpRetryOptions(attempts=retries + 1, initial_delay=0.01) if retries else None
    return genai.Client(api_key=KEYS["gemini"], vertexai=False,
                        http_options=types.HttpOptions(base_url=base, timeout=timeout * 1000, retry_options=again))


def gemini_ask(base, prompt="hi", **options):
    with gemini_client(base, **options) as client:
        return client.models.generate_content(model="gemini-test", contents=prompt).text


def gemini_stream(base, prompt="hi", **options):
    with gemini_client(base, **options) as client:
        for chunk in client.models.generate_content_stream(model="gemini-test", contents=prompt):
            yield chunk.text


async def gemini_ask_async(base, prompt="hi", **options):
    async with gemini_client(base, **options).aio as client:
        return (await client.models.generate_content(model="gemini-test", contents=prompt)).text


async def gemini_stream_async(base, prompt="hi", **options):
    async with gemini_client(base, **options).aio as client:
        chunks = await client.models.generate_content_stream(model="gemini-test", contents=prompt)
        async for chunk in chunks:
            yield chunk.text


def blocking(go):
    return lambda *args, **options: asyncio.run(go(*args, **options))


def joined(texts):
    """A stream's function, of the generator of its texts."""
    def stream(*args, got=None, **options):
        got = [] if got is None else got
        got.extend(texts(*args, **options))
        return "".join(got)
    return stream


def joined_async(texts):
    async def stream(*args, got=None, **options):
        got = [] if got is None else got
        async for text in texts(*args, **options):
            got.append(text)
        return "".join(got)
    return blocking(stream)


def class_of(sdk):
    """What OpenAI's and Anthropic's SDKs raise for a status, alike."""
    named = {400: sdk.BadRequestError, 401: sdk.AuthenticationError, 404: sdk.NotFoundError, 429: sdk.RateLimitError}
    return lambda status: named.get(status, sdk.InternalServerError)


def gemini_class(status):
    return errors.ClientError if status < 500 else errors.ServerError


def both(name, dialect, functions, *rest):
    """The blocking and the async SDK of one kind."""
    ask, stream, ask_async, stream_async = functions
    return [Sdk(name, dialect, name, ask, joined(stream), *rest),
            Sdk(f"{name}-async", dialect, name, blocking(ask_async), joined_async(stream_async), *rest)]


OPENAI = both("openai", "openai", (openai_ask, openai_stream, openai_ask_async, openai_stream_async),
              class_of(openai), openai.APIError, 1)
RESPONSES = both("responses", "openai", (responses_ask, responses_stream, responses_ask_async, responses_stream_async),
                 class_of(openai), openai.APIError, 3)
ANTHROPIC = both("anthropic", "anthropic", (anthropic_ask, anthropic_stream, anthropic_ask_async, anthropic_stream_async),
                 class_of(anthropic), anthropic.APIStatusError, 3)
GEMINI = both("gemini", "gemini", (gemini_ask, gemini_stream, gemini_ask_async, gemini_stream_async),
              gemini_class, errors.ServerError, 0)
SDKS = [*OPENAI, *ANTHROPIC, *GEMINI]
