// The script of every share page: it finds what the page holds and brings it to
// life. Without it, pages still say what they are and password forms still work.
import { startPlayer } from "./player";
import { startWaiting } from "./waiting";

const player = document.querySelector<HTMLElement>("[data-player]");
if (player) startPlayer(player);

const waiting = document.querySelector<HTMLElement>("[data-waiting]");
if (waiting) startWaiting(waiting);

for (const t of document.querySelectorAll<HTMLTimeElement>("time[data-local]")) {
  t.textContent = new Date(t.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

// A language's own name says more in the menu than its code.
for (const t of document.querySelectorAll("track")) {
  try {
    t.label = new Intl.DisplayNames([t.srclang], { type: "language" }).of(t.srclang) ?? t.label;
  } catch {
    // Not a language that this browser has a name for.
  }
}

const copy = document.querySelector<HTMLButtonElement>("[data-copy]");
if (copy) {
  copy.disabled = !navigator.clipboard;
  copy.addEventListener("click", async () => {
    const label = copy.textContent;
    await navigator.clipboard.writeText(copy.dataset.copy!).catch(() => {});
    copy.textContent = "Copied";
    document.querySelector("[data-announce]")!.textContent = "Link copied";
    setTimeout(() => (copy.textContent = label), 2000);
  });
}

const form = document.querySelector<HTMLFormElement>("form[data-unlock]");
if (form) {
  // A second click would spend another of the few tries.
  form.addEventListener("submit", () => {
    form.querySelector("button")!.disabled = true;
  });
  // Coming back with the back button finds the form as it was left.
  addEventListener("pageshow", () => {
    form.querySelector("button")!.disabled = false;
  });
}
