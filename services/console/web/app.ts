// Runs on every page: copy buttons, times in the viewer's zone, selecting all, the command
// palette and keyboard shortcuts. Pages and forms also work without this script.

for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-copy]")) {
  const label = button.querySelector("span")!;
  const before = label.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy!);
    } catch {
      return; // not allowed: the person can select the address next to the button
    }
    label.textContent = button.dataset.copied!;
    setTimeout(() => (label.textContent = before), 2000);
  });
}

const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
for (const time of document.querySelectorAll("time")) {
  const at = new Date(time.dateTime);
  // Days in the statistics are UTC days, regardless of the viewer's time zone.
  if (time.dateTime.length > 10 && !Number.isNaN(at.getTime())) time.textContent = zoned.format(at);
}

// The form also sends each local time in ms, and the server uses that value.
for (const field of document.querySelectorAll<HTMLInputElement>("input[data-local]")) {
  const instant = document.createElement("input");
  instant.type = "hidden";
  instant.name = field.name + "Ms";
  field.form!.append(instant);
  if (field.value) {
    const at = new Date(field.value + "Z");
    field.value = new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  }
  const zone = field.closest(".field")!.querySelector("[data-zone]");
  if (zone) zone.textContent = field.dataset.local!;
  field.form!.addEventListener("submit", () => {
    const at = new Date(field.value).getTime();
    instant.value = Number.isNaN(at) ? "" : String(at);
  });
}

for (const label of document.querySelectorAll<HTMLElement>("[data-all]")) {
  const all = label.querySelector("input")!;
  const each = [...document.querySelectorAll<HTMLInputElement>(`input[type=checkbox][name="${label.dataset.all}"]`)];
  label.hidden = !each.length;
  all.addEventListener("change", () => each.forEach((box) => (box.checked = all.checked)));
  for (const box of each) {
    box.addEventListener("change", () => {
      const chosen = each.filter((b) => b.checked).length;
      all.checked = chosen === each.length;
      all.indeterminate = chosen > 0 && chosen < each.length;
    });
  }
}

const palette = document.querySelector<HTMLDialogElement>("dialog#palette");
const help = document.querySelector<HTMLDialogElement>("dialog#help");
if (palette && help) keys(palette, help);

function keys(palette: HTMLDialogElement, help: HTMLDialogElement) {
  const field = palette.querySelector("input")!;
  const items = [...palette.querySelectorAll<HTMLElement>("li")];
  const searches = items.filter((item) => item.dataset.search);
  const shown = () => items.filter((item) => !item.hidden).map((item) => item.querySelector("a")!);

  const filter = () => {
    const typed = field.value.trim();
    const words = typed.toLowerCase().split(/\s+/);
    for (const item of items) {
      const link = item.querySelector("a")!;
      if (item.dataset.search) {
        item.hidden = !typed;
        link.href = item.dataset.search + "?q=" + encodeURIComponent(typed);
        item.querySelector("span")!.textContent = typed;
      } else {
        item.hidden = !words.every((w) => link.textContent!.toLowerCase().includes(w));
      }
    }
  };
  const open = () => {
    if (palette.open) return;
    help.close();
    field.value = "";
    filter();
    palette.showModal();
    field.focus();
  };
  field.addEventListener("input", filter);
  palette.addEventListener("keydown", (event) => {
    const links = shown();
    const at = links.indexOf(document.activeElement as HTMLAnchorElement);
    if (event.key === "ArrowDown") links[Math.min(at + 1, links.length - 1)]?.focus();
    else if (event.key === "ArrowUp") (at > 0 ? links[at - 1]! : field).focus();
    else if (event.key === "Enter" && document.activeElement === field) links[0]?.click();
    else return;
    event.preventDefault();
  });
  for (const dialog of [palette, help]) {
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.querySelector("button[data-close]")!.addEventListener("click", () => dialog.close());
  }
  for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-open]")) {
    button.hidden = false;
    button.addEventListener("click", () => (button.dataset.open === "help" ? help.showModal() : open()));
  }

  // Single keys can be switched off, because speech input may type them by accident.
  const store = "linkreel-keys";
  const on = help.querySelector<HTMLInputElement>("input[type=checkbox]")!;
  try {
    on.checked = localStorage.getItem(store) !== "off";
  } catch {
    /* not allowed: the shortcuts are on */
  }
  on.addEventListener("change", () => {
    try {
      localStorage.setItem(store, on.checked ? "on" : "off");
    } catch {
      /* not allowed: the choice lasts until the person leaves this page */
    }
  });
  let before = "";
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      return open();
    }
    const target = event.target as HTMLElement;
    if (!on.checked || event.ctrlKey || event.metaKey || event.altKey || target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, dialog, video")) return;
    const two = before + event.key;
    before = event.key === "g" ? "g " : "";
    const link = help.querySelector<HTMLAnchorElement>(`a[data-keys="${CSS.escape(two)}"], a[data-keys="${CSS.escape(event.key)}"]`);
    if (event.key === "?") help.showModal();
    else if (event.key === "/") (document.querySelector<HTMLInputElement>("main input[type=search]") ?? { focus: open }).focus();
    else if (link) link.click();
    else return;
    event.preventDefault();
  });
}
