// On every page: copy buttons, and times in the viewer's zone. Nothing here is
// needed to read or to send a form.

for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-copy]")) {
  const label = button.querySelector("span")!;
  const before = label.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy!);
    } catch {
      return; // not allowed: the address beside it can be selected
    }
    label.textContent = button.dataset.copied!;
    setTimeout(() => (label.textContent = before), 2000);
  });
}

const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
for (const time of document.querySelectorAll("time")) {
  const at = new Date(time.dateTime);
  if (!Number.isNaN(at.getTime())) time.textContent = zoned.format(at);
}
