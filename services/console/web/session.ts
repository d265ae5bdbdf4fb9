// A resumable upload session with a total length that is unknown until the last part.

type Answer = { status: number; range: string };

export type Outcome = "whole" | "ended" | "refused";

/** Sends parts in order. After each failure, it queries storage for the offset. */
export class Session {
  private parts: Uint8Array[] = [];
  private start = 0; // offset of parts[0] in the file
  private end = 0; // offset after the last part
  private total = -1; // -1 until the last part is added
  private offset = 0; // bytes that storage has; negative: unknown
  private wake = () => {};
  private over = false;

  constructor(
    private readonly url: string,
    private readonly connected: (yes: boolean) => void,
  ) {}

  add(part: Uint8Array) {
    this.parts.push(part);
    this.end += part.length;
    this.wake();
  }

  /** Marks the last part as added. */
  finish(last: Uint8Array) {
    if (last.length) this.add(last);
    this.total = this.end;
    this.wake();
  }

  drop() {
    this.over = true;
    this.wake();
  }

  get waiting() {
    return this.end - Math.max(this.start, this.offset);
  }

  /** Runs until storage has all bytes. Returns "ended" if storage has closed the file before the last part. */
  async run(): Promise<Outcome> {
    for (let failures = 0; !this.over; ) {
      while (this.parts.length && this.offset >= this.start + this.parts[0]!.length) this.start += this.parts.shift()!.length;
      const last = this.total >= 0;
      if (this.offset >= this.end && !last) {
        await new Promise<void>((go) => (this.wake = go));
        continue;
      }
      const answer = await this.once();
      if (answer.status >= 200 && answer.status < 300) return last ? "whole" : "ended";
      if (answer.status === 308) {
        const now = /^bytes=0-(\d+)$/.test(answer.range) ? Number(answer.range.slice(8)) + 1 : 0;
        if (now < this.start) return "refused"; // storage lost bytes that it had acknowledged
        this.offset = now;
        failures = 0;
        this.connected(true);
        continue;
      }
      if (answer.status >= 400 && answer.status < 500 && answer.status !== 408 && answer.status !== 429) return "refused";
      this.offset = -1;
      this.connected(false);
      await Promise.race([pause(Math.min(4000, 300 * 2 ** failures++)), new Promise<void>((go) => (this.wake = () => this.over && go()))]);
    }
    return "refused";
  }

  private async once(): Promise<Answer> {
    if (this.offset < 0) return this.put(null, `bytes */${this.total < 0 ? "*" : this.total}`);
    if (this.offset >= this.end) return this.put(null, `bytes */${this.total}`);
    // Send several pending parts in one request, so a backlog shrinks quickly.
    const send: Uint8Array[] = [];
    let size = 0;
    let skip = this.offset - this.start;
    for (const part of this.parts) {
      if (size > 8 << 20) break;
      const piece = skip ? part.subarray(skip) : part;
      skip = 0;
      send.push(piece);
      size += piece.length;
    }
    const to = this.offset + size;
    return this.put(new Blob(send as BlobPart[]), `bytes ${this.offset}-${to - 1}/${to === this.total ? this.total : "*"}`);
  }

  private async put(body: Blob | null, range: string): Promise<Answer> {
    try {
      const answer = await fetch(this.url, { method: "PUT", body, headers: { "Content-Range": range }, signal: AbortSignal.timeout(60_000) });
      return { status: answer.status, range: answer.headers.get("Range") ?? "" };
    } catch {
      return { status: 0, range: "" };
    }
  }
}

export const pause = (ms: number) =>
  new Promise<void>((done) => {
    const timer = setTimeout(go, ms);
    addEventListener("online", go, { once: true });
    function go() {
      clearTimeout(timer);
      removeEventListener("online", go);
      done();
    }
  });
