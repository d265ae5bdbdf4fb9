// The preview during seeking: small frames in sprite sheets, described by a WebVTT file.

interface Tile {
  start: number;
  end: number;
  url: string;
  x: number;
  y: number;
  w: number;
  h: number;
}

function seconds(stamp: string): number {
  return stamp.split(":").reduce((sum, part) => sum * 60 + Number(part), 0);
}

export function parseStoryboard(text: string, base: string): Tile[] {
  const tiles: Tile[] = [];
  for (const block of text.split(/\r?\n\r?\n/)) {
    const m = /([\d:.]+) --> ([\d:.]+)[^\n]*\n(.+)#xywh=(\d+),(\d+),(\d+),(\d+)/.exec(block);
    if (m) {
      tiles.push({
        start: seconds(m[1]), end: seconds(m[2]), url: new URL(m[3], base).href,
        x: Number(m[4]), y: Number(m[5]), w: Number(m[6]), h: Number(m[7]),
      });
    }
  }
  return tiles;
}

export function clock(s: number): string {
  s = Math.max(0, Math.floor(s));
  const two = (n: number) => String(n).padStart(2, "0");
  const h = Math.floor(s / 3600);
  return (h ? `${h}:${two(Math.floor(s / 60) % 60)}` : String(Math.floor(s / 60))) + ":" + two(s % 60);
}

// startStoryboard shows a small frame of the time to which the viewer seeks, above that
// position on the timeline, until the video shows that time.
export function startStoryboard(root: HTMLElement, video: HTMLVideoElement, load: () => Promise<Tile[]>): void {
  const box = root.querySelector<HTMLElement>("[data-preview]");
  if (!box) return;
  const tileBox = box.querySelector<HTMLElement>(".tile")!;
  const label = box.querySelector<HTMLElement>(".at")!;
  let tiles: Promise<Tile[]> | undefined;
  let hiding = 0;

  const prepare = () => {
    tiles ??= load().then((all) => {
      for (const url of new Set(all.map((t) => t.url))) new Image().src = url;
      return all;
    });
    tiles.catch(() => (tiles = undefined));
    return tiles;
  };

  const show = async () => {
    const all = await prepare().catch(() => [] as Tile[]);
    if (!all.length || !video.seeking && hiding === 0) return;
    const at = video.currentTime;
    const tile = all.find((t) => at < t.end) ?? all[all.length - 1];
    const scale = Math.min(1, (root.clientWidth * 0.4) / tile.w, (root.clientHeight * 0.45) / tile.h);
    Object.assign(tileBox.style, {
      width: `${tile.w}px`, height: `${tile.h}px`, zoom: String(scale),
      backgroundImage: `url("${tile.url}")`, backgroundPosition: `-${tile.x}px -${tile.y}px`,
    });
    label.textContent = clock(at);
    box.hidden = false;
    const width = box.offsetWidth;
    const middle = (video.duration ? at / video.duration : 0) * root.clientWidth;
    box.style.left = `${Math.max(8, Math.min(root.clientWidth - width - 8, middle - width / 2))}px`;
    clearTimeout(hiding);
    hiding = window.setTimeout(hide, 1200);
  };

  const hide = () => {
    if (video.seeking && document.visibilityState === "visible") {
      hiding = window.setTimeout(hide, 400);
      return;
    }
    hiding = 0;
    box.hidden = true;
  };

  video.addEventListener("seeking", show);
  video.addEventListener("playing", () => void prepare().catch(() => {}), { once: true });
}
