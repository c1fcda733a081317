"""A model API that fails by script.

A script is a list of steps, one for each request that arrives; the last one repeats. A step is the name of an answer
in answers.json, or a fault:

    "openai-ok"                                   an answer as the provider sends it
    {"use": "openai-ok", "headers": {...}}        the same with these headers added
    {"use": "openai-stream", "after": 3, "then": "cut"}    a stream that something happens to after three events:
                                                  cut: its connection is lost, end: it ends as if that were all,
                                                  stall: nothing more comes, pause: nothing comes for 0.7 s,
                                                  error, or another event that answers.json has: it comes, and the end
    {"hold": "openai-ok"}                         read the request, answer when told to
    {"new": "openai-busy", "again": "openai-ok"}  the one for a body not seen before, the other for one that was
    "reset"                                       read the request, reset the connection
    "hang"                                        read the request, never answer

From Python it is a class that runs in a thread of its own. For other languages it is a process: one JSON command a
line on stdin, one JSON line back on stdout.
"""
import asyncio
import json
import pathlib
import socket
import struct
import sys
import threading
import time

ANSWERS = json.loads(pathlib.Path(__file__).with_name("answers.json").read_text("utf-8"))


class Upstream:
    """Listens on `port`. `refused_port` is bound and never listened on, so that a connection to it is refused."""

    def __init__(self):
        self.script, self.seen = ["hang"], []
        self._refused = socket.socket()
        self._refused.bind(("127.0.0.1", 0))
        self.refused_port = self._refused.getsockname()[1]
        self._released = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._connections = set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._connection, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def play(self, *script):
        """Start a script; what was seen before is forgotten."""
        self.script, self.seen = list(script), []
        self._loop.call_soon_threadsafe(self._released.clear)

    def release(self):
        """Let every held request have its answer."""
        self._loop.call_soon_threadsafe(self._released.set)

    def close(self):
        """Drop every connection and stop."""
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()
        self._loop.close()
        self._refused.close()

    def _stop(self):
        self._server.close()
        for task in self._connections:
            task.cancel()
        waiting = asyncio.gather(*self._connections, return_exceptions=True)
        waiting.add_done_callback(lambda _: self._loop.stop())

    async def _connection(self, reader, writer):
        self._connections.add(task := asyncio.current_task())
        try:
            while (request := await read_request(reader)) is not None:
                step = self.script[min(len(self.seen), len(self.script) - 1)]
                if "new" in step:
                    step = step["again" if any(request["body"] == earlier["body"] for earlier in self.seen) else "new"]
                self.seen.append(request)
                await self._play(step, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass                                        # the other side went away, or the test is over
        finally:
            self._connections.discard(task)
            writer.close()

    async def _play(self, step, reader, writer):
        if step == "reset":
            reset(writer)
        elif step == "hang":
            await reader.read()                         # to the end: the client has given up
        elif "hold" in step:
            await self._released.wait()
            await self._play(step["hold"], reader, writer)
        else:
            step = {"use": step} if isinstance(step, str) else step
            answer = ANSWERS[step["use"]]
            await write_answer(writer, answer, step.get("headers", {}), step.get("after"), step.get("then"))
            if step.get("then") == "stall":
                await reader.read()


async def read_request(reader):
    """The next request, or None at the end of the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    return {"at": time.monotonic(), "method": method, "target": target, "headers": headers, "body": body}


async def write_answer(writer, answer, headers, after, then):
    stream = "sse" in answer
    lines = {"content-type": "text/event-stream" if stream else "application/json", **answer.get("headers", {}), **headers}
    if stream:
        lines["transfer-encoding"] = "chunked"
        events = answer["sse"][:None if then == "pause" else after] + ([answer[then]] if then in answer else [])
        chunks = [event(e, answer.get("named")) for e in events]
    else:
        body = json.dumps(answer["json"], ensure_ascii=False).encode()
        lines["content-length"] = str(len(body))
        chunks = [body]
    head = [f"HTTP/1.1 {answer.get('status', 200)} Scripted", *(f"{name}: {value}" for name, value in lines.items())]
    writer.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n")
    for n, chunk in enumerate(chunks):
        if then == "pause" and n == after:
            await asyncio.sleep(0.7)
        writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if stream else chunk)
        await writer.drain()
    if then == "cut":
        writer.close()                                  # without the last chunk: the stream is lost
    elif stream and then != "stall":
        writer.write(b"0\r\n\r\n")
    await writer.drain()


def event(data, named):
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return ((f"event: {data['type']}\n" if named else "") + f"data: {text}\n\n").encode()


def reset(writer):
    """Close with a RST instead of a FIN."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    raise ConnectionResetError


def main():
    upstream = Upstream()

    def say(**words):
        print(json.dumps(words), flush=True)

    say(port=upstream.port, refused_port=upstream.refused_port)
    for line in sys.stdin:
        command = json.loads(line)
        if "play" in command:
            upstream.play(*command["play"])
        if command.get("release"):
            upstream.release()
        say(seen=[{**request, "body": request["body"].decode("latin-1")} for request in upstream.seen] if command.get("seen") else [])


if __name__ == "__main__":
    main()
