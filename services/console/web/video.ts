// The page of a video: polls a status that changes without an action, and sets the
// thumbnail's time from the player or from the frames of the storyboard.

const changed = () => [...document.querySelectorAll("form")].some((form) => form.dataset.changed);
document.addEventListener("input", (event) => {
  const form = (event.target as Element).closest("form");
  if (form) form.dataset.changed = "yes";
});

const status = document.querySelector<HTMLElement>("[data-status]");
if (status) {
  const said = status.querySelector("p")!;
  const bar = status.querySelector("progress")!;
  const look = async () => {
    let again = 3000;
    try {
      const answer = await fetch(status.dataset.status!, { headers: { Accept: "application/json" } });
      if (answer.ok && !answer.redirected) {
        const now = await answer.json();
        bar.value = now.progress;
        if (said.textContent !== now.text) said.textContent = now.text;
        if ((now.status === "ready" || now.status === "failed") && !changed()) return location.reload();
      } else again = 15000;
    } catch {
      again = 15000; // unreachable: the page keeps showing the last status
    }
    setTimeout(look, document.hidden ? 15000 : again);
  };
  setTimeout(look, 2000);
}

const player = document.querySelector<HTMLVideoElement>("video.player");
for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-playhead]")) {
  const field = button.form!.elements.namedItem(button.dataset.playhead!) as HTMLInputElement;
  button.hidden = !player;
  button.addEventListener("click", () => (field.value = player!.currentTime.toFixed(1)));
}

const board = document.querySelector<HTMLDetailsElement>("details[data-storyboard]");
if (board) {
  board.hidden = false;
  board.addEventListener("toggle", () => void pick(board, board.querySelector<HTMLElement>(".tiles")!), { once: true });
}

// Shows the frames of the storyboard as buttons.
async function pick(board: HTMLElement, tray: HTMLElement) {
  const field = document.getElementById(board.dataset.for!) as HTMLInputElement;
  const source = new URL(board.dataset.storyboard!, location.href);
  const answer = await fetch(source).catch(() => undefined);
  if (!answer?.ok) return;
  const tiles: { start: number; end: number; url: string; at: number[] }[] = [];
  const seconds = (stamp: string) => stamp.split(":").reduce((sum, part) => sum * 60 + Number(part), 0);
  for (const block of (await answer.text()).split(/\r?\n\r?\n/)) {
    const m = /([\d:.]+) --> ([\d:.]+)[^\n]*\n(.+)#xywh=(\d+),(\d+),(\d+),(\d+)/.exec(block);
    if (m) tiles.push({ start: seconds(m[1]!), end: seconds(m[2]!), url: new URL(m[3]!, source).href, at: m.slice(4).map(Number) });
  }
  const step = Math.max(1, Math.ceil(tiles.length / 24));
  for (let i = 0; i < tiles.length; i += step) {
    const { start, end, url, at } = tiles[i]!;
    const [x, y, w, h] = at as [number, number, number, number];
    const middle = (start + end) / 2;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "tile";
    const shown = `${Math.floor(middle / 60)}:${String(Math.floor(middle % 60)).padStart(2, "0")}`;
    button.setAttribute("aria-label", `${board.dataset.label} ${shown}`);
    button.setAttribute("aria-pressed", "false");
    Object.assign(button.style, { width: `${w}px`, height: `${h}px`, backgroundImage: `url("${url}")`, backgroundPosition: `-${x}px -${y}px` });
    button.addEventListener("click", () => {
      field.value = middle.toFixed(1);
      for (const other of tray.children) other.setAttribute("aria-pressed", String(other === button));
      if (player) player.currentTime = middle;
    });
    tray.append(button);
  }
}
