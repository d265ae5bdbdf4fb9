// Uploads the chosen files directly to storage, one after the other, and in parts if storage
// supports that. The browser stores unfinished uploads, including the file if it is not too
// large. After a reload, such an upload resumes automatically. Other uploads resume when the
// person chooses the same file again.

import { forgetFile, keepFile, keptFile } from "./files";

type Note = {
  id: string; name: string; size: number; modified: number;
  put: string; resume: string; share: string;
  sent: number; whole: boolean; at: number;
};

const place = document.querySelector<HTMLElement>("#upload");
if (place) start(place);

function start(place: HTMLElement) {
  const named = <T extends HTMLElement>(name: string) => place.querySelector<T>(`[name="${name}"]`)!;
  const words = document.getElementById("words")!.dataset as Record<string, string>;
  const list = document.getElementById("uploads")!;
  const said = document.getElementById("said")!;
  const problem = place.querySelector("[data-problem]")!;
  const input = named<HTMLInputElement>("video");
  const csrf = named<HTMLInputElement>("csrf").value;
  const store = "linkreel-uploads:" + place.dataset.account;
  const part = 8 << 20; // storage requires multiples of 256 KiB
  const life = 6 * 24 * 3600e3; // storage removes an unfinished upload after a week
  input.disabled = false;

  // Notes about unfinished uploads. Two tabs may write them, so each change first reads the
// stored notes.
  const read = (): Note[] => {
    try {
      return (JSON.parse(localStorage.getItem(store) ?? "[]") as Note[]).filter((n) => Date.now() - n.at < life);
    } catch {
      return [];
    }
  };
  const write = (notes: Note[]) => {
    try {
      localStorage.setItem(store, JSON.stringify(notes));
    } catch {
      /* full or forbidden: this upload works but cannot be resumed */
    }
  };
  const keep = (note: Note) => write([...read().filter((n) => n.id !== note.id), note]);
  const forget = (id: string) => {
    write(read().filter((n) => n.id !== id));
    forgetFile(id);
  };

  type Row = { note?: Note; file?: File; say: (text: string) => void; bar: HTMLProgressElement; actions: HTMLElement; item: HTMLElement; stop?: () => void };
  let instead: Row | undefined; // a failed video that the next chosen file replaces
  const rows: Row[] = [];
  const queue: Row[] = [];
  let busy = false;

  function make<K extends keyof HTMLElementTagNameMap>(tag: K, className: string, text = ""): HTMLElementTagNameMap[K] {
    const element = document.createElement(tag);
    element.className = className;
    element.textContent = text;
    return element;
  }

  function addRow(name: string): Row {
    const item = make("li", "");
    const grow = make("div", "grow");
    const title = make("div", "title", name);
    const text = make("div", "muted");
    const bar = make("progress", "");
    bar.max = 100;
    bar.value = 0;
    bar.setAttribute("aria-label", name);
    grow.append(title, text, bar);
    const actions = make("div", "row");
    item.append(grow, actions);
    list.append(item);
    list.hidden = false;
    const row: Row = { item, bar, actions, say: (t) => (text.textContent = t) };
    rows.push(row);
    return row;
  }

  function button(row: Row, label: string, press: () => void) {
    const b = make("button", "quiet small", label);
    b.type = "button";
    b.append(make("span", "hidden", " " + row.bar.getAttribute("aria-label")));
    b.addEventListener("click", press);
    row.actions.append(b);
    return b;
  }

  const announce = (row: Row, text: string) => {
    row.say(text);
    said.textContent = row.bar.getAttribute("aria-label") + ": " + text;
  };

  // A row that is not uploading gets a button that discards it and also deletes the empty
// video.
  function idle(row: Row) {
    row.actions.replaceChildren();
    button(row, words.forget, async () => {
      const note = row.note;
      if (note) {
        forget(note.id);
        await fetch(`/app/videos/${encodeURIComponent(note.id)}/delete`, { method: "POST", body: new URLSearchParams({ csrf }) }).catch(() => {});
      }
      row.item.remove();
      rows.splice(rows.indexOf(row), 1);
      input.focus();
    });
  }

  // The file is complete, so people can already share the address.
  function shared(row: Row) {
    const note = row.note!;
    row.bar.value = 100;
    row.actions.replaceChildren();
    const open = make("a", "button quiet small", words.open);
    open.href = "/app/videos/" + encodeURIComponent(note.id);
    const copy = button(row, words.copy, async () => {
      try {
        await navigator.clipboard.writeText(note.share);
        copy.firstChild!.textContent = words.copied;
        setTimeout(() => (copy.firstChild!.textContent = words.copy), 2000);
      } catch {
        /* not allowed: the page of the video shows the address */
      }
    });
    row.actions.prepend(open);
    announce(row, words.processing);
    follow(row);
  }

  async function follow(row: Row) {
    const note = row.note!;
    for (let tries = 0; tries < 600; tries++) {
      await pause(document.hidden ? 15000 : 3000);
      let answer: Response;
      try {
        answer = await fetch(`/app/videos/${encodeURIComponent(note.id)}/status`, { headers: { Accept: "application/json" } });
      } catch {
        continue;
      }
      if (answer.status === 404) {
        forget(note.id);
        return announce(row, words.gone);
      }
      if (!answer.ok || answer.redirected) continue;
      const now = await answer.json();
      if (now.status === "processing") {
        row.bar.value = now.progress;
        row.say(`${now.text} ${now.progress} %`);
      } else if (now.status === "failed") {
        row.bar.hidden = true;
        forget(note.id);
        announce(row, now.error || words.failed);
        return retry(row, now);
      } else if (now.status !== "uploading") {
        row.bar.hidden = true;
        forget(note.id);
        return announce(row, words.ready);
      }
    }
  }

  // A failed video accepts another file and keeps its share address.
  function retry(row: Row, now: { put?: string; resume?: string }) {
    if (!now.put) return;
    row.note = { ...row.note!, put: now.put, resume: now.resume ?? "", sent: 0, whole: false, at: Date.now() };
    button(row, words.retry, () => {
      instead = row;
      input.click();
    });
  }

  const pause = (ms: number) =>
    new Promise<void>((done) => {
      const timer = setTimeout(go, ms);
      addEventListener("online", go, { once: true });
      function go() {
        clearTimeout(timer);
        removeEventListener("online", go);
        done();
      }
    });

  type Answer = { status: number; range: string };

  // Use XMLHttpRequest, because fetch does not report the bytes sent. Status 0 means no
  // response.
  function send(row: Row, url: string, body: Blob | null, range: string, progress: (sent: number) => void): Promise<Answer> {
    return new Promise((done) => {
      const x = new XMLHttpRequest();
      x.open("PUT", url);
      if (range) x.setRequestHeader("Content-Range", range);
      x.upload.onprogress = (e) => progress(e.loaded);
      x.onload = () => done({ status: x.status, range: x.getResponseHeader("Range") ?? "" });
      x.onerror = x.ontimeout = () => done({ status: 0, range: "" });
      x.onabort = () => done({ status: -1, range: "" });
      row.stop = () => x.abort();
      x.send(body);
    });
  }

  const received = (range: string) => (/^bytes=0-(\d+)$/.test(range) ? Number(range.slice(8)) + 1 : 0);

  class Refused extends Error {}
  const stopped = new Error("stopped");

  async function begin(row: Row, file: File): Promise<Note> {
    if (row.note?.put && !row.note.size) {
      const note = { ...row.note, name: file.name, size: file.size, modified: file.lastModified };
      keep(note);
      keepFile(note.id, file);
      return note;
    }
    const known = read().find((n) => n.name === file.name && n.size === file.size && n.modified === file.lastModified);
    if (known) return known;
    const privacy = named<HTMLSelectElement>("privacy").value;
    let answer: Response;
    try {
      answer = await fetch("/app/upload", { method: "POST", body: new URLSearchParams({ csrf, privacy, title: file.name.replace(/\.[^.]*$/, "").slice(0, 500) }) });
    } catch {
      throw new Refused(words.away);
    }
    if (answer.redirected) {
      location.assign("/app/sign-in?next=/app/upload");
      throw stopped;
    }
    const made = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(made.error ?? words.away);
    const note: Note = { ...made, name: file.name, size: file.size, modified: file.lastModified, sent: 0, whole: false, at: Date.now() };
    keep(note);
    keepFile(note.id, file);
    return note;
  }

  const show = (row: Row, sent: number) => {
    const percent = row.note!.size ? Math.floor((100 * sent) / row.note!.size) : 100;
    row.bar.value = percent;
    row.say(`${words.sending} ${percent} %`);
  };

  // Sends the file until storage has all of it. At the start and after each failure, it
// queries storage for the offset.
  async function transfer(row: Row, file: File) {
    const note = row.note!;
    let failures = 0;
    let offset = -1; // unknown
    while (!note.whole) {
      let answer: Answer;
      if (!note.resume || !file.size) {
        answer = await send(row, note.put, file, "", (n) => show(row, n));
      } else if (offset < 0) {
        answer = await send(row, note.resume, null, `bytes */${file.size}`, () => {});
      } else {
        const from = offset;
        const to = Math.min(from + part, file.size);
        answer = await send(row, note.resume, file.slice(from, to), `bytes ${from}-${to - 1}/${file.size}`, (n) => show(row, from + n));
      }
      if (answer.status === -1) throw stopped;
      if (answer.status >= 200 && answer.status < 300) {
        note.whole = true;
      } else if (answer.status === 308) {
        const now = received(answer.range);
        if (now > offset) failures = 0;
        offset = now;
        note.sent = offset;
        show(row, offset);
      } else if (note.resume && (answer.status >= 400 && answer.status < 500 && answer.status !== 408 && answer.status !== 429 || !answer.status && offset < 0 && failures >= 2 && navigator.onLine)) {
        note.resume = ""; // this session cannot be resumed: send the file in one piece
        offset = -1;
        failures = 0;
      } else if (answer.status >= 400 && answer.status < 500 && answer.status !== 408 && answer.status !== 429) {
        throw new Refused(words.refused);
      } else {
        if (++failures > 60) throw new Refused(words.away);
        row.say(words.offline);
        await pause(Math.min(30000, 500 * 2 ** Math.min(failures, 6)));
        offset = -1;
      }
      keep(note);
    }
  }

  async function work() {
    if (busy) return;
    busy = true;
    for (let row = queue.shift(); row; row = queue.shift()) {
      const file = row.file!;
      try {
        row.actions.replaceChildren();
        button(row, words.stop, () => row.stop?.());
        row.say(words.sending);
        row.note = await begin(row, file);
        await transfer(row, file);
        shared(row);
      } catch (error) {
        announce(row, error instanceof Refused ? error.message : words.choose);
        idle(row);
      }
      row.stop = undefined;
      row.file = undefined;
    }
    busy = false;
  }

  function add(files: Iterable<File>) {
    problem.textContent = "";
    for (const file of files) {
      if (instead) {
        const row = instead;
        instead = undefined;
        row.note!.size = 0; // the size of the next file is not yet known
        row.file = file;
        row.bar.hidden = false;
        row.say(words.waiting);
        queue.push(row);
        continue;
      }
      const same = (r: Row) => r.note?.name === file.name && r.note.size === file.size && r.note.modified === file.lastModified && !r.note.whole;
      if (rows.some((r) => r.file?.name === file.name && r.file.size === file.size && r.file.lastModified === file.lastModified)) continue;
      const row = rows.find(same) ?? addRow(file.name);
      row.file = file;
      row.bar.hidden = false;
      row.say(words.waiting);
      queue.push(row);
    }
    void work();
  }

  input.addEventListener("change", () => {
    add([...(input.files ?? [])]);
    input.value = "";
  });
  const drop = place.querySelector("[data-drop]")!;
  const carriesFiles = (e: DragEvent) => e.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (e) => {
    if (!carriesFiles(e)) return;
    e.preventDefault();
    drop.classList.add("over");
  });
  addEventListener("dragleave", (e) => e.relatedTarget ?? drop.classList.remove("over"));
  addEventListener("drop", (e) => {
    if (!carriesFiles(e)) return;
    e.preventDefault();
    drop.classList.remove("over");
    add([...e.dataTransfer!.files]);
  });
  addEventListener("beforeunload", (e) => {
    if (busy) e.preventDefault();
  });

  // Show the unfinished uploads of earlier visits.
  for (const note of read()) {
    const row = addRow(note.name);
    row.note = note;
    if (note.whole) {
      shared(row);
      continue;
    }
    row.bar.value = note.size ? Math.floor((100 * note.sent) / note.size) : 0;
    row.say(words.again);
    idle(row);
    void keptFile(note.id).then((file) => {
      if (!file || row.file || !rows.includes(row)) return;
      row.file = file;
      queue.push(row);
      void work();
    });
  }

  // The page of a failed video links to this page.
  const failed = new URLSearchParams(location.search).get("video");
  if (failed && !rows.some((r) => r.note?.id === failed)) {
    void fetch(`/app/videos/${encodeURIComponent(failed)}/status`, { headers: { Accept: "application/json" } })
      .then((answer) => (answer.ok && !answer.redirected ? answer.json() : undefined))
      .then((now) => {
        if (now?.status !== "failed") return;
        const row = addRow(now.name);
        row.note = { id: failed, name: now.name, size: 0, modified: 0, put: now.put, resume: now.resume, share: now.share, sent: 0, whole: false, at: Date.now() };
        row.bar.hidden = true;
        row.say(now.error || words.failed);
        retry(row, now);
      })
      .catch(() => {});
  }
}
