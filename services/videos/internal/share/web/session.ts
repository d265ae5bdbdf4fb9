// A session is the page's permission to watch: a playlist URL with a token in its path, and
// signed URLs of the media. Both are short-lived. Session renews them before they expire and
// uses them in the player's requests, so playback continues as long as the viewer may watch.

interface Answer {
  playlist: string;
  ttl: number; // seconds until these URLs expire
  media: string[];
}

// Refused means that the viewer may no longer watch. The status is the reason.
export class Refused extends Error {
  constructor(readonly status: number) {
    super(`refused with ${status}`);
  }
}

export class Session {
  playlist: string;
  private media = new Map<string, string>(); // URL without its signature → signed URL
  private deadline = 0; // in performance.now() time, because the device's clock may be wrong
  private ttl = 0;
  private renewing?: Promise<void>;
  private timer = 0;

  constructor(
    private readonly url: string,
    playlist: string,
    ttl: number,
    private readonly wanted: () => boolean, // whether to renew before the expiry
    private readonly onRefused: (status: number) => void,
  ) {
    this.playlist = playlist;
    this.live(ttl);
  }

  // address returns url with the current permission.
  address(url: string): string {
    const here = new URL(url, location.href);
    const current = new URL(this.playlist, location.href);
    // In /v/<slug>/hls/<token>/<file>, replace the token.
    const ours = /^(\/v\/[^/]+\/hls\/)[^/]+\//;
    if (here.origin === current.origin && ours.test(here.pathname)) {
      return here.href.replace(here.pathname, current.pathname.match(ours)![0] + here.pathname.replace(ours, ""));
    }
    return this.media.get(here.origin + here.pathname) ?? url;
  }

  // fresh waits until the permission is valid for a request that starts now.
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
        // The service did not respond. Try again well before the permission expires.
        if (!(e instanceof Refused)) this.plan(Math.min(5000, this.ttl * 50));
      });
    }, Math.min(Math.max(ms, 250), 0x7fffffff));
  }
}
