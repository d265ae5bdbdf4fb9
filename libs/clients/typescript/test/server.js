// A server for tests that answers as it is told, badly too.
import { createServer } from "node:http";
import { Linkreel } from "../dist/index.js";

export const ok = (body, status = 200, headers = {}) => [status, headers, JSON.stringify(body)];
export const refuse = (status, code, headers = {}, more = {}) => [status, headers, JSON.stringify({ error: { code, message: "m", requestId: "r", ...more } })];
/** Closes the connection without an answer. */
export const lost = { lost: true };
/** Sends half of the body, then closes the connection. */
export const cut = (answer) => ({ cut: answer });
/** Never answers. */
export const silent = { silent: true };

/** Answers requests one after the other; the last answer repeats. A function gets the request and its number. */
export async function script(t, ...answers) {
  const calls = [], waits = [];
  const server = createServer(async (req, res) => {
    const chunks = [];
    for await (const c of req) chunks.push(c);
    const body = Buffer.concat(chunks);
    calls.push({ method: req.method, path: req.url, headers: req.headers, body });
    let answer = answers[Math.min(calls.length, answers.length) - 1];
    if (typeof answer === "function") answer = answer(calls.at(-1), calls.length);
    if (answer.silent) return;
    if (answer.lost) return req.socket.destroy();
    const [status, headers, text] = answer.cut ?? answer;
    if (!answer.cut) return res.writeHead(status, headers).end(text);
    res.writeHead(status, { ...headers, "Content-Length": Buffer.byteLength(text) });
    res.write(text.slice(0, text.length / 2), () => setImmediate(() => req.socket.destroy()));
  });
  await new Promise((up) => { server.listen(0, "127.0.0.1", up); });
  t.after(() => { server.closeAllConnections(); server.close(); });
  const url = `http://127.0.0.1:${server.address().port}`;
  const options = { baseUrl: url + "/", key: "k", sleep: async (ms) => { waits.push(ms); } };
  return { calls, waits, url, options, api: new Linkreel(options) };
}
