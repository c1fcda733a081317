"""One Backstop process, in front of one upstream."""
import os
import pathlib
import re
import subprocess
import threading
import urllib.request
from typing import Iterable

CONFIG = pathlib.Path(__file__).parents[1] / "backstop.toml"
READY = re.compile(r"backstop \S+ listening on (http://\S+:\d+)")


class Backstop:
    """Serves from construction on, until `close`. `log` is all that it wrote to stderr."""

    def __init__(self, upstream_port: int, folder: pathlib.Path, settings: Iterable[str] = ()):
        config = CONFIG.read_text().replace("@UPSTREAM@", f"http://127.0.0.1:{upstream_port}").replace("@STATE@", str(folder / "state"))
        (folder / "backstop.toml").write_text(config)
        self.log = ""
        command = [os.environ["BACKSTOP_BIN"], "serve", "--config", str(folder / "backstop.toml")]
        command += [word for setting in settings for word in ("--set", setting)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            self.log += line
            if ready := READY.search(line):
                break
        else:
            raise RuntimeError(f"backstop did not start: {self.log}")
        self.url = ready[1]
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.log += line

    def metric(self, name: str, **labels: str) -> float:
        """The sum of every series of `name` that carries these labels."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for series, value in found if all(f'{k}="{v}"' in series for k, v in labels.items()))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        self.process.stderr.close()
