// The page of a video: follows a status that changes by itself, shows the time
// field in the viewer's zone, and takes the thumbnail's time from the player.

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
      again = 15000; // away: the page still says what it knew
    }
    setTimeout(look, document.hidden ? 15000 : again);
  };
  setTimeout(look, 2000);
}

// The server reads a local time by the instant beside it.
for (const field of document.querySelectorAll<HTMLInputElement>("input[data-local]")) {
  const instant = document.createElement("input");
  instant.type = "hidden";
  instant.name = field.name + "Ms";
  field.form!.append(instant);
  if (field.value) {
    const at = new Date(field.value + "Z");
    field.value = new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  }
  const zone = field.form!.querySelector("[data-zone]");
  if (zone) zone.textContent = field.dataset.local!;
  field.form!.addEventListener("submit", () => {
    const at = new Date(field.value).getTime();
    instant.value = Number.isNaN(at) ? "" : String(at);
  });
}

const player = document.querySelector<HTMLVideoElement>("video.player");
for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-playhead]")) {
  const field = button.form!.elements.namedItem(button.dataset.playhead!) as HTMLInputElement;
  button.hidden = !player;
  button.addEventListener("click", () => (field.value = player!.currentTime.toFixed(1)));
}
