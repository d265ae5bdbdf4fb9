// The script of every share page. It starts the elements of the page, such as a player or a
// form. Without scripts, pages still have their text, and password forms still work.
import { startPlayer } from "./player";
import { startWaiting } from "./waiting";

const player = document.querySelector<HTMLElement>("[data-player]");
if (player) startPlayer(player);

const waiting = document.querySelector<HTMLElement>("[data-waiting]");
if (waiting) startWaiting(waiting);

for (const t of document.querySelectorAll<HTMLTimeElement>("time[data-local]")) {
  t.textContent = new Date(t.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

// Show the language's name in the menu instead of its code.
for (const t of document.querySelectorAll("track")) {
  try {
    t.label = new Intl.DisplayNames([t.srclang], { type: "language" }).of(t.srclang) ?? t.label;
  } catch {
    // This browser has no name for the language.
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
  // A second click would use up another of the few attempts.
  form.addEventListener("submit", () => {
    form.querySelector("button")!.disabled = true;
  });
  // After a click on the back button, the browser restores the form with a disabled button.
  addEventListener("pageshow", () => {
    form.querySelector("button")!.disabled = false;
  });
}
