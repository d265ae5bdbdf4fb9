// Records screen, camera and microphone, and uploads at the same time. If the tab crashes,
// storage has everything except the last seconds, and the service creates the video from
// these bytes.

import { Framer } from "./framer";
import { pause, Session } from "./session";
import { open, type Stage } from "./stage";

const form = document.querySelector<HTMLFormElement>("form#record");
if (form) start(form);

// ms between two parts. This is less than three slices of a second. Otherwise, a third slice
// that arrives slightly early would delay its part until the fourth. Including the current
// slice and the upload, less than five seconds are lost.
const apart = 2500;
// After this many ms without a part, as in a pause, a part with only padding is sent, because
// the service finishes a recording after five minutes without data.
const alive = 60_000;

function start(form: HTMLFormElement) {
  const element = (id: string) => document.getElementById(id)!;
  const words = element("words").dataset as Record<string, string>;
  const stageBox = element("stage");
  const preview = element("preview") as HTMLVideoElement;
  const count = element("count");
  const clock = element("clock");
  const said = element("said");
  const share = element("share");
  const address = share.querySelector("a")!;
  const copy = share.querySelector("button")!;
  const problem = form.querySelector("[data-problem]")!;
  const go = form.querySelector<HTMLButtonElement>("button[type=submit]")!;
  const [hold, stop, discard] = ["hold", "stop", "discard"].map((id) => element(id) as HTMLButtonElement) as [HTMLButtonElement, HTMLButtonElement, HTMLButtonElement];
  const next = element("next");
  const csrf = (form.elements.namedItem("csrf") as HTMLInputElement).value;
  const checked = (name: string) => (form.elements.namedItem(name) as HTMLInputElement).checked;

  const can = !!navigator.mediaDevices && "MediaRecorder" in window;
  const canScreen = can && "getDisplayMedia" in navigator.mediaDevices;
  if (!can) {
    element("cannot").hidden = false;
    form.hidden = true;
    return;
  }
  if (!canScreen) {
    for (const box of form.querySelectorAll<HTMLElement>("[data-screen]")) box.hidden = true;
    (form.querySelector("input[name=what][value=camera]") as HTMLInputElement).checked = true;
  }
  go.disabled = false;

  const say = (text: string) => (said.textContent = text);
  let leaving = true; // leaving the page loses nothing
  addEventListener("beforeunload", (e) => {
    if (!leaving) e.preventDefault();
  });

  const type = ["video/webm;codecs=vp8,opus", "video/webm", "video/mp4"].find((t) => MediaRecorder.isTypeSupported(t));

  copy.addEventListener("click", async () => {
    if (await toClipboard(address.href)) copied();
  });
  function copied() {
    const label = copy.querySelector("span")!;
    label.textContent = words.copied!;
    setTimeout(() => (label.textContent = words.copy!), 2500);
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    go.disabled = true;
    const what = new FormData(form).get("what");
    let stage: Stage;
    try {
      stage = await open({ screen: what !== "camera", camera: what !== "screen", microphone: checked("microphone"), sound: checked("sound") });
    } catch (error) {
      const name = (error as Error).name;
      problem.textContent = name === "NotAllowedError" ? words.denied! : name === "NotFoundError" ? words.missing! : words.failed!;
      go.disabled = false;
      return;
    }
    try {
      const made = await create();
      await record(stage, made);
    } catch (error) {
      stage.stop();
      problem.textContent = (error as Error).message;
      form.hidden = false;
      stageBox.hidden = true;
      go.disabled = false;
      leaving = true;
    }
  });

  type Made = { id: string; resume: string; share: string };

  async function create(): Promise<Made> {
    const title = (form.elements.namedItem("title") as HTMLInputElement).value.trim() || words.untitled + " " + new Date().toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    const privacy = (form.elements.namedItem("privacy") as HTMLSelectElement).value;
    let answer: Response;
    try {
      answer = await fetch("/app/upload", { method: "POST", body: new URLSearchParams({ csrf, privacy, title, recording: "true" }) });
    } catch {
      throw new Error(words.away);
    }
    if (answer.redirected) {
      location.assign("/app/sign-in?next=/app/record");
      throw new Error(words.away);
    }
    const made = await answer.json().catch(() => ({}));
    if (!answer.ok || !made.resume) throw new Error(made.error ?? words.away);
    return made;
  }

  async function record(stage: Stage, made: Made) {
    form.hidden = true;
    stageBox.hidden = false;
    leaving = false;
    address.href = address.textContent = made.share;
    share.hidden = false;
    preview.srcObject = stage.stream;
    void preview.play().catch(() => {});

    for (let n = 3; n > 0; n--) {
      count.textContent = String(n);
      await pause(1000);
    }
    count.textContent = "";

    const recorder = new MediaRecorder(stage.stream, { mimeType: type, videoBitsPerSecond: 2_500_000, audioBitsPerSecond: 128_000 });
    const framer = new Framer(type === "video/mp4");
    let offline = false;
    const session = new Session(made.resume, (yes) => {
      if (offline === !yes) return;
      offline = !yes;
      say(offline ? words.offline! : recorder.state === "paused" ? words.paused! : words.recording!);
    });
    const sent = session.run();

    let last = performance.now();
    let order = Promise.resolve(); // reading a blob takes a moment, and the order of blobs must not change
    recorder.addEventListener("dataavailable", (event) => {
      order = order.then(async () => {
        if (event.data.size) framer.add(new Uint8Array(await event.data.arrayBuffer()));
        const whole = framer.full();
        if (whole) session.add(whole);
        if (performance.now() - last < apart && recorder.state === "recording") return;
        if (recorder.state === "inactive") return; // the last part is sent without padding
        const part = framer.filled();
        if (part) {
          session.add(part);
          last = performance.now();
        }
      });
    });

    let length = 0; // ms recorded before the last pause
    let since = performance.now();
    const now = () => length + (recorder.state === "recording" ? performance.now() - since : 0);
    const tick = setInterval(() => {
      const seconds = Math.floor(now() / 1000);
      clock.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
      if (performance.now() - last > alive) {
        const part = framer.filled();
        if (part) {
          session.add(part);
          last = performance.now();
        }
      }
    }, 250);

    hold.onclick = () => {
      if (recorder.state === "recording") {
        length = now();
        recorder.requestData();
        recorder.pause();
        last = performance.now();
        hold.textContent = words.resume!;
        say(words.paused!);
      } else if (recorder.state === "paused") {
        recorder.resume();
        since = performance.now();
        hold.textContent = words.pause!;
        say(words.recording!);
      }
    };

    const stopped = new Promise<void>((done) => recorder.addEventListener("stop", () => done(), { once: true }));
    const end = () => recorder.state !== "inactive" && recorder.stop();
    stop.onclick = () => {
      end();
      void toClipboard(made.share).then((yes) => yes && copied()); // browsers allow this only right after the click
    };
    void stage.ended.then(end);
    let dropped = false;
    discard.onclick = () => {
      if (!confirm(words.really)) return;
      dropped = true;
      end();
    };
    // Storage has closed the file or rejects more bytes, so stop recording.
    let early = "";
    void sent.then((outcome) => {
      if (recorder.state === "inactive") return;
      early = outcome === "ended" ? words.ended! : words.refused!;
      end();
    });

    recorder.start(1000);
    since = performance.now();
    say(words.recording!);
    for (const b of [hold, stop, discard]) b.hidden = false;
    stop.focus();

    await stopped;
    await order;
    clearInterval(tick);
    stage.stop();
    preview.srcObject = null;
    preview.hidden = true;
    for (const b of [hold, stop, discard]) b.hidden = true;

    if (dropped) {
      session.drop();
      await fetch(`/app/videos/${encodeURIComponent(made.id)}/delete`, { method: "POST", body: new URLSearchParams({ csrf }) }).catch(() => {});
      leaving = true;
      return location.assign("/app/record");
    }
    (next.querySelector("a") as HTMLAnchorElement).href = "/app/videos/" + encodeURIComponent(made.id);
    next.hidden = false;
    if (!early) {
      session.finish(framer.rest());
      say(words.sending!);
      const outcome = await sent;
      if (outcome === "refused") early = words.refused!;
      if (outcome === "ended") early = words.ended!;
    }
    leaving = true;
    if (early) {
      problem.textContent = early;
      say(early);
      return;
    }
    say(words.processing!);
    await follow(made.id);
  }

  async function follow(id: string) {
    for (let tries = 0; tries < 900; tries++) {
      await pause(tries < 60 ? 500 : 3000);
      const answer = await fetch(`/app/videos/${encodeURIComponent(id)}/status`, { headers: { Accept: "application/json" } }).catch(() => undefined);
      if (!answer?.ok || answer.redirected) continue;
      const now = await answer.json();
      if (now.status === "ready") return say(words.ready!);
      if (now.status === "failed") return say(words.broken!);
    }
  }
}

async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not allowed: the address is on the page
  }
}
