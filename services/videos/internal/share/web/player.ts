import type Hls from "hls.js";
import type { HlsConfig, Loader, LoaderCallbacks, LoaderConfiguration, LoaderContext } from "hls.js";
import { Refused, Session } from "./session";
import { parseStoryboard, startStoryboard } from "./storyboard";

const endings: Record<number, [string, string]> = {
  401: ["This video is locked", "Enter the password again to continue watching."],
  403: ["This video is locked", "Enter the password again to continue watching."],
  404: ["This video was removed", "It is no longer available."],
  410: ["This video has expired", "The person who shared it set a time limit."],
};

// startPlayer starts the page's video. After the first play, it shows the browser's own
// controls, because they work with keyboards and screen readers as people expect. Before
// that, it shows only one large button without the browser's controls and loading indicator.
export async function startPlayer(root: HTMLElement): Promise<void> {
  const video = root.querySelector("video")!;
  const data = root.dataset;

  const session = new Session(data.session!, data.playlist!, Number(data.ttl), () => !video.paused, (status) => end(status));
  let stopHls = () => {};

  function end(status: number): void {
    const at = video.currentTime;
    session.stop();
    stopHls();
    video.pause();
    video.removeAttribute("src");
    video.load();
    video.controls = false;
    root.querySelector<HTMLElement>("[data-start]")!.hidden = true;
    const [headline, text] = endings[status] ?? ["The video does not play", "Part of it could not be loaded. Check your connection and try again."];
    const over = root.querySelector<HTMLElement>("[data-ended]")!;
    over.querySelector(".headline")!.textContent = headline;
    over.querySelector("[data-text]")!.textContent = text;
    over.querySelector("a")!.hidden = status === 404 || status === 410;
    over.hidden = false;
    root.dispatchEvent(new CustomEvent("linkreel:ended", { detail: { status, at } }));
  }

  const start = root.querySelector<HTMLButtonElement>("[data-start]")!;
  start.hidden = false;
  video.controls = false;
  start.addEventListener("click", () => {
    video.controls = true;
    video.focus();
    video.play().catch(() => {});
  });
  video.addEventListener("play", () => {
    start.hidden = true;
    video.controls = true;
    session.fresh().catch(() => {});
  });

  countView(video, session, data.view!);
  shortcuts(root, video);
  if (data.storyboard) {
    startStoryboard(root, video, async () => {
      await session.fresh();
      const url = session.address(new URL(data.storyboard!, location.href).href);
      const answer = await fetch(url);
      if (!answer.ok) throw new Error(`storyboard answered ${answer.status}`);
      return parseStoryboard(await answer.text(), url);
    });
  }
  video.addEventListener("playing", () => root.classList.add("playing"));
  video.addEventListener("pause", () => root.classList.remove("playing"));

  const win = window as unknown as { MediaSource?: unknown; ManagedMediaSource?: unknown };
  if (win.MediaSource || win.ManagedMediaSource) {
    let Player: typeof Hls;
    try {
      Player = await loadHls(data.hls!);
    } catch {
      return end(0);
    }
    if (Player.isSupported()) {
      stopHls = playWithHls(Player, video, session, end);
      return;
    }
  }
  playNatively(video, session, data.native!, end);
}

// loadHls loads hls.js. It retries for about thirty seconds. Otherwise, the button would do
// nothing after a short network failure.
async function loadHls(url: string): Promise<typeof Hls> {
  for (let tries = 0; ; tries++) {
    try {
      // A browser may cache the failure of a URL, so each retry uses another URL.
      return ((await import(tries ? `${url}?try=${tries}` : url)) as { default: typeof Hls }).default;
    } catch (error) {
      if (tries === 5) throw error;
      await new Promise((again) => setTimeout(again, 1000 * 2 ** tries));
    }
  }
}

function playWithHls(Player: typeof Hls, video: HTMLVideoElement, session: Session, end: (status: number) => void): () => void {
  const Base = Player.DefaultConfig.loader as unknown as new (config: HlsConfig) => Loader<LoaderContext>;

  // Renewing sends each request with the current permission. If storage reports that it has
// expired, Renewing retries once with a new permission.
  class Renewing extends Base {
    private over = false;

    load(context: LoaderContext, config: LoaderConfiguration, callbacks: LoaderCallbacks<LoaderContext>): void {
      const asked = context.url;
      const go = (last: boolean) => {
        if (this.over) return;
        context.url = session.address(asked);
        super.load(context, config, {
          ...callbacks,
          onError: (error, ctx, details, stats) => {
            if (last || error.code < 400 || error.code > 499) return callbacks.onError(error, ctx, details, stats);
            session.renew().then(() => this.again(config, () => go(true)), () => callbacks.onError(error, ctx, details, stats));
          },
        });
      };
      session.fresh().then(() => go(false), (e) => e instanceof Refused || go(false));
    }

    // The base class can load only once, so first reset its state of the failed attempt.
    private again(config: LoaderConfiguration, go: () => void): void {
      const self = this as unknown as { config: unknown; retryDelay: number; stats: { retry: number; loading: { start: number; first: number; end: number }; loaded: number; total: number } };
      if (self.config) self.config = null;
      self.stats.loading = { start: 0, first: 0, end: 0 };
      self.stats.loaded = self.stats.total = 0;
      void config;
      go();
    }

    destroy(): void {
      this.over = true;
      super.destroy();
    }
    abort(): void {
      this.over = true;
      super.abort();
    }
  }

  const hls = new Player({
    enableWorker: false, // the media needs no transmuxing, so the page's policy need not allow workers
    loader: Renewing as unknown as HlsConfig["loader"],
    capLevelToPlayerSize: true,
    maxBufferLength: 30,
    backBufferLength: 60,
    autoStartLoad: false,
  });
  const { Events, ErrorTypes } = Player;
  let recovered = 0;
  hls.on(Events.ERROR, (_e, error) => {
    video.dispatchEvent(new CustomEvent("linkreel:hls", { detail: { type: error.type, details: error.details, fatal: error.fatal } }));
    if (!error.fatal) return;
    if (error.type === ErrorTypes.NETWORK_ERROR) {
      // The network failed. Try again, but less often while the browser is offline.
      setTimeout(() => hls.startLoad(), navigator.onLine ? 3000 : 10000);
    } else if (error.type === ErrorTypes.MEDIA_ERROR && recovered++ < 3) {
      hls.recoverMediaError();
    } else {
      end(0);
    }
  });
  hls.on(Events.MANIFEST_PARSED, () => {
    // Load only the first seconds until the viewer presses play.
    hls.config.maxBufferLength = 6;
    hls.startLoad();
  });
  video.addEventListener("play", () => (hls.config.maxBufferLength = 30), { once: true });
  hls.loadSource(session.address(new URL(session.playlist, location.href).href));
  hls.attachMedia(video);
  addEventListener("online", () => hls.startLoad());
  return () => hls.destroy();
}

