// A session is the permission to watch, as the page holds it: a playlist address
// with a token in its path, and signed addresses of the media. Both are short-lived.
// Session renews them ahead of time and rewrites what the player asks for,
// so that playing goes on for as long as the viewer may watch.

interface Answer {
  playlist: string;
  ttl: number; // seconds until what was given stops working
  media: string[];
}

// Refused says that watching is over: the status tells why.
export class Refused extends Error {
  constructor(readonly status: number) {
    super(`refused with ${status}`);
  }
}

export class Session {
  playlist: string;
  private media = new Map<string, string>(); // address without its signature → signed address
  private deadline = 0; // in performance.now() time: the device's own clock may be wrong
  private ttl = 0;
  private renewing?: Promise<void>;
  private timer = 0;

  constructor(
    private readonly url: string,
    playlist: string,
    ttl: number,
    private readonly wanted: () => boolean, // whether to renew ahead of time
    private readonly onRefused: (status: number) => void,
  ) {
    this.playlist = playlist;
    this.live(ttl);
  }

  // address is what to ask for instead of url: the same thing, with the
  // permission of now.
  address(url: string): string {
    const here = new URL(url, location.href);
    const current = new URL(this.playlist, location.href);
    // /v/<slug>/hls/<token>/<file>: the token is replaced.
    const ours = /^(\/v\/[^/]+\/hls\/)[^/]+\//;
    if (here.origin === current.origin && ours.test(here.pathname)) {
      return here.href.replace(here.pathname, current.pathname.match(ours)![0] + here.pathname.replace(ours, ""));
    }
    return this.media.get(here.origin + here.pathname) ?? url;
  }

  // fresh waits until the permission is good for a request that starts now.
  async fresh(): Promise<void> {
    if (performance.now() > this.deadline - 3000) await this.renew();
  }

  renew(): Promise<void> {
    this.renewing ??= this.ask().finally(() => (this.renewing = undefined));
    return this.renewing;
  }

  stop(): void {
    clearTimeout(this.timer);
  }

  private async ask(): Promise<void> {
    const answer = await fetch(this.url, { headers: { Accept: "application/json" }, cache: "no-store" });
    if (!answer.ok) {
      if (answer.status >= 500 || answer.status === 429) throw new Error(`session answered ${answer.status}`);
      this.stop();
      this.onRefused(answer.status);
      throw new Refused(answer.status);
    }
    const got: Answer = await answer.json();
    this.playlist = got.playlist;
    for (const signed of got.media) {
      const u = new URL(signed);
      this.media.set(u.origin + u.pathname, signed);
    }
    this.live(got.ttl);
  }

  private live(ttl: number): void {
    this.ttl = ttl;
    this.deadline = performance.now() + ttl * 1000;
    this.plan(ttl * 800);
  }

  private plan(ms: number): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      if (!this.wanted()) return; // the next request renews
      this.renew().catch((e) => {
        // Not answered: try again well before anything stops working.
        if (!(e instanceof Refused)) this.plan(Math.min(5000, this.ttl * 50));
      });
    }, Math.min(Math.max(ms, 250), 0x7fffffff));
  }
}
