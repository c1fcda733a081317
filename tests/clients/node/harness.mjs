// A scripted upstream and a Backstop in front of it, started for one test and stopped after it.
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const here = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));

/** The upstream of ../upstream.py: one command out, one line back. */
class Upstream {
  static async start() {
    const up = new Upstream();
    up.process = spawn(process.env.PYTHON ?? "python3", [here("upstream.py")], { stdio: ["pipe", "pipe", "inherit"] });
    up.lines = createInterface({ input: up.process.stdout })[Symbol.asyncIterator]();
    const { port, refused_port } = await up.#line();
    return Object.assign(up, { port, refusedPort: refused_port });
  }

  async #line() {
    const { value, done } = await this.lines.next();
    if (done) throw new Error("the upstream ended");
    return JSON.parse(value);
  }

  async #tell(command) {
    this.process.stdin.write(JSON.stringify(command) + "\n");
    return this.#line();
  }

  play(...steps) { return this.#tell({ play: steps }); }
  release() { return this.#tell({ release: true }); }
  async seen() { return (await this.#tell({ seen: true })).seen; }
  close() { this.process.kill(); }
}

class Backstop {
  static async start(upstreamPort, settings) {
    const backstop = new Backstop();
    backstop.folder = await mkdtemp(join(tmpdir(), "backstop-"));
    const config = (await readFile(here("backstop.toml"), "utf8"))
      .replaceAll("@UPSTREAM@", `http://127.0.0.1:${upstreamPort}`)
      .replaceAll("@STATE@", join(backstop.folder, "state"));
    const path = join(backstop.folder, "backstop.toml");
    await writeFile(path, config);
    const args = ["serve", "--config", path, ...settings.flatMap((setting) => ["--set", setting])];
    backstop.process = spawn(process.env.BACKSTOP_BIN, args, { stdio: ["ignore", "ignore", "pipe"] });
    backstop.ended = new Promise((resolve) => backstop.process.once("close", resolve));
    backstop.url = await backstop.#ready();
    return backstop;
  }

  #ready() {
    return new Promise((resolve, reject) => {
      let log = "";
      this.process.stderr.setEncoding("utf8").on("data", (text) => {
        log += text;
        const ready = log.match(/backstop \S+ listening on (http:\/\/\S+:\d+)/);
        if (ready) resolve(ready[1]);
      });
      this.process.once("error", reject);
      this.process.once("exit", () => reject(new Error(`backstop ended: ${log}`)));
    });
  }

  /** The sum of every series of `name` that carries these labels. */
  async metric(name, labels) {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    return [...text.matchAll(new RegExp(`^${name}(?:\\{(.*)\\})? (\\S+)$`, "gm"))]
      .filter(([, series]) => Object.entries(labels).every(([k, v]) => series.includes(`${k}="${v}"`)))
      .reduce((sum, [, , value]) => sum + Number(value), 0);
  }

  async close() {
    this.process.kill();
    await this.ended;
    await rm(this.folder, { recursive: true });
  }
}

/**
 * Both, closed when the test `t` is over. With `refused`, Backstop's upstream is a port that refuses connections.
 * `settings` of Backstop are like "stream.mode=shield".
 */
export async function rig(t, { refused = false, settings = [] } = {}) {
  const upstream = await Upstream.start();
  t.after(() => upstream.close());
  const backstop = await Backstop.start(refused ? upstream.refusedPort : upstream.port, settings);
  t.after(() => backstop.close());
  return { upstream, backstop };
}