// playNatively passes the playlist to a browser with built-in HLS support. The browser cannot
// renew URLs, so it gets long-lived ones. If they expire anyway, playNatively reloads the
// playlist at the same position.
function playNatively(video: HTMLVideoElement, session: Session, native: string, end: (status: number) => void): void {
  let failures = 0;
  video.crossOrigin = "anonymous"; // otherwise, Chromium's built-in player rejects media of another origin
  video.src = native;
  video.addEventListener("playing", () => (failures = 0));
  video.addEventListener("error", async () => {
    if (video.error === null || !video.getAttribute("src")) return;
    if (failures++ > 2) return end(0);
    const { currentTime, paused } = video;
    try {
      await session.renew();
    } catch {
      return;
    }
    video.src = session.playlist;
    video.currentTime = currentTime;
    if (!paused) await video.play().catch(() => {});
  });
}

// countView reports one view after five seconds of playback, or half of a shorter video.
// Seeking does not count as playback.
function countView(video: HTMLVideoElement, session: Session, url: string): void {
  let watched = 0;
  let last = -1;
  const note = () => {
    const step = video.currentTime - last;
    if (last >= 0 && step > 0 && step < 2 && !video.seeking) watched += step;
    last = video.currentTime;
    if (watched >= Math.min(5, (video.duration || 10) / 2)) {
      video.removeEventListener("timeupdate", note);
      void report(session, url);
    }
  };
  video.addEventListener("timeupdate", note);
}

// report sends a view, and retries for about two minutes until the service responds. The
// service counts a viewer once a day, so a repeated report is harmless.
async function report(session: Session, url: string): Promise<void> {
  for (let tries = 0; tries < 8; tries++) {
    if (tries) await new Promise((again) => setTimeout(again, 500 * 2 ** tries));
    try {
      // The permission in the URL may have expired while the video was loading.
      await session.fresh();
      const answer = await fetch(session.address(url), { method: "POST", keepalive: true });
      if (answer.ok) return;
      if (answer.status < 500 && answer.status !== 429) await session.renew();
    } catch (e) {
      if (e instanceof Refused) return;
    }
  }
}

// shortcuts adds the usual keys of other players to those of the browser. They work only
// while the player has the focus, so they do not interfere with typing or speech input.
function shortcuts(root: HTMLElement, video: HTMLVideoElement): void {
  const seek = (to: number) => (video.currentTime = Math.max(0, Math.min(video.duration || 0, to)));
  const turn = (by: number) => (video.volume = Math.max(0, Math.min(1, video.volume + by)));
  const keys: Record<string, () => void> = {
    " ": () => void (video.paused ? video.play().catch(() => {}) : video.pause()),
    j: () => seek(video.currentTime - 10),
    l: () => seek(video.currentTime + 10),
    ArrowLeft: () => seek(video.currentTime - 5),
    ArrowRight: () => seek(video.currentTime + 5),
    ArrowUp: () => turn(0.1),
    ArrowDown: () => turn(-0.1),
    Home: () => seek(0),
    End: () => seek(video.duration),
    m: () => (video.muted = !video.muted),
    f: () => void (document.fullscreenElement ? document.exitFullscreen() : video.requestFullscreen?.().catch(() => {})),
    c: () => captions(video),
    ",": () => video.paused && seek(video.currentTime - 1 / 30),
    ".": () => video.paused && seek(video.currentTime + 1 / 30),
  };
  keys.k = keys[" "];
  root.addEventListener(
    "keydown",
    (e) => {
      if (e.ctrlKey || e.altKey || e.metaKey || video.error || (e.target as Element).closest("button, a")) return;
      const key = e.key.length === 1 ? e.key.toLowerCase() : e.key;
      const act = /^[0-9]$/.test(key) ? () => seek(((video.duration || 0) * Number(key)) / 10) : keys[key];
      if (!act) return;
      e.preventDefault();
      e.stopPropagation();
      act();
    },
    true,
  );
}

// captions switches to the next track. After the last one it turns captions off.
function captions(video: HTMLVideoElement): void {
  const tracks = [...video.textTracks].filter((t) => t.kind === "captions" || t.kind === "subtitles");
  const on = tracks.findIndex((t) => t.mode === "showing");
  tracks.forEach((t, i) => (t.mode = i === on + 1 ? "showing" : "disabled"));
}
