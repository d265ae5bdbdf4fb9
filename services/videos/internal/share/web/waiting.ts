interface Status {
  status: string;
  progress: number;
}

// startWaiting polls the video's progress and shows it. When the status changes, it reloads
// the page. A tab in the background polls slowly.
export function startWaiting(root: HTMLElement): void {
  const bar = root.querySelector<HTMLProgressElement>("progress");
  const percent = root.querySelector<HTMLElement>("[data-percent]");
  const shown = root.dataset.waiting;
  let asked = 0;

  const next = () => {
    asked++;
    // Poll often at first: short videos are ready within seconds, and a viewer may open the
// page of a recording before the recording has ended.
    const delay = document.hidden ? 15000 : asked <= 8 ? 500 : asked < 40 ? 2000 : 5000;
    setTimeout(ask, delay);
  };

  const ask = async () => {
    try {
      const answer = await fetch(root.dataset.status!, { headers: { Accept: "application/json" }, cache: "no-store" });
      if (!answer.ok && answer.status < 500 && answer.status !== 429) return location.reload();
      if (answer.ok) {
        const s: Status = await answer.json();
        if (s.status !== shown) return location.reload();
        if (bar && s.progress > 0) bar.value = s.progress;
        if (percent && s.progress > 0) percent.textContent = `${s.progress} %`;
      }
    } catch {
      // The service is unreachable. Try again in the next round.
    }
    next();
  };

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) asked = 0;
  });
  next();
}
